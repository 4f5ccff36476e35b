"""Tables [[query]]: what is read, what is refused, and what `mpijoin check` says."""

import pyarrow as pa
import pytest

from mpijoin.config.check import load_and_resolve, resolve
from mpijoin.config.describe import describe
from mpijoin.config.dump import dump_job
from mpijoin.config.load import load_job
from mpijoin.errors import JobError

TABLE = pa.table({"ts": pa.array([1], pa.int64()), "key": [1], "price": [1.5], "text": ["x"]})
STREAM = {"table": TABLE, "time_unit": "ms", "window": "10 s"}
SIDES = {"left": STREAM, "right": STREAM}
NEAR = {"name": "near", "windows": {"left": "1 s"}, "where": "left.price > right.price"}


def faults_of(*queries, **others):
    with pytest.raises(JobError) as caught:
        resolve(load_job({**SIDES, "query": list(queries), **others}))
    return caught.value.faults


def test_each_query_is_a_job_of_its_own_with_the_windows_that_it_asks_for():
    job = load_job({**SIDES, "query": [NEAR, {"name": "rest", "type": "full", "results": "count"}]})
    near, rest = job.each
    assert [stream.window_ns for stream in near.streams] == [10**9, 10**10]
    assert [stream.window_ns for stream in rest.streams] == [10**10, 10**10]
    assert near.join.where == NEAR["where"] and rest.join.type == "full" and not near.queries
    assert (near.output.results, rest.output.results) == ("parquet", "count")
    assert job.alone == (0, 1) and near.alone == () and job.names == ("near", "rest")


def test_a_job_without_queries_is_its_own():
    job = load_job({**SIDES, "join": {"type": "left"}})
    assert job.each == (job,) and job.names == () and job.alone == (0,)


def test_a_job_is_written_and_read_with_its_queries(tmp_path):
    sides = {name: {**STREAM, "kind": "synthetic", "tuples": 1} for name in ("left", "right")}
    for side in sides.values():
        del side["table"], side["time_unit"]
    queries = [{"name": "a-1", "windows": {"right": "0 s"}, "reduce": {"n": "count()"}}, {"name": "b", "type": "semi"}]
    job = load_job({**sides, "query": queries, "output": {"path": str(tmp_path / "run")}})
    (tmp_path / "job.toml").write_text(dump_job(job))
    assert load_job(tmp_path / "job.toml") == job
    other = load_job(tmp_path / "job.toml", ["query.b.type=anti", "query.a-1.results=count"])
    assert [one.join.type for one in other.each] == ["inner", "anti"] and other.queries[0].results == "count"


def test_in_python_queries_may_come_by_name():
    own = {key: value for key, value in NEAR.items() if key != "name"}
    assert load_job({**SIDES, "query": {"near": own}}) == load_job({**SIDES, "query": [NEAR]})


def test_columns_that_any_query_needs_are_carried():
    queries = [{"name": "a", "columns": ["key"], "where": "left.price > 1"}, {"name": "b", "columns": ["right_text"]}]
    left, right = resolve(load_job({**SIDES, "query": queries})).streams
    assert [column.name for column in left.payload] == ["price"]
    assert [column.name for column in right.payload] == ["text"]


@pytest.mark.parametrize(
    "queries, fault",
    [
        ([{"type": "left"}], '[[query]] name: query 1: missing, wanted what its results are called, such as "near"'),
        (
            [{"name": "../a"}],
            '[[query]] name: query 1: got "../a", wanted letters, digits, _ and -, 64 of them at most',
        ),
        (
            [{"name": "near"}, {"name": "NEAR"}],
            '[[query]] name: query 2: got "NEAR" twice, wanted names that differ in more than case',
        ),
        ([{"name": f"q{at}"} for at in range(7)], "[[query]]: got 7 queries, wanted 6 of them at most"),
        (
            [{"name": "near", "windows": {"left": "11 s"}}],
            '[query.near] windows: left: got "11 s", wanted at most the window of the stream, which is "10 s"',
        ),
        (
            [{"name": "near", "windows": {"left": "unbounded"}}],
            '[query.near] windows: left: got "unbounded", wanted at most the window of the stream, which is "10 s"',
        ),
        ([{"name": "near", "windows": {"up": "1 s"}}], '[query.near] windows: no stream "up", there are left right'),
        (
            [{"name": "near", "windows": "1 s"}],
            '[query.near] windows: got "1 s", wanted a table of stream = window, such as {left = "5 s"}',
        ),
        ([{"name": "near", "kind": "left"}], "[query.near] kind: no such field"),
        (
            [{"name": "near", "type": "outer"}],
            '[query.near] type: got "outer", wanted "inner" or "left" or "right" or "full" or "semi" or "anti"',
        ),
        ([{"name": "near", "results": "csv"}], '[query.near] results: got "csv", wanted "as output" or "count"'),
        ([{"name": "near", "columns": ["no"]}], '[query.near] columns: no column "no", results have key, left_time'),
        ([{"name": "near", "match": "last", "type": "semi"}], "[query.near] match, type: got"),
        ([{"name": "near", "reduce": {"n": "median(right.price)"}}], "[query.near] reduce: n = "),
        ([{"name": "near", "where": "left.prise > 1"}], '[query.near] where: "left.prise > 1": '),
    ],
)
def test_what_is_wrong_with_a_query_is_said_of_it(queries, fault):
    (told,) = faults_of(*queries)
    assert told.startswith(fault)


def test_queries_stand_beside_no_join_aggregate_third_stream_or_columns():
    told = faults_of(NEAR, join={"type": "left"}, output={"columns": ["key"]})
    assert [one.partition(":")[0] for one in told] == ["[join]", "[output] columns"]
    assert faults_of(NEAR, memory={"spill": "generations"})[0].startswith("[memory] spill: ")
    three = {"streams": dict.fromkeys(("a", "b", "c"), STREAM), "query": [{"name": "near"}]}
    with pytest.raises(JobError, match=r"\[\[query\]\]: got 3 streams, wanted two"):
        resolve(load_job(three))
    assert faults_of("near") == ["[[query]]: got ['near'], wanted a table [[query]] of each query"]


def test_an_override_of_no_query_names_those_that_there_are():
    with pytest.raises(JobError, match="no such query, there are near"):
        load_job({**SIDES, "query": [NEAR]}, ["query.far.type=left"])


def test_check_tells_what_each_query_finds_and_writes(tmp_path):
    sides = "".join(f'[{name}]\nkind = "synthetic"\ntuples = 1\nwindow = "10 s"\n' for name in ("left", "right"))
    query = '[[query]]\nname = "near"\ntype = "anti"\nwindows = {left = "1 s"}\nwhere = "key > 1"\n'
    other = '[[query]]\nname = "all"\nresults = "count"\n'
    (tmp_path / "job.toml").write_text(f'{sides}{query}{other}[output]\npath = "o"\n')
    lines = describe(*load_and_resolve(tmp_path / "job.toml")).splitlines()
    at = lines.index("query   near")
    assert lines[at + 1] == "  window  left 1 s" and lines[at + 3] == "  where   key > 1"
    assert lines[at + 2].startswith("  join    anti: each row of left that has no partner in right")
    assert lines[at + 4 :] == ["  output  parquet: key, left_time, left_row", "query   all", "  output  count", "ok"]
