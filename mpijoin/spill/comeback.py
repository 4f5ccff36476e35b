"""A group comes back from the disk as a whole, when there is memory for it and nothing else to do."""

from __future__ import annotations

from typing import Iterator, Sequence

import numpy as np

from mpijoin.join.window_join import WindowJoin
from mpijoin.operators.base import Out, Progress
from mpijoin.spill.generations import Generation
from mpijoin.store.rows import rows_of

# Rows in memory take so many times their bytes on disk: blocks are not all full, and each has tags.
SPREAD = 1.5


class Comeback:
    """Brings the rows of a group into memory. Nothing may be owed among them. Call `step` until it is DONE.

    is_whole: all of them are there; if not, memory was too short after all. The runs stay as they are.
    """

    is_whole = False
    holds_chunk = False  # as a clean-up may: less memory is no harm

    def __init__(self, operator: WindowJoin, group: int, generations: Sequence[Generation]):
        """operator: it holds nothing of the group."""
        self._operator, self._group = operator, np.array([group])
        self._work = self._take_all(generations)

    def step(self, out: Out) -> Progress:
        """Does a bounded piece of work. out: for results, of which there are none."""
        return next(self._work, Progress.DONE)

    def _take_all(self, generations: Sequence[Generation]) -> Iterator[Progress]:
        for generation in generations:
            frames = generation.run.frames()
            for frame in frames:
                with frames.decoding():
                    rows = rows_of(frame, self._operator.streams, own=True)
                if not self._operator.take_back(self._group, rows.fresh):
                    return
                yield Progress.BUDGET
        self.is_whole = True
