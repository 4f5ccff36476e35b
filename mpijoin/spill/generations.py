"""What a slave's groups have on disk, and which results are owed for it.

Every tuple belongs for ever to the generation of its group in which it was inserted. At run time the combinations
within one generation are found; those whose members are of different generations are owed (LAD, section 3). A *class*
is a set of generations of one group among which nothing is owed any more. One generation is a class by itself, and a
clean-up makes one class of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Iterable, Iterator, NamedTuple, Sequence

import numpy as np

from mpijoin.data.codec import decode
from mpijoin.spill.packs import Packed, Packs
from mpijoin.store.state import FOREVER, NONE, TIME_MAX_VALUE, TIME_MIN_VALUE


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
    run: Packed
    rows: list[Rows]

    @property
    def octets(self) -> int:
        return self.run.octets


Class = list[Generation]


class Debt:
    """The generations that a group has on disk, the oldest first.

    merged: the number of a generation. Nothing is owed among those up to it, which are therefore one class.
    """

    def __init__(self, windows: Sequence[int]):
        """windows: of each stream, in time units, or FOREVER."""
        self.generations: list[Generation] = []
        self.merged = NONE
        self.is_paid = False  # nothing was owed when something was last written or cleaned up
        self._windows = windows
        # Of each stream, the latest time of its rows. It never falls, because a bound that is too late is not wrong.
        self._latest = [TIME_MIN_VALUE] * len(windows)

    @property
    def classes(self) -> list[Class]:
        merged = [one for one in self.generations if one.number <= self.merged]
        others = [[one] for one in self.generations if one.number > self.merged]
        return [merged, *others] if merged else others

    @property
    def octets(self) -> int:
        return sum(generation.octets for generation in self.generations)

    def add(self, number: int, frame: np.ndarray, packs: Packs) -> None:
        """Writes a frame of rows of the generation with this number, which is the newest one or a new one."""
        if not self.generations or self.generations[-1].number != number:
            self.generations.append(Generation(number, Packed(packs), [Rows()] * len(self._windows)))
        newest = self.generations[-1]
        newest.run.append(frame)
        # Whoever made or received the frame has looked at it, so there is no need to check it.
        meta = decode(frame, trusted=True).meta
        rows = Rows(meta["tuples"], meta["earliest"], meta["latest"])
        stream = meta["stream"]
        newest.rows[stream] = newest.rows[stream].with_more(rows)
        self._latest[stream] = max(self._latest[stream], rows.latest)
        self.is_paid = False

    def frames(self, skip: int = 0) -> Iterator[np.ndarray]:
        """Yields all frames but the first `skip`. Each is valid until the next."""
        for generation in self.generations:
            if skip >= len(generation.run):
                skip -= len(generation.run)
                continue
            yield from islice(generation.run.frames(), skip, None)
            skip = 0

    def remove(self) -> None:
        """Gives all space back."""
        for generation in self.generations:
            generation.run.remove()
        self.generations = []

    def keep_until(self) -> list[int]:
        """Returns, for each stream, the latest time with which one of its rows can still meet a row that is on disk.

        The row on disk is of another stream, and the other row must not be later than the one on disk waits.
        """
        reach = [waits_until(latest, window) for latest, window in zip(self._latest, self._windows)]
        return [
            max((own for other, own in enumerate(reach) if other != stream), default=TIME_MIN_VALUE)
            for stream in range(len(reach))
        ]

    def merge(self) -> None:
        """Notes that nothing is owed among the generations any more."""
        self.merged = max([self.merged, *(one.number for one in self.generations)])
        self.is_paid = True

    def let_go(self, watermarks: Sequence[int]) -> list[Generation]:
        """Forgets the generations that no row to come can meet, and returns them. Nothing may be owed among them."""
        gone = [one for one in self.generations if is_over(one.rows, self._windows, watermarks)]
        self.generations = [one for one in self.generations if one not in gone]
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
