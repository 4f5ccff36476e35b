"""A run of several queries: what it writes, that verify and why know it, and that no query disturbs another."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mpijoin
from mpijoin.cli import main
from mpijoin.errors import JobError, OutputError
from mpijoin.partitioning.hashing import hash64
from mpijoin.report import write_report
from mpijoin.verify import verify

ROWS, NULL_EVERY = 1500, 25
# Many epochs, so that rows leave while others still look back at them, and different keys of the same hash.
SETTINGS = {
    "memory": {"limit": "64 MiB"}, "cluster": {"distribution_epoch": "2 s"}, "inject": {"hash_bits": 3},
}  # fmt: skip
# All kinds of queries, with windows of their own, on keys with nulls. "pairs" has what a job without [join] has.
QUERIES = {
    "pairs": {},
    "near": {
        "windows": {"left": "4 s", "right": "0 s"},
        "where": "left.v < right.v",
        "columns": ["left_row", "right_row"],
    },
    "alone": {"type": "full", "windows": {"left": "2 s"}},
    "as-of": {"type": "left", "match": "last", "windows": {"left": "0 s"}},
    "counts": {"windows": {"right": "3 s"}, "reduce": {"n": "count()", "best": "max(right.v)"}},
    "some": {"type": "semi", "where": "right.v is null", "results": "count"},
}


def rows_of(seed, is_text):
    """The word that stands for the null key of a row is a hash of the row's number, and here also one of the keys."""
    chance = np.random.default_rng(seed)
    words = np.array([hash64(row) for row in range(0, ROWS, NULL_EVERY)], np.uint64).view(np.int64).tolist()
    chosen = chance.integers(0, len(words), ROWS)
    keys = [None if row % NULL_EVERY == 0 else f"key {number}" if is_text else words[number]
            for row, number in enumerate(chosen.tolist())]  # fmt: skip
    values = pa.array(chance.integers(0, 50, ROWS), mask=chance.random(ROWS) < 0.1)
    return pa.table({"ts": np.arange(ROWS) // 4 - chance.integers(0, 3, ROWS), "key": keys, "v": values})


@pytest.fixture(scope="module", params=[False, True], ids=["integers", "text"])
def streams(request, tmp_path_factory):
    folder, how = tmp_path_factory.mktemp("inputs"), {"time_unit": "s", "lateness": "1 s"}
    streams = {}
    for seed, (name, window) in enumerate({"left": "20 s", "right": "10 s"}.items()):
        pq.write_table(rows_of(seed, request.param), folder / f"{name}.parquet")
        streams[name] = {"path": str(folder / f"{name}.parquet"), "window": window, **how}
    return streams


def asks(*names):
    return {"query": [{"name": name, **QUERIES[name]} for name in names or QUERIES], **SETTINGS}


@pytest.fixture(scope="module")
def run(streams, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    return mpijoin.run({**streams, **asks(), "output": {"path": str(path)}}, slaves=2)


def multiset(table):
    return sorted(map(repr, table.to_pylist()))


def test_each_query_has_what_a_run_of_its_own_finds(run, streams):
    for name, query in QUERIES.items():
        own = {side: {**stream, "window": query.get("windows", {}).get(side, stream["window"])}
               for side, stream in streams.items()}  # fmt: skip
        join = {field: query[field] for field in ("type", "where", "match", "reduce") if field in query}
        output = {field: query[field] for field in ("results", "columns") if field in query}
        alone = mpijoin.run({**own, **SETTINGS, "join": join, "output": output}, slaves=1)
        told = {"results": alone.results, "certificate": alone.summary["certificate"]}
        assert run.summary["queries"][name] == told, name
        if name != "some":
            assert multiset(run.table(name)) == multiset(alone.table()), name


def test_results_lie_in_a_folder_of_the_query_s_name(run):
    assert sorted(one.name for one in (run.path / "results").iterdir()) == sorted(QUERIES.keys() - {"some"})
    assert pq.read_table(run.path / "results" / "near").column_names == ["left_row", "right_row"]
    with pytest.raises(JobError, match='table: got query "no", wanted "pairs" or "near"'):
        run.table("no")
    with pytest.raises(OutputError, match='query "some" counted its results'):
        run.table("some")


def test_verify_agrees_with_each_query_and_names_the_one_that_was_damaged(run, tmp_path):
    report = verify(run.path)
    assert report.ok and report.results == run.results and report.certificate == run.summary["certificate"]
    assert sum(fact.startswith("query ") for fact in report.facts) == len(QUERIES)
    part = next((run.path / "results" / "as-of").glob("*.parquet"))
    whole, summary = part.read_bytes(), (run.path / "summary.json").read_text()
    try:
        table = pq.read_table(part)
        pq.write_table(table.slice(1), part)
        (damaged,) = verify(run.path).differences
        assert damaged.what.startswith("query as-of: ") and "1 missing and 0 unexpected" in damaged.what
        part.write_bytes(whole)
        told = json.loads(summary)
        told["queries"]["some"]["results"] += 1
        (run.path / "summary.json").write_text(json.dumps(told))
        (damaged,) = verify(run.path).differences
        assert damaged.what == "query some: summary.json: the results"
    finally:
        part.write_bytes(whole)
        (run.path / "summary.json").write_text(summary)


def test_why_asks_which_query_is_meant(run, capsys):
    row = run.table("counts")["left_row"][0].as_py()
    arguments = ["why", str(run.path), "--stream", "left", "--row", str(row)]
    assert main(arguments) == 2
    assert "--query: there are several queries, wanted one of pairs near alone" in capsys.readouterr().err
    assert main([*arguments, "--query", "counts"]) == 0
    assert "is one result, worked out of" in capsys.readouterr().out
    assert main([*arguments, "--query", "far"]) == 2


@pytest.mark.parametrize("names", [("as-of", "counts"), ("some",), ("alone", "alone-too", "near")])
def test_any_queries_may_stand_together(run, streams, names):
    """Also such that want no pairs, one alone, and one twice."""
    tables = [{"name": name, **QUERIES[name.removesuffix("-too")]} for name in names]
    other = mpijoin.run({**streams, **asks(), "query": tables}, slaves=2)
    wanted = {name: run.summary["queries"][name.removesuffix("-too")] for name in names}
    assert other.summary["queries"] == wanted
    for name in set(names) - {"some"}:
        assert multiset(other.table(name)) == multiset(run.table(name.removesuffix("-too")))


def test_the_report_tells_what_each_query_asked_and_found(run, tmp_path):
    write_report([run.path], tmp_path / "report")
    page = (tmp_path / "report" / "report.html").read_text()
    for name, told in run.summary["queries"].items():
        assert f">{name}</td>" in page and told["certificate"] in page
    functions = "inner, n = count(), best = max(right.v)"
    asked = ("left, last partner", functions, "left.v &lt; right.v", "left 4 s, right 0 s")
    assert [words for words in asked if f">{words}</td>" not in page] == []


def test_a_live_run_keeps_the_tables_of_its_queries(run, streams):
    with mpijoin.start({**streams, **asks("near", "as-of")}, slaves=1) as live:
        with pytest.raises(JobError, match="reader: the job has several queries"):
            live.reader()
        done = live.wait()
    assert multiset(done.table("as-of")) == multiset(run.table("as-of")) and done.table("near").num_rows > 0


def test_a_run_may_be_replaced_by_one_of_other_queries(streams, tmp_path):
    """No folder of a query that is gone stays, and a folder that no run made is not removed."""
    path = tmp_path / "run"
    job = {**streams, "output": {"path": str(path)}}
    mpijoin.run({**job, **asks("pairs", "near")}, slaves=1)
    done = mpijoin.run({**job, **asks("as-of")}, slaves=1, overwrite=True)
    assert [one.name for one in (path / "results").iterdir()] == ["as-of"] and verify(path).ok
    mpijoin.run({**job, "memory": {"limit": "64 MiB"}}, slaves=1, overwrite=True)
    assert all(one.suffix == ".parquet" for one in (path / "results").iterdir()) and done.results
    (path / "results" / "notes").mkdir()
    (path / "results" / "notes" / "mine.txt").write_text("x")
    with pytest.raises(JobError, match="results/notes/mine.txt"):
        mpijoin.run({**job, **asks("as-of")}, slaves=1, overwrite=True)


def test_one_query_shows_keys_that_are_null_in_part_beside_one_of_pairs(streams, tmp_path):
    sides = {name: {**side, "key": ["key", "v"], "columns": []} for name, side in streams.items()}
    tables = [{"name": "pairs"}, {"name": "alone", "type": "full"}, {"name": "left", "type": "left", "match": "last"}]
    done = mpijoin.run({**sides, "query": tables, **SETTINGS, "output": {"path": str(tmp_path / "run")}}, slaves=2)
    assert verify(tmp_path / "run").ok and done.table("pairs").num_rows > 10
    nulls = {(row["key_key"] is None, row["key_v"] is None) for row in done.table("alone").to_pylist()}
    assert len(nulls) == 4


def test_a_query_that_finds_nothing_has_a_file_with_its_columns(streams, tmp_path):
    tables = [{"name": "none", "where": "left.v > 1000"}, {"name": "all"}]
    done = mpijoin.run({**streams, "query": tables, "output": {"path": str(tmp_path / "run")}}, slaves=2)
    assert done.table("none").num_rows == 0 and done.table("none").column_names == done.table("all").column_names
    assert verify(tmp_path / "run").ok
