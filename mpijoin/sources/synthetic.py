"""Synthetic streams as the master reads them: it makes them block by block while it has nothing else to do."""

from __future__ import annotations

from typing import Iterator, Sequence

import numpy as np
import pyarrow as pa

from mpijoin.config.job import SyntheticSource
from mpijoin.data.arrow import width_bytes
from mpijoin.data.schema import Column
from mpijoin.errors import InputError
from mpijoin.generators.arrivals import START
from mpijoin.generators.stream import SyntheticStream
from mpijoin.sources.base import TIME_MAX
from mpijoin.sources.blocks import BlockLimit
from mpijoin.sources.ranges import ALL_ROWS, Ranges, RowRange, rows_in


class SyntheticReader:
    """A `Reader` that makes its rows: the first `tuples` of the stream, or those before `duration_ns`.

    For skipped rows only the gaps are summed up. With disorder they are made, since all of them decide which those are.
    """

    def __init__(
        self,
        source: SyntheticSource,
        seed: int,
        stream: int,
        columns: Sequence[Column],
        limit: BlockLimit | None = None,
        rows: Sequence[RowRange] = ALL_ROWS,
    ):
        self._stream = SyntheticStream(source, seed, stream)
        self._arrivals = self._stream.arrivals
        self._disorder_ns, self._limit = source.disorder_ns, limit or BlockLimit()
        self._row_bytes = sum(width_bytes(column.type) for column in columns)
        self._names = [column.name for column in columns]
        self._count, self._position = 0, START
        self._time_ns = 0
        self._ranges = Ranges(rows)
        self._stop: int | None = None  # of the range under way
        if not self._disorder_ns:
            self._skip_to(self._ranges.first)

    def blocks(self) -> Iterator[pa.RecordBatch]:
        """Raises InputError when times leave the range of 64-bit nanoseconds."""
        if self._disorder_ns:
            yield from rows_in(self._disordered(), self._ranges)
            return
        for start, stop in self._ranges.ranges:
            self._skip_to(start)
            self._stop = stop
            yield from (batch for _, batch in self._in_order())

    def _skip_to(self, row: int) -> None:
        """Goes on with this row, which is not before the next one."""
        if row == self._count:
            return
        skipped = self._arrivals.skip(self._count, row - self._count)
        self._position = min(TIME_MAX, self._position + skipped)
        self._count = row
        self._time_ns = self._arrivals.time_before(row, self._position)

    def _disordered(self) -> Iterator[pa.RecordBatch]:
        """Blocks in the order in which the tuples come."""
        waiting = Waiting()
        for emitted, batch in self._in_order():
            yield from waiting.add(emitted, batch, self._time_ns, self._block_rows)
        yield from waiting.add(*self._made(np.empty(0, np.int64)), TIME_MAX, self._block_rows)

    def _in_order(self) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
        """Blocks in order of time, with when each tuple is to come."""
        while (rows := self._rows_left()) > 0:
            time = self._times(rows)
            if len(time) == 0:
                return
            yield self._made(time)
            if len(time) < rows:
                return

    def _rows_left(self) -> int:
        ends = [end for end in (self._arrivals.total, self._stop) if end is not None]
        return min(self._block_rows, *(end - self._count for end in ends)) if ends else self._block_rows

    @property
    def _block_rows(self) -> int:
        return self._limit.rows_of(self._row_bytes)

    def _times(self, rows: int) -> np.ndarray:
        """The times of the next `rows` tuples, or of fewer if the stream's duration ends among them."""
        time, self._position = self._arrivals.times(self._count, rows, self._position)
        end = self._arrivals.end_ns
        inside = int(np.searchsorted(time, end, "left"))
        if len(time) < rows and inside == len(time) and end == TIME_MAX:
            raise InputError(
                f"synthetic stream: tuple {self._count + len(time)} lies beyond {TIME_MAX} ns; "
                f"wanted a higher rate or fewer tuples"
            )
        return time[:inside]

    def _made(self, time: np.ndarray) -> tuple[np.ndarray, pa.RecordBatch]:
        first = self._count
        self._count += len(time)
        if len(time):
            self._time_ns = int(time[-1])
        return self._stream.emitted(first, time), self._stream.batch(self._names, first, time)

    def fraction(self) -> float:
        if self._arrivals.total is not None:
            return min(1.0, self._count / max(1, self._arrivals.total))
        return min(1.0, self._time_ns / max(1, self._arrivals.end_ns))

    def close(self) -> None:
        """Nothing is held open."""


class Waiting:
    """Tuples of a stream with disorder whose turn has not come yet: at most those within its bound, and a block."""

    def __init__(self) -> None:
        self._emitted = np.empty(0, np.int64)
        self._rows: pa.Table | None = None

    def add(self, emitted: np.ndarray, batch: pa.RecordBatch, until: int, block_rows: int) -> Iterator[pa.RecordBatch]:
        """Takes a block; gives, in order, the tuples that come up to `until`, since later tuples come after that."""
        own = pa.Table.from_batches([batch])
        rows = own if self._rows is None else pa.concat_tables([self._rows, own])
        emitted = np.concatenate([self._emitted, emitted])
        # Of tuples that come at once those of smaller numbers come first; the waiting ones all have smaller numbers.
        order = np.argsort(emitted, kind="stable")
        ready = int(np.searchsorted(emitted[order], until, "right"))
        self._emitted = emitted[order[ready:]]
        sorted_rows = rows.take(order).combine_chunks()
        self._rows = sorted_rows.slice(ready)
        yield from sorted_rows.slice(0, ready).to_batches(max_chunksize=block_rows)
