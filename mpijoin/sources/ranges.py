"""Which rows of a file are read: some consecutive ones, or several such ranges, one behind the other."""

from __future__ import annotations

from itertools import pairwise
from typing import Iterable, Iterator, Sequence

import pyarrow as pa

from mpijoin.named import NamedTuple


class RowRange(NamedTuple):
    """Rows start .. stop - 1 of a file; stop None: to its end."""

    start: int
    stop: int | None = None


ALL_ROWS = (RowRange(0),)


def from_row(row: int) -> tuple[RowRange, ...]:
    """All rows from this one on."""
    return (RowRange(row),)


class Ranges:
    """Ranges that ascend and do not overlap, of which only the last may go to the end of the file.

    >>> some = Ranges([RowRange(2, 4), RowRange(9, 10)])
    >>> some.skipped, some.last, list(some.within(3, 8))
    (7, 10, [(0, 1), (6, 7)])
    """

    def __init__(self, ranges: Sequence[RowRange]):
        self.ranges = tuple(ranges)
        assert all(one.stop is not None and one.stop <= other.start for one, other in pairwise(self.ranges))

    @property
    def first(self) -> int:
        return self.ranges[0].start if self.ranges else 0

    @property
    def last(self) -> int | None:
        """The row behind the last one; None: the end of the file."""
        return self.ranges[-1].stop if self.ranges else 0

    @property
    def skipped(self) -> int:
        """How many rows before `last` are in none of them; of rows to the end of the file, those before the first."""
        if self.last is None:
            return self.ranges[-1].start - sum(stop - start for start, stop in self.ranges[:-1] if stop is not None)
        return self.last - sum(stop - start for start, stop in self.ranges if stop is not None)

    def within(self, first: int, rows: int) -> Iterator[tuple[int, int]]:
        """Of rows first .. first + rows - 1 of the file those that are wanted, as bounds that count from `first`."""
        for start, stop in self.ranges:
            low, high = max(start - first, 0), rows if stop is None else min(stop - first, rows)
            if low < high:
                yield low, high


def rows_in(batches: Iterable[pa.RecordBatch], ranges: Ranges, first: int = 0) -> Iterator[pa.RecordBatch]:
    """Gives what batches from row `first` of a file on hold of the ranges, as views."""
    for batch in batches:
        for low, high in ranges.within(first, batch.num_rows):
            yield batch.slice(low, high - low)
        first += batch.num_rows
        if ranges.last is not None and first >= ranges.last:
            return
