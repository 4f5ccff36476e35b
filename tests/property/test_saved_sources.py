"""Input read in several goes, each from where the one before was saved, is the input read in one."""

import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from made import made
from mpijoin.config.columns import synthetic_schema
from mpijoin.config.job import B_MODEL, POISSON, ZIPF, Change, FileSource, Job, StreamJob, SyntheticSource, TableSource
from mpijoin.data.record import RecordLayout
from mpijoin.data.schema import Column, JoinSchema, StreamSchema
from mpijoin.producer.intake import Intake
from mpijoin.producer.pacing import Pace
from mpijoin.rundir import RunDirectory
from mpijoin.sources.base import End
from mpijoin.sources.late import merge_late
from small_pieces import writers

COLUMNS = (Column("ts", pa.int64()), Column("key", pa.int64()), Column("name", pa.string()))
SCHEMA = pa.schema([(column.name, column.type) for column in COLUMNS])
PIECE_ROWS = 7  # of row groups and record batches
WRITERS = writers(PIECE_ROWS)

times = st.one_of(st.none(), *[st.integers(-5, 40)] * 5)
keys = st.one_of(st.none(), *[st.integers(0, 3)] * 5)
rows = st.lists(st.tuples(times, keys, st.text("abé", max_size=3)), max_size=40)
nearly_sorted = rows.map(lambda some: sorted(some, key=lambda row: row[0] or 0))
files = st.lists(st.one_of(rows, nearly_sorted), min_size=1, max_size=4)
paces = st.one_of(
    made(Pace, st.integers(1, 20), st.just(1), st.just(1), st.just(1)),
    made(Pace, st.none(), st.integers(1, 30), st.integers(1, 10), st.integers(1, 20)),
)
sizes = st.fixed_dictionaries({"block": st.integers(1, 9), "read": st.integers(1, 9), "part": st.integers(1, 15)})
# Number of ticks before each break, and how many parts of ticks are read after it until the run dies.
breaks = st.dictionaries(st.integers(0, 12), st.integers(0, 4), min_size=1, max_size=4)


@contextmanager
def small(sizes):
    """Everything that is read, in pieces of these sizes."""
    with ExitStack() as stack:
        stack.enter_context(patch("mpijoin.producer.intake.PART_BYTES", 64 * sizes["part"]))
        stack.enter_context(patch("mpijoin.sources.base.BLOCK_ROWS", sizes["block"]))
        stack.enter_context(patch("mpijoin.producer.ticks.READ_ROWS", sizes["read"]))
        stack.enter_context(patch("mpijoin.sources.merge.PEEK_ROWS", 2))
        stack.enter_context(patch("mpijoin.sources.csv_reader.PIECE_BYTES", 64))
        yield


class Reading(NamedTuple):
    """ticks: (rows of left and right, watermarks, border) · counts: of both sources after each tick, and at the end ·
    late: tables, in the order of rows."""

    ticks: list
    counts: list
    late: list


def read(job, schema, pace, breaks=MappingProxyType({})):
    """Reads all, broken off at the ticks of `breaks`, each time after having read on for so many parts of ticks."""
    with tempfile.TemporaryDirectory() as folder:
        directory, ticks, counts = RunDirectory.create(folder, ""), [], []
        intake = Intake(job, schema, directory, pace)
        more = True
        while more:
            if len(ticks) in breaks:
                intake = broken_off(intake, job, schema, directory, pace, breaks[len(ticks)])
            more = next_tick(intake, schema, ticks)
            counts.append([vars(source.counts).copy() for source in intake.sources])
        if len(ticks) + 1 in breaks:
            intake = broken_off(intake, job, schema, directory, pace, 3)
            assert intake.next() == End() and [vars(source.counts) for source in intake.sources] == counts[-1]
        assert [source.progress() for source in intake.sources] == [1.0, 1.0]
        intake.close()
        return Reading(ticks, counts, late_tables(intake, schema, directory))


def next_tick(intake, schema, ticks):
    """Adds a whole tick to `ticks`, if there is one more."""
    sides = ([], [])
    while not isinstance(part := intake.next(), End):
        for side, stream, batches in zip(sides, schema.streams, part.batches):
            for batch in batches:
                assert all(column.flags.c_contiguous for column in batch)
                stored = RecordLayout(stream).unpack(batch.record, batch.size, batch.blob)
                columns = [
                    batch.key.tolist(),
                    batch.time.tolist(),
                    batch.row.tolist(),
                    *(one.to_pylist() for one in stored),
                ]
                side.extend(zip(*columns))
        if part.watermarks is not None:
            ticks.append((sides, part.watermarks, part.border))
            return True
    return False


def broken_off(intake, job, schema, directory, pace, parts):
    """Saves, reads on for so many parts of ticks, dies, and goes on from what was saved."""
    saved = intake.save().tobytes()
    for _ in range(parts):
        intake.next()
    intake.close()
    for stream in schema.streams:
        (directory.open_late_parts / f"{stream.name}-00099.parquet").write_bytes(b"PAR1, cut off")
    again = Intake(job, schema, directory, pace, np.frombuffer(saved, np.uint8))
    assert again.save().tobytes() == saved
    return again


def late_tables(intake, schema, directory):
    names = [part.name for part in intake.late_parts]
    assert sorted(path.name for path in directory.open_late_parts.iterdir()) == sorted(names)
    tables = []
    for stream in schema.streams:
        own, target = [name for name in names if name.startswith(stream.name)], directory.open_late(stream.name)
        merge_late([directory.open_late_parts / name for name in own], target, stream)
        tables.append(pq.read_table(target).sort_by("row"))
    return tables


def check(job, schema, pace, sizes, breaks, exact):
    """exact: whether counts agree in between too, since the pieces that are read are the same."""
    with small(sizes):
        wanted, found = read(job, schema, pace), read(job, schema, pace, breaks)
    assert found.ticks == wanted.ticks
    assert found.counts == wanted.counts if exact else found.counts[-1] == wanted.counts[-1]
    assert all(one.equals(other) for one, other in zip(found.late, wanted.late))
    counted = [one["late"] for one in wanted.counts[-1]]
    assert [table.num_rows for table in found.late] == counted


def table_of(rows):
    columns = list(zip(*rows)) if rows else [[], [], []]
    return pa.table([pa.array(values, column.type) for values, column in zip(columns, SCHEMA)], schema=SCHEMA)


def source_of(kind, files, folder):
    if kind == "table":
        return TableSource(pa.concat_tables([table_of(rows) for rows in files]))
    folder.mkdir()
    for number, rows in enumerate(files):
        WRITERS[kind](table_of(rows), str(folder / f"{number}.{kind}"))
    return FileSource(str(folder))


KINDS = st.sampled_from(["table", *WRITERS])
lateness = st.integers(0, 40)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.tuples(KINDS, KINDS), st.tuples(files, files), st.tuples(lateness, lateness), paces, sizes, breaks)
def test_files_and_tables_go_on_where_they_were_saved(kinds, files, lateness, pace, sizes, breaks):
    with tempfile.TemporaryDirectory() as folder:
        streams = [
            StreamJob(name, source_of(kind, own, Path(folder, name)), lateness_ns=late)
            for name, kind, own, late in zip(("left", "right"), kinds, files, lateness)
        ]
        schema = JoinSchema(
            tuple(StreamSchema(name, COLUMNS[0], 1, COLUMNS[1:2], False, COLUMNS[2:]) for name in ("left", "right")),
            "ns",
        )
        check(Job(tuple(streams)), schema, pace, sizes, breaks, exact="parquet" not in kinds)


changes = made(
    Change,
    st.integers(1, 10**8),
    rate=st.one_of(st.none(), st.sampled_from([100.0, 5000.0])),
    bias=st.one_of(st.none(), st.just(0.9)),
    permute=st.one_of(st.none(), st.integers(0, 9)),
)
endings = st.one_of(
    st.fixed_dictionaries({"tuples": st.integers(0, 120)}),
    st.fixed_dictionaries({"duration_ns": st.integers(1, 10**8)}),
)
others = st.fixed_dictionaries(
    {
        "arrivals": st.sampled_from([POISSON, B_MODEL]),
        "keys": st.sampled_from([B_MODEL, ZIPF]),
        "permute": st.one_of(st.none(), st.integers(0, 5)),
        "payload_bytes": st.sampled_from([0, 11]),
        "changes": st.lists(changes, max_size=2).map(lambda some: tuple(sorted(some, key=lambda one: one.start_ns))),
        "disorder_ns": st.sampled_from([0, 0, 10**6, 3 * 10**7]),
    }
)
synthetic = st.builds(
    lambda ending, other: SyntheticSource(rate=1000.0, domain=100, **ending, **other), endings, others
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.tuples(synthetic, synthetic), st.integers(0, 10**7), st.sampled_from([10**6, 10**7]), sizes, breaks)
def test_synthetic_streams_go_on_where_they_were_saved(sources, lateness, length, sizes, breaks):
    job = Job(tuple(StreamJob(name, source, lateness_ns=lateness) for name, source in zip(("left", "right"), sources)))
    schema = JoinSchema(tuple(synthetic_stream(stream) for stream in job.streams), "ns")
    check(job, schema, Pace(length, 1, 1, 1), sizes, breaks, exact=True)


def synthetic_stream(stream):
    time, key, *payload = (Column(field.name, field.type) for field in synthetic_schema(stream.source))
    return StreamSchema(stream.name, time, 1, (key,), False, tuple(payload))
