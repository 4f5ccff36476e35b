"""The streams of a job file: any number of them, of any names, and the short form of two."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mpijoin
from config_jobs import faults
from mpijoin.config.check import load_and_resolve, resolve
from mpijoin.config.describe import describe
from mpijoin.config.dump import dump_job
from mpijoin.config.job import STREAMS_MAX
from mpijoin.config.load import load_job
from mpijoin.data.results import result_columns, result_schema
from mpijoin.data.schema import FOREVER
from mpijoin.errors import JobError

PATH = {"path": "/rows.parquet"}


def names(job):
    return [stream.name for stream in job.streams]


def table(**columns):
    ts = pa.array([1, 2], pa.timestamp("ms"))
    return pa.table({"ts": ts, "key": [1, 2]} | {name: pa.array([None, None], kind) for name, kind in columns.items()})


def job_of(*given, **sections):
    """Of streams a, b, c ..., each a table or the fields of one."""
    streams = {name: one if isinstance(one, dict) else {"table": one} for name, one in zip("abcdefghij", given)}
    return load_job({"streams": streams, **sections})


def test_streams_come_in_the_order_of_the_file(tmp_path):
    path = tmp_path / "job.toml"
    tables = [f'[streams.{name}]\npath = "{name}.parquet"' for name in ("zeta", "P_1", "left", "2nd")]
    path.write_text("\n".join([*tables, '[output]\npath = "out"']))
    job = load_job(path)
    assert names(job) == ["zeta", "P_1", "left", "2nd"] and job.streams[1].source.path == str(tmp_path / "P_1.parquet")
    path.write_text(dump_job(job))
    assert load_job(path) == job


@pytest.mark.parametrize("count", [1, 2, 3, STREAMS_MAX])
def test_there_may_be_one_to_eight_streams(count):
    job = job_of(*[PATH] * count)
    assert names(job) == list("abcdefgh"[:count])


def test_left_and_right_are_the_short_form_in_this_order():
    long = load_job({"streams": {"left": {"path": "/l"}, "right": {"path": "/r"}}})
    assert long == load_job({"right": {"path": "/r"}, "left": {"path": "/l"}})
    assert "[left]" in dump_job(long) and "streams" not in dump_job(long)
    turned = load_job({"streams": {"right": {"path": "/r"}, "left": {"path": "/l"}}})
    assert names(turned) == ["right", "left"] and "[streams.right]" in dump_job(turned)


@pytest.mark.parametrize(
    "document, problems",
    [
        (
            {"left": PATH, "streams": {"s": PATH}},
            ["[left], [streams.s]: got both forms of a stream's table, wanted one: write [left] as [streams.left]"],
        ),
        (
            {"left": PATH, "right": PATH, "streams": {"left": {"path": 3}}},
            ["wanted one: write [right] as [streams.right], leave [left] out", "[left] path: got 3"],
        ),
        ({"streams": {}}, ["[streams]: got 0 streams, wanted 1 to 8 tables [streams.NAME], or [left] and [right]"]),
        ({"streams": {f"s{number}": PATH for number in range(9)}}, ["[streams]: got 9 streams, wanted 1 to 8"]),
        ({"streams": [PATH]}, ["wanted a table of each stream, such as [streams.picks]"]),
        ({"streams": {"s": 3}}, ["[streams.s]: got 3, wanted a table of fields"]),
        ({"streams": {"s": {}}}, ["[streams.s] path: missing: wanted a file"]),
        (
            {"streams": {"a b": PATH}},
            ['[streams.a b]: got "a b" as a stream\'s name, wanted letters, digits and _ only'],
        ),
        ({"streams": {"": PATH}}, ['got "" as a stream\'s name']),
        ({"streams": {"ä": PATH}}, ["wanted letters, digits and _ only"]),
        ({"streams": {"s" * 65: PATH}}, ["64 of them at most"]),
        (
            {"streams": {"Key": PATH}},
            ["got \"Key\" as a stream's name, which result columns begin with that are no stream's"],
        ),
        (
            {"streams": {"p": PATH, "P": PATH}},
            ['[streams.P]: got "P" as a stream\'s name beside "p", wanted names that differ in more than case'],
        ),
        (
            {"left": PATH, "right": PATH, "picks": PATH},
            ["[picks]: no such section, did you mean [streams.picks]?, there are left right streams.NAME"],
        ),
        ({"left": PATH, "right": PATH, "stream": {}}, ["[stream]: no such section, did you mean streams.NAME?"]),
        (
            {
                "streams": {
                    "a": {**PATH, "key": ["k"]},
                    "b": {**PATH, "key": ["k", "l"]},
                    "c": {**PATH, "window": "2 x"},
                }
            },
            [
                '[streams.c] window: got "2 x"',
                "[streams.b] key, [streams.c] key: got 1, 2 and 1 columns, wanted as many in all streams",
            ],
        ),
    ],
)
def test_what_is_wrong_with_streams_is_told(document, problems):
    found = faults(document)
    assert len(found) == len(problems), found
    assert all(problem in text for problem, text in zip(problems, found)), found


def test_overrides_name_a_stream_in_either_form():
    short, long = {"left": PATH, "right": PATH}, {"streams": {"left": PATH, "picks": PATH}}
    for document in (short, long):
        for override in ("left.window=5 s", "streams.left.window=5 s"):
            assert load_job(document, [override]).streams[0].window_ns == 5_000_000_000
    assert load_job(long, ["streams.picks.window=unbounded"]).streams[1].window_ns is None
    assert faults(long, ["right.window=1 s", "streams.pick.window=1 s", "streams.picks=3"]) == [
        "--set right.window=1 s: no such stream, there are left picks",
        "--set streams.pick.window=1 s: no such stream, there are left picks",
        "--set streams.picks=3: wanted section.field=value",
    ]
    assert faults(short, ["picks.window=1 s"])[0].startswith("[picks]: no such section")
    assert long == {"streams": {"left": PATH, "picks": PATH}}  # as the caller has it


def test_an_unbounded_window_is_for_ever():
    job = job_of({"table": table(), "window": "unbounded"}, table(), {"table": table(), "window": "3 ms"})
    schema = resolve(job)
    assert [schema.ticks(stream.window_ns) for stream in job.streams] == [FOREVER, 0, 3]
    assert schema.unit == "ms" and 'window = "unbounded"' in dump_job(
        load_job({"streams": {"a": {**PATH, "window": "unbounded"}}})
    )


def test_results_have_the_keys_and_then_of_each_stream_its_time_its_row_and_what_it_carries():
    job = job_of(table(x=pa.int8()), table(), table(x=pa.string(), y=pa.float64()))
    found = result_schema(job, resolve(job))
    assert found.names == ["key", "a_time", "b_time", "c_time", "a_row", "b_row", "c_row", "a_x", "c_x", "c_y"]
    assert found.field("c_x").type == pa.string()
    chosen = job_of(table(x=pa.int8()), table(), table(y=pa.float64()), output={"columns": ["c_y", "b_row", "key"]})
    assert [(one.name, one.stream) for one in result_columns(chosen, resolve(chosen))] == [
        ("c_y", 2),
        ("b_row", 1),
        ("key", 0),
    ]
    assert [stream.payload for stream in resolve(chosen).streams[:2]] == [(), ()]


def test_result_columns_of_one_name_are_named():
    given = {"table": table()}
    job = load_job({"streams": {"a": {"table": table(b_time=pa.int8())}, "a_b": given, "c": given}})
    with pytest.raises(JobError) as caught:
        resolve(job)
    assert caught.value.faults == [
        '[output] columns: 2 columns would be called "a_b_time", rename the input\'s or leave it out'
    ]


def test_keys_and_times_must_suit_each_other_in_all_streams():
    text = pa.table({"ts": pa.array([1], pa.timestamp("us", "UTC")), "key": ["a"]})
    with pytest.raises(JobError) as caught:
        resolve(job_of(table(), text, table()))
    where = [", ".join(f"[streams.{name}] {field}" for name in "abc") for field in ("key", "time")]
    assert caught.value.faults == [
        f'{where[0]}: "key" is int64, "key" is string and "key" is int64, wanted one type; cast the others first',
        (f"{where[1]}: got timestamp[ms], timestamp[us, tz=UTC] and timestamp[ms],"
        " wanted all with a time zone or all without"),
    ]


def test_check_says_what_a_job_of_three_streams_means(tmp_path):
    for name in ("p", "s", "trigger_times"):
        pq.write_table(table(), tmp_path / f"{name}.parquet")
    streams = [
        f'[streams.{name}]\npath = "{name}.parquet"\nwindow = "unbounded"' for name in ("p", "s", "trigger_times")
    ]
    (tmp_path / "job.toml").write_text("\n".join([*streams, '[output]\npath = "out"\n']))
    lines = describe(*load_and_resolve(tmp_path / "job.toml")).splitlines()
    assert lines[0].startswith(
        f"p             {tmp_path}/p.parquet: 1 Parquet file, 2 rows; window unbounded, lateness 0 s"
    )
    assert lines[2].startswith("trigger_times ")
    assert lines[3] == "key     key (int64) = key (int64) = key (int64)"
    assert lines[4] == "time    ts (timestamp[ms]), ts (timestamp[ms]) and ts (timestamp[ms]), joined in ms"
    assert "key, p_time, s_time, trigger_times_time, p_row" in lines[-2] and lines[-1] == "ok"


def test_streams_of_any_name_are_joined_in_python():
    left, right = table(x=pa.int8()), table()
    streams = {"picks": {"table": left, "window": "1 ms"}, "S_2": {"table": right}}
    done = mpijoin.run({"streams": streams}, slaves=1)
    assert (
        done.table().column_names == ["key", "picks_time", "S_2_time", "picks_row", "S_2_row", "picks_x"]
        and done.results == 2
    )
    assert done.late("S_2").num_rows == 0
    with pytest.raises(JobError, match='late: got "left", wanted "picks" or "S_2"'):
        done.late("left")


TYPED = {"join": {"type": "full"}}


def test_a_type_needs_two_streams_and_what_is_answered_late_spills_no_generations():
    assert faults({"streams": dict.fromkeys("abc", PATH), **TYPED, "output": {"path": "out"}})[0].startswith(
        '[join] type: got "full" and 3 streams, wanted two for this type'
    )
    for operator, told in (
        ({"match": "first"}, '[join] match, [memory] spill: got "first" and "generations"'),
        ({"reduce": {"n": "count()"}}, '[join] reduce, [memory] spill: got functions and "generations"'),
    ):
        job = {"left": PATH, "right": PATH, "join": operator, "output": {"path": "out"}}
        (found,) = faults({**job, "memory": {"spill": "generations"}})
        assert told in found and 'set spill = "rotate"' in found
        assert load_job({**job, "memory": {"spill": "rotate"}}).memory.spills
    assert load_job({"left": PATH, "right": PATH, **TYPED, "memory": {"spill": "generations"}}).memory.spills
    wrong = faults({"left": PATH, "right": PATH, "join": {"type": "outer"}, "output": {"path": "out"}})
    assert any(one.startswith('[join] type: got "outer", wanted "inner" or "left" or "right"') for one in wrong)


def test_what_is_wrong_with_a_condition_is_told_with_its_place():
    def found(where, *given):
        try:
            resolve(job_of(*given, join={"where": where}, output={"path": "out"}))
        except JobError as error:
            return error.faults
        return []

    sides = table(n=pa.int32()), table(n=pa.float64(), text=pa.string())
    assert found("a.n > b.n and b.time - a.time < '2 ms'", *sides) == []
    (fault,) = found("a.n > b.text", *sides)
    assert fault.endswith('"a.n > b.text": at character 1: got integer > string, wanted two of one type')
    (fault,) = found("b.price > a.n", sides[0], table(price=pa.decimal128(9, 2)))
    assert 'at character 1: column "price" is decimal128(9, 2), wanted integers' in fault and "scale it" in fault
    assert found("a.n > c.n", *sides) == [
        '[join] where: "a.n > c.n": at character 7: got "c", wanted a stream: "a" or "b"'
    ]
    (fault,) = found("a.n > b.n", *sides, table())
    assert fault.startswith("[join] where: a condition is about pairs, and there are 3 streams")
    (fault,) = found("a.n > b.n", sides[0], {"path": "/there/is/no/such/file.parquet"})
    assert "no such" in fault, "of a stream that cannot be read, nothing is said about its columns"
    assert resolve(job_of(*sides, join={"where": "b.time - a.time < '2 us'"}, output={"path": "out"})).unit == "us"


def test_columns_of_a_condition_travel_though_nobody_sees_them():
    sides = table(n=pa.int32(), m=pa.int8()), table(n=pa.float64(), text=pa.string())
    job = job_of(*sides, join={"where": "a.n > b.n"}, output={"path": "out", "columns": ["a_row", "b_text"]})
    schema = resolve(job)
    assert [[column.name for column in one.payload] for one in schema.streams] == [["n"], ["n", "text"]]
    assert [column.name for column in result_columns(job, schema)] == ["a_row", "b_text"]
    assert "where   a.n > b.n" in describe(job, schema)


@pytest.mark.parametrize("kind, wanted", [("inner", 0), ("left", 0), ("right", 1), ("full", 1), ("semi", 0)])
def test_keys_of_the_second_stream_are_shown_in_a_column_of_one_type(kind, wanted):
    wide = table()
    narrow = wide.set_column(1, "key", wide["key"].cast(pa.int32()))
    job = job_of(narrow, wide, join={"type": kind}, output={"path": "out"})
    try:
        resolve(job)
        found = []
    except JobError as error:
        found = error.faults
    assert len(found) == wanted and all("is int32 and" in one and "cast one of them" in one for one in found)


@pytest.mark.parametrize(
    "kind, names, nulls",
    [
        ("left", ["key", "a_time", "b_time", "a_row", "b_row"], {"key", "b_time", "b_row"}),
        ("full", ["key", "a_time", "b_time", "a_row", "b_row"], {"key", "a_time", "b_time", "a_row", "b_row"}),
        ("semi", ["key", "a_time", "a_row"], {"key"}),
        ("anti", ["key", "a_time", "a_row"], {"key"}),
    ],
)
def test_the_columns_of_a_type_and_which_of_them_may_be_null(kind, names, nulls):
    job = job_of(table(), table(), join={"type": kind}, output={"path": "out"})
    schema = result_schema(job, resolve(job))
    assert schema.names == names and {field.name for field in schema if field.nullable} == nulls
    assert f"join    {kind}: " in describe(job, resolve(job))
