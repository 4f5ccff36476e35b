"""What a slave's groups have on disk, and which results are owed for it.

Every tuple belongs for ever to the generation of its group in which it was inserted. At run time the combinations
within one generation are found; those whose members are of different generations are owed (LAD, section 3). A *class*
is a set of generations of one group among which nothing is owed any more. One generation is a class by itself, and a
clean-up makes one class of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Iterable, Iterator, Sequence

import numpy as np

from mpijoin.named import NamedTuple
from mpijoin.spill.packs import Packed, Packs, Stretch
from mpijoin.store.rows import RowsFrame
from mpijoin.store.state import FOREVER, NONE, TIME_MAX_VALUE, TIME_MIN_VALUE


class Part(NamedTuple):
    """Something that a group has on disk, to which frames may only be added. number: no other part of the group ever
    has it · frames: takes how many frames to leave out, and iterates over the others."""

    number: int
    frames: Callable[[int], Iterator[np.ndarray]]


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

    def append(self, frame: RowsFrame) -> None:
        """Writes rows that belong to it."""
        self.run.append(frame.data)
        self._note(frame.spans.tolist())

    def take(self, spans: Sequence[Sequence[int]], octets: int, place: Stretch) -> None:
        """Adds rows that belong to it, which were written there in so many bytes. spans: as of their frame."""
        self.run.take(place, octets)
        self._note(spans)

    def _note(self, spans: Sequence[Sequence[int]]) -> None:
        came = map(Rows._make, spans)
        self.rows = [own.with_more(more) if own.tuples else more for own, more in zip(self.rows, came)]


def new_generation(number: int, streams: int, packs: Packs) -> Generation:
    return Generation(number, Packed(packs), [Rows()] * streams)


Class = list[Generation]


class Debt:
    """The generations that a group has on disk, the oldest first.

    merged: the number of a generation. Nothing is owed among those up to it, which are therefore one class · octets: of
    all frames.
    """

    def __init__(self, windows: Sequence[int]):
        """windows: of each stream, in time units, or FOREVER."""
        self.generations: list[Generation] = []
        self.merged = NONE
        self.octets = 0
        self.is_paid = False  # nothing was owed when something was last written or cleaned up
        self.fits = True  # into memory, as far as anyone has tried
        self._windows = windows
        # Of each stream, the latest time of its rows, if it has had any. It never falls, because a bound that is too
        # late is not wrong.
        self._latest: list[int | None] = [None] * len(windows)

    @property
    def classes(self) -> list[Class]:
        merged = [one for one in self.generations if one.number <= self.merged]
        others = [[one] for one in self.generations if one.number > self.merged]
        return [merged, *others] if merged else others

    def add(self, number: int, spans: Sequence[Sequence[int]], octets: int, place: Stretch, packs: Packs) -> None:
        """Takes rows of the newest generation, or of a new one, which has this number. They were written there in so
        many bytes. spans: as of their frame."""
        if not self.generations or self.generations[-1].number != number:
            self.generations.append(new_generation(number, len(self._windows), packs))
        self.octets += octets
        self.generations[-1].take(spans, octets, place)
        for stream, (tuples, _, last) in enumerate(spans):
            if tuples:
                latest = self._latest[stream]
                self._latest[stream] = last if latest is None else max(latest, last)
        self.is_paid = False

    def frames(self, skip: int = 0) -> Iterator[np.ndarray]:
        """Yields all frames but the first `skip`. Each is valid until the next."""
        for generation in self.generations:
            if skip >= len(generation.run):
                skip -= len(generation.run)
                continue
            yield from generation.run.frames_from(skip)
            skip = 0

    def remove(self) -> None:
        """Gives all space back."""
        for generation in self.generations:
            generation.run.remove()
        self.generations, self.octets = [], 0

    def keep_until(self) -> list[int]:
        """Returns, for each stream, the latest time with which one of its rows can still meet a row that is on disk.

        The row on disk is of another stream, and the other row must not be later than the one on disk waits. The
        earliest time of all stands for none, so a bound that is meant is a little later.
        """
        reach = [
            TIME_MIN_VALUE if latest is None else max(TIME_MIN_VALUE + 1, waits_until(latest, window))
            for latest, window in zip(self._latest, self._windows)
        ]
        *_, second, most = sorted([TIME_MIN_VALUE, *reach])
        return [second if own == most else most for own in reach]

    def merge(self) -> None:
        """Notes that nothing is owed among the generations any more."""
        self.merged = max([self.merged, *(one.number for one in self.generations)])
        self.is_paid = True

    def replace(self, left: Generation) -> list[Generation]:
        """Gives up all generations for the one that has what is left of them, and returns them."""
        gone, self.generations = self.generations, [left] if any(rows.tuples for rows in left.rows) else []
        self.octets, self.fits = left.octets, True
        self._latest = [rows.latest if rows.tuples else None for rows in left.rows]
        return gone

    def let_go(self, watermarks: Sequence[int]) -> list[Generation]:
        """Forgets the generations that no row to come can meet, and returns them. Nothing may be owed among them."""
        gone = [one for one in self.generations if is_over(one.rows, self._windows, watermarks)]
        self.generations = [one for one in self.generations if one not in gone]
        self.octets -= sum(generation.octets for generation in gone)
        self.fits = self.fits or bool(gone)
        return gone


def together(rows: Iterable[Rows]) -> Rows:
    """The rows of several parts as one."""
    total = Rows()
    for one in rows:
        total = total.with_more(one)
    return total


def waits_until(latest: int, window: int) -> int:
    """The latest time until which one of some rows waits. latest: of their times."""
    return TIME_MAX_VALUE if window == FOREVER else min(TIME_MAX_VALUE, latest + window)


def is_over(rows: Sequence[Rows], windows: Sequence[int], watermarks: Sequence[int]) -> bool:
    """Whether nothing to come can meet any of these rows. Each argument has a value per stream."""
    return all(
        waits_until(own.latest, windows[stream]) < least_but(watermarks, stream)
        for stream, own in enumerate(rows)
        if own.tuples
    )


def begins_to_be_over(rows: Sequence[Rows], windows: Sequence[int], watermarks: Sequence[int]) -> bool:
    """Whether nothing to come can meet the earliest of these rows. Each argument has a value per stream."""
    return any(
        waits_until(own.earliest, windows[stream]) < least_but(watermarks, stream)
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
