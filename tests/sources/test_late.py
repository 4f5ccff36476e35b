"""Late, null and out-of-range rows: decided row by row, told in full."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

from mpijoin.data.schema import Column, StreamSchema
from mpijoin.data.types import is_payload, key_kind
from mpijoin.errors import InputError, OutputError
from mpijoin.records import PartInfo
from mpijoin.sources.base import TIME_MAX, TIME_MIN, SourceCounts
from mpijoin.sources.late import LateWriter, late_schema, merge_late, watermarks
from mpijoin.sources.screen import FILE_ROWS, FileScreen, StreamRules
from small_files import file_size_limit

KEY = Column("key", pa.int64())


def stream(time=pa.int64(), scale=1, keys=(KEY,), payload=()) -> StreamSchema:
    return StreamSchema("left", Column("ts", time), scale, tuple(keys), len(keys) > 1, tuple(payload))


def screen(schema, lateness, *columns, name="picks.parquet", index=0):
    """(rows kept, running maxima, late rows as dicts, counts) of one block."""
    late, counts = [], SourceCounts()
    rules = StreamRules(schema, lateness, late.append)
    one = FileScreen(rules, counts, name, index).screen(pa.RecordBatch.from_arrays(list(columns), list(rules.names)))
    return (
        one.batch.row.tolist(),
        one.running_max.tolist(),
        [row for table in late for row in table.to_pylist()],
        counts,
    )


def ints(*values):
    return pa.array(values, pa.int64())


def test_a_row_is_late_only_strictly_below_the_watermark():
    rows, running, late, counts = screen(stream(), 5, ints(10, 20, 15, 14, 20, 3), ints(1, 1, 1, 1, 1, 1))
    assert rows == [0, 1, 2, 4] and running == [10, 20, 20, 20]
    assert [(row["row"], row["ts"], row["watermark"], row["reason"]) for row in late] == [
        (3, 14, 15, "late"),
        (5, 3, 15, "late"),
    ]
    assert counts == SourceCounts(read=6, late=2, null_key=0, disorder_max=17)


def test_a_null_key_is_counted_before_lateness_and_raises_the_maximum():
    rows, running, late, counts = screen(stream(), 0, ints(10, 50, 40, None, 50), ints(1, None, 2, None, 3))
    assert rows == [0, 4] and running == [10, 50] and [row["row"] for row in late] == [2]
    assert counts == SourceCounts(read=5, late=1, null_key=2, disorder_max=10)


def test_a_late_row_does_not_lower_and_a_null_time_does_not_move_the_maximum():
    rows, running, late, _ = screen(stream(), 0, ints(None, 7, None, 3, 7), ints(1, 1, 1, 1, 1), index=2)
    assert [row - 2 * FILE_ROWS for row in rows] == [1, 4] and running == [7, 7]
    told = [(row["row"] - 2 * FILE_ROWS, row["ts"], row["watermark"], row["reason"]) for row in late]
    assert told == [(0, None, None, "null_time"), (2, None, 7, "null_time"), (3, 3, 7, "late")]


@pytest.mark.parametrize("scale", [1, 1000])
def test_blocks_in_order_pass_whole_and_one_that_begins_too_early_does_not(scale):
    late, counts = [], SourceCounts()
    one = FileScreen(StreamRules(stream(scale=scale), 0, late.append), counts, "picks.parquet", 0)
    for times, rows, kept in (([1, 2, 2], [0, 1, 2], [1, 2, 2]), ([2, 5], [3, 4], [2, 5]), ([4, 6], [6], [6])):
        batch, running_max = one.screen(pa.RecordBatch.from_arrays([ints(*times), ints(*times)], ["ts", "key"]))
        assert batch.row.tolist() == rows and batch.key.tolist() == kept
        assert batch.time.tolist() == running_max.tolist() == [time * scale for time in kept]
    assert [row["row"] for table in late for row in table.to_pylist()] == [5]
    assert counts == SourceCounts(read=7, late=1, null_key=0, disorder_max=scale)


def test_any_null_among_several_key_columns_is_a_null_key():
    schema = stream(keys=(KEY, Column("name", pa.string())))
    rows, _, _, counts = screen(schema, 0, ints(1, 2, 3), ints(1, None, 3), pa.array(["a", "b", None]))
    assert rows == [0] and counts.null_key == 2


def test_arithmetic_saturates_at_both_ends_of_time():
    low, high = TIME_MIN + 1, TIME_MAX
    rows, running, late, counts = screen(stream(), 10, ints(low, high, low), ints(1, 1, 1))
    assert rows == [0, 1] and running == [low, high] and counts.disorder_max == TIME_MAX
    assert late[0]["watermark"] == high - 10
    rows, _, late, _ = screen(stream(), TIME_MAX, ints(low + 5, low), ints(1, 1))
    assert rows == [0, 1] and late == []


def test_the_rule_goes_on_over_blocks():
    late = []
    rules = StreamRules(stream(), 0, late.append)
    one = FileScreen(rules, SourceCounts(), "picks.parquet", 1)
    for time in ([5, 9], [8], [9, 10]):
        screened = one.screen(pa.RecordBatch.from_arrays([ints(*time), ints(*time)], ["ts", "key"]))
    assert screened.batch.row.tolist() == [FILE_ROWS + 3, FILE_ROWS + 4] and screened.running_max.tolist() == [9, 10]
    assert late[0]["row"].to_pylist() == [FILE_ROWS + 2] and one.running_max == 10


def test_payload_keeps_step_with_the_rows_that_pass():
    payload = (Column("name", pa.string_view()), Column("flag", pa.bool_()))
    schema = stream(payload=payload)
    late = []
    rules = StreamRules(schema, 0, late.append)
    columns = [
        ints(5, 1, 6),
        ints(1, 2, 3),
        pa.array(["a", "late", None]).cast(pa.string_view()),
        pa.array([True, None, False]),
    ]
    one = FileScreen(rules, SourceCounts(), "x", 0).screen(pa.RecordBatch.from_arrays(columns, list(rules.names)))
    name, flag = rules.layout.unpack(one.batch.record, one.batch.size, one.batch.blob)
    assert name.to_pylist() == ["a", None] and flag.to_pylist() == [True, False] and one.batch.key.tolist() == [1, 3]
    assert late[0].schema.field("name").type == pa.string_view() and late[0]["name"].to_pylist() == ["late"]


@pytest.mark.parametrize(
    "kind, scale, value",
    [
        (pa.timestamp("s"), 10**9, 2**40),
        (pa.int64(), 1000, -(2**60)),
        (pa.uint64(), 1, 2**63),
        (pa.uint64(), 1000, 2**60),
    ],
)
def test_a_time_that_does_not_fit_the_common_unit_is_refused_by_row_and_value(kind, scale, value):
    time = pa.array([1, None, value], pa.uint64() if kind == pa.uint64() else pa.int64()).cast(kind)
    told = f"a time that times {scale} fits 64 bits" if scale > 1 else r"a time below 2\^63"
    with pytest.raises(InputError, match=rf"picks.parquet: row 2: column 'ts': got {value}, wanted {told}"):
        screen(stream(kind, scale), 0, time, ints(1, 1, 1))


@pytest.mark.parametrize("kind", [pa.date64(), pa.dictionary(pa.int8(), pa.date64())], ids=str)
def test_a_date_within_a_day_is_refused(kind):
    """Results hold days, so that keys that differ would look equal there."""

    def days(*milliseconds):
        values = pa.array(milliseconds, pa.int64()).cast(pa.date64())
        return values.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else values

    time = Column("ts", pa.int64())
    schema = StreamSchema("picks", time, 1, (Column("day", kind),), False, payload=(Column("day", kind),))
    one = FileScreen(StreamRules(schema, 0, [].append), SourceCounts(), "picks.arrow", 0)
    one.screen(pa.RecordBatch.from_arrays([ints(1, 2), days(86_400_000, None)], ["ts", "day"]))
    told = "picks.arrow: row 3: column 'day': got 86,400,001 ms as date64, wanted whole days"
    with pytest.raises(InputError, match=told):
        one.screen(pa.RecordBatch.from_arrays([ints(3, 4), days(-86_400_000, 86_400_001)], ["ts", "day"]))


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint8(), pa.int32(), pa.uint64(), pa.timestamp("ms", "UTC")], ids=str)
def test_times_of_any_width_come_out_in_the_common_unit(kind):
    rows, running, late, _ = screen(stream(kind, 1000), 1500, pa.array([3, 9, 7], pa.int64()).cast(kind), ints(1, 1, 1))
    assert rows == [0, 1] and running == [3000, 9000]
    # 9000 - 1500 = 7500, told as 8: exactly the whole units below 8 are late.
    assert pa.array([late[0]["watermark"]], kind).cast(pa.int64()).to_pylist() == [8]


def test_watermarks_saturate_at_the_range_of_the_time_column():
    assert watermarks(stream(pa.uint8()), np.array([3, TIME_MIN]), 10).to_pylist() == [0, None]
    assert watermarks(stream(pa.int8(), 2), np.array([-120 * 2]), 100).to_pylist() == [-128]
    assert watermarks(stream(), np.array([TIME_MIN + 3]), 10).to_pylist() == [TIME_MIN + 1]


def test_columns_named_like_what_is_told_step_aside():
    schema = stream(
        keys=(Column("row", pa.int64()),), payload=(Column("reason", pa.dictionary(pa.int8(), pa.string())),)
    )
    assert late_schema(schema).names == ["ts", "row_", "reason_", "row", "watermark", "reason"]
    assert late_schema(schema).field("reason_").type == pa.string()
    assert late_schema(stream()).field("watermark").type == pa.int64()


def late_rows(*rows):
    """As a source gives them: rows of these numbers."""
    values = {"ts": rows, "key": rows, "row": rows, "watermark": [9] * len(rows), "reason": ["late"] * len(rows)}
    return pa.table(values, schema=late_schema(stream()))


def rows_of(folder, parts):
    return [pq.read_table(folder / part.name)["row"].to_pylist() for part in parts]


def test_the_late_file_holds_what_the_screen_told(tmp_path):
    schema = stream(pa.timestamp("ms"), payload=(Column("name", pa.string()),))
    writer = LateWriter(tmp_path, schema)
    one = FileScreen(StreamRules(schema, 0, writer.write), SourceCounts(), "x", 0)
    time = ints(9, 1, None).cast(pa.timestamp("ms"))
    one.screen(pa.RecordBatch.from_arrays([time, ints(1, 2, 3), pa.array(["a", "b", None])], ["ts", "key", "name"]))
    writer.close()
    merge_late([tmp_path / part.name for part in writer.parts], tmp_path / "left.parquet", schema)
    table = pq.read_table(tmp_path / "left.parquet")
    assert table.schema.equals(late_schema(schema)) and table["row"].to_pylist() == [1, 2]
    assert table["name"].to_pylist() == ["b", None] and table["reason"].to_pylist() == ["late", "null_time"]


UNITS = ("s", "ms", "us", "ns")
TIMES = [pa.timestamp(unit, zone) for unit in UNITS for zone in (None, "UTC", "Europe/Rome")]
INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
TEXTS = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
    pa.binary(1),
]
CLOCKS = [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"), *map(pa.duration, UNITS)]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
DECIMALS = [pa.decimal32(5, 2), pa.decimal64(12, 2), pa.decimal128(20, 3), pa.decimal256(50, 3)]
DAYS = [pa.date32(), pa.date64()]
KEYS = [*TIMES, *INTEGERS, pa.bool_(), *DAYS, *TEXTS]
DICTIONARIES = [pa.dictionary(pa.int8(), kind) for kind in (pa.string(), pa.timestamp("s"), pa.date64(), pa.int32())]


def column_of(kind):
    """Three values of a type, the second null."""
    if pa.types.is_dictionary(kind):
        return column_of(kind.value_type).dictionary_encode()
    if kind in FLOATS + DECIMALS:
        return pa.array([1.0, None, 2.0]).cast(kind)
    if kind in TEXTS:
        return pa.array(["7", None, "8"]).cast(kind if kind != pa.binary(1) else pa.binary()).cast(kind)
    if kind in DAYS:
        return pa.array([3, None, 4], pa.int32()).cast(pa.date32()).cast(kind)
    return pa.array([1, None, 0], pa.int64()).cast(pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)


def as_parquet_has_it(table, path):
    pq.write_table(table, path)
    return pq.read_table(path)


def late_file_of(folder, schema, *columns):
    """The late file of these columns' second and third row, written in two parts."""
    writer = LateWriter(folder, schema)
    rules = StreamRules(schema, 0, writer.write)
    block = pa.RecordBatch.from_arrays(list(columns), list(rules.names))
    for rows in (slice(0, 2), slice(2, 3)):
        one = FileScreen(rules, SourceCounts(), "x", 0, rows.start, TIME_MIN if rows.start == 0 else 1000)
        one.screen(block[rows])
        writer.cut()
    merge_late([folder / part.name for part in writer.parts], folder / "left.parquet", schema)
    assert len(writer.parts) == 2
    return pq.read_table(folder / "left.parquet")


@pytest.mark.parametrize("kind", [*TIMES, *INTEGERS], ids=str)
def test_a_late_row_of_any_time_is_kept_as_results_would_hold_it(tmp_path, kind):
    found = late_file_of(tmp_path, stream(kind), column_of(kind), ints(1, 1, 1))
    wanted = as_parquet_has_it(pa.table({"ts": column_of(kind)[1:]}), tmp_path / "wanted")
    assert (
        found.select(["ts"]).equals(wanted) and found.schema.field("watermark").type == wanted.schema.field("ts").type
    )


def test_a_late_row_of_any_key_and_payload_is_kept_as_results_would_hold_it(tmp_path):
    kinds = [*KEYS, *FLOATS, *DECIMALS, *CLOCKS, *DICTIONARIES]
    payload = [Column(f"c{number}", kind) for number, kind in enumerate(kinds)]
    assert all(is_payload(kind) for kind in kinds) and all(key_kind(kind) for kind in KEYS)
    values, names = [column_of(kind) for kind in kinds], [column.name for column in payload]
    found = late_file_of(tmp_path, stream(payload=payload), ints(1, None, 0), ints(1, 1, 1), *values)
    plain = [one.dictionary_decode() if pa.types.is_dictionary(one.type) else one for one in values]
    assert found.select(names).equals(as_parquet_has_it(pa.table(plain, names).slice(1), tmp_path / "wanted"))
    for kind in KEYS:
        key = pa.concat_arrays([column_of(kind)[:1], *[column_of(kind)[2:]] * 2])
        schema = stream(keys=(KEY, Column("other", kind)))
        found = late_file_of(tmp_path, schema, ints(1, None, 0), ints(1, 1, 1), key)
        assert found.select(["other"]).equals(as_parquet_has_it(pa.table({"other": key[1:]}), tmp_path / "wanted"))


def test_without_a_late_row_there_is_no_part_but_a_file(tmp_path):
    writer = LateWriter(tmp_path, stream())
    writer.cut()
    writer.close()
    writer.close()
    assert writer.parts == [] and list(tmp_path.iterdir()) == []
    merge_late([], tmp_path / "left.parquet", stream())
    table = pq.read_table(tmp_path / "left.parquet")
    assert table.schema.equals(late_schema(stream())) and table.num_rows == 0


def test_a_cut_ends_a_part_and_the_next_late_row_begins_another(tmp_path):
    writer = LateWriter(tmp_path, stream())
    writer.write(late_rows(1, 2))
    writer.write(late_rows(3))
    assert writer.parts == []
    writer.cut()
    writer.cut()
    assert [path.name for path in tmp_path.iterdir()] == ["left-00000.parquet"]
    writer.write(late_rows(4))
    writer.close()
    first, second = writer.parts
    assert first == PartInfo("left-00000.parquet", 3, *facts(tmp_path / first.name)) and second.rows == 1
    assert rows_of(tmp_path, writer.parts) == [[1, 2, 3], [4]]
    merge_late([tmp_path / part.name for part in writer.parts], tmp_path / "left.parquet", stream())
    assert pq.read_table(tmp_path / "left.parquet")["row"].to_pylist() == [1, 2, 3, 4]


def facts(path):
    """Bytes and checksum."""
    return path.stat().st_size, xxhash.xxh3_64(path.read_bytes()).hexdigest()


def test_parts_and_late_file_are_on_disk_when_they_are_closed(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    writer = LateWriter(tmp_path, stream())
    writer.write(late_rows(1))
    assert synced == []
    writer.cut()
    merge_late([tmp_path / "left-00000.parquet"], tmp_path / "left.parquet", stream())
    assert synced == [(tmp_path / name).stat().st_ino for name in ("left-00000.parquet", "", "left.parquet")], (
        "the folder, too"
    )


def test_a_run_that_goes_on_keeps_its_parts_and_removes_what_came_after(tmp_path):
    writer = LateWriter(tmp_path, stream())
    for number in range(3):
        writer.write(late_rows(number))
        writer.cut()
    (tmp_path / "right-00002.parquet").write_bytes(b"of the other stream")
    again = LateWriter(tmp_path, stream(), writer.parts[:1])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["left-00000.parquet", "right-00002.parquet"]
    again.write(late_rows(7))
    again.close()
    assert again.parts[0] == writer.parts[0] and rows_of(tmp_path, again.parts) == [[0], [7]]


@pytest.mark.parametrize("found", ["no such file", "3 bytes"])
def test_a_part_that_is_not_as_it_was_closed_is_named(tmp_path, found):
    if found == "3 bytes":
        (tmp_path / "left-00000.parquet").write_bytes(b"cut")
    with pytest.raises(
        OutputError, match=f"left-00000.parquet: got {found}, wanted the 700 bytes that were written there"
    ):
        LateWriter(tmp_path, stream(), [PartInfo("left-00000.parquet", 4, 700, "")])


def test_many_parts_are_merged_block_by_block(tmp_path):
    writer, rows = LateWriter(tmp_path, stream()), 400_000
    for _ in range(4):
        writer.write(late_rows(*range(100)).take(pa.array(np.arange(rows) % 100)))
        writer.cut()
    paths = [tmp_path / part.name for part in writer.parts]
    before = pa.total_allocated_bytes()
    pa.default_memory_pool().release_unused()
    merge_late(paths, tmp_path / "left.parquet", stream())
    assert pq.read_metadata(tmp_path / "left.parquet").num_rows == 4 * rows and pa.total_allocated_bytes() == before


def test_an_unwritable_late_file_is_an_output_error(tmp_path):
    with pytest.raises(OutputError, match="nowhere/left-00000.parquet: cannot be written"):
        LateWriter(tmp_path / "nowhere", stream()).write(late_rows(1))
    with pytest.raises(OutputError, match="nowhere/left.parquet: cannot be written"):
        merge_late([], tmp_path / "nowhere/left.parquet", stream())


def test_a_file_that_cannot_grow_is_an_output_error(tmp_path):
    writer = LateWriter(tmp_path, stream())
    with file_size_limit(100), pytest.raises(OutputError, match="left-00000.parquet: cannot be written"):
        for _ in range(50):
            writer.write(late_rows(1))
        writer.close()
