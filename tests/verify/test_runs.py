"""Runs of the engine itself that verify must agree with: inputs at the edges of what a stream may hold."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mpijoin
from mpijoin.errors import EXIT_BAD_JOB, MpijoinError
from mpijoin.verify import verify

ISO = "ts,key,seen\n2024-05-01T00:00:00,7,00:00:01\n2024-05-01T00:00:09,7,00:00:02\n2024-05-01T00:00:04,7,00:00:03\n"


def joined(folder, left, right, **sections):
    """(summary, report of verify) of a real run on one slave."""
    output = {"path": str(folder / "run"), **sections.pop("output", {})}
    job = {"left": left, "right": right, "memory": {"limit": "64 MiB"}, "output": output, **sections}
    return mpijoin.run(job, slaves=1).summary, verify(folder / "run")


@pytest.mark.parametrize("results", ["parquet", "collect", "count"])
def test_one_late_row_of_a_csv_file_with_ordinary_times(tmp_path, results):
    (tmp_path / "picks.csv").write_text(ISO)
    side = {"path": str(tmp_path / "picks.csv"), "time": "ts", "key": "key", "window": "5 s"}
    summary, report = joined(tmp_path, side, side, output={"results": results})
    assert summary["streams"]["left"]["late"] == 1 and summary["results"] == 2 and report.ok, report.text()
    late = pq.read_table(tmp_path / "run" / "late" / "left.parquet")
    assert late["row"].to_pylist() == [2] and late.schema.field("ts").type == pa.timestamp("ms")
    assert ("seen" in late.column_names) == (results != "count")


@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.timestamp("s", "UTC"), pa.date64()], ids=str)
def test_one_late_row_of_what_parquet_does_not_know(tmp_path, kind):
    time = kind if pa.types.is_timestamp(kind) else pa.int64()
    days = pa.array([0, 1, 1], pa.int32()).cast(pa.date32())
    table = pa.table(
        {"ts": pa.array([10, 20, 15]).cast(time), "key": days.cast(kind), "clock": pa.array([1, 2, 3], pa.time32("s"))}
    )
    with pa.OSFile(str(tmp_path / "l.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    side = {"path": str(tmp_path / "l.arrow"), "time": "ts", "key": "key", "window": "5 s"}
    side |= {} if pa.types.is_timestamp(kind) else {"time_unit": "s"}
    summary, report = joined(tmp_path, side, side)
    assert summary["streams"]["right"]["late"] == 1 and summary["results"] == 2 and report.ok, report.text()


@pytest.mark.parametrize("late", [False, True])
def test_seconds_that_are_no_milliseconds_are_named(tmp_path, late):
    times = [0, 2**63 - 1, 0] if late else [0, 1]
    far = pa.array([2**63 - 1] * len(times)).cast(pa.timestamp("s", "Europe/Berlin"))
    with pa.OSFile(str(tmp_path / "l.arrow"), "wb") as file:
        table = pa.table({"ts": pa.array(times).cast(pa.timestamp("s")), "key": [1] * len(times), "far": far})
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    side = {"path": str(tmp_path / "l.arrow"), "window": "5 s", "columns": [] if late else ["far"]}
    said = f"column {'watermark' if late else 'left_far, right_far'}: .* wanted times that 64 bits hold as milliseconds"
    with pytest.raises(MpijoinError, match=said) as raised:
        mpijoin.run({"left": side, "right": side, "output": {"path": str(tmp_path / "run")}})
    assert raised.value.exit_code == EXIT_BAD_JOB


@pytest.mark.parametrize("lateness", ["0 s", "50 ms", "2 s"])
def test_a_synthetic_stream_with_late_rows(tmp_path, lateness):
    source = {"kind": "synthetic", "tuples": 3000, "rate": 1000, "domain": 50, "payload_bytes": 12, "window": "100 ms"}
    left, right = ({**source, "seed": seed, "disorder": "200 ms", "lateness": lateness} for seed in (1, 2))
    summary, report = joined(tmp_path, left, right)
    assert (summary["streams"]["left"]["late"] > 100) == (lateness != "2 s") and report.ok, report.text()


def test_the_lowest_time_before_a_null_one(tmp_path):
    table = pa.table({"ts": pa.array([-(2**63), None, -(2**63) + 1, None]), "key": [1, 1, 1, 1]})
    pq.write_table(table, tmp_path / "l.parquet")
    side = {"path": str(tmp_path / "l.parquet"), "time": "ts", "time_unit": "ns", "key": "key", "window": "1 ns"}
    summary, report = joined(tmp_path, side, side)
    assert summary["streams"]["left"]["late"] == 2 and summary["results"] == 4 and report.ok, report.text()
    marks = pq.read_table(tmp_path / "run" / "late" / "left.parquet")["watermark"].to_pylist()
    assert marks == [None, -(2**63) + 1]


@pytest.mark.parametrize("history, emit", [("1 s", "row"), ("3 rows", "1 s")])
def test_an_aggregate_of_the_lowest_times(tmp_path, history, emit):
    table = pa.table({"ts": pa.array([-(2**63), -(2**63) + 1, 0, 2**63 - 1]), "key": [1, 1, 1, 1]})
    pq.write_table(table, tmp_path / "l.parquet")
    stream = {"path": str(tmp_path / "l.parquet"), "time": "ts", "time_unit": "ns", "key": "key"}
    aggregate = {"history": history, "columns": {"n": "count()"}, "emit": emit}
    output = {"path": str(tmp_path / "run")}
    ran = mpijoin.run({"streams": {"calls": stream}, "aggregate": aggregate, "output": output})
    report = verify(tmp_path / "run")
    assert ran.results == (4 if emit == "row" else 3) and report.ok, report.text()


def test_csv_files_with_types_of_the_job_and_values_over_several_lines(tmp_path):
    left = "ts,key,note\n1,007,\"two\nlines\"\n2,7,\n3,8," + "x" * 3_000_000 + "\n"
    with gzip.open(tmp_path / "l.csv.gz", "wt") as file:
        file.write(left)
    (tmp_path / "r.csv").write_text("ts,key\n1,7\n2,8\n")
    side = {"time": "ts", "time_unit": "s", "key": "key", "window": "5 s"}
    left, right = (
        {**side, "path": str(tmp_path / "l.csv.gz")},
        {**side, "path": str(tmp_path / "r.csv"), "types": {"key": "string"}},
    )
    summary, report = joined(tmp_path / "strings", left, right)
    assert summary["results"] == 2 and report.ok, report.text()
    numbers = {"types": {"key": "int64"}}
    summary, report = joined(tmp_path / "numbers", {**left, **numbers}, {**right, **numbers})
    assert summary["results"] == 3 and report.ok, report.text()
    assert pq.read_table(tmp_path / "numbers" / "run" / "results")["left_note"].to_pylist()[0] in (
        "two\nlines",
        "",
        "x" * 3_000_000,
    )


NAMES = (None, "", "a", "ab", "b", "é", "a long name, " * 50, "a long name, " * 50 + "a")


def nulls_and_disorder(seed, rows, key):
    """A stream with null keys and times, late rows, and other columns that may be null."""
    random = np.random.default_rng(seed)
    times = np.cumsum(random.integers(0, 5, rows)) - 60 * (random.random(rows) < 0.05)
    keys = [None if random.random() < 0.05 else int(number) for number in random.integers(0, rows // 8, rows)]
    return pa.table({
        "ts": pa.array([None if random.random() < 0.01 else time for time in times.tolist()], pa.int64()),
        "key": pa.array(keys, pa.int64()).cast(key),
        "number": pa.array([None if random.random() < 0.2 else 0.5 * row for row in range(rows)]),
        "flag": pa.array((random.random(rows) < 0.5).tolist()),
        "text": pa.array([None if random.random() < 0.2 else "x" * int(random.integers(0, 40)) for _ in range(rows)]),
        "name": pa.array([NAMES[int(at)] for at in random.integers(0, len(NAMES), rows)], pa.string()),
        "id": pa.array([None if at % 7 == 0 else 2**63 + int(at) for at in random.integers(-9, 9, rows)], pa.uint64()),
        "day": pa.array(random.integers(-5, 5, rows), pa.int32()).view(pa.date32()),
        "seen": pa.array(random.integers(-600, 600, rows) * 10**3 ** (seed + 1)).view(
            pa.timestamp(("ms", "us")[seed], "UTC")
        ),
        "clock": pa.array(random.integers(0, 86400, rows), pa.int32()).view(pa.time32("s")),
    })  # fmt: skip


TYPES = ("left", "right", "full", "semi", "anti")


@pytest.fixture(scope="module")
def streams_of(tmp_path_factory):
    """Key type -> the sections of two streams."""
    folder, made = tmp_path_factory.mktemp("typed"), {}
    for key in (pa.int64(), pa.string()):
        for seed, (name, window) in enumerate((("left", "40 s"), ("right", "25 s"))):
            path = folder / f"{name}-{key}.parquet"
            pq.write_table(nulls_and_disorder(seed, 1000, key), path)
            own = {"path": str(path), "time_unit": "s", "window": window, "lateness": "30 s"}
            made.setdefault(str(key), []).append(own)
    return made


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("key, results", [("int64", "parquet"), ("string", "collect"), ("int64", "count")])
def test_each_type_of_join_has_the_rows_and_nulls_of_sql(streams_of, tmp_path, kind, key, results):
    tuning = {"result_buffer": 16, "block": "512 B", "theta": "2 KB"}
    summary, report = joined(
        tmp_path, *streams_of[key], join={"type": kind}, output={"results": results}, tuning=tuning
    )
    assert report.ok, report.text()
    assert summary["streams"]["left"]["late"] > 5 and summary["results"] > 20


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("results, key", [("parquet", ["key", "id"]), ("collect", ["name", "id", "flag"])])
def test_each_column_of_a_key_has_its_own_nulls(streams_of, tmp_path, kind, results, key):
    sides = [{**side, "key": key, "window": "400 s"} for side in streams_of["int64"]]
    summary, report = joined(tmp_path, *sides, join={"type": kind}, output={"results": results})
    assert report.ok and summary["results"] > 20, report.text()
    table = pq.read_table(tmp_path / "run" / "results")
    nulls = {tuple(row[f"key_{name}"] is None for name in key) for row in table.to_pylist()}
    assert kind == "semi" or {(False,) * len(key), (False, True, False)[: len(key)]} <= nulls


@pytest.mark.parametrize("kind", TYPES)
def test_a_typed_result_that_is_lost_or_wrong_is_noticed(streams_of, tmp_path, kind):
    _, report = joined(tmp_path, *streams_of["int64"], join={"type": kind})
    assert report.ok, report.text()
    part = next((tmp_path / "run" / "results").glob("*.parquet"))
    table, name = pq.read_table(part), "right_number" if kind == "right" else "left_number"
    numbers = table[name].to_pylist()
    alone = "right_row" if kind == "right" else "left_row"
    row = next(i for i in range(len(table)) if table[alone][i].as_py() is not None and numbers[i] is not None)
    wrong = table.set_column(table.column_names.index(name), name, [[*numbers[:row], -1.0, *numbers[row + 1 :]]])
    for damaged, told in ((table.slice(1), "results"), (wrong, f"column {name} differs in 1 row")):
        pq.write_table(damaged.cast(table.schema), part)
        report = verify(tmp_path / "run")
        assert not report.ok and told in report.text(), report.text()


CONDITIONS = (
    "left.number > right.number",
    "right.time - left.time >= '5 s' or left.flag",
    "abs(left.number - right.number) < 100.5 and right.time > left.time and not right.flag",
    "left.name > right.name and left.seen - right.seen < '4 min' or key == 7",
    "left.seen >= '1969-12-31T23:59:00Z' and left.day <= right.day and (left.id > right.id or key in ('7', '8'))",
)


@pytest.mark.parametrize(
    "kind, key, results, where",
    [
        ("inner", "int64", "parquet", 0), ("inner", "string", "count", 1), ("left", "int64", "parquet", 2),
        ("full", "string", "parquet", 0), ("semi", "int64", "count", 1), ("anti", "string", "collect", 2),
        ("full", "int64", "count", 3), ("inner", "string", "parquet", 4),
    ],
)  # fmt: skip
def test_only_pairs_for_which_the_condition_is_true_are_partners(streams_of, tmp_path, kind, key, results, where):
    """The columns that it needs travel, though the results do not show them."""
    output = {"results": results} if results == "count" else {"results": results, "columns": ["left_row", "left_time"]}
    join = {"type": kind, "where": CONDITIONS[where]}
    summary, report = joined(tmp_path, *streams_of[key], join=join, output=output, tuning={"result_buffer": 16})
    assert report.ok, report.text()
    others = {**join, "where": "true"}
    output = {"results": "count", "path": str(tmp_path / "o")}
    without, _ = joined(tmp_path, *streams_of[key], join=others, output=output)
    assert without["certificate"] != summary["certificate"]


@pytest.mark.parametrize("spill", ["generations", "rotate"])
def test_a_condition_on_strings_holds_for_rows_that_were_on_the_disk(streams_of, tmp_path, spill):
    sections = {
        "join": {"where": CONDITIONS[3]},
        "memory": {"limit": "300 KB", "spill": spill, "path": str(tmp_path)},
        "cluster": {"partitions": 4, "distribution_epoch": "20 s"},
        "tuning": {"block": "512 B"},
    }
    sides = [{**side, "window": "1000 s"} for side in streams_of["int64"]]
    summary, report = joined(tmp_path, *sides, **sections)
    assert report.ok and summary["results"] > 500, report.text()
    assert summary["memory"]["spills"] > 0


@pytest.mark.parametrize("key, where", [
    (["day"], "key >= '1970-01-01' and left.day < '1970-01-03'"),
    (["id"], "key > 9223372036854775809 or right.id == 9223372036854775807"),
    (["name", "day", "id"], "left.name >= 'ab' and right.day < '1970-01-02' or left.id < 9223372036854775808"),
])  # fmt: skip
def test_a_condition_may_name_keys_of_every_type(streams_of, tmp_path, key, where):
    sides = [{**side, "key": key, "window": "400 s"} for side in streams_of["int64"]]
    found = []
    for number, text in enumerate((where, "true")):
        output = {"path": str(tmp_path / str(number)), "results": "count"}
        found.append(mpijoin.run({"left": sides[0], "right": sides[1], "join": {"where": text}, "output": output}))
        report = verify(tmp_path / str(number))
        assert report.ok, report.text()
    assert 0 < found[0].results < found[1].results


def test_conditions_and_functions_name_columns_of_any_name(tmp_path):
    names, random = ("from", "event type", 'say "x"', "it's"), np.random.default_rng(3)
    for side in ("left", "right"):
        columns = {name: random.integers(0, 9, 300) for name in names}
        pq.write_table(pa.table({"ts": range(300), **columns}), tmp_path / f"{side}.parquet")
    own = {"time_unit": "s", "key": "it's", "window": "20 s"}
    sides = [{**own, "path": str(tmp_path / f"{side}.parquet")} for side in ("left", "right")]
    text = """left["from"] < right["event type"] and right['say "x"'] != left["it's"]"""
    asked = {"where": text, "reduce": {"most": """max(right['say "x"'] - left["event type"])"""}}
    for number, join in enumerate(({"where": text}, asked)):
        summary, report = joined(tmp_path / str(number), *sides, join=join, output={"results": "parquet"})
        assert report.ok and summary["results"] > 100, report.text()


@pytest.mark.parametrize("match", ["first", "last", "nearest"])
@pytest.mark.parametrize(
    "kind, key, results, where",
    [("inner", "int64", "parquet", None), ("left", "string", "collect", None), ("left", "int64", "parquet", 0),
     ("inner", "string", "count", 2)],
)  # fmt: skip
def test_each_row_has_the_partner_that_sql_finds(streams_of, tmp_path, match, kind, key, results, where):
    join = {"type": kind, "match": match, **({"where": CONDITIONS[where]} if where is not None else {})}
    tuning = {"result_buffer": 16, "block": "512 B", "theta": "2 KB"}
    sides = [{**side, "window": "400 s"} for side in streams_of[key]]
    summary, report = joined(tmp_path, *sides, join=join, output={"results": results}, tuning=tuning)
    assert report.ok, report.text()
    output = {"results": "count", "path": str(tmp_path / "o")}
    others, _ = joined(tmp_path, *sides, join={**join, "match": "all"}, output=output)
    assert 20 < summary["results"] < others["results"]
    if results != "count":
        part = next((tmp_path / "run" / "results").glob("*.parquet"))
        pq.write_table(pq.read_table(part).slice(1), part)
        assert not verify(tmp_path / "run").ok


FUNCTIONS = {
    "n": "count()", "known": "count(right.number)", "most": "max(right.number - left.number)",
    "total": "sum(right.number)", "mean": "mean(right.number)", "gap": "min(abs(right.time - left.time))",
    "newest": "max(right.time)", "a": "first(right.number)", "z": "last(right.number)",
    "spread": "sum(right.time - left.time)",
}  # fmt: skip
OTHERS = {
    "n": "count()", "names": "count(right.name)", "seen": "min(right.seen)", "later": "first(right.seen + '1 s')",
    "day": "max(right.day)", "days": "last(right.day - left.day)", "id": "max(right.id)", "clock": "first(right.clock)",
    "when": "arg_max(right.seen, right.number)", "which": "arg_min(right.id, right.day)",
}  # fmt: skip


@pytest.mark.parametrize(
    "kind, key, results, where, functions",
    [("inner", "int64", "parquet", None, FUNCTIONS), ("left", "string", "collect", None, OTHERS),
     ("left", "int64", "parquet", 3, OTHERS), ("inner", "string", "count", 2, FUNCTIONS)],
)  # fmt: skip
def test_what_is_worked_out_of_partners_is_what_sql_groups(
    streams_of, tmp_path, kind, key, results, where, functions
):
    join = {"type": kind, "reduce": functions, **({"where": CONDITIONS[where]} if where is not None else {})}
    tuning = {"result_buffer": 16, "block": "512 B", "theta": "2 KB"}
    sides = [{**side, "window": "400 s"} for side in streams_of[key]]
    summary, report = joined(tmp_path, *sides, join=join, output={"results": results}, tuning=tuning)
    assert report.ok and summary["results"] > 20, report.text()
    if results == "count":
        return
    part = next((tmp_path / "run" / "results").glob("*.parquet"))
    table = pq.read_table(part)
    for name in functions.keys() & {"n", "total", "gap", "newest", "seen", "day", "id", "when", "which"}:
        kind = {"total": pa.float64(), "day": pa.int32()}.get(name, pa.int64())
        plain = pa.uint64() if name in ("id", "which") else kind
        column = table[name].cast(plain).to_pylist()
        at = next(index for index, value in enumerate(column) if value is not None)
        column[at] += 1
        wrong = pa.array(column, plain).cast(table[name].type)
        pq.write_table(table.set_column(table.column_names.index(name), name, wrong), part)
        report = verify(tmp_path / "run")
        assert not report.ok and f"column {name} differs in 1 row" in report.text(), report.text()


@pytest.mark.parametrize("key", [pa.int64(), pa.string()], ids=str)
def test_null_keys_are_equal_to_nothing_though_their_rows_are_alike(tmp_path, key):
    """Such rows get a key that follows from their number, which is the same in both streams."""
    table = pa.table({"ts": pa.array(range(50), pa.int64()), "key": pa.array([None] * 49 + [7]).cast(key)})
    pq.write_table(table, tmp_path / "rows.parquet")
    side = {"path": str(tmp_path / "rows.parquet"), "time_unit": "s", "window": "5 s", "columns": []}
    summary, report = joined(tmp_path, side, side, join={"type": "full"})
    assert summary["results"] == 2 * 49 + 1 and report.ok, report.text()
