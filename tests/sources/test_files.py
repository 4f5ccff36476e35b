"""Files as streams: formats, projection, bounded memory, and clear refusals."""

import os
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet import encryption

import mpijoin
from mpijoin.config.inject import Inject
from mpijoin.config.job import FileSource, Job, StreamJob, TableSource
from mpijoin.data.schema import Column, JoinSchema, StreamSchema
from mpijoin.errors import InputError, MpijoinError
from mpijoin.sources import open_source
from mpijoin.sources.base import TIME_MAX, End
from mpijoin.sources.blocks import BlockLimit
from mpijoin.sources.files import open_file
from mpijoin.sources.merge import MergedFiles, Part
from mpijoin.sources.screen import FILE_ROWS, StreamRules
from mpijoin.sources.table import TableReader

TABLE = pa.table(
    {
        "unused": pa.array(["x"] * 1000),
        "ts": pa.array(np.arange(1000) * 1000, pa.timestamp("us")),
        "station": pa.array([f"S{i % 7}" for i in range(1000)]),
        "prob": pa.array([None if i % 10 == 0 else i / 8 for i in range(1000)], pa.float64()),
    }
)


def schema_of(table: pa.Table, time="ts", key="station", payload=("prob",), scale=1) -> StreamSchema:
    def column(name):
        return Column(name, table.schema.field(name).type)
    keys = (column(key),)
    hashed = pa.types.is_string(keys[0].type)
    return StreamSchema("left", column(time), scale, keys, hashed, tuple(map(column, payload)))


def write_stream(table, path):
    with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=300)


WRITERS = {
    "parquet": pq.write_table,
    "feather": pa.feather.write_feather,
    "arrow": write_stream,
    "csv": pa.csv.write_csv,
}


def open_job(path, schema, hash_bits=64, source=None):
    stream = StreamJob(
        "left", source or FileSource(str(path)), schema.time.name, None, tuple(c.name for c in schema.keys)
    )
    job = Job((stream, stream), inject=Inject(hash_bits=hash_bits))
    return open_source(job, 0, JoinSchema((schema, schema), "us"), None)


def read_all(source, rows=100):
    chunks = []
    while not isinstance(chunk := source.read(rows), End):
        chunks.append(chunk)
    source.close()
    return chunks


def values(chunks, schema):
    layout = StreamRules(schema, 0, None).layout
    unpacked = [layout.unpack(c.batch.record, c.batch.size, c.batch.blob) for c in chunks if c.batch.rows]
    return [pa.chunked_array(pieces) for pieces in zip(*unpacked)]


@pytest.mark.parametrize("extension", WRITERS)
def test_every_format_gives_the_same_tuples(tmp_path, extension):
    path = str(tmp_path / f"picks.{extension}")
    WRITERS[extension](TABLE, path)
    schema = schema_of(pa.csv.read_csv(path) if extension == "csv" else TABLE)
    source = open_job(path, schema)
    chunks = read_all(source)
    assert max(chunk.batch.rows for chunk in chunks) == 100 and chunks[-1].horizon == TIME_MAX
    assert np.concatenate([chunk.batch.row for chunk in chunks]).tolist() == list(range(1000))
    station, prob = values(chunks, schema)
    assert station.to_pylist() == TABLE["station"].to_pylist() and prob.to_pylist() == TABLE["prob"].to_pylist()
    time = np.concatenate([chunk.batch.time for chunk in chunks])
    wanted = TABLE["ts"].cast(schema.time.type).cast(pa.int64()).to_numpy()
    assert (time == wanted).all() and source.counts.read == 1000 and source.progress() == 1.0


def test_a_table_is_read_as_one_file(tmp_path):
    schema = schema_of(TABLE)
    chunks = read_all(open_job(None, schema, source=TableSource(TABLE)), rows=333)
    assert [chunk.batch.rows for chunk in chunks] == [333, 333, 333, 1, 0]
    assert values(chunks, schema)[1].to_pylist() == TABLE["prob"].to_pylist()


def test_a_folder_numbers_rows_by_file_and_position(tmp_path):
    for name, start in (("b", 0), ("a", 400), ("c", 400)):
        pq.write_table(TABLE.slice(start, 400), tmp_path / f"{name}.parquet")
    chunks = read_all(open_job(tmp_path, schema_of(TABLE)))
    row = np.concatenate([chunk.batch.row for chunk in chunks])
    assert row[:400].tolist() == [FILE_ROWS + i for i in range(400)]
    assert row[400:402].tolist() == [0, 2 * FILE_ROWS] and len(row) == 1200


def test_files_are_opened_when_their_time_comes_and_closed_at_their_end(tmp_path):
    schema, opened = schema_of(TABLE), []

    class Watched(TableReader):
        def __init__(self, number, columns, block_rows, skip_rows):
            super().__init__("table", TABLE.slice(number * 100, 100), columns, block_rows, skip_rows)
            self.number, self.is_peek = number, len(columns) == 1
            if not self.is_peek:
                opened.append(number)

        def close(self):
            if not self.is_peek:
                opened.remove(self.number)

    source = MergedFiles(
        StreamRules(schema, 0, None), [Part("table", 1, partial(Watched, i)) for i in range(10)], BlockLimit(10)
    )
    at_once, progress = [], []
    while not isinstance(source.read(1000), End):
        at_once.append(len(opened))
        progress.append(source.progress())
    assert max(at_once) <= 2 and opened == [] and progress == sorted(progress) and progress[-1] == 1.0


def test_hash_bits_reach_the_keys(tmp_path):
    chunks = read_all(open_job(None, schema_of(TABLE), hash_bits=1, source=TableSource(TABLE)))
    assert set(np.concatenate([chunk.batch.key for chunk in chunks]).tolist()) == {0, 1}


@pytest.mark.parametrize("extension", ["parquet", "arrow", "feather"])
def test_memory_stays_small_for_one_giant_row_group(tmp_path, extension):
    rows = 2_500_000
    rng = np.random.default_rng(3)
    table = pa.table({"ts": np.arange(rows), "key": rng.integers(0, 1 << 60, rows), "id": rng.random(rows)})
    path = str(tmp_path / f"big.{extension}")
    if extension == "parquet":
        pq.write_table(table, path, row_group_size=rows, compression="none", use_dictionary=False)
    elif extension == "feather":
        pa.feather.write_feather(table, path, compression="uncompressed", chunksize=rows)
    else:
        with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
    assert os.path.getsize(path) >= 60_000_000
    del table
    schema = StreamSchema(
        "left", Column("ts", pa.int64()), 1, (Column("key", pa.int64()),), False, (Column("id", pa.float64()),)
    )
    source, before, peak, count = open_job(path, schema), pa.total_allocated_bytes(), 0, 0
    while not isinstance(chunk := source.read(1 << 16), End):
        peak = max(peak, pa.total_allocated_bytes() - before)
        count += chunk.batch.rows
    source.close()
    assert count == rows and peak < 12_000_000


@pytest.mark.parametrize("extension", WRITERS)
def test_a_truncated_file_is_named(tmp_path, extension):
    path = str(tmp_path / f"cut.{extension}")
    WRITERS[extension](TABLE.slice(0, 900), path)
    schema = schema_of(pa.csv.read_csv(path) if extension == "csv" else TABLE)
    # A cut CSV line has too few columns; the others miss their footers or buffers.
    os.truncate(path, os.path.getsize(path) - (20 if extension != "csv" else 6))
    with open(path, "ab") as file:
        file.write(b"\n1,2\n" if extension == "csv" else b"")
    with pytest.raises(
        InputError,
        match="cut.csv: line 902: got 2 values, wanted 4" if extension == "csv" else "cut.*cannot be read as",
    ):
        if extension == "arrow":
            os.truncate(path, os.path.getsize(path) - 500)
        read_all(open_job(path, schema))


class Keys(encryption.KmsClient):
    """Keeps keys in plain sight."""

    def wrap_key(self, key, name):
        return key.hex().encode()

    def unwrap_key(self, key, name):
        return bytes.fromhex(key.decode())


@pytest.mark.parametrize("producers", [1, 2])
@pytest.mark.parametrize("column", ["ts", "key", "more"])
def test_an_encrypted_column_is_read_by_nobody_and_named_if_it_is_wanted(tmp_path, column, producers):
    """Arrow ends the process that asks for the footer's figures of such a column."""
    table = pa.table({"ts": pa.array(range(100)), "key": [1] * 100, "more": ["x"] * 100})
    keys, own = encryption.KmsConnectionConfig(), {"footer_key": "a", "column_keys": {"b": [column]}}
    config = encryption.EncryptionConfiguration(**own, plaintext_footer=True)
    properties = encryption.CryptoFactory(lambda _: Keys()).file_encryption_properties(keys, config)
    path = tmp_path / "rows.parquet"
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table, row_group_size=20)
    stream = {"path": str(path), "time_unit": "s", "window": "0 s"}
    job = {"left": stream, "right": stream, "cluster": {"producers": producers}}
    assert column != "more" or mpijoin.run({**job, "output": {"results": "count"}}).results == 100
    with pytest.raises(MpijoinError, match=f"column '{column}' is encrypted: wanted columns that need no key"):
        mpijoin.run({**job, "output": {"path": str(tmp_path / "run")}})


def test_an_empty_or_foreign_file_is_named(tmp_path):
    for extension in ("parquet", "arrow", "csv"):
        path = tmp_path / f"nothing.{extension}"
        path.write_bytes(b"")
        with pytest.raises(InputError, match=f"nothing.{extension}: cannot be read as"):
            read_all(open_job(path, schema_of(TABLE)))
    with pytest.raises(InputError, match="gone.parquet: cannot be read: No such file"):
        open_file(str(tmp_path / "gone.parquet"), ())


def test_a_damaged_page_is_named(tmp_path):
    path = tmp_path / "damaged.parquet"
    pq.write_table(TABLE, path, compression="snappy")
    content = bytearray(path.read_bytes())
    content[40 : len(content) // 2] = bytes(len(content) // 2 - 40)
    path.write_bytes(content)
    with pytest.raises(InputError, match="damaged.parquet: cannot be read as Parquet"):
        read_all(open_job(path, schema_of(TABLE)))


@pytest.mark.parametrize("extension", ["parquet", "feather"])
def test_a_later_file_without_the_column_or_with_another_type_is_named(tmp_path, extension):
    write = WRITERS[extension]
    write(TABLE, str(tmp_path / f"a.{extension}"))
    write(TABLE.drop_columns(["prob"]), str(tmp_path / f"b.{extension}"))
    with pytest.raises(InputError, match=r"b\..*got no column 'prob', wanted one; the file has unused, ts, station"):
        read_all(open_job(tmp_path, schema_of(TABLE)))
    write(TABLE.set_column(3, "prob", TABLE["prob"].cast(pa.float32())), str(tmp_path / f"b.{extension}"))
    with pytest.raises(InputError, match=r"b\..*column 'prob' is float, wanted double"):
        read_all(open_job(tmp_path, schema_of(TABLE)))


def test_a_csv_value_of_the_wrong_type_is_named_wherever_it_stands(tmp_path):
    path = tmp_path / "long.csv"
    lines = [f"{i},{i % 5},{i}" for i in range(200_000)]
    lines[150_000] = "150000,three,1"
    path.write_text("\n".join(["ts,key,id", *lines]) + "\n")
    schema = StreamSchema("left", Column("ts", pa.int64()), 1, (Column("key", pa.int64()),), False, ())
    with pytest.raises(
        InputError, match=r"long.csv: line 150002: column 'key': invalid value 'three', wanted int64 as"
    ):
        read_all(open_job(path, schema), rows=1 << 20)
    with pytest.raises(InputError, match=r"long.csv: got no column 'nope', wanted one; the file has ts, key, id"):
        open_file(str(path), (Column("nope", pa.int64()),))


def test_a_column_twice_in_a_file_is_refused():
    table = pa.table(
        [TABLE["ts"], TABLE["station"], TABLE["prob"], TABLE["prob"]], names=["ts", "station", "prob", "prob"]
    )
    with pytest.raises(InputError, match="got 2 column 'prob'"):
        open_job(None, schema_of(TABLE), source=TableSource(table)).read(10)


def test_a_file_without_rows_is_a_stream_that_ends(tmp_path):
    path = tmp_path / "none.parquet"
    pq.write_table(TABLE.slice(0, 0), path)
    source = open_job(path, schema_of(TABLE))
    (chunk,) = read_all(source)
    assert chunk.batch.rows == 0 and chunk.horizon == TIME_MAX and source.counts.read == 0


def test_closing_early_is_allowed_twice(tmp_path):
    path = tmp_path / "picks.feather"
    pa.feather.write_feather(TABLE, path)
    source = open_job(path, schema_of(TABLE))
    source.read(10)
    source.close()
    source.close()


def test_an_ipc_file_with_dictionaries_and_compression_is_read_whole(tmp_path):
    table = TABLE.set_column(2, "station", TABLE["station"].dictionary_encode())
    path = str(tmp_path / "picks.feather")
    pa.feather.write_feather(table, path, compression="zstd", chunksize=64)
    schema = StreamSchema(
        "left", Column("ts", pa.timestamp("us")), 1, (Column("station", table["station"].type),), True, ()
    )
    station = values(read_all(open_job(path, schema)), schema)[0]
    assert station.type == pa.string() and station.to_pylist() == TABLE["station"].to_pylist()


def test_an_ipc_file_whose_batches_end_before_its_footer_says_is_refused(tmp_path):
    path = tmp_path / "picks.feather"
    pa.feather.write_feather(TABLE, path, compression="uncompressed", chunksize=500)
    content = path.read_bytes()
    second = content.index(
        b"\xff\xff\xff\xff", content.index(b"\xff\xff\xff\xff", content.index(b"\xff\xff\xff\xff") + 4) + 4
    )
    path.write_bytes(content[:second] + b"\xff\xff\xff\xff\0\0\0\0" + content[second + 8 :])
    with pytest.raises(InputError, match="got 1 record batches, wanted the 2 that its footer names"):
        read_all(open_job(path, schema_of(TABLE)))
