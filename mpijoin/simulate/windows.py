"""What a modelled join holds: counts of tuples per group and stream, by the tick in which they arrived."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

ROWS, COLUMNS = 8, 64  # to begin with


class Kept(NamedTuple):
    """One group's tuples. ends: int64[n], last instants of the ticks, rising · counts: int32[2, n]."""

    ends: np.ndarray
    counts: np.ndarray


class Windows:
    """A row per group, a column per tick; `live` int64[2, rows] is the sum of a row per stream.

    >>> windows = Windows()
    >>> for end in (9, 19, 29):
    ...     windows.add(0, np.array([0, 1]), end, np.array([5, end]))
    >>> windows.expire(0, np.array([0, 1]), np.array([20, 10])), windows.live[0, :2]
    (array([10,  9]), array([ 5, 48]))
    >>> windows.take(1)
    Kept(ends=array([19, 29]), counts=array([[19, 29],
           [ 0,  0]], dtype=int32))
    """

    def __init__(self) -> None:
        self.live = np.zeros((2, ROWS), np.int64)
        self._first = np.zeros((2, ROWS), np.int64)  # the oldest column of which anything is held
        self._counts = np.zeros((2, ROWS, COLUMNS), np.int32)
        self._ends = np.zeros(COLUMNS, np.int64)
        self._columns = 0

    @property
    def rows(self) -> int:
        return self.live.shape[1]

    def grow(self) -> None:
        """Twice the rows."""
        self.live = np.concatenate([self.live, np.zeros_like(self.live)], axis=1)
        self._first = np.concatenate([self._first, np.zeros_like(self._first)], axis=1)
        self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)], axis=1)

    def add(self, stream: int, rows: np.ndarray, end: int, counts: np.ndarray) -> None:
        """Tuples of the tick whose last instant is `end`; rows: int64[m], each once · counts: int64[m]."""
        column = self._column(end)  # first: it may make the counts anew
        self._counts[stream, rows, column] += counts.astype(np.int32)
        self.live[stream, rows] += counts

    def expire(self, stream: int, rows: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """Lets go of ticks that end before bounds int64[m]; int64[m]: how many tuples per row."""
        limits = np.searchsorted(self._ends[: self._columns], bounds)
        before = self.live[stream, rows].copy()
        first = self._first[stream]
        while len(behind := np.flatnonzero(first[rows] < limits)):
            own = rows[behind]
            gone = self._counts[stream, own, first[own]]
            self.live[stream, own] -= gone
            self._counts[stream, own, first[own]] = 0
            first[own] += 1
        return before - self.live[stream, rows]

    def oldest(self, stream: int, rows: np.ndarray) -> np.ndarray:
        """int64[m]: tuples of the oldest tick that is held."""
        at = np.minimum(self._first[stream, rows], max(0, self._columns - 1))
        return self._counts[stream, rows, at].astype(np.int64)

    def take(self, row: int) -> Kept:
        """What one row holds."""
        held = np.flatnonzero(self._counts[:, row, : self._columns].any(axis=0))
        return Kept(self._ends[held], self._counts[:, row, held])

    def put(self, row: int, kept: Kept) -> None:
        """Into a row that is empty."""
        self._first[:, row] = 0
        for end, counts in zip(kept.ends.tolist(), kept.counts.T):
            column = self._column(end)
            self._counts[:, row, column] += counts
        self.live[:, row] = kept.counts.sum(axis=1)

    def clear(self, row: int) -> None:
        self._counts[:, row] = 0
        self.live[:, row] = 0
        self._first[:, row] = self._columns

    def _column(self, end: int) -> int:
        at = int(np.searchsorted(self._ends[: self._columns], end))
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
        """Drops the columns of which nothing is held any more, and doubles the rest if these were few."""
        held = np.flatnonzero(self._counts.any(axis=(0, 1)))
        unused = int(held[0]) if len(held) else self._columns
        self._columns -= unused
        capacity = len(self._ends) * (1 if unused > len(self._ends) // 2 else 2)
        ends, counts = np.zeros(capacity, np.int64), np.zeros((2, self.rows, capacity), np.int32)
        ends[: self._columns] = self._ends[unused : unused + self._columns]
        counts[:, :, : self._columns] = self._counts[:, :, unused : unused + self._columns]
        self._ends, self._counts = ends, counts
        self._first = np.maximum(0, self._first - unused)
