"""What a slave's groups have on disk, and which results are owed for it.

Every tuple belongs for ever to the generation of its group in which it was inserted. At run time the combinations
within one generation are found; those whose members are of different generations are owed (LAD, section 3). A *class*
is a set of generations of one group among which nothing is owed any more. One generation is a class by itself, and a
clean-up makes one class of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, NamedTuple, Sequence

import numpy as np

from mpijoin.spill.runs import Run
from mpijoin.store.state import FOREVER, TIME_MAX_VALUE, TIME_MIN_VALUE


class Rows(NamedTuple):
    """How many rows of a stream there are, and the earliest and the latest of their times."""

    tuples: int = 0
    earliest: int = TIME_MAX_VALUE
    latest: int = TIME_MIN_VALUE

    def with_more(self, other: Rows) -> Rows:
        return Rows(self.tuples + other.tuples, min(self.earliest, other.earliest), max(self.latest, other.latest))


@dataclass
class Generation:
    """The rows of one generation of a group that are on disk. rows: of each stream, in the job's order."""

    number: int
    run: Run
    rows: list[Rows]

    @property
    def octets(self) -> int:
        return self.run.octets

    def add(self, stream: int, rows: Rows) -> None:
        self.rows[stream] = self.rows[stream].with_more(rows)


Class = list[Generation]


class Debt:
    """The classes that a group has on disk, the oldest first."""

    def __init__(self, windows: Sequence[int]):
        """windows: of each stream, in time units, or FOREVER."""
        self.classes: list[Class] = []
        self.is_paid = False  # nothing was owed when something was last written or cleaned up
        self._windows = windows

    @property
    def generations(self) -> list[Generation]:
        return [generation for own in self.classes for generation in own]

    @property
    def octets(self) -> int:
        return sum(generation.octets for generation in self.generations)

    @property
    def newest(self) -> Generation | None:
        return self.classes[-1][-1] if self.classes else None

    def keep_until(self) -> list[int]:
        """Returns, for each stream, the latest time with which one of its rows can still meet a row that is on disk.

        The row on disk is of another stream, and the other row must not be later than the one on disk waits.
        """
        generations = self.generations
        reach = [
            waits_until(max((one.rows[stream].latest for one in generations), default=TIME_MIN_VALUE), window)
            for stream, window in enumerate(self._windows)
        ]
        return [
            max((own for other, own in enumerate(reach) if other != stream), default=TIME_MIN_VALUE)
            for stream in range(len(reach))
        ]

    def merge(self) -> None:
        """Notes that nothing is owed among the generations any more."""
        self.classes = [self.generations] if self.classes else []
        self.is_paid = True

    def let_go(self, watermarks: Sequence[int]) -> list[Generation]:
        """Forgets the generations that no row to come can meet. Returns them.

        They must be of one class, because what is owed among them would be lost otherwise.
        """
        assert len(self.classes) <= 1  # or results would be lost
        gone = [one for one in self.generations if is_over(one.rows, self._windows, watermarks)]
        self.classes = [kept] if (kept := [one for one in self.generations if one not in gone]) else []
        return gone


def together(rows: Iterable[Rows]) -> Rows:
    """The rows of several parts as one."""
    total = Rows()
    for one in rows:
        total = total.with_more(one)
    return total


def waits_until(latest: int, window: int) -> int:
    """The latest time until which one of some rows waits. latest: TIME_MIN_VALUE if there are no rows."""
    if latest == TIME_MIN_VALUE:
        return TIME_MIN_VALUE
    return TIME_MAX_VALUE if window == FOREVER else min(TIME_MAX_VALUE, latest + window)


def is_over(rows: Sequence[Rows], windows: Sequence[int], watermarks: Sequence[int]) -> bool:
    """Whether nothing to come can meet any of these rows. Each argument has a value per stream."""
    return all(
        waits_until(own.latest, windows[stream]) < least_but(watermarks, stream)
        for stream, own in enumerate(rows)
        if own.tuples
    )


def least_but(times: Sequence[int], stream: int) -> int:
    """The smallest of the times of all other streams."""
    return min((time for other, time in enumerate(times) if other != stream), default=TIME_MAX_VALUE)


def row_counts(generations: Iterable[Generation], streams: int) -> np.ndarray:
    """Returns int64[streams]: how many rows of each stream some generations have."""
    counts = np.zeros(streams, np.int64)
    for generation in generations:
        counts += [rows.tuples for rows in generation.rows]
    return counts
