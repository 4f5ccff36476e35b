"""The groups of a modelled join as columns, with one row for each group that is here."""

from __future__ import annotations

from typing import Callable

import numpy as np

from mpijoin.simulate.directory import Directory
from mpijoin.simulate.keys import Matches
from mpijoin.simulate.windows import Windows
from mpijoin.store.state import TIME_MIN_VALUE

PER_STREAM = ("fresh", "gone", "inserted", "marks", "new", "old_end")
SINGLES = ("compared", "results", "buckets", "carry", "cross", "chance", "split_above", "merge_below")
TIMES = ("marks", "old_end")
REALS = ("carry", "cross", "chance", "split_above", "merge_below")


class Groups:
    """The groups that are here. n is the number of streams.

    Columns int64[n, rows] count for each stream: fresh, tuples not joined yet · gone, expired tuples · inserted, tuples
    that ever came · new, tuples that another holder has, too · and marks has the watermarks, old_end the last instant
    of the tick in which the last tuple came that is not new. Columns [rows] have for each group: compared, results, the
    counts · buckets, their number · carry, the fraction of a result that is carried over · cross, the chance that
    tuples of two streams share a bucket · chance, that they match · split_above, merge_below, the bytes at which to
    tune the directory.
    """

    fresh: np.ndarray
    gone: np.ndarray
    inserted: np.ndarray
    marks: np.ndarray
    new: np.ndarray
    old_end: np.ndarray
    compared: np.ndarray
    results: np.ndarray
    buckets: np.ndarray
    carry: np.ndarray
    cross: np.ndarray
    chance: np.ndarray
    split_above: np.ndarray
    merge_below: np.ndarray

    def __init__(self, partitions: int, theta: int, matches: Matches):
        self._theta, self._matches = theta, matches
        self._row = np.full(partitions, -1)  # The row of each group, -1 for a group that is not here.
        self.windows = Windows(len(matches.models))
        self.directories: dict[int, Directory] = {}  # The keys are the rows.
        self.bucket_count = 0  # This counts the buckets of all groups.
        self._free = list(range(self.windows.rows))[::-1]
        for name in PER_STREAM + SINGLES:
            setattr(self, name, self._blank(name))

    def _blank(self, name: str) -> np.ndarray:
        rows = self.windows.rows
        shape = (len(self._matches.models), rows) if name in PER_STREAM else (rows,)
        return np.full(shape, TIME_MIN_VALUE if name in TIMES else 0, float if name in REALS else np.int64)

    def row(self, group: int) -> int:
        """Returns the row of a group, or -1 if the group is not here."""
        return int(self._row[group])

    def rows(self, groups: np.ndarray) -> np.ndarray:
        """Returns int64[m], the rows of the groups. Groups that were not here are started."""
        rows = self._row[groups]
        if (rows < 0).any():
            for group in groups[rows < 0].tolist():
                self.start(group, Directory(self._shares(group), self._theta))
            rows = self._row[groups]
        return rows

    def start(self, group: int, directory: Directory) -> int:
        """Takes a row for a group that is not here."""
        if not self._free:
            self._grow()
        row = self._free.pop()
        self._row[group] = row
        self.directories[row] = directory
        self.chance[row] = self._matches.chance[group]
        self.note(row)
        return row

    def note(self, row: int) -> None:
        """Takes over the figures of a directory that has changed."""
        directory = self.directories[row]
        self.bucket_count += len(directory.buckets) - int(self.buckets[row])
        self.cross[row], self.buckets[row] = directory.cross, len(directory.buckets)
        self.split_above[row], self.merge_below[row] = directory.split_above, directory.merge_below

    def forget(self, group: int) -> None:
        row = self.row(group)
        if row < 0:
            return
        self._row[group] = -1
        self.windows.clear(row)
        del self.directories[row]
        self.bucket_count -= int(self.buckets[row])
        for name in PER_STREAM + SINGLES:
            getattr(self, name)[..., row] = TIME_MIN_VALUE if name in TIMES else 0
        self._free.append(row)

    def _grow(self) -> None:
        used = self.windows.rows
        self.windows.grow()
        for name in PER_STREAM + SINGLES:
            column = self._blank(name)
            column[..., :used] = getattr(self, name)
            setattr(self, name, column)
        self._free = list(range(used, 2 * used))[::-1]

    def _shares(self, group: int) -> Callable[[int, int], tuple[float, ...]]:
        models = self._matches.models
        if all(one is models[0] for one in models):
            return lambda prefix, depth: (models[0].share(group, prefix, depth),) * len(models)
        return lambda prefix, depth: tuple(one.share(group, prefix, depth) for one in models)
