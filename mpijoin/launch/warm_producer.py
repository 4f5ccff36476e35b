"""The kernels of a producer, each run for a few rows."""

from __future__ import annotations

from typing import Sequence

import numpy as np

from mpijoin.config.columns import synthetic_schema
from mpijoin.config.job import Job, StreamJob, SyntheticSource, TableSource
from mpijoin.data.record import RecordLayout
from mpijoin.data.schema import Column, JoinSchema
from mpijoin.launch.tiny import tiny_stream, tiny_table
from mpijoin.launch.use import Use
from mpijoin.partitioning.scatter import scatter
from mpijoin.producer.pacing import pace_of
from mpijoin.producer.ticks import Tick, TickReader
from mpijoin.sources import open_source


def read_and_scatter(use: Use) -> None:
    streams = (tiny_stream("left", use), tiny_stream("right", use))
    schema = JoinSchema(streams, "ns")
    # The first table is out of order, and the second one is in order.
    tables = tiny_table(use), tiny_table(use).slice(0, 2)
    pairs = zip(streams, map(TableSource, tables))
    job = Job(tuple(StreamJob(stream.name, source, time_unit="ns", lateness_ns=2) for stream, source in pairs))
    sources = tuple(open_source(job, index, schema, lambda table: None) for index in range(2))
    tick = TickReader(sources, (0, 0), pace_of(1, (1, 1), 1), 4).next()
    # These sources never wait, and they are not empty.
    assert isinstance(tick, Tick)
    layout = RecordLayout(streams[0])
    scatter(tick.batches[0], np.arange(3), layout.record_words, layout.has_blob)


def split_text() -> None:
    from mpijoin.data.csv_records import first_padded, may_be_padded, split

    split(bytearray(b'"a"\n'))
    may_be_padded(memoryview(bytearray(b"\n\n01\n")))
    first_padded(b"01\n", np.array([True]))


def make_two(sources: Sequence[SyntheticSource]) -> None:
    from mpijoin.sources.synthetic import SyntheticReader

    for source in sources:
        few = source._replace(tuples=2, duration_ns=None, permute=0)
        columns = [Column(field.name, field.type) for field in synthetic_schema(few)]
        list(SyntheticReader(few, 0, 0, columns).blocks())
