"""Groups of which this slave has a part (moving/spreading.py): what it does when a member comes or leaves.

A slave that gets a part of a group for the first time does so as the consumer of a move (`Mover`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Sequence

import numpy as np

from mpijoin.errors import MemoryBudgetError, ProtocolError
from mpijoin.messages import Slot, State
from mpijoin.moving import spreading, steps
from mpijoin.operators.base import Operator
from mpijoin.orders import Step
from mpijoin.partitioning.table import NO_STREAM
from mpijoin.rank import MASTER, Rank
from mpijoin.records import Transfer
from mpijoin.slave.inputs import Inputs
from mpijoin.slave.moving import PORTION_BYTES


@dataclass
class Part:
    """A member that comes or leaves, as this slave takes part in it. aligned: the producers whose slots are joined ·
    frames, octets: what has come, or how much went out · since: what of the group is sent is older than this, as of
    `Operator.get`."""

    group: int
    step: str
    dealt: int
    state: str = spreading.UNKNOWN
    peer: int = MASTER
    aligned: set[int] = field(default_factory=set)
    frames: list[np.ndarray] = field(default_factory=list)
    octets: int = 0
    since: int = 0


class Spreads:
    """All such changes that are under way here. What is done to the operator is done between two slices."""

    def __init__(self, rank: Rank, operator: Operator, inputs: Inputs, producers: Sequence[int]):
        self._rank, self._operator, self._inputs, self._producers = rank, operator, inputs, set(producers)
        self._parts: dict[int, Part] = {}

    def knows(self, move: int) -> bool:
        return move in self._parts

    def may_take(self, move: int) -> bool:
        """Whether all rows have come that another member gives, and this one is aligned."""
        return move in self._parts and self._parts[move].state == spreading.WHOLE

    def joined(self, slot: Slot) -> int | None:
        """All that a producer had sent before this slot is joined. Returns the group if it has left. ProtocolError:
        the slot is out of turn."""
        part = self._part_of(slot.move, int(slot.groups[0]), slot.step, slot.dealt)
        if slot.producer in part.aligned:
            raise ProtocolError(
                f"slave {self._rank.number} was told to {slot.step} group {part.group} in move {slot.move} by producer"
                f" {slot.producer} twice"
            )
        part.aligned.add(slot.producer)
        part.peer = slot.peer
        if part.aligned != self._producers:
            return None
        self._advance(slot.move, part, spreading.ALIGNED)
        if slot.step == steps.SPREAD and part.dealt == NO_STREAM:
            # Of a group that has one member, the stream is dealt that takes most memory here: this is what no other
            # slave needs to hold twice.
            part.dealt = int(np.argmax(self._operator.info(np.array([part.group])).live_bytes[0]))
        if slot.step == steps.GIVE:
            self._give(slot.move, part)
            return part.group
        return None

    def send(self) -> bool:
        """Sends a portion of a group to a member that comes, if the one before is gone. Returns whether it did."""
        for move, part in self._parts.items():
            if part.state == spreading.SENDING and self._rank.transport.unsent_bytes(part.peer) == 0:
                self._send_portion(move, part)
                return True
        return False

    def take(self, state: State) -> None:
        """Takes some of the rows that another member gives."""
        part = self._part_of(state.move, state.group, steps.TAKE, state.dealt)
        part.frames += state.frames
        if state.input:
            self._advance(state.move, part, spreading.ARRIVED)

    def install(self, move: int) -> None:
        """Takes over the rows that have come. Raises MemoryBudgetError if there is no room for them."""
        part = self._parts.pop(move)
        self._advance(move, part, spreading.TAKEN)
        try:
            self._operator.take_dealt(part.group, part.dealt, part.frames)
        except MemoryBudgetError as error:
            raise MemoryBudgetError(
                f"slaves shared group {part.group}, which was to come together here, as it has to for a checkpoint or"
                f" when it takes less time: {error}"
            ) from error
        blocks = int(self._operator.info(np.array([part.group])).blocks[0])
        self._say(move, steps.INSTALLED, Transfer(blocks=blocks))

    def carry_out(self, move: int, step: str) -> None:
        """Carries out what the master has ordered. ProtocolError: it is illegal now."""
        part = self._parts[move]
        self._advance(move, part, step)
        del self._parts[move]
        if step == steps.DEAL:
            self._operator.deal(part.group, part.dealt, move, part=0)
            self._say(move, steps.DEALT, Transfer(part.octets, 0.0), part.dealt)
            return
        self._rank.send(part.peer, State(move, self._rank.number, part.group, (), cancelled=True))
        self._say(move, steps.RESTORED)

    def _part_of(self, move: int, group: int, step: str, dealt: int) -> Part:
        part = self._parts.setdefault(move, Part(group, step, dealt))
        if (part.group, part.step, part.dealt) != (group, step, dealt):
            raise ProtocolError(
                f"slave {self._rank.number} was told to {step} group {group} and deal stream {dealt} in move {move},"
                f" wanted {part.step}, group {part.group} and stream {part.dealt}"
            )
        return part

    def _send_portion(self, move: int, part: Part) -> None:
        frames = self._operator.get(part.group, part.since, PORTION_BYTES)
        part.since, whole = self._operator.reached(frames)
        if whole:
            self._advance(move, part, spreading.WHOLE_SENT)
            self._send(move, part, frames, self._inputs.goes(part.group))
            return
        self._send_frames(move, part, frames)

    def _give(self, move: int, part: Part) -> None:
        del self._parts[move]
        self._send(move, part, self._operator.give_dealt(part.group, part.dealt), rows=True)
        self._say(move, steps.DROPPED, Transfer(part.octets, 0.0))

    def _send(
        self,
        move: int,
        part: Part,
        frames: Sequence[np.ndarray],
        marks: tuple[tuple[int, ...], ...] = (),
        rows: bool = False,
    ) -> None:
        """Sends what is left, and that it is the end. rows: the frames are of the dealt stream alone."""
        watermarks = self._operator.info(np.array([part.group])).watermarks[0].tolist()
        final = Slot(self._rank.number, 0, tuple(watermarks), np.array([part.group]), ())
        self._send_frames(move, part, frames, rows)
        own = State(move, self._rank.number, part.group, (), (final,), marks=marks, dealt=part.dealt, rows=rows)
        self._rank.send(part.peer, own)

    def _send_frames(self, move: int, part: Part, frames: Sequence[np.ndarray], rows: bool = False) -> None:
        for frame in frames:
            own = State(move, self._rank.number, part.group, (frame,), dealt=part.dealt, rows=rows)
            self._rank.send(part.peer, own)
            part.octets += frame.nbytes

    def _advance(self, move: int, part: Part, event: str) -> None:
        part.state = spreading.advance_slave(part.step, move, part.state, event)

    def _say(self, move: int, step: str, figures: Transfer = Transfer(), dealt: int = NO_STREAM) -> None:
        self._rank.send(MASTER, Step(move, self._rank.number, step, figures=figures, dealt=dealt))
