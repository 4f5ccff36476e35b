"""How many results are owed at least, counted from a sample of what was spilled.

The sample takes all rows of some keys, which are drawn by lot (`store.row_kernels`), so every result among them is
counted exactly. It begins with all keys. When it has too many rows, it goes on with half of its keys.
"""

from __future__ import annotations

from typing import Iterable, Mapping, Sequence

import numpy as np

from mpijoin.store.row_kernels import (
    GROUP,
    LOT,
    LOTS,
    SAMPLE_COLUMNS,
    SAMPLED_GENERATION,
    SAMPLED_KEY,
    SAMPLED_STREAM,
    SAMPLED_TIME,
    sample_rows,
)
from mpijoin.store.rows import RowsFrame
from mpijoin.store.state import FOREVER, TIME_MIN_VALUE

SAMPLE_ROWS = 1 << 15  # of all groups of a slave


class Owed:
    """Counts the results that are owed for generations on disk. What it says may be too little, but never too much."""

    def __init__(self, windows: Sequence[int], rows_max: int = SAMPLE_ROWS):
        """windows: of each stream, in time units, or FOREVER · rows_max: of the sample."""
        self._windows = windows
        self._below = LOTS  # Keys whose lots are below this are in the sample.
        self._sample = np.empty((rows_max, SAMPLE_COLUMNS), np.int64)
        self._rows = 0
        self._gone: set[tuple[int, int]] = set()  # generations of groups that are in the sample, but not on disk
        self._known: dict[int, int] = {}  # of groups, results
        self._changed: set[int] = set()

    @property
    def results(self) -> int:
        """How many results are owed at least, as far as `count` has counted."""
        return sum(self._known.values())

    def add(self, frame: RowsFrame) -> None:
        """Takes note of rows that were spilled."""
        for stream, (tuples, _) in enumerate(frame.fresh):
            first, of = 0, (frame.group, frame.generation, stream)
            while first < len(tuples):
                first, self._rows = sample_rows(tuples, *of, self._below, first, self._sample, self._rows)
                if first < len(tuples):
                    self._below //= 2
                    self._keep(self._sample[: self._rows, LOT] < self._below)
        self._changed.add(frame.group)

    def _keep(self, chosen: np.ndarray) -> None:
        kept = self._sample[: self._rows][chosen]
        self._rows = len(kept)
        self._sample[: self._rows] = kept

    def paid(self, group: int, gone: Iterable[int] = ()) -> None:
        """Nothing is owed for the group now. gone: generations of it that are not on disk any more."""
        self._known.pop(group, None)
        self._changed.discard(group)
        self._gone.update((group, generation) for generation in gone)

    def forget(self, group: int) -> None:
        """The group has nothing on disk any more."""
        self.paid(group)
        self._keep(self._sample[: self._rows, GROUP] != group)

    def count(self, merged: Mapping[int, int]) -> None:
        """Counts what is owed for the groups that have changed. merged: of each group, the number of the generation up
        to which nothing is owed among its generations."""
        own = self._sample[: self._rows]
        if self._gone:
            gone = np.array(sorted(self._gone))
            self._keep(~np.isin(own[:, GROUP] << 32 | own[:, SAMPLED_GENERATION], gone[:, 0] << 32 | gone[:, 1]))
            self._gone.clear()
            own = self._sample[: self._rows]
        own = own[np.argsort(own[:, GROUP], kind="stable")]
        for group in self._changed & merged.keys():
            low, high = np.searchsorted(own[:, GROUP], [group, group + 1])
            self._known[group] = self._count(own[low:high], merged[group])
        self._changed.clear()

    def _count(self, rows: np.ndarray, merged: int) -> int:
        """Counts the results of all classes together, but for those within one class."""
        _, keys = np.unique(rows[:, SAMPLED_KEY], return_inverse=True)
        numbers, classes = np.unique(np.maximum(rows[:, SAMPLED_GENERATION], merged), return_inverse=True)
        of_class, times = keys * len(numbers) + classes, rows[:, SAMPLED_TIME]
        chosen = [rows[:, SAMPLED_STREAM] == stream for stream in range(len(self._windows))]
        whole, within = (
            _results([one[own] for own in chosen], [times[own] for own in chosen], self._windows)
            for one in (keys, of_class)
        )
        return int(whole - within)


def _results(keys: Sequence[np.ndarray], times: Sequence[np.ndarray], windows: Sequence[int]) -> float:
    """How many results there are among rows. keys, times: int64[n] of each stream; keys are small and not negative.

    A result is counted at its latest tuple, or at that of the last stream if several are as late.
    """
    tables = [_Table(*one) for one in zip(keys, times)]
    total = 0.0
    for stream, (own, at) in enumerate(zip(keys, times)):
        waiting = np.ones(len(own))
        for other, (table, window) in enumerate(zip(tables, windows)):
            if other != stream:
                since = np.full(len(at), TIME_MIN_VALUE) if window == FOREVER else _before(at, window)
                waiting *= table.between(own, since, at, closed=other < stream)
        total += float(waiting.sum())
    return total


def _before(times: np.ndarray, window: int) -> np.ndarray:
    """Returns times - window, or the smallest int64 where that is less."""
    return np.where(times < TIME_MIN_VALUE + window, TIME_MIN_VALUE, times - window)


class _Table:
    """The rows of one stream, to be counted by key and time."""

    def __init__(self, keys: np.ndarray, times: np.ndarray):
        self._times = np.unique(times)
        self._stride = len(self._times) + 1
        self._places = np.sort(keys * self._stride + np.searchsorted(self._times, times))

    def between(self, keys: np.ndarray, since: np.ndarray, until: np.ndarray, closed: bool) -> np.ndarray:
        """Counts for each key the rows from `since` to `until`. closed: those at `until` count, too."""
        first = np.searchsorted(self._times, since)
        end = np.searchsorted(self._times, until, side="right" if closed else "left")
        low, high = (np.searchsorted(self._places, keys * self._stride + one) for one in (first, end))
        counts: np.ndarray = np.maximum(high - low, 0)
        return counts
