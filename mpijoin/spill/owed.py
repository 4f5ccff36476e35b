"""How many results are owed at least, counted from a sample of what was spilled.

The sample takes all rows of some keys, which are drawn by lot (`store.row_kernels`), so every result among them is
counted exactly. It begins with all keys. When it has too many rows, it goes on with half of its keys.
"""

from __future__ import annotations

from typing import Iterable, Mapping, Sequence

import numpy as np

from mpijoin.data.batch import read_only
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
from mpijoin.store.rows import RowsBatch
from mpijoin.store.sample_kernels import count_results

OTHER = -2  # in place of the generation up to which nothing is owed, of a group that is not counted
SAMPLE_ROWS = 1 << 15  # of all groups of a slave


class Owed:
    """Counts the results that are owed for generations on disk. What it says may be too little, but never too much."""

    def __init__(self, windows: Sequence[int], rows_max: int = SAMPLE_ROWS):
        """windows: of each stream, in time units, or FOREVER · rows_max: of the sample."""
        self._windows = np.array(windows, np.int64)
        self._scratch = np.zeros((2, len(windows)), np.int64)
        self._below = LOTS  # Keys whose lots are below this are in the sample.
        self._sample = np.empty((rows_max, SAMPLE_COLUMNS), np.int64)
        self._take = sample_rows.bound(self._sample)
        self._rows = 0
        self._gone: set[tuple[int, int]] = set()  # generations of groups that are in the sample, but not on disk
        self._known: dict[int, int] = {}  # of groups, results
        self._changed: set[int] = set()

    @property
    def results(self) -> int:
        """How many results are owed at least, as far as `count` has counted."""
        return sum(self._known.values())

    def add(self, batch: RowsBatch) -> None:
        """Takes note of rows that were spilled."""
        columns = batch.words, batch.words_at, batch.heads, batch.names
        given = *map(read_only, columns), batch.widths
        first, self._rows = self._take(self._rows, *given, self._below, 0)
        while first >= 0:
            self._below //= 2
            self._keep(self._sample[: self._rows, LOT] < self._below)
            first, self._rows = self._take(self._rows, *given, self._below, first)
        self._changed.update(batch.names[:, 0].tolist())

    def _keep(self, chosen: np.ndarray) -> None:
        kept = self._sample[: self._rows][chosen]
        self._rows = len(kept)
        self._sample[: self._rows] = kept

    def paid(self, group: int, gone: Iterable[int] = ()) -> None:
        """Nothing is owed for the group now. gone: generations of it that are not on disk any more."""
        self._known.pop(group, None)
        self._changed.discard(group)
        self._gone.update((group, generation) for generation in gone)

    def changed(self, group: int) -> None:
        """Some of what was owed for the group is found. It is counted anew."""
        self._known.pop(group, None)
        self._changed.add(group)

    def forget(self, group: int) -> None:
        """The group has nothing on disk any more."""
        self.paid(group)
        self._keep(self._sample[: self._rows, GROUP] != group)

    def count(self, merged: Mapping[int, int]) -> None:
        """Counts what is owed for the groups that have changed. merged: of each group, the number of the generation up
        to which nothing is owed among its generations."""
        own = self._sample[: self._rows]
        if self._gone:
            gone = np.array(sorted(group << 32 | generation for group, generation in self._gone))
            names = own[:, GROUP] << 32 | own[:, SAMPLED_GENERATION]
            self._keep(gone[np.minimum(np.searchsorted(gone, names), len(gone) - 1)] != names)
            self._gone.clear()
            own = self._sample[: self._rows]
        groups = sorted(self._changed & merged.keys())
        if groups:
            found = self._results_of(own, {group: merged[group] for group in groups})
            self._known.update(zip(groups, found[groups].astype(np.int64).tolist()))
        self._changed.clear()

    def _results_of(self, rows: np.ndarray, merged: Mapping[int, int]) -> np.ndarray:
        """Counts the results of all classes together, but for those within one class: float64[groups]."""
        merged_of = np.full(max(merged) + 1, OTHER)
        merged_of[list(merged)] = list(merged.values())
        rows = rows[rows[:, GROUP] < len(merged_of)]
        rows = rows[merged_of[rows[:, GROUP]] != OTHER]
        rows = rows[np.lexsort((rows[:, SAMPLED_STREAM], rows[:, SAMPLED_TIME], rows[:, SAMPLED_KEY]))]
        classes = np.maximum(rows[:, SAMPLED_GENERATION], merged_of[rows[:, GROUP]])
        found = np.zeros(len(merged_of))
        # Rows of a class stay in order.
        apart = np.lexsort((classes, rows[:, SAMPLED_KEY]))
        for own, of_class, sign in ((rows, np.zeros_like(classes), 1.0), (rows[apart], classes[apart], -1.0)):
            count_results(own, of_class, self._windows, sign, *self._scratch, found)
        return found
