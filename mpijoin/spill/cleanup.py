"""The clean-up of a group: it finds what is owed among the classes that the group has on disk, and nothing else.

LAD-TR, section 4.2, merges two parts of a group and produces the missing part dV = V' - V_1 - V_2 by incremental view
maintenance, "applied iteratively until all partition groups with the same partition ID have been merged". Here the rows
of one class after the other come, fresh, into a table that holds the classes before it, and its probe leaves out the
combinations that consist of fresh rows alone, which are V_2. Between two classes, rows that nothing to come can meet
expire. So a group with short windows needs memory for these windows, however much of it is on disk.

Where memory is too small even for that, the group is worked off in parts by the hashes of keys. Where it is too small
for all rows of one hash, every combination of chunks is joined, one chunk per stream, if its rows are not all of one
class. What joins need besides whose rows are marked is in `marked`.
"""

from __future__ import annotations

from collections import deque
from typing import Generator, Iterator, Sequence

import numpy as np

from mpijoin.data.room import Room
from mpijoin.errors import MemoryBudgetError
from mpijoin.join.window_join import WindowJoin
from mpijoin.named import NamedTuple
from mpijoin.operators.base import Progress
from mpijoin.spill.generations import Class, Generation
from mpijoin.spill.work import Steps, Work, most_at_once, times_to_come
from mpijoin.store.insert import Fresh
from mpijoin.store.rows import PLACES, between, key_places
from mpijoin.store.state import SIZE

# Parts are cut anew if memory comes back, and there is so many times what they were cut for.
REGROWN = 2


class Part(NamedTuple):
    """The rows of some classes whose keys have hashes from `low` to `high` - 1. The classes before `first` owe each
    other nothing."""

    low: int
    high: int
    first: int
    classes: Sequence[Class]


class CleanUp(Work):
    """Finds what some classes of a group owe each other.

    It leaves the runs as they are. left: what takes their place, if anything does.
    """

    left: Generation | None = None

    def __init__(
        self, table: WindowJoin, group: int, classes: Sequence[Class], windows: Sequence[int], room: Room | None = None
    ):
        """table, windows: as of `Work` · room: into which frames are read, if there is one for all clean-ups."""
        super().__init__(table, windows)
        self._room = room or Room()
        self._group, self._classes, self._groups = group, classes, np.array([group])
        self._room_bytes = self._room_now()
        bounds = [self._bound(times) for times in times_to_come(classes, self._streams)[1:]]
        self._peak_bytes = most_at_once(classes, bounds, windows)
        self._chunk_bytes = 0

    def _join_all(self) -> Steps:
        whole = Part(0, PLACES, 0, self._classes)
        waiting = deque([whole] if self._peak_bytes <= self._room_bytes else (yield from self._cut(whole)))
        while waiting:
            if self._room_now() > REGROWN * self._room_bytes:
                waiting = deque((yield from self._cut_anew(waiting)))
            part = waiting.popleft()
            reached = yield from self._join(part)
            rest = yield from (self._done(part) if reached is None else self._rest(part, reached))
            self._table.drop(self._group)
            if rest is None:
                continue
            if rest.high - rest.low > 1:
                waiting.extendleft(reversed((yield from self._cut(rest))))
            else:
                yield from self._join_chunks(rest)
                self._table.drop(self._group)

    def _cut_anew(self, waiting: Sequence[Part]) -> Generator[Progress, None, list[Part]]:
        """Memory has come back since these parts were cut. Returns larger ones, as far as they are to begin with the
        same class."""
        self._room_bytes = self._room_now()
        parts = list[Part]()
        for part in waiting:
            if parts and (parts[-1].high, *parts[-1][2:]) == (part.low, *part[2:]):
                parts[-1] = parts[-1]._replace(high=part.high)
            else:
                parts.append(part)
        cut = list[Part]()
        for part in parts:
            is_small = self._peak_bytes * (part.high - part.low) <= PLACES * self._room_bytes
            cut += [part] if is_small else (yield from self._cut(part))
        return cut

    def _join(self, part: Part) -> Generator[Progress, None, int | None]:
        """Joins the classes of a part. Returns None, or the first class that is not done for lack of memory."""
        share, to_come = (part.high - part.low) / PLACES, times_to_come(part.classes, self._streams)
        self._table.expect(self._group, int(self._peak_bytes * share))
        for index, own in enumerate(part.classes):
            if not (yield from self._insert(own, part)):
                return index
            if index < max(1, part.first):
                self._table.settle(self._groups)
            else:
                yield from self._probe(self._groups)
            yield from self._expire(self._groups, self._bound(to_come[max(index + 1, part.first)]))
        return None

    def _rest(self, part: Part, reached: int) -> Generator[Progress, None, Part]:
        """What is left of a part if memory was lacking for the class of this number. The table is dropped next."""
        yield from ()
        return part._replace(first=max(reached, part.first))

    def _done(self, part: Part) -> Steps:
        """Nothing of a part is owed any more. The table is dropped next."""
        yield from ()

    def _insert(self, own: Class, part: Part) -> Generator[Progress, None, bool]:
        """Inserts the rows of a class. Returns whether there was room for all of them."""
        for generation in own:
            for rows in self._read(generation, self._room):
                for stream, fresh in enumerate(rows.fresh):
                    tuples = between(fresh.tuples, part.low, part.high)
                    if len(tuples) and not self._insert_rows(stream, Fresh(tuples, fresh.blob)):
                        return False
                if self._is_full(self._read_bytes):
                    yield Progress.BUDGET
        return True

    def _insert_rows(self, stream: int, fresh: Fresh) -> bool:
        bounds = np.array([[0, len(fresh.tuples)]])
        return self._table.insert(self._groups, stream, fresh, bounds).groups == 1

    def _bound(self, to_come: Sequence[int]) -> Sequence[int]:
        """Returns the earliest time of each stream that counts, if these are those of the classes to come."""
        return to_come

    def _cut(self, part: Part) -> Generator[Progress, None, list[Part]]:
        """Returns parts of a part, of which each should fit. They are at least two, if it has two hashes or more."""
        # Memory that is taken away for a while may be back before the last part, so this is not halved too often.
        self._room_bytes = max(self._room_now(), self._room_bytes // 2)
        counts = np.zeros(PLACES, np.int64)
        for own in part.classes:
            for generation in own:
                for rows in self._read(generation, self._room):
                    for fresh in rows.fresh:
                        counts += np.bincount(key_places(fresh.tuples), minlength=PLACES)
                    yield Progress.BUDGET
        octets = np.cumsum(counts) * (self._peak_bytes / max(1, counts.sum()))
        parts, low = [], part.low
        while low < part.high:
            before = octets[low - 1] if low else 0.0
            high = int(np.searchsorted(octets, before + self._room_bytes / 2, side="right"))
            high = min(max(high, low + 1), part.high)
            parts.append(part._replace(low=low, high=high))
            low = high
        if len(parts) == 1 and part.high - part.low > 1:
            middle = (part.low + part.high) // 2
            parts = [part._replace(high=middle), part._replace(low=middle)]
        return parts

    def _join_chunks(self, part: Part) -> Steps:
        """Joins every combination of chunks, one per stream, whose rows are not all of one class."""
        yield from self._nest(part, ())

    def _nest(self, part: Part, above: tuple[int, ...]) -> Steps:
        """above: the classes of the chunks that the table holds of the streams so far."""
        stream = len(above)
        is_last = stream == self._streams[-1]
        for index, own in enumerate(part.classes):
            chosen = (*above, index)
            if is_last and (len(set(chosen)) == 1 or max(chosen) < part.first):
                continue
            for _ in self._chunks(part, stream, own):
                self.holds_chunk = True
                if is_last:
                    yield from self._probe(self._groups)
                else:
                    self._table.settle(self._groups)
                    yield from self._nest(part, chosen)
                self._table.clear(self._group, stream)
                self.holds_chunk = stream > 0
                yield Progress.BUDGET

    def _chunks(self, part: Part, stream: int, own: Class) -> Iterator[None]:
        """Inserts the rows of one stream and class, chunk by chunk, and yields after each."""
        held_bytes = 0
        for generation in own:
            for rows in self._read(generation):
                tuples, blob = rows.fresh[stream]
                tuples = between(tuples, part.low, part.high)
                sizes = _sizes(tuples, self._table.streams[stream].has_blob)
                low = 0
                while low < len(tuples):
                    if not self.holds_chunk and not held_bytes:  # The table is empty, and memory may have come or gone.
                        self._chunk_bytes = self._room_now() // (2 * len(self._streams))
                    high = low + _fitting(sizes[low:], self._chunk_bytes // 2)
                    if self._insert_rows(stream, Fresh(tuples[low:high], blob)):
                        held_bytes += int(sizes[low:high].sum())
                        low = high
                        if held_bytes <= self._chunk_bytes:
                            continue
                    elif not held_bytes:
                        raise self._too_small()
                    yield None
                    held_bytes = 0
        if held_bytes:
            yield None

    def _too_small(self) -> MemoryBudgetError:
        memory = self._table.memory()
        return MemoryBudgetError(
            f"partition {self._group} owes results of rows on the disk, of which too few fit into memory at"
            f" once: {memory.free} of {memory.budget} bytes are free: give each slave more [memory] limit, or set"
            " smaller [tuning] block"
        )


def _sizes(tuples: np.ndarray, has_blob: bool) -> np.ndarray:
    """Returns the bytes of each row with its text, int64[n]."""
    fixed = np.full(len(tuples), tuples.itemsize * tuples.shape[1])
    return fixed + tuples[:, SIZE] if has_blob else fixed


def _fitting(sizes: np.ndarray, most_bytes: int) -> int:
    """Returns how many of the first rows have no more than so many bytes in all, but at least 1."""
    return max(1, int(np.searchsorted(np.cumsum(sizes), most_bytes, side="right")))
