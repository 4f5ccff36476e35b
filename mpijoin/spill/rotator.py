"""A slave's part of rotation: it writes whole groups to disk, spools the input that comes for them, and activates them.

It does what the slave's core and `Rotation` have decided, in bounded pieces. A group on disk has two runs: its state,
and the input that is pending for it, oldest first. The input is joined after the group was installed and before any
newer input of it. Watermarks are a part of the input. Nothing expires for them before the rows that came with them and
earlier ones are joined. Where rows are answered when their windows are over, watermarks are pending input even without
rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Collection

import numpy as np

from mpijoin.config.job import ROTATE
from mpijoin.data.codec import ALIGNMENT, decode, encode
from mpijoin.data.room import Room
from mpijoin.messages import KINDS, Slot
from mpijoin.named import NamedTuple
from mpijoin.operators.base import Left, Out
from mpijoin.operators.stored import TableOperator
from mpijoin.records import SpillFigures
from mpijoin.spill.generations import Part
from mpijoin.spill.pending import PendingInput
from mpijoin.spill.rotation import Rotation
from mpijoin.spill.runs import Reading, Run, Runs
from mpijoin.store.shipment import meta_of

INACTIVE_KIND = 28  # This is the kind of frames after those of messages.
# Pending input is joined in parts of about so many bytes, but no more than this share of the memory: nothing expires
# before a part is joined.
INPUT_BYTES = 1 << 20
INPUT_SHARE = 1 / 16


@dataclass
class Inactive:
    """A group on disk. rows: int64[streams], those of its state · octets: the memory that its state takes · number:
    no other group that was ever on this disk has it, nor the number after it · is_own: this slave has written the
    state, so that it need not be checked · reached: the newest input, if it has no rows, so that only its watermarks
    count. No checkpoint needs it, because watermarks come again."""

    state: Run
    pending: Run
    rows: np.ndarray
    octets: int
    number: int
    is_own: bool
    reached: Slot | None = None


@dataclass
class Activation:
    """A group that comes back. reading: its pending input, once its state is installed."""

    group: int
    began_s: float
    own: Inactive
    reading: Reading | None = None


class Turn(NamedTuple):
    """A piece of an activation is done. more: another follows · input: to be joined before that · is_blocked: there is
    no room now, because groups change hands."""

    more: bool = False
    input: Slot | None = None
    is_blocked: bool = False


class Rotator:
    form = ROTATE
    is_between = may_lose_memory = True

    def __init__(self, operator: TableOperator, runs: Runs, gap_s: float | None):
        """gap_s: as of `Rotation`."""
        self._operator, self._runs = operator, runs
        self._rotation = Rotation(gap_s)
        self._room, self._whole = Room(), Room()  # for what is read, and for all frames of a state
        self._input = PendingInput([stream.tuple_words for stream in operator.streams])
        self._disk: dict[int, Inactive] = {}
        self._aside: dict[int, Inactive] = {}  # They are not here yet.
        self._numbers = 0
        self._activation: Activation | None = None
        self._fixed: Collection[int] = ()
        self._left_bytes = 0
        self.spills = self._disk_bytes_max = 0
        # Rows of each stream whose copy on disk is done with, because nothing is to come that could meet them.
        self.let_go = np.zeros(len(operator.streams), np.int64)

    @property
    def open_groups(self) -> int:
        """For how many groups on disk input is pending."""
        return len(self._rotation.pending)

    def disk_bytes(self, groups: np.ndarray) -> np.ndarray:
        """What each of these groups has on disk: int64[m]."""
        own = [self._disk.get(group) for group in groups.tolist()]
        return np.array([one.state.octets + one.pending.octets if one else 0 for one in own], np.int64)

    @property
    def figures(self) -> SpillFigures:
        """What was done so far and is left to do, without times."""
        owing = [self._disk[group] for group in self._rotation.pending]
        return SpillFigures(
            spills=self.spills,
            write_s=self._runs.write_s,
            spilled_bytes=self._runs.written_bytes,
            read_back_bytes=self._runs.read_bytes,
            disk_bytes=self._runs.held_bytes,
            disk_bytes_max=self._disk_bytes_max,
            owed_groups=len(owing),
            owed_bytes=sum(one.state.octets + one.pending.octets for one in owing),
        )

    def count_owed(self) -> bool:
        """What pending input will find is not known before it is joined, so there is nothing to count."""
        return False

    @property
    def page_bytes(self) -> int:
        return self._operator.page_bytes

    def is_inactive(self, group: int) -> bool:
        """Whether the group is on disk."""
        return self._rotation.is_inactive(group)

    def begin_spill(self, octets: int, ranking: str, groups: Collection[int], fixed: Collection[int] = ()) -> None:
        """Begins to make about so many bytes free. groups: those of the slave · fixed: those of them that must stay.

        The queue decides which groups go, and not the ranking.
        """
        self.spills += 1
        self._rotation.holds(groups)
        self._fixed = {*fixed, *([] if self._activation is None else [self._activation.group])}
        self._left_bytes = octets

    def spill_next(self) -> bool:
        """Writes the next group. Returns whether there are more to go."""
        freed = self._write_first(self._fixed)
        self._left_bytes -= freed
        return freed > 0 and self._left_bytes > 0

    def _write_first(self, fixed: Collection[int]) -> int:
        """Writes the first group in memory that has any tuples, and none that are fresh: these would wait for others to
        come. Returns how many bytes are free then that were not."""
        free = self._operator.memory().free
        for group in self._rotation.victims(fixed):
            if self._operator.info(np.array([group])).tuples.any() and not self._operator.holds_fresh(group):
                self._write(group)
                return self._operator.memory().free - free
        return 0

    def _write(self, group: int) -> None:
        info = self._operator.info(np.array([group]))
        state = self._runs.new_run()
        for frame in self._operator.to_disk(group):
            state.append(frame)
        self._operator.drop(group, Left.SPILLED)
        self._disk[group] = self._inactive(state, info.tuples[0].copy(), int(info.blocks[0]) * self.page_bytes, True)
        self._rotation.wrote(group)
        self._disk_bytes_max = max(self._disk_bytes_max, self._runs.held_bytes)

    def _inactive(self, state: Run, rows: np.ndarray, octets: int, is_own: bool) -> Inactive:
        self._numbers += 2
        return Inactive(state, self._runs.new_run(), rows, octets, self._numbers, is_own)

    def spool(self, slot: Slot) -> None:
        """Takes input of a single group that is on disk, with rows or without."""
        group = int(slot.groups[0])
        own = self._disk[group]
        if slot.pieces:
            own.pending.append(self._input.frame_of(slot))
            own.reached = None
        elif self._operator.answers_late:
            own.reached = slot
        else:
            return
        self._rotation.has_pending(group)
        self._disk_bytes_max = max(self._disk_bytes_max, self._runs.held_bytes)

    def begin_activation(self, group: int | None, at_once: bool, groups: Collection[int], now_s: float) -> None:
        """Chooses what is activated. group: this one, if it is on disk. None: that whose turn it is, if it is time or
        must be at once."""
        assert self._activation is None
        self._rotation.holds(groups)
        chosen = self._rotation.due(now_s, at_once) if group is None else group
        if chosen is not None and self.is_inactive(chosen):
            self._activation = Activation(chosen, now_s, self._disk[chosen])

    def activate(self, fixed: Collection[int], now_s: float) -> Turn:
        """Does the next piece of the activation: writes a group to make room, installs, or gives pending input."""
        if (work := self._activation) is None:
            return Turn()
        if work.reading is not None:
            octets_max = min(INPUT_BYTES, INPUT_SHARE * self._operator.memory().budget)
            pending = self._input.next_part(work.reading, octets_max)
            if pending is None:
                pending, work.own.reached = work.own.reached, None
            if pending is None:
                self._activation = None
            return Turn(pending is not None, pending)
        if self._operator.memory().free < work.own.octets:
            fixed = set(fixed) - {work.group}
            if self._write_first(fixed):
                return Turn(more=True)
            if fixed:
                self._activation = None
                return Turn(is_blocked=True)
        self._install(work)
        self._rotation.activated(work.group, work.began_s, now_s)
        work.reading = work.own.pending.frames(self._room, last=True)
        return Turn(more=True)

    def _install(self, work: Activation) -> None:
        state, parts, end = work.own.state, [], 0
        reading = state.frames(self._room)
        memory = self._whole.take_one(state.octets + ALIGNMENT * len(state))
        for frame in reading:
            parts.append(memory[end : end + len(frame)])
            parts[-1][:] = frame
            end += -(-len(frame) // ALIGNMENT) * ALIGNMENT
        with reading.decoding():
            self._operator.from_disk(parts, work.own.is_own)
        state.remove()
        del self._disk[work.group]

    def begin_end(self, groups: Collection[int], out: Out) -> None:
        """All input is joined, so what is on disk can meet nothing."""
        for group, own in self._disk.items():
            self.let_go += own.rows
            own.state.remove()
            own.pending.remove()
            self._rotation.forget(group)
        self._disk.clear()

    def settle(self) -> None:
        """Takes back an activation that is under way. Its group has joined some of its pending input, or none."""
        work, self._activation = self._activation, None
        if work is None or work.reading is None:
            return
        self._write(work.group)
        pending = self._disk[work.group].pending
        for frame in work.reading:
            pending.append(frame)
        if len(pending):
            self._rotation.has_pending(work.group)

    def marks(self, group: int) -> list[np.ndarray]:
        """Returns the frame that goes before those of a group's parts, if it is on disk."""
        if group not in self._disk:
            return []
        own = self._disk[group]
        return [encode(INACTIVE_KIND, {"group": group, "octets": own.octets}, [own.rows], checksum=True)]

    def parts(self, group: int) -> list[Part]:
        """The state of a group on disk, and the input that is pending for it."""
        if group not in self._disk:
            return []
        own = self._disk[group]
        return [Part(own.number, own.state.frames_from), Part(own.number + 1, own.pending.frames_from)]

    def take_aside(self, group: int, frame: np.ndarray) -> bool:
        """Takes a frame of a group that was on disk when it was saved: first that of `marks`, then those of its parts.

        Returns whether it is one. Raises CodecError and ProtocolError.
        """
        decoded = decode(frame)
        if decoded.kind == INACTIVE_KIND:
            rows = decoded.buffers[0].copy()
            self._aside[group] = self._inactive(self._runs.new_run(), rows, meta_of(decoded, "octets"), False)
        elif group not in self._aside:
            return False
        elif decoded.kind == KINDS[Slot]:
            self._aside[group].pending.append(frame)
        else:
            self._aside[group].state.append(frame)
        self._disk_bytes_max = max(self._disk_bytes_max, self._runs.held_bytes)
        return True

    def adopt(self, group: int) -> None:
        """The group is this slave's now, with what was taken aside."""
        if group in self._aside:
            own = self._disk[group] = self._aside.pop(group)
            self._rotation.took(group)
            if len(own.pending):
                self._rotation.has_pending(group)

    def make_room(self, groups: Collection[int]) -> bool:
        """Writes the first of these groups that is in memory. Returns whether any memory is free for that."""
        self._rotation.holds(groups)
        return self._write_first(()) > 0

    def abandon(self) -> None:
        """Gives all space back. The operator is of no use any more."""
        for own in (*self._disk.values(), *self._aside.values()):
            own.state.remove()
            own.pending.remove()
        self._disk, self._aside = {}, {}

    def clean_up(self, out: Out, fixed: Collection[int] = ()) -> bool:
        """Nothing is owed that pending input would not find."""
        return False
