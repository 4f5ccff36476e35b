"""Arrow IPC read piece by piece with plain reads: the same values as the library's own reader, and never a byte behind
the end."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from mpijoin.data.ipc_footer import BLOCK, Table
from mpijoin.data.schema import Column
from mpijoin.errors import ChangedInputError, InputError
from mpijoin.sources.blocks import BlockLimit
from mpijoin.sources.files import open_file
from mpijoin.sources.ranges import from_row

ROWS = 203
RNG = np.random.default_rng(5)


def texts(kind, nulls=True):
    """Of no, few and many bytes, beyond what a view holds itself."""
    values = [None if nulls and i % 5 == 0 else "x" * (i % 30) + str(i) for i in range(ROWS)]
    return pa.array([value and value.encode() for value in values], pa.binary()).cast(kind)


def numbers(kind, nulls=True):
    values = pa.array(RNG.integers(0, 100, ROWS), mask=RNG.random(ROWS) < 0.2 if nulls else None)
    return values.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)


def flags(nulls=True):
    return pa.array(RNG.random(ROWS) < 0.5, mask=RNG.random(ROWS) < 0.2 if nulls else None)


TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()]
NUMBERS = [
    pa.int8(),
    pa.uint16(),
    pa.float32(),
    pa.int64(),
    pa.float64(),
    pa.date32(),
    pa.time32("s"),
    pa.timestamp("ns", "UTC"),
]
COLUMNS = {
    **{str(kind): texts(kind) for kind in TEXTS},
    **{f"{kind} whole": texts(kind, False) for kind in TEXTS},
    **{str(kind): numbers(kind) for kind in NUMBERS},
    "int64 whole": numbers(pa.int64(), False),
    "bool": flags(),
    "bool whole": flags(False),
    "decimal": numbers(pa.int64()).cast(pa.decimal128(20, 0)),
    "decimal256": numbers(pa.int64()).cast(pa.decimal256(40, 0)),
    "fixed": pa.array([None if i % 3 == 0 else b"%07d" % i for i in range(ROWS)], pa.binary(7)),
    "dictionary": texts(pa.string()).dictionary_encode(),
    "only nulls": pa.nulls(ROWS, pa.string()),
    "nothing in it": pa.array([""] * ROWS),
}
NESTED = {  # of several buffers, which must be passed over
    "list": pa.array([[i] * (i % 3) for i in range(ROWS)]),
    "struct": pa.array([{"a": i, "b": [str(i)]} for i in range(ROWS)]),
    "null": pa.nulls(ROWS),
}
TABLE = pa.table(
    {**NESTED, **COLUMNS, "map": pa.array([[("k", i)] for i in range(ROWS)], pa.map_(pa.string(), pa.int64()))}
)
WANTED = tuple(Column(name, TABLE.schema.field(name).type) for name in COLUMNS)


def written(path, is_file, chunk=80, **options):
    opener = pa.ipc.new_file if is_file else pa.ipc.new_stream
    options = pa.ipc.IpcWriteOptions(**options)
    with pa.OSFile(str(path), "wb") as file, opener(file, TABLE.schema, options=options) as writer:
        writer.write_table(TABLE, max_chunksize=chunk)
    return str(path)


def read(path, block_rows=1000, skip_rows=0):
    reader = open_file(path, WANTED, BlockLimit(block_rows), from_row(skip_rows))
    blocks = list(reader.blocks())
    reader.close()
    for block in blocks:
        block.validate(full=True)
    return pa.Table.from_batches(blocks).unify_dictionaries().combine_chunks()


@pytest.mark.parametrize("is_file", [True, False])
@pytest.mark.parametrize("block_rows", [1, 7, 64, 1000])
@pytest.mark.parametrize("options", [{}, {"compression": "lz4"}], ids=["plain", "lz4"])
def test_every_type_comes_out_as_it_was_written(tmp_path, is_file, block_rows, options):
    path = written(tmp_path / "all.arrow", is_file, **options)
    for skip_rows in (0, 1, 8, 85, ROWS - 1):
        found = read(path, block_rows, skip_rows).select(list(COLUMNS))
        wanted = TABLE.select(list(COLUMNS)).slice(skip_rows)
        for name in COLUMNS:
            assert found[name].type == wanted[name].type and found[name].to_pylist() == wanted[name].to_pylist(), name


def test_only_the_footer_says_where_messages_lie(tmp_path):
    """As other writers do, it has a longer magic, no schema before the batches, and space between messages."""
    path = tmp_path / "all.arrow"
    content = Path(written(path, is_file=True)).read_bytes()
    size = int.from_bytes(content[-10:-6], "little")
    front, footer = content[: -10 - size], bytearray(content[-10 - size : -10])
    root, moved = Table(bytes(footer), int.from_bytes(footer[:4], "little")), bytearray(b"ARROW1".ljust(64, b"\0"))
    for at, count in (root.vector(2), root.vector(3)):
        for place in range(at, at + count * BLOCK.size, BLOCK.size):
            start, metadata_bytes, body_bytes = BLOCK.unpack_from(footer, place)
            footer[place : place + 8] = len(moved).to_bytes(8, "little")
            moved += front[start : start + metadata_bytes + body_bytes] + bytes(24)
    path.write_bytes(moved + footer + content[-10:])
    with pa.OSFile(str(path)) as file:
        assert pa.ipc.open_file(file).read_all().equals(TABLE)
    found = read(str(path), 64, 5).select(list(COLUMNS))
    assert found.to_pylist() == TABLE.select(list(COLUMNS)).slice(5).to_pylist()


def test_each_column_has_its_own_dictionary_whichever_are_read(tmp_path):
    path = tmp_path / "several.arrow"
    columns = {name: pa.array([f"{name}{row % 3}" for row in range(ROWS)]).dictionary_encode() for name in "abc"}
    table = pa.table(columns)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=50)
    for chosen in ("c", "ac", "cb"):
        wanted = tuple(Column(name, table.schema.field(name).type) for name in chosen)
        blocks = list(open_file(str(path), wanted, BlockLimit(64)).blocks())
        rows = [tuple(row[name] for name in chosen) for block in blocks for row in block.to_pylist()]
        assert rows == list(zip(*(columns[name].to_pylist() for name in chosen)))


def test_views_that_share_bytes_and_null_views_of_anything(tmp_path):
    data = b"".join(b"%020d" % i for i in range(10))
    views = np.zeros((40, 4), np.int32)
    for row in range(40):
        views[row] = (20, 0, 0, 20 * (row * 7 % 10))
        views[row, 1] = np.frombuffer(data[views[row, 3] :][:4], np.int32)[0]
    views[3] = (99, 1, 7, -5)
    valid = np.ones(40, bool)
    valid[3] = False
    buffers = [pa.py_buffer(np.packbits(valid, bitorder="little")), pa.py_buffer(views), pa.py_buffer(data)]
    column = pa.Array.from_buffers(pa.string_view(), 40, buffers)
    path = str(tmp_path / "views.arrow")
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, pa.schema([("s", pa.string_view())])) as writer:
        writer.write_batch(pa.record_batch([column], ["s"]))
    found = [
        value
        for block in open_file(path, (Column("s", pa.string_view()),), BlockLimit(6)).blocks()
        for value in block["s"].to_pylist()
    ]
    assert found == [None if row == 3 else f"{row * 7 % 10:020d}" for row in range(40)]


def test_a_value_outside_of_its_buffer_is_refused(tmp_path):
    table = pa.table({"s": ["first", "second", "third"]})
    path = tmp_path / "damaged.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    content = path.read_bytes()
    offsets = np.array([0, 5, 11, 16], np.int32).tobytes()
    path.write_bytes(content.replace(offsets, np.array([0, 5, 11, 1 << 30], np.int32).tobytes()))
    with pytest.raises(
        InputError, match="damaged.arrow: cannot be read as Arrow IPC: a value lies outside of its buffer"
    ):
        list(open_file(str(path), (Column("s", pa.string()),)).blocks())


@pytest.mark.parametrize("skip_rows", [0, 100])
def test_a_stream_cut_between_two_batches_lacks_its_end(tmp_path, skip_rows):
    path = written(tmp_path / "cut.arrow", is_file=False)
    whole = os.path.getsize(path)
    assert read(path, 64, skip_rows).num_rows == ROWS - skip_rows
    os.truncate(path, whole - 8)
    with pytest.raises(
        ChangedInputError, match=f"cut.arrow: .* got {ROWS} rows, wanted an end behind them; it has been cut short"
    ):
        read(path, 64, skip_rows)
    os.truncate(path, whole - 100)
    with pytest.raises(ChangedInputError, match=rf"got {max(160, skip_rows)} rows, wanted {ROWS} rows, or more"):
        read(path, 64, skip_rows)


@pytest.mark.parametrize("keep", [1, 3, 9])
def test_a_header_cut_short_or_damaged_is_told(tmp_path, keep):
    path = written(tmp_path / "cut.arrow", is_file=False)
    content = open(path, "rb").read()
    second = content.index(b"\xff\xff\xff\xff", content.index(b"\xff\xff\xff\xff", 4) + 4)
    open(path, "wb").write(content[: second + keep])
    with pytest.raises(ChangedInputError, match="cut short"):
        read(path)
    open(path, "wb").write(content[: second + 8] + b"\xee" * 64 + content[second + 72 :])
    with pytest.raises(InputError, match="cannot be read as Arrow IPC"):
        read(path)
