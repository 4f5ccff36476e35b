"""Writes the files of a stream where their rows are made. One task writes each file, under another name until it is
whole."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mpijoin.compiled import kernel
from mpijoin.config.columns import synthetic_schema
from mpijoin.config.rules import SYNTHETIC_KEY, SYNTHETIC_PAYLOAD, SYNTHETIC_TIME
from mpijoin.generators.stream import SyntheticStream
from mpijoin.named import NamedTuple
from mpijoin.partitioning.hashing import pair_hash
from mpijoin.pipeline.generate.plan import FilePlan, Piece, StreamPlan
from mpijoin.refusals import writing

BLOCK_ROWS = 1 << 18  # made and written at a time, where order allows it
ROW_GROUP_ROWS = 1 << 17
# Delta packing needs no codec on top: it is smaller than what zstd makes of plain times and keys, and is decoded more
# than three times as fast. With dictionaries, distinct times would take four times as long to write. All readers know
# these encodings.
PACKED = (SYNTHETIC_TIME, SYNTHETIC_KEY)
PARQUET = {
    "compression": dict.fromkeys(PACKED, "none") | {SYNTHETIC_PAYLOAD: "zstd"},
    "compression_level": {SYNTHETIC_PAYLOAD: 1},
    "use_dictionary": False,
    "column_encoding": dict.fromkeys(PACKED, "DELTA_BINARY_PACKED"),
}
WRITTEN = "number long, file string, rows long, first_ns long, last_ns long, lag_ns long, checksum string"


class Written(NamedTuple):
    """A file that was written. first_ns, last_ns: its least and greatest time, None without rows · lag_ns: how far, at
    most, a row lies below the greatest time before it in the file · checksum: 16 hex digits, the sum of a hash of time
    and key over its rows."""

    number: int
    file: str
    rows: int
    first_ns: int | None
    last_ns: int | None
    lag_ns: int
    checksum: str


def write_files(spark: Any, plan: StreamPlan, files: list[FilePlan], folder: Path) -> list[Written]:
    """Writes all files of a stream into a folder, which every executor must see, and returns what was written, in
    order.

    The driver gets one row per file. Raises OutputError if a file cannot be written.
    """
    if not files:
        return []
    numbers = spark.range(0, len(files), numPartitions=len(files))
    by_number = {one.number: one for one in files}
    found = numbers.mapInArrow(partial(_write_some, plan, by_number, str(folder)), WRITTEN).collect()
    return sorted(Written(*row) for row in found)


def file_name(stream: str, number: int) -> str:
    """Names sort as their numbers do.

    >>> file_name("left", 12)
    'left-000012.parquet'
    """
    return f"{stream}-{number:06}.parquet"


def _write_some(
    plan: StreamPlan, files: dict[int, FilePlan], folder: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    pa.set_cpu_count(1)  # a task has one core
    stream = plan.stream()
    for batch in batches:
        rows = [_write(plan, stream, files[number], Path(folder)) for number in batch.column(0).to_pylist()]
        yield pa.RecordBatch.from_pylist([row._asdict() for row in rows], schema=_written_schema())


def _written_schema() -> pa.Schema:
    whole = [(name, pa.int64()) for name in ("rows", "first_ns", "last_ns", "lag_ns")]
    return pa.schema([("number", pa.int64()), ("file", pa.string()), *whole, ("checksum", pa.string())])


def _write(plan: StreamPlan, stream: SyntheticStream, file: FilePlan, folder: Path) -> Written:
    name = file_name(plan.name, file.number)
    # Attempts of one task may overlap. Each writes a file of its own, and each of these files is right.
    aside = folder / f".{name}.{os.getpid()}"
    meter = _Meter()
    with writing(folder / name):
        with pq.ParquetWriter(aside, synthetic_schema(plan.source), **PARQUET) as writer:
            for batch in _blocks(plan, stream, file):
                meter.add(batch)
                writer.write_batch(batch, ROW_GROUP_ROWS)
        os.replace(aside, folder / name)
    return Written(file.number, name, meter.rows, meter.first_ns, meter.last_ns, meter.lag_ns, f"{meter.checksum:016x}")


def _blocks(plan: StreamPlan, stream: SyntheticStream, file: FilePlan) -> Iterator[pa.RecordBatch]:
    """The file's tuples in the order in which they come. Those that come at the same time are ordered by their
    numbers."""
    names = synthetic_schema(plan.source).names
    parts, emitted = [], []
    for piece in file.pieces:
        for first, time in _times(stream, piece):
            if not plan.source.disorder_ns:
                yield stream.batch(names, first, time)
                continue
            comes = stream.emitted(first, time)
            inside = (comes >= file.low_ns) & ((comes < file.high_ns) | (file.high_ns == np.iinfo(np.int64).max))
            parts.append(stream.batch(names, first, time).filter(pa.array(inside)))
            emitted.append(comes[inside])
    if parts:
        order = np.argsort(np.concatenate(emitted), kind="stable")
        yield from pa.Table.from_batches(parts).take(order).combine_chunks().to_batches(max_chunksize=BLOCK_ROWS)


def _times(stream: SyntheticStream, piece: Piece) -> Iterator[tuple[int, np.ndarray]]:
    """Blocks of a piece: the number of the first tuple, and int64 times in ns. No time is at or after the stream's
    end."""
    position, end_ns = piece.position, stream.arrivals.end_ns
    for first in range(piece.first, piece.first + piece.rows, BLOCK_ROWS):
        time, position = stream.arrivals.times(first, min(BLOCK_ROWS, piece.first + piece.rows - first), position)
        inside = int(np.searchsorted(time, end_ns, "left"))
        if inside:
            yield first, time[:inside]
        if inside < len(time):
            return


class _Meter:
    """Gathers what the manifest says of a file, from its batches in order."""

    def __init__(self) -> None:
        self.rows = self.lag_ns = self.checksum = 0
        self.first_ns: int | None = None
        self.last_ns: int | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        time = batch.column(0).cast(pa.int64()).to_numpy()
        if len(time) == 0:
            return
        before = time[0] if self.last_ns is None else self.last_ns
        running = np.maximum.accumulate(np.maximum(time, before))
        self.lag_ns = max(self.lag_ns, int((running - time).max()))
        self.first_ns = int(time.min()) if self.first_ns is None else min(self.first_ns, int(time.min()))
        self.last_ns = int(running[-1])
        self.rows += len(time)
        self.checksum = (self.checksum + int(sum_of_hashes(time, batch.column(1).to_numpy()))) % 2**64


@kernel
def sum_of_hashes(time, key):
    """uint64: the sum over all rows of a hash of time and key, int64[n] each. Any order of the rows gives the same
    sum."""
    total = np.uint64(0)
    for i in range(len(time)):
        total += pair_hash(time[i], key[i])
    return total
