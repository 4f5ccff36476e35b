"""What all clean-ups do with their table, in bounded pieces: they read frames, probe, and let rows go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generator, Iterator, Sequence

import numpy as np

from mpijoin.data.room import Room
from mpijoin.join.window_join import WindowJoin
from mpijoin.operators.base import Out, Progress
from mpijoin.spill.comeback import SPREAD
from mpijoin.spill.generations import Class, Generation, Rows, least_but, together, waits_until
from mpijoin.store.rows import RowsFrame, rows_of

# So many comparisons are made between two looks at the network, as in a slave's probes, and so many bytes are read.
PROBE_BUDGET, PIECE_BYTES = 1 << 26, 1 << 20
Times = Sequence[Sequence[int]]  # of each stream, for one class after the other
Steps = Generator[Progress, None, None]


class Work(ABC):
    """A clean-up. Call `step` until it is DONE, and consume after each call. It leaves nothing in the table.

    holds_chunk: rows wait in the table for rows of all other streams, which then must fit in beside them.
    """

    holds_chunk = False

    def __init__(self, table: WindowJoin, windows: Sequence[int]):
        """table: it is empty, and its fresh rows do not meet each other · windows: of each stream, in time units."""
        self._table, self._windows, self._streams = table, windows, range(len(windows))
        # What is left of the budget of a step, and what it has read.
        self._left, self._read_bytes = PROBE_BUDGET, 0
        self._work: Iterator[Progress] = self._join_all()
        self._out: Out | None = None

    @abstractmethod
    def _join_all(self) -> Steps:
        """Joins what is owed."""

    def step(self, out: Out) -> Progress:
        """Does a bounded piece of work. Whatever it has put into `out` must be consumed before the next call."""
        self._out, self._left, self._read_bytes = out, PROBE_BUDGET, 0
        return next(self._work, Progress.DONE)

    def _room_now(self) -> int:
        """Returns how many bytes of rows should fit into memory now, beside what it holds."""
        return room_of(self._table)

    def _read(self, generation: Generation, room: Room | None = None) -> Iterator[RowsFrame]:
        """room: None, if frames of several generations are needed at a time."""
        frames = generation.run.frames(room)
        for frame in frames:
            with frames.decoding():
                rows = rows_of(frame, self._table.streams, own=True)
            self._read_bytes += len(frame)
            yield rows

    def _probe(self, groups: np.ndarray) -> Steps:
        progress = Progress.BUDGET
        while progress is not Progress.DONE:
            before = self._table.compared
            progress = self._table.probe(groups, self._left, self._taking)
            self._left -= self._table.compared - before
            # The next change to the table would make the slot ids of results void.
            if progress is not Progress.DONE or self._taking.count or self._left <= 0:
                yield Progress.OUT_FULL if self._taking.count else Progress.BUDGET

    def _expire(self, groups: np.ndarray, to_come: Sequence[int] | Sequence[Sequence[int]]) -> Steps:
        """to_come: the earliest time that counts of each stream, of all groups or of each."""
        while self._table.expire(groups, np.array(to_come), self._taking) is not Progress.DONE:
            yield Progress.OUT_FULL

    @staticmethod
    def _is_full(octets: int) -> bool:
        """Whether so many bytes are as many as are read at a time."""
        return octets >= PIECE_BYTES

    @property
    def _taking(self) -> Out:
        assert self._out is not None  # `step` has set it
        return self._out


def room_of(table: WindowJoin) -> int:
    """Returns how many bytes of rows on disk should fit into the table's memory, beside what it holds."""
    return int(table.memory().free / SPREAD)


def times_to_come(classes: Sequence[Class], streams: range) -> Times:
    """Returns for each class the earliest time that it and those after it have of each stream, and at last what stands
    for none."""
    times: list[list[int]] = [[rows.earliest for rows in rows_of_class([], streams)]]
    for own in reversed(classes):
        earliest = [rows.earliest for rows in rows_of_class(own, streams)]
        times.append(list(map(min, earliest, times[-1])))
    return times[::-1]


def octets_of_class(own: Class) -> int:
    """Returns how many bytes a class has on disk."""
    return sum(generation.octets for generation in own)


def most_at_once(classes: Sequence[Class], bounds: Times, windows: Sequence[int]) -> int:
    """Returns about how many bytes a table will hold at most, if it takes all hashes of some classes at once. bounds:
    after each class, the earliest time of each stream that counts."""
    if not classes:
        return 0
    streams, numbers = range(len(windows)), np.arange(len(classes))
    octets = np.array([octets_of_class(own) for own in classes])
    rows = [rows_of_class(own, streams) for own in classes]
    # The class with which each one may go. The bounds never fall, so it then stays over.
    last = numbers
    for stream, window in enumerate(windows):
        bound = [least_but(times, stream) for times in bounds]
        until = [waits_until(own[stream].latest, window) for own in rows]
        waits = np.where([own[stream].tuples > 0 for own in rows], np.searchsorted(bound, until, side="right"), 0)
        last = np.maximum(last, waits)
    gone = np.bincount(last + 1, octets, len(octets) + 1)
    return int((np.cumsum(octets) - np.cumsum(gone)[numbers]).max())


def rows_of_class(own: Class, streams: range) -> list[Rows]:
    """Returns the rows of a class, of each stream."""
    if len(own) == 1:
        return own[0].rows
    return [together(generation.rows[stream] for generation in own) for stream in streams]
