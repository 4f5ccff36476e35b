"""Shares of the input: whatever the number of producers, together they read each row once, and judge it alike."""

import random
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from mpijoin.config.job import FileSource, Job, StreamJob, SyntheticSource, TableSource
from mpijoin.data.record import RecordLayout
from mpijoin.data.schema import Column, JoinSchema, StreamSchema
from mpijoin.producer.pacing import Pace
from mpijoin.producer.ticks import TickReader
from mpijoin.sources import open_source, shares
from mpijoin.sources.base import TIME_MAX, TIME_MIN, End
from mpijoin.sources.position import Position, StreamPosition, decode_position, encode_position
from mpijoin.sources.shares import deal, deal_again

MS = 1_000_000
ROWS = 700
SCHEMA = StreamSchema(
    "left", Column("ts", pa.int64()), 1, (Column("key", pa.int64()),), False, (Column("id", pa.int64()),)
)


def rows_of(chance, rows, first=0, nulls=True):
    """Rows in some disorder, with null times and null keys among them."""
    times = (
        np.cumsum([chance.randrange(20) for _ in range(rows)])
        + first
        - np.array([chance.choice([0, 0, 0, chance.randrange(400)]) for _ in range(rows)])
    )
    keys = np.array([chance.randrange(50) for _ in range(rows)])
    some = np.array([nulls and chance.random() < 0.05 for _ in range(rows)], bool)
    others = np.array([nulls and chance.random() < 0.05 for _ in range(rows)], bool)
    time, key = pa.array(times, pa.int64(), mask=some), pa.array(keys, pa.int64(), mask=others)
    return pa.table({"ts": time, "key": key, "id": pa.array(range(rows), pa.int64())})


def write_ipc(table, path, stream=False, **options):
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with pa.OSFile(path, "wb") as file, make(file, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=90)


WRITERS = {
    "parquet": lambda table, path: pq.write_table(table, path + ".parquet", row_group_size=64),
    "without statistics": lambda table, path: pq.write_table(
        table, path + ".parquet", row_group_size=64, write_statistics=False
    ),
    "feather": lambda table, path: write_ipc(table, path + ".feather"),
    "compressed": lambda table, path: write_ipc(table, path + ".feather", compression="zstd"),
    "stream": lambda table, path: write_ipc(table, path + ".arrow", stream=True),
    "csv": lambda table, path: pa.csv.write_csv(table, path + ".csv"),
}


@pytest.fixture(autouse=True)
def small_units(monkeypatch):
    monkeypatch.setattr(shares, "UNIT_ROWS", 50)


def job_of(source, lateness=100):
    return Job((StreamJob("left", source, "ts", "ns", ("key",), 0, lateness),))


def job_over(tmp_path, chance, form, files):
    for number in range(files):
        WRITERS[form](rows_of(chance, ROWS // files, 1000 * chance.randrange(3)), str(tmp_path / f"part{number}"))
    return job_of(FileSource(str(tmp_path / "part*")))


class Reading:
    """What one or more producers read of a stream: each row that joins with its running maximum, each late row."""

    def __init__(self, job, schema=SCHEMA):
        self.job, self.schema, self.rows, self.late = job, JoinSchema((schema,), "ns"), [], []
        self.counts = np.zeros(3, np.int64)
        self.disorder_max = 0

    def sink(self, table):
        self.late += table.to_pylist()

    def read(self, position, most=1 << 62, chunk_rows=37):
        """Reads on, to the end or to the border after so many rows. Returns where it stands then."""
        (stream,) = position.streams
        source = open_source(self.job, 0, self.schema, self.sink, stream.source)
        reader = TickReader((source,), (100,), Pace(None, 60, 1, 1 << 40), 1 << 20, (stream,), shared=True)
        before, taken, reached = source.counts, 0, TIME_MIN
        read, late, null, disorder = before.read, before.late, before.null_key, before.disorder_max
        while taken < most:
            tick = reader.next()
            if isinstance(tick, End):
                break
            for batch in tick.batches[0]:
                taken += batch.rows
                self.rows += zip(batch.row.tolist(), batch.time.tolist(), batch.key.tolist())
                assert batch.rows == 0 or batch.time.max() < max(tick.border, reached + 1) or tick.border == TIME_MAX
            if tick.watermarks:
                assert tick.watermarks[0] >= reached, "watermarks never fall"
                reached = tick.watermarks[0]
        saved = Position(reader.save(), position.inputs, position.late)
        counts = source.counts
        self.counts += [counts.read - read, counts.late - late, counts.null_key - null]
        self.disorder_max = max(self.disorder_max, counts.disorder_max, disorder)
        source.close()
        return saved

    def found(self):
        late = sorted((tuple(row.items()) for row in self.late), key=repr)
        return sorted(self.rows), late, self.counts.tolist(), self.disorder_max


def whole(job, schema=SCHEMA):
    reading = Reading(job, schema)
    reading.read(Position((StreamPosition(),), ([],), ([],)))
    return reading.found()


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("files", [1, 3])
def test_together_producers_read_what_one_would(tmp_path, form, files):
    chance = random.Random(f"{form}{files}")
    job = job_over(tmp_path, chance, form, files)
    wanted = whole(job)
    assert len(wanted[1]) > 5, "no late rows: the test proves nothing"
    for producers in (1, 2, 3, 5):
        said = []
        reading, positions = Reading(job), deal(job, JoinSchema((SCHEMA,), "ns"), producers, said.append)
        parts = [len(reading.rows)]
        for position in positions:
            reading.read(position)
            parts.append(len(reading.rows))
        assert reading.found() == wanted
        units = {"csv": files}.get(form, ROWS // 64)
        assert sum(a < b for a, b in pairwise(parts)) == min(producers, units), "everybody has something to do"
        assert len(said) == (files if form not in ("parquet", "csv") else 0)


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("seed", range(4))
def test_wherever_a_run_is_cut_any_number_of_producers_can_go_on(tmp_path, form, seed):
    chance = random.Random(f"{form}{seed}")
    job = job_over(tmp_path, chance, form, chance.choice([1, 2, 4]))
    reading, positions = Reading(job), deal(job, JoinSchema((SCHEMA,), "ns"), chance.randint(1, 4), str)
    for _ in range(3):
        saved = [reading.read(position, most=chance.choice([0, 1, 70, 200])) for position in positions]
        frames = [encode_position(one) for one in saved]
        again = [decode_position(frame, (RecordLayout(SCHEMA).record_words,)) for frame in frames]
        positions = deal_again(again, chance.randint(1, 5))
        counts = [one.streams[0].source.counts for one in positions]
        assert sum(one.read for one in counts) == sum(one.streams[0].source.counts.read for one in saved)
    for position in positions:
        reading.read(position)
    assert reading.found() == whole(job)


def test_a_table_is_shared_out_by_rows():
    table = rows_of(random.Random(5), ROWS)
    job = job_of(TableSource(table))
    reading = Reading(job)
    for position in deal(job, JoinSchema((SCHEMA,), "ns"), 3, str):
        reading.read(position)
    assert reading.found() == whole(job)


SYNTHETIC = StreamSchema("left", Column("ts", pa.timestamp("ns")), 1, (Column("key", pa.int64()),), False, ())
SOURCES = {
    "tuples": SyntheticSource(rate=1000.0, tuples=333),
    "duration": SyntheticSource(rate=1000.0, duration_ns=400 * MS),
    "bursts": SyntheticSource(rate=1000.0, tuples=400, arrivals="b-model"),
    "disorder": SyntheticSource(rate=1000.0, tuples=300, disorder_ns=20 * MS),
    "nothing": SyntheticSource(rate=1000.0, tuples=0),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_synthetic_stream_is_the_same_for_any_number_of_producers(name):
    job = Job((StreamJob("left", SOURCES[name], "ts", None, ("key",), 0, 15 * MS),))
    wanted = whole(job, SYNTHETIC)
    for producers in (1, 2, 4):
        reading = Reading(job, SYNTHETIC)
        for position in deal(job, JoinSchema((SYNTHETIC,), "ns"), producers, str):
            reading.read(position)
        assert reading.found() == wanted


@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.timestamp("ms"), pa.uint32(), pa.int16()])
def test_the_statistics_of_every_type_of_time_say_what_the_column_says(tmp_path, kind):
    large = 4_000_000_000 if kind == pa.uint32() else 40
    values = pa.array([3, 1, large, 7, 9, 100, 5, 2], pa.int64()).cast(kind)
    table = pa.table({"ts": values, "key": list(range(8)), "id": list(range(8))})
    pq.write_table(table, tmp_path / "part.parquet", row_group_size=2)
    time = Column("ts", pq.ParquetFile(tmp_path / "part.parquet").schema_arrow.field("ts").type)
    schema = StreamSchema("left", time, 7 if kind == pa.int16() else 1, SCHEMA.keys, False, SCHEMA.payload)
    job = job_of(FileSource(str(tmp_path / "part.parquet")), lateness=0)
    reading = Reading(job, schema)
    for position in deal(job, JoinSchema((schema,), "ns"), 4, str):
        reading.read(position)
    assert reading.found() == whole(job, schema) and reading.late
