"""What `resolve` makes of real inputs, and every fault it finds in them."""

from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from mpijoin.config.check import resolve
from mpijoin.config.describe import describe
from mpijoin.config.job import FileSource, Job, Output, StreamJob, TableSource
from mpijoin.config.load import load_job
from mpijoin.data.results import ResultColumn, result_columns, result_schema
from mpijoin.data.schema import Column
from mpijoin.errors import JobError

MICROSECONDS = pa.timestamp("us")


def table(time=MICROSECONDS, key=pa.int64(), **payload):
    """An empty table: only its columns matter here."""
    return pa.schema([("ts", time), ("key", key), *payload.items()]).empty_table()


def job(left, right=None, /, **sections):
    """A job over two tables; `sections` are further fields by section, streams' included."""
    document = {"left": {"table": left}, "right": {"table": table() if right is None else right}}
    for section, fields in sections.items():
        document[section] = {**document.get(section, {}), **fields}
    return load_job(document)


def faults(the_job):
    with pytest.raises(JobError) as caught:
        resolve(the_job)
    return caught.value.faults


def test_columns_keep_the_sources_own_types_and_the_rest_is_payload():
    schema = resolve(job(table(prob=pa.float32(), name=pa.string()), table(key=pa.int32())))
    assert schema.streams[0].time == Column("ts", MICROSECONDS)
    assert schema.streams[0].keys == (Column("key", pa.int64()),)
    assert schema.streams[1].keys == (Column("key", pa.int32()),)
    assert schema.streams[0].payload == (Column("prob", pa.float32()), Column("name", pa.string()))
    assert schema.streams[1].payload == ()
    assert [stream.hashed for stream in schema.streams] == [False, False]


@pytest.mark.parametrize(
    "left, right, unit, scales",
    [
        ({"time": pa.timestamp("s")}, {"time": pa.timestamp("s")}, "s", (1, 1)),
        ({"time": pa.timestamp("s")}, {"time": pa.timestamp("ms")}, "ms", (1000, 1)),
        ({"time": pa.timestamp("us")}, {"time": pa.timestamp("ns")}, "ns", (1000, 1)),
        ({"time": pa.timestamp("s"), "window": "5 ms"}, {"time": pa.timestamp("s")}, "ms", (1000, 1000)),
        ({"time": pa.timestamp("s")}, {"time": pa.timestamp("s"), "lateness": "3 ns"}, "ns", (10**9, 10**9)),
        ({"time": pa.int32(), "time_unit": "ms"}, {"time": pa.timestamp("us")}, "us", (1000, 1)),
        ({"time": pa.timestamp("us"), "time_unit": "us"}, {"time": pa.timestamp("us")}, "us", (1, 1)),
        ({"time": pa.timestamp("us", "UTC")}, {"time": pa.timestamp("us", "Europe/Rome")}, "us", (1, 1)),
    ],
)
def test_the_common_unit_is_the_coarsest_in_which_all_is_whole(left, right, unit, scales):
    tables = table(left.pop("time")), table(right.pop("time"))
    schema = resolve(job(*tables, left={"table": tables[0], **left}, right={"table": tables[1], **right}))
    assert (schema.unit, tuple(stream.scale for stream in schema.streams)) == (unit, scales)


@pytest.mark.parametrize(
    "left, right, hashed",
    [
        (pa.int8(), pa.uint32(), False),
        (pa.uint64(), pa.uint64(), False),
        (pa.bool_(), pa.bool_(), False),
        (pa.date32(), pa.date64(), False),
        (pa.timestamp("ms"), pa.timestamp("ms"), False),
        (pa.timestamp("ms", "UTC"), pa.timestamp("ms", "Asia/Tokyo"), False),
        (pa.string(), pa.large_string(), True),
        (pa.string_view(), pa.dictionary(pa.int32(), pa.string()), True),
        (pa.binary(), pa.binary(4), True),
        (pa.large_binary(), pa.binary_view(), True),
        (pa.dictionary(pa.int8(), pa.int64()), pa.int16(), False),
    ],
)
def test_keys_of_one_logical_type_join(left, right, hashed):
    schema = resolve(job(table(key=left), table(key=right)))
    assert [stream.hashed for stream in schema.streams] == [hashed, hashed]


def test_several_key_columns_are_hashed():
    left, right = table(sta=pa.string()), table(station=pa.string())
    schema = resolve(
        job(left, right, left={"table": left, "key": ["key", "sta"]}, right={"table": right, "key": ["key", "station"]})
    )
    assert schema.streams[0].hashed and schema.streams[0].payload == ()
    names = [column.name for column in result_columns(job(left, right), schema)]
    assert names == ["key_key", "key_sta", "left_time", "right_time", "left_row", "right_row"]


@pytest.mark.parametrize(
    "left, right, problem",
    [
        (pa.uint64(), pa.int64(), '"key" is uint64 and "key" is int64, wanted one type'),
        (pa.int64(), pa.string(), '"key" is int64 and "key" is string, wanted one type'),
        (pa.string(), pa.binary(), "wanted one type"),
        (pa.timestamp("ms"), pa.timestamp("us"), "wanted one type"),
        (pa.timestamp("ms"), pa.timestamp("ms", "UTC"), "wanted one type"),
        (pa.float64(), pa.int64(), "double, which cannot be a key: floats rarely compare equal"),
        (pa.decimal128(9, 2), pa.int64(), "scale and cast decimals"),
        (pa.list_(pa.int8()), pa.int64(), "fields inside"),
        (pa.null(), pa.int64(), "no row has a value, so that nothing says of which type it is"),
        (pa.duration("s"), pa.int64(), "cast it to an integer"),
    ],
)
def test_keys_that_cannot_be_compared_are_faults(left, right, problem):
    (fault,) = faults(job(table(key=left), table(key=right)))
    assert problem in fault


@pytest.mark.parametrize(
    "time, fields, problem",
    [
        (pa.int64(), {}, "wanted also time_unit"),
        (pa.date32(), {}, "is date32[day], wanted a timestamp or an integer"),
        (pa.float64(), {"time_unit": "s"}, "is double, wanted a timestamp"),
        (pa.timestamp("us"), {"time_unit": "ms"}, 'time_unit: got "ms", but "ts" is timestamp[us]'),
        (pa.timestamp("us", "UTC"), {}, "wanted both with a time zone or both without"),
    ],
)
def test_times_that_cannot_be_compared_are_faults(time, fields, problem):
    left = table(time)
    (fault,) = faults(job(left, left={"table": left, **fields}))
    assert problem in fault


NESTED = pa.struct([("x", pa.int8())])


def test_nested_payload_is_a_fault_unless_nobody_asked_for_it():
    left = table(deep=NESTED, prob=pa.float64())
    (fault,) = faults(job(left))
    assert '[left] columns: "deep" is struct<x: int8>' in fault and "columns = [...]" in fault
    assert resolve(job(left, left={"table": left, "columns": ["prob"]})).streams[0].payload[0].name == "prob"
    assert resolve(job(left, output={"results": "count"})).streams[0].payload == ()
    assert [c.name for c in resolve(job(left, output={"columns": ["left_prob"]})).streams[0].payload] == ["prob"]


def test_values_without_a_byte_are_faults_since_parquet_cannot_hold_them():
    left = table(none=pa.binary(0))
    (fault,) = faults(job(left))
    assert '[left] columns: "none" is fixed_size_binary[0], wanted fixed width above 0' in fault
    keyed = {"table": left, "key": "none"}
    assert "leave it out" in faults(job(left, left=keyed, right=keyed))[0]


def test_a_missing_column_names_those_there_are():
    left = table(prob=pa.float64())
    found = faults(job(left, left={"table": left, "time": "when", "key": "who", "columns": ["prop"]}))
    assert found == [
        '[left] time: no column "when", the input has ts, key, prob',
        '[left] key: no column "who", the input has ts, key, prob',
        '[left] columns: no column "prop", the input has ts, key, prob',
    ]


def test_what_is_no_condition_is_told_beside_columns_that_are_missing():
    found = faults(job(table(), left={"table": table(), "key": "who"}, join={"where": "left.key >"}))
    assert found[0] == '[left] key: no column "who", the input has ts, key'
    assert found[1].startswith('[join] where: "left.key >": at character 11: this is no condition') and len(found) == 2


def test_a_column_name_that_occurs_twice_is_a_fault_where_it_is_needed():
    twice = pa.schema([("ts", MICROSECONDS), ("key", pa.int64()), ("x", pa.int8()), ("x", pa.int8())]).empty_table()
    (fault,) = faults(job(twice))
    assert fault == '[left] path: the input has 2 columns named "x", wanted one'
    resolve(job(twice, left={"table": twice, "columns": []}))


def test_results_have_all_columns_in_order_and_in_source_types():
    code = pa.dictionary(pa.int8(), pa.string())
    the_job = job(table(prob=pa.float32()), table(pa.timestamp("s"), pa.int32(), code=code))
    schema = resolve(the_job)
    assert result_columns(the_job, schema) == [
        ResultColumn("key", 0, "key", 0),
        ResultColumn("left_time", 0, "time", 0),
        ResultColumn("right_time", 1, "time", 0),
        ResultColumn("left_row", 0, "row", 0),
        ResultColumn("right_row", 1, "row", 0),
        ResultColumn("left_prob", 0, "payload", 0),
        ResultColumn("right_code", 1, "payload", 0),
    ]
    types = [pa.int64(), MICROSECONDS, pa.timestamp("s"), pa.int64(), pa.int64(), pa.float32(), pa.string()]
    assert result_schema(the_job, schema).types == types


def test_output_columns_select_order_and_drop_payload_that_is_not_needed():
    left = table(a=pa.int8(), b=pa.int16(), c=pa.int32())
    the_job = job(left, output={"columns": ["left_c", "right_row", "left_a"]})
    schema = resolve(the_job)
    assert [column.name for column in schema.streams[0].payload] == ["a", "c"]
    assert result_columns(the_job, schema) == [
        ResultColumn("left_c", 0, "payload", 1),
        ResultColumn("right_row", 1, "row", 0),
        ResultColumn("left_a", 0, "payload", 0),
    ]


def test_a_count_has_no_columns():
    the_job = job(table(a=pa.int8()), output={"results": "count"})
    assert result_columns(the_job, resolve(the_job)) == []


def test_an_unknown_output_column_names_those_there_are():
    (fault,) = faults(job(table(a=pa.int8()), output={"columns": ["left_b"]}))
    assert fault == (
        '[output] columns: no column "left_b",'
        " results have key, left_time, right_time, left_row, right_row, left_a"
    )


def test_names_that_clash_are_a_fault_only_where_they_are_written():
    left = table(row=pa.int8())
    (fault,) = faults(job(left))
    assert '2 columns would be called "left_row"' in fault
    assert len(faults(job(left, output={"columns": ["left_row"]}))) == 1
    resolve(job(left, output={"columns": ["right_row"]}))
    resolve(job(left, output={"results": "count"}))


def test_a_synthetic_stream_has_its_own_columns():
    synthetic = {"kind": "synthetic", "tuples": 5, "payload_bytes": 40}
    schema = resolve(load_job({"left": synthetic, "right": {**synthetic, "payload_bytes": 0}}))
    assert schema.unit == "ns"
    assert schema.streams[0].time == Column("ts", pa.timestamp("ns")) and not schema.streams[0].hashed
    assert schema.streams[0].payload == (Column("payload", pa.binary(40)),) and schema.streams[1].payload == ()


def test_a_job_built_by_hand_gets_the_same_rules():
    streams = tuple(StreamJob(name, TableSource(table()), key=()) for name in ("left", "right"))
    bad = Job(streams, output=Output(results="csv"))
    assert faults(bad) == [
        "[left] key: got no column, wanted at least one",
        "[right] key: got no column, wanted at least one",
        '[output] results: got "csv", wanted "parquet" or "collect" or "count"',
    ]


def test_faults_of_both_sides_come_at_once(tmp_path):
    found = faults(
        Job(
            (
                StreamJob("left", FileSource(str(tmp_path / "none.parquet"))),
                StreamJob("right", TableSource(table(pa.int64(), pa.float64(), deep=NESTED))),
            )
        )
    )
    assert [fault.split(":")[0] for fault in found] == ["[left] path", "[right] time", "[right] key", "[right] columns"]


ROWS = {"ts": pa.array([datetime(2024, 1, 1)], MICROSECONDS), "key": pa.array([1])}


@pytest.fixture
def folder(tmp_path):
    """Writes Parquet files of the given columns into one folder and gives the job that reads it on both sides."""

    def write(**files):
        for name, columns in files.items():
            pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
        return load_job({side: {"path": str(tmp_path)} for side in ("left", "right")})

    return write


def test_all_files_of_a_stream_need_the_firsts_columns_and_types(folder, tmp_path):
    more = {**ROWS, "prob": pa.array([0.5])}
    the_job = folder(a=more, b={**more, "key": pa.array(["x"])}, c=ROWS, d={**more, "extra": pa.array([1])})
    (tmp_path / "e.parquet").write_bytes(b"PAR1 cut short")
    found = [fault for fault in faults(the_job) if fault.startswith("[left]")]
    assert found[0] == f'[left] path: {tmp_path}/b.parquet: column "key" is string, in the first file int64'
    assert found[1] == f'[left] path: {tmp_path}/c.parquet: got no column "prob", the first file has one'
    assert found[2].startswith(f"[left] path: {tmp_path}/e.parquet: cannot be read as Parquet:")
    assert len(found) == 3


def test_columns_that_are_not_needed_may_differ_between_files(folder):
    the_job = folder(a={**ROWS, "x": pa.array([1])}, b={**ROWS, "x": pa.array(["1"])})
    assert len(faults(the_job)) == 2
    only = load_job({stream.name: {"path": stream.source.path, "columns": []} for stream in the_job.streams})
    assert resolve(only).streams[0].payload == ()


def test_csv_types_are_those_of_the_first_file(tmp_path):
    (tmp_path / "a.csv").write_text("ts,key,x\n2024-01-01 00:00:00,1,1.5\n")
    (tmp_path / "b.csv").write_text("ts,key,x\n2024-01-01 00:00:00,1,2\n")
    the_job = load_job({side: {"path": str(tmp_path)} for side in ("left", "right")})
    schema = resolve(the_job)
    assert (schema.unit, schema.streams[0].payload) == ("s", (Column("x", pa.float64()),))
    (tmp_path / "c.csv").write_text("ts,key\n")
    assert any('c.csv: got no column "x"' in fault for fault in faults(the_job))


def test_arrow_files_are_read_and_a_wrong_one_is_named(tmp_path):
    pyarrow.feather.write_feather(pa.table(ROWS), str(tmp_path / "a.feather"))
    the_job = load_job({side: {"path": str(tmp_path / "*.feather")} for side in ("left", "right")})
    assert resolve(the_job).unit == "us"
    (tmp_path / "a.feather").write_bytes(b"not arrow at all")
    assert "a.feather: cannot be read as Arrow IPC" in faults(the_job)[0]


def test_a_sound_job_is_described_in_a_few_lines(folder, tmp_path):
    the_job = folder(a=ROWS, b=ROWS)
    assert describe(the_job, resolve(the_job)) == (
        f"left    {tmp_path}: 2 Parquet files, 2 rows; window 0 s, lateness 0 s\n"
        f"right   {tmp_path}: 2 Parquet files, 2 rows; window 0 s, lateness 0 s\n"
        "key     key (int64) = key (int64)\n"
        "time    ts (timestamp[us]) and ts (timestamp[us]), joined in us\n"
        "cluster 60 partitions, policy none\n"
        "output  parquet: key, left_time, right_time, left_row, right_row\n"
        "ok"
    )


def test_tables_and_synthetic_streams_are_described_too():
    right = {"kind": "synthetic", "duration": "1 min"}
    left = pa.table({"ts": pa.array([date(2024, 1, 1)]).cast(pa.timestamp("ns")), "key": [1]})
    the_job = load_job({"left": {"table": left}, "right": right, "output": {"results": "count"}})
    lines = describe(the_job, resolve(the_job)).splitlines()
    assert lines[0].startswith("left    table, 1 row;") and lines[1].startswith("right   synthetic, 1 min;")
    assert lines[-2] == "output  count"


@pytest.mark.parametrize(
    "sections, reason",
    [
        ({"balance": {"spread": "off"}}, '[balance] spread = "off"'),
        ({"join": {"type": "left"}}, '[join] type = "left"'),
        ({"join": {"match": "last"}}, '[join] match = "last"'),
        ({"join": {"reduce": {"n": "count()"}}}, "[join] reduce"),
        ({"memory": {"spill": "rotate"}}, '[memory] spill = "rotate"'),
        ({"query": [{"name": "one"}, {"name": "two"}]}, "the job has several queries"),
        ({}, ""),
        ({"join": {"where": "left.time < right.time"}, "balance": {"move": "ptlb"}}, ""),
    ],
)
def test_what_keeps_slaves_from_sharing_a_partition_is_said_and_holds(sections, reason):
    sections = {**sections, "balance": {"policy": "balance", **sections.get("balance", {})}}
    the_job = load_job({"left": {"table": table()}, "right": {"table": table()}, **sections})
    line = next(line for line in describe(the_job, resolve(the_job)).splitlines() if line.startswith("sharing "))
    assert (line.removeprefix("sharing none: ") if reason else the_job.kept_whole) == reason
    assert the_job.may_spread == (not reason)


def test_pace_declustering_and_injections_are_described_where_there_are_any():
    sections = {
        "cluster": {"slaves_min": 2, "distribution_epoch": "500 ms"},
        "balance": {"policy": "balance"},
        "run": {"speed": 2},
        "inject": {"slow": {"3": 0.5, "2": 1}, "kill": {"1": 5}, "hash_bits": 8},
    }
    the_job = job(table(), **sections)
    assert describe(the_job, resolve(the_job)).splitlines()[4:8] == [
        "cluster 60 partitions, policy balance, 2 slaves or more as the load asks for",
        "sharing a partition that alone is too much for a slave is shared by several",
        "pace    2 s of event time per second, distribution epochs 500 ms",
        "inject  on purpose: slow 2, 3; kill 1; hash_bits 8",
    ]
    automatic = job(table(), run={"speed": 0.5}, tuning={"communication": 0.2})
    assert describe(automatic, resolve(automatic)).splitlines()[5] == (
        "pace    0.5 s of event time per second, distribution epochs as short as communication stays under 20%"
    )


@pytest.mark.parametrize(
    "kind",
    [
        pa.float16(), pa.decimal256(50, 2), pa.time32("s"), pa.duration("us"), pa.binary(3), pa.string_view(),
        pa.large_binary(), pa.bool_(), pa.date64(), pa.dictionary(pa.int8(), pa.large_string()),
    ],
)  # fmt: skip
def test_any_fixed_width_or_variable_size_type_is_payload(kind):
    assert resolve(job(table(x=kind))).streams[0].payload == (Column("x", kind),)


@pytest.mark.parametrize(
    "kind", [pa.null(), pa.list_(pa.int8()), pa.map_(pa.int8(), pa.int8()), pa.month_day_nano_interval(), pa.uuid()]
)
def test_other_types_are_not(kind):
    assert len(faults(job(table(x=kind)))) == 1


def test_a_decimal_value_is_payload_of_a_real_file(folder):
    schema = resolve(folder(a={**ROWS, "price": pa.array([Decimal("1.50")])}))
    assert schema.streams[0].payload[0].name == "price"
