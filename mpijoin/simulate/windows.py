"""What a modelled join holds: counts of tuples for each group and stream, by the tick in which they arrived."""

from __future__ import annotations

from typing import Iterable

import numpy as np

from mpijoin.named import NamedTuple
from mpijoin.store.state import TIME_MAX_VALUE

ROWS, COLUMNS = 8, 64  # The table has this size at first.


class KeptTicks(NamedTuple):
    """One group's tuples. ends: int64[m], the last instants of the ticks, rising · counts: int32[n, m]."""

    ends: np.ndarray
    counts: np.ndarray


class Windows:
    """Counts in a row for each group and a column for each tick. `live`, int64[n, rows], is the sum of each row.

    >>> windows = Windows(2)
    >>> for end in (9, 19, 29):
    ...     windows.add(0, np.array([0, 1]), end, np.array([5, end]))
    >>> windows.expire(np.array([0, 1]), np.array([[20, 10], [20, 10]]))[0], windows.live[0, :2]
    (array([10,  9]), array([ 5, 48]))
    >>> windows.take(1)
    KeptTicks(ends=array([19, 29]), counts=array([[19, 29],
           [ 0,  0]], dtype=int32))
    """

    def __init__(self, streams: int) -> None:
        self.live = np.zeros((streams, ROWS), np.int64)
        self._first = np.zeros((streams, ROWS), np.int64)  # This is the oldest column of which any tuples are held.
        self._counts = np.zeros((streams, ROWS, COLUMNS), np.int32)
        self._ends = np.zeros(COLUMNS, np.int64)
        self._columns = 0

    @property
    def rows(self) -> int:
        return self.live.shape[1]

    def grow(self) -> None:
        """Doubles the number of rows."""
        self.live = np.concatenate([self.live, np.zeros_like(self.live)], axis=1)
        self._first = np.concatenate([self._first, np.zeros_like(self._first)], axis=1)
        self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)], axis=1)

    def add(self, stream: int, rows: np.ndarray, end: int, counts: np.ndarray) -> None:
        """Adds tuples of the tick whose last instant is `end`. rows: int64[m], each once · counts: int64[m]."""
        column = self._column(end)  # This comes first, because it may make the counts anew.
        self._counts[stream, rows, column] += counts.astype(np.int32)
        self.live[stream, rows] += counts
        self._first[stream, rows] = np.minimum(self._first[stream, rows], column)

    def expire(self, rows: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """Drops ticks that end before bounds, int64[n, m]. Returns int64[n, m], the tuples lost by stream and row."""
        limits = self._ends[: self._columns].searchsorted(bounds)
        gone = np.zeros_like(limits)
        behind = self._first[:, rows] < limits
        while behind.any():
            streams, places = behind.nonzero()
            own = rows[places]
            first = self._first[streams, own]
            counts = self._counts[streams, own, first]
            self.live[streams, own] -= counts
            gone[streams, places] += counts
            self._counts[streams, own, first] = 0
            self._first[streams, own] += 1
            behind = self._first[:, rows] < limits
        return gone

    def oldest(self, rows: np.ndarray) -> np.ndarray:
        """Returns int32[n, m]: how many tuples of the oldest tick each row holds."""
        at = np.minimum(self._first[:, rows], max(0, self._columns - 1))
        return self._counts[np.arange(len(at))[:, None], rows, at]

    def take(self, row: int) -> KeptTicks:
        """Returns what one row holds."""
        held = np.flatnonzero(self._counts[:, row, : self._columns].any(axis=0))
        return KeptTicks(self._ends[held], self._counts[:, row, held])

    def put(self, row: int, kept: KeptTicks) -> None:
        """Puts tuples into a row that is empty."""
        self._first[:, row] = 0
        for end, counts in zip(kept.ends.tolist(), kept.counts.T):
            column = self._column(end)
            self._counts[:, row, column] += counts
        self.live[:, row] = kept.counts.sum(axis=1)

    def clear(self, row: int) -> None:
        self._counts[:, row] = 0
        self.live[:, row] = 0
        self._first[:, row] = 0

    def _column(self, end: int) -> int:
        at = int(self._ends[: self._columns].searchsorted(end))
        if at < self._columns and self._ends[at] == end:
            return at
        if self._columns == len(self._ends):
            self._make_room()
            at = int(np.searchsorted(self._ends[: self._columns], end))
        self._insert_column(at, end)
        return at

    def _insert_column(self, at: int, end: int) -> None:
        last = self._columns
        if at < last:
            self._ends[at + 1 : last + 1] = self._ends[at:last].copy()
            self._counts[:, :, at + 1 : last + 1] = self._counts[:, :, at:last].copy()
            self._counts[:, :, at] = 0
            self._first[self._first > at] += 1
        self._ends[at] = end
        self._columns += 1

    def _make_room(self) -> None:
        """Drops the columns of which no tuples are held any more. Doubles the rest if these were few."""
        held = np.flatnonzero(self._counts.any(axis=(0, 1)))
        unused = int(held[0]) if len(held) else self._columns
        self._columns -= unused
        capacity = len(self._ends) * (1 if unused > len(self._ends) // 2 else 2)
        ends, counts = np.zeros(capacity, np.int64), np.zeros((len(self.live), self.rows, capacity), np.int32)
        ends[: self._columns] = self._ends[unused : unused + self._columns]
        counts[:, :, : self._columns] = self._counts[:, :, unused : unused + self._columns]
        self._ends, self._counts = ends, counts
        self._first = np.maximum(0, self._first - unused)


def least_of_others(marks: np.ndarray) -> np.ndarray:
    """Returns for each stream the smallest watermark of the other streams, or the end of time for a single stream.

    The watermarks and the result are int64[n, m].

    >>> least_of_others(np.array([[5], [7], [6]])).ravel()
    array([6, 5, 5])
    """
    if len(marks) == 2:
        return marks[::-1]
    least = np.full_like(marks, TIME_MAX_VALUE)
    for shift in range(1, len(marks)):
        least = np.minimum(least, np.roll(marks, shift, axis=0))
    return least


def in_reach(windows: np.ndarray, ticks: Iterable[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Returns, for each stream, which part of the tuples that arrive together lie within its window of each other.

    windows: float64 or int64[streams, 1] · ticks: first and last instant of those whose tuples are fresh. Both results
    are float64[streams, 1]: of pairs of two fresh tuples, of which the earlier one is of the stream, the share in which
    it still waits for the later one; and the same share for an old tuple of the stream that has not expired and a fresh
    one. Both are 1 unless the ticks last longer than the window.

    >>> in_reach(np.array([[10], [50]]), [(0, 49), (50, 99)])
    (array([[0.19],
           [0.75]]), array([[0.01],
           [0.25]]))
    """
    firsts, lasts = zip(*(list(ticks) or [(0, 0)]))
    reach = np.minimum(1.0, windows / (max(lasts) + 1 - min(firsts)))
    return 1 - (1 - reach) ** 2, reach**2
