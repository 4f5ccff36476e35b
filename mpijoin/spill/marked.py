"""The clean-up of a group whose rows are marked when they have a partner, because the type of join wants to know that.

The marks that a clean-up sets must not be lost. So whatever may still meet rows to come leaves the table for one new
generation, and that takes the place of all others. What is over leaves alone if it has no partner. All rows of the
group went to the disk before, so no row of it is anywhere else.

Rows also go to the disk where memory was too short for a part. Its rest begins with them, because they must neither be
found again nor lose their marks.
"""

from __future__ import annotations

from typing import Callable, Generator, Sequence

from mpijoin.data.room import Room
from mpijoin.join.window_join import WindowJoin
from mpijoin.operators.base import Progress
from mpijoin.spill.cleanup import CleanUp, Part
from mpijoin.spill.generations import Class, Generation
from mpijoin.spill.work import Steps
from mpijoin.store.rows import RowsBatch


class MarkedCleanUp(CleanUp):
    """As `CleanUp`, for two streams of which one or both have marks. `left` has the rows that remain."""

    def __init__(
        self,
        table: WindowJoin,
        group: int,
        classes: Sequence[Class],
        windows: Sequence[int],
        room: Room,
        watermarks: Sequence[int],
        left: Generation | None,
        new: Callable[[], Generation],
        note: Callable[[RowsBatch], None],
    ):
        """watermarks: of the group · left: where rows go that may still meet others; None: nothing is to come · new:
        makes a generation that nobody else knows · note: is told of all frames of `left`."""
        self._watermarks, self._new, self._note = watermarks, new, note
        self._set_aside: list[Generation] = []
        self._marks = [stream.flagged for stream in table.streams]
        super().__init__(table, group, classes, windows, room)
        self.left = left

    def _join_all(self) -> Steps:
        yield from super()._join_all()
        for one in self._set_aside:
            one.run.remove()

    def _bound(self, to_come: Sequence[int]) -> list[int]:
        return list(map(min, to_come, self._watermarks))

    def _rest(self, part: Part, reached: int) -> Generator[Progress, None, Part]:
        if reached < max(1, part.first):
            return part  # Nothing was joined.
        joined = self._new_aside()
        yield from self._add(joined)
        return part._replace(first=1, classes=[[joined], *part.classes[reached:]])

    def _done(self, part: Part) -> Steps:
        yield from self._keep()

    def _keep(self) -> Steps:
        """Writes what the table holds to `left`."""
        if self.left is not None:
            for frame in self._table.joined_rows(self._group, self.left.number):
                self.left.append(frame)
                self._note(RowsBatch.of(frame))
                yield Progress.BUDGET

    def _new_aside(self) -> Generation:
        """A generation that is of no use after this clean-up."""
        self._set_aside.append(self._new())
        return self._set_aside[-1]

    def _add(self, generation: Generation, stream: int | None = None) -> Steps:
        """Writes what the table holds to a generation. stream: the only one that is wanted."""
        for frame in self._table.joined_rows(self._group, generation.number, stream):
            generation.append(frame)
            yield Progress.BUDGET

    def _join_chunks(self, part: Part) -> Steps:
        """Joins each chunk of stream 0 with all chunks of stream 1 that are not of its class. Then all of its marks are
        set. Those of stream 1 wait on the disk for the next chunk of stream 0."""
        others = list(part.classes)
        for index, own in enumerate(part.classes):
            for _ in self._chunks(part, 0, own):
                self.holds_chunk = True
                self._table.settle(self._groups)
                for other, its in enumerate(others):
                    if index != other and max(index, other) >= part.first:
                        others[other] = yield from self._join_with(part, its)
                yield from self._leave(0)
                self.holds_chunk = False
        for its in others:
            for _ in self._chunks(part, 1, its):
                self._table.settle(self._groups)
                yield from self._leave(1)

    def _join_with(self, part: Part, its: Class) -> Generator[Progress, None, Class]:
        """Joins the chunk of stream 0 with all rows of a class. Returns the class as it is then."""
        marked = self._new_aside()
        for _ in self._chunks(part, 1, its):
            yield from self._probe(self._groups)
            if self._marks[1]:
                yield from self._add(marked, 1)
            self._table.clear(self._group, 1)
            yield Progress.BUDGET
        return [marked] if self._marks[1] else its

    def _leave(self, stream: int) -> Steps:
        """Lets go of the rows of a stream, the only ones in the table: they have met all that there is."""
        yield from self._expire(self._groups, self._watermarks)
        yield from self._keep()
        self._table.clear(self._group, stream)
        yield Progress.BUDGET
