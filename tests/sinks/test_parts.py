"""Part files: sizes, row groups, encodings, and a full disk."""

import gc
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mpijoin.disk import checksum_of
from mpijoin.errors import OutputError
from mpijoin.records import PartInfo
from mpijoin.sinks import parts
from mpijoin.sinks.parts import PartWriter
from small_files import file_size_limit

SCHEMA = pa.schema([pa.field("left_row", pa.int64(), False), pa.field("right_row", pa.int64(), False)])


def pairs(start, stop):
    rows = np.arange(start, stop)
    return pa.table([rows, rows * 3], schema=SCHEMA)


def read(folder):
    return pa.concat_tables([pq.read_table(path) for path in sorted(folder.glob("*.parquet"))])


def test_small_tables_become_whole_row_groups(tmp_path):
    writer = PartWriter(tmp_path, "rank-1", SCHEMA, part_bytes=1 << 30, row_group_rows=100)
    for start in range(0, 250, 7):
        writer.write(pairs(start, min(start + 7, 250)))
    assert writer.rows == 250
    (part,) = writer.close()
    assert part == PartInfo(
        "rank-1-00000.parquet", 250, (tmp_path / part.name).stat().st_size, checksum_of(tmp_path / part.name)
    )
    assert read(tmp_path).equals(pairs(0, 250))
    file = pq.ParquetFile(tmp_path / part.name)
    assert max(file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)) < 200
    assert file.num_row_groups == 3


def test_a_large_table_is_cut_into_row_groups(tmp_path):
    writer = PartWriter(tmp_path, "p", SCHEMA, part_bytes=1 << 30, row_group_rows=64)
    writer.write(pairs(0, 1000))
    (part,) = writer.close()
    assert pq.ParquetFile(tmp_path / part.name).num_row_groups == 15


def test_parts_roll_over_at_their_size(tmp_path):
    random = np.random.default_rng(1)
    schema = pa.schema([("x", pa.float64())])
    writer = PartWriter(tmp_path, "rank-3", schema, part_bytes=20_000, row_group_rows=500)
    table = pa.table({"x": random.random(10_000)})
    writer.write(table)
    closed = writer.close()
    assert [part.name for part in closed] == [f"rank-3-{i:05d}.parquet" for i in range(len(closed))]
    assert sum(part.rows for part in closed) == 10_000 and len(closed) == 4
    assert all(part.bytes == (tmp_path / part.name).stat().st_size < 25_000 for part in closed)
    assert read(tmp_path).equals(table)


def test_nothing_written_makes_no_file(tmp_path):
    writer = PartWriter(tmp_path, "p", SCHEMA, part_bytes=1000)
    writer.write(pairs(0, 0))
    assert writer.close() == [] and writer.close() == []
    assert list(tmp_path.iterdir()) == []


def test_wide_rows_do_not_wait_for_the_row_count(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "ROW_GROUP_BYTES", 10_000)
    writer = PartWriter(tmp_path, "p", pa.schema([("x", pa.string())]), part_bytes=1 << 30)
    for _ in range(9):
        writer.write(pa.table({"x": ["y" * 1000] * 3}))
        assert writer.held_bytes < 10_000
    (part,) = writer.close()
    assert pq.ParquetFile(tmp_path / part.name).num_row_groups == 3


def test_every_type_comes_back_as_it_was(tmp_path):
    table = pa.table(
        {
            "i8": pa.array([1, None, -3], pa.int8()),
            "u64": pa.array([2**64 - 1, None, 0], pa.uint64()),
            "ns": pa.array([1, None, -(2**63)], pa.timestamp("ns", "Europe/Rome")),
            "day": pa.array([1, None, 3], pa.date32()),
            "span": pa.array([1, None, 3], pa.duration("us")),
            "clock": pa.array([1, None, 3], pa.time32("ms")),
            "flag": [True, None, False],
            "f": [1.5, None, float("inf")],
            "money": pa.array([1, None, 3]).cast(pa.decimal128(25, 2)),
            "text": pa.array(["a", None, ""], pa.large_string()),
            "raw": pa.array([b"a", None, b""], pa.binary()),
            "fixed": pa.array([b"ab", None, b"cd"], pa.binary(2)),
        }
    )
    writer = PartWriter(tmp_path, "p", table.schema, part_bytes=1 << 20)
    writer.write(table)
    writer.close()
    back = read(tmp_path)
    assert back.schema.equals(table.schema) and back.equals(table)


def test_row_numbers_are_packed_and_strings_have_a_dictionary(tmp_path):
    schema = pa.schema([("row", pa.int64()), ("text", pa.string()), ("value", pa.float64())])
    writer = PartWriter(tmp_path, "p", schema, part_bytes=1 << 30)
    writer.write(pa.table({"row": np.arange(50_000), "text": ["station"] * 50_000, "value": np.zeros(50_000)}))
    (part,) = writer.close()
    group = pq.ParquetFile(tmp_path / part.name).metadata.row_group(0)
    assert "DELTA_BINARY_PACKED" in group.column(0).encodings
    assert "RLE_DICTIONARY" in group.column(1).encodings
    assert "RLE_DICTIONARY" not in group.column(2).encodings
    assert group.column(0).total_compressed_size < 50_000


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.int32(), pa.timestamp("us")])
def test_numbers_without_a_pattern_are_stored_plain(tmp_path, kind):
    bits = np.random.default_rng(1).integers(0, 256, 5000 * kind.bit_width // 8, np.uint8)
    values = pa.Array.from_buffers(kind, 5000, [None, pa.py_buffer(bits)])
    writer = PartWriter(tmp_path, "p", pa.schema([("x", kind)]), part_bytes=1 << 20)
    writer.write(pa.table({"x": values}))
    (part,) = writer.close()
    assert set(pq.ParquetFile(tmp_path / part.name).metadata.row_group(0).column(0).encodings) == {"PLAIN", "RLE"}
    assert pq.read_table(tmp_path / part.name)["x"].combine_chunks().equals(values)


@pytest.mark.parametrize(
    ("values", "share"),
    [
        (np.arange(1000, dtype=np.int64), 0.0),
        (np.array([0, 3] * 500, np.int64), np.log2(7) / 64),  # steps of 3 and -3 are 6 apart
        (np.array([-(2**63), 2**63 - 1] * 500, np.int64), np.log2(3) / 64),  # steps wrap round to -1 and 1
        (np.array([0, 3] * 500, np.uint16), np.log2(7) / 32),
        (np.zeros(3, np.int64), 0.0),
    ],
)
def test_what_delta_packing_saves_is_told_beforehand(values, share):
    assert parts.packed_share(values) == pytest.approx(share)


def test_a_full_disk_is_named_and_the_writer_stays_closable(tmp_path):
    random = np.random.default_rng(2)
    schema = pa.schema([("x", pa.float64())])
    writer = PartWriter(tmp_path, "p", schema, part_bytes=20_000, row_group_rows=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        while len(writer.cut()) < 1:
            writer.write(pa.table({"x": random.random(1000)}))
        with file_size_limit(5000), pytest.raises(OutputError, match=r"p-00001.parquet.*File too large"):
            for _ in range(100):
                writer.write(pa.table({"x": random.random(1000)}))
        with pytest.raises(OutputError, match="File too large"):
            writer.write(pa.table({"x": [1.0]}))
        assert [part.name for part in writer.close()] == ["p-00000.parquet"]
        del writer
        gc.collect()
    assert [item.name for item in tmp_path.iterdir()] == ["p-00000.parquet"]


def test_a_disk_that_fills_in_the_last_write_is_told_by_close(tmp_path):
    writer = PartWriter(tmp_path, "p", SCHEMA, part_bytes=1 << 20)
    writer.write(pairs(0, 10))
    with file_size_limit(20), pytest.raises(OutputError, match="File too large"):
        writer.close()
    assert writer.close() == [] and list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_an_output_error(tmp_path):
    writer = PartWriter(tmp_path / "gone", "p", SCHEMA, part_bytes=1 << 20)
    writer.write(pairs(0, 10))
    with pytest.raises(OutputError, match="p-00000.parquet.*No such file"):
        writer.close()


def test_abandon_leaves_only_closed_parts(tmp_path):
    writer = PartWriter(tmp_path, "p", SCHEMA, part_bytes=1 << 30, row_group_rows=10)
    writer.write(pairs(0, 25))
    writer.abandon()
    assert writer.close() == [] and list(tmp_path.iterdir()) == []
