"""Groups on their way: what this slave supplies, what it consumes, and how much of that goes out at once.

A supplier goes on joining a group while it ships the blocks that no longer change, portion by portion. Only the rest,
which fits one portion, goes out while nobody joins the group. By MSLB all of it does, with the states of its plan, if
it has one. A consumer keeps aside what has come until it is whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Iterable, Sequence

import numpy as np

from mpijoin.config.moves import MSLB, PRECOPY
from mpijoin.errors import MemoryBudgetError, ProtocolError
from mpijoin.messages import Piece, Slot, State
from mpijoin.moving import consumer, steps, supplier
from mpijoin.operators.base import Operator
from mpijoin.orders import ComputePartitions, Order, Partitions, Step
from mpijoin.partitioning.runs import item_bytes, octets_of
from mpijoin.partitioning.table import NO_STREAM
from mpijoin.rank import MASTER, Rank
from mpijoin.records import Transfer
from mpijoin.slave.batches import Batches
from mpijoin.slave.inputs import Inputs
from mpijoin.spill.ranking import held_bytes, ranked, within

if TYPE_CHECKING:
    from mpijoin.spill.spiller import Spiller

# So much state is read out at once, which takes some 10 ms. The next portion waits until the consumer has taken this
# one.
PORTION_BYTES = 8 << 20
# So much is shipped per slot while there is something to join; otherwise as much as the consumer takes.
SLOT_BYTES = 32 << 20
UNLIMITED = 1 << 62

Taken = tuple[Batches, list[Piece]]  # a message, and the rows of a group that were taken out of it


@dataclass
class Supply:
    """A group that goes away. since: the newest block that was shipped · rows_sent: so many of its frames on
    disk were shipped · input: what was taken out of the messages, in
    case the group comes back · marks: as of `Inputs.goes`."""

    group: int
    consumer: int
    state: str = supplier.UNKNOWN
    since: int = 0
    rows_sent: int = 0
    octets: int = 0
    sent_s: float | None = None  # when what is under way was handed to the transport
    transfer_s: float = 0.0
    input: tuple[Slot, ...] = ()
    marks: tuple[tuple[int, ...], ...] = ()


@dataclass
class Staging:
    """A group that is coming. One that was refused has no frames."""

    group: int
    state: str = consumer.UNKNOWN
    frames: list[np.ndarray] = field(default_factory=list)
    octets: int = 0
    input: tuple[Slot, ...] = ()
    marks: tuple[tuple[int, ...], ...] = ()
    dealt: int = NO_STREAM


class Mover:
    """All moves that this slave takes part in. Times are those of the rank's clock."""

    def __init__(
        self, rank: Rank, operator: Operator, inputs: Inputs, spiller: Spiller | None = None, kind: str = PRECOPY
    ):
        """spiller: what keeps the operator's rows on disk, if anything does · kind: PRECOPY or MSLB."""
        self._kind = kind
        self._rank, self._operator, self._inputs, self._spiller = rank, operator, inputs, spiller
        self._supplies: dict[int, Supply] = {}
        self._stagings: dict[int, Staging] = {}
        self._allowance_bytes = SLOT_BYTES

    @property
    def staged_bytes(self) -> int:
        return sum(staging.octets for staging in self._stagings.values())

    @property
    def is_moving(self) -> bool:
        """Whether a group is on its way from here, or to here."""
        return bool(self.supplied or self._stagings)

    @property
    def supplied(self) -> set[int]:
        """The groups on their way from here. A group that is only ordered to go does so after the slice that is being
        joined, which must not wait for it."""
        return {supply.group for supply in self._supplies.values() if supply.state != supplier.UNKNOWN}

    def slot_came(self) -> None:
        self._allowance_bytes = SLOT_BYTES

    def compute(self, asked: ComputePartitions, groups: Iterable[int]) -> None:
        """Tells the master which groups are to go. LAD, section 4: "the actual partition groups to be moved are decided
        by the local adaptation controller of the machine with the most used memory". groups: those of this slave."""
        own = np.array(sorted(groups), np.int64)
        info = self._operator.info(own)
        order = ranked(info, own, asked.ranking, asked.relocation)
        chosen = order[within(held_bytes(info, self._operator.memory())[order], asked.octets)]
        self._rank.send(MASTER, Partitions(asked.relocation, self._rank.number, tuple(own[chosen].tolist())))

    def expects(self, order: Order) -> None:
        """Notes an order that is to be carried out between two slices. ProtocolError: no such move is known."""
        if order.step == steps.FIRST.get(self._kind) and order.move not in self._supplies:
            self._supplies[order.move] = Supply(order.group, order.peer)
        supply = self._supplies.get(order.move)
        if supply is None or (supply.group, supply.consumer) != (order.group, order.peer):
            raise ProtocolError(
                f"slave {self._rank.number} was ordered to {order.step} group {order.group} to {order.peer} in move "
                f"{order.move}, which it knows nothing of"
            )

    def ship(self, nothing_to_join: bool) -> bool:
        """Ships a portion of one group, if a group is to go and may send now. Returns whether it did."""
        self._watch()
        for move, supply in self._supplies.items():
            if supply.state not in (supplier.SHIPPING, supplier.SENDING):
                continue
            if supply.sent_s is None and (nothing_to_join or self._allowance_bytes > 0):
                self._ship(move, supply)
                return True
        return False

    def carry_out(self, move: int, step: str, group: int, taken: Sequence[Taken]) -> tuple[Slot, ...]:
        """Carries out an order while the group holds no fresh tuples. taken: what was taken out of the messages, oldest
        first.

        Returns the input to be joined after all, where the group stays. Raises ProtocolError for an illegal step.
        """
        supply = self._supplies[move]
        before, supply.state = supply.state, supplier.advance(move, supply.state, step)
        match step:
            case steps.FREEZE:
                self._freeze(supply, taken)
                if supply.state == supplier.FROZEN:
                    self._send_rest(move, supply)
            case steps.DROP:
                self._drop(move, supply)
            case steps.RESTORE:
                del self._supplies[move]
                self._rank.send(supply.consumer, State(move, self._rank.number, group, (), cancelled=True))
                self._say(move, steps.RESTORED)
                return supply.input if before in (supplier.SENDING, supplier.FROZEN) else ()
        return ()

    def take(self, state: State) -> bool:
        """Takes a part of a group that has come. Returns whether the group is whole now. ProtocolError: it is out of
        turn."""
        staging = self._stagings.setdefault(state.move, Staging(state.group))
        if staging.group != state.group:
            raise ProtocolError(
                f"slave {self._rank.number} got state of group {state.group} in move {state.move}, wanted that of "
                f"group {staging.group}"
            )
        event = consumer.CANCEL if state.cancelled else consumer.REST if state.input else consumer.PORTION
        staging.state = consumer.advance(state.move, staging.state, event)
        if staging.state == consumer.CANCELLED:
            self._let_go(self._stagings.pop(state.move))
        if staging.state in (consumer.CANCELLED, consumer.REFUSED):
            return False
        return self._stage(staging, state)

    def _stage(self, staging: Staging, state: State) -> bool:
        for frame in state.frames:
            if self._spiller is None or not self._spiller.take_aside(staging.group, frame):
                staging.frames.append(frame)
                staging.octets += frame.nbytes
        staging.input, staging.marks, staging.dealt = state.input, state.marks, state.dealt
        if self.staged_bytes > self._operator.memory().free:
            self._refuse(state.move, f"it has no room for group {state.group}: {staging.octets} bytes have come so far")
        return staging.state == consumer.WHOLE

    def install(self, move: int) -> tuple[Slot, ...]:
        """Takes over a group that has come whole; returns the input that came with it, or () if there is no room."""
        staging = self._stagings[move]
        installed = consumer.advance(move, staging.state, consumer.INSTALL)
        try:
            self._operator.install(staging.frames, replica=staging.dealt != NO_STREAM)
        except MemoryBudgetError as error:
            self._refuse(move, str(error))
            return ()
        staging.state = installed
        del self._stagings[move]
        if self._spiller:
            self._spiller.adopt(staging.group)
        if staging.dealt != NO_STREAM:
            self._operator.deal(staging.group, staging.dealt, move, part=1)
        self._inputs.comes(staging.group, staging.marks)
        blocks = int(self._operator.info(np.array([staging.group])).blocks[0])
        self._say(move, steps.INSTALLED, figures=Transfer(blocks=blocks))
        return staging.input

    def _ship(self, move: int, supply: Supply) -> None:
        """Ships a portion: at first of what the group has on disk, then of what does not change in memory."""
        if frames := self._on_disk(supply, PORTION_BYTES):
            self._send(move, supply, frames)
            return
        frames = self._operator.get(supply.group, supply.since, PORTION_BYTES)
        newest, whole = self._operator.reached(frames)
        if whole:
            supply.state = supplier.advance(move, supply.state, supplier.READY)
            if supply.state == supplier.FROZEN:
                self._send_rest(move, supply)
            else:
                self._say(move, steps.SHIPPED)
            return
        supply.since = newest
        self._send(move, supply, frames)

    def _freeze(self, supply: Supply, taken: Sequence[Taken]) -> None:
        """Keeps the input that is not joined, up to where the newest message of the group reached."""
        own = np.array([supply.group])
        pieces: list[Piece] = []
        slots: list[Slot] = []
        least_bytes = item_bytes((piece for _, some in taken for piece in some), self._operator.memory().budget)
        for at, (batches, some) in enumerate(taken, 1):
            slot, watermarks = batches.slot, self._inputs.reached(batches.slot, supply.group)
            pieces += some
            if at == len(taken) or octets_of(pieces) >= least_bytes:
                kept = Slot(self._rank.number, slot.epoch, watermarks, own, tuple(pieces), origin=slot.origin)
                slots.append(kept)
                pieces = []
        if not slots:
            watermarks = tuple(self._operator.info(own).watermarks[0].tolist())
            slots = [Slot(self._rank.number, 0, watermarks, own, ())]
        supply.input, supply.marks = tuple(slots), self._inputs.goes(supply.group)

    def _send_rest(self, move: int, supply: Supply) -> None:
        """Sends the rest of the group with the input that was kept. A tail goes last."""
        on_disk = self._on_disk(supply, UNLIMITED)
        notes = self._spiller.marks(supply.group) if self._spiller else []
        states = self._operator.states_of(supply.group) if self._kind == MSLB else []
        frames = [*notes, *on_disk, *states, *self._operator.get(supply.group, supply.since)]
        self._send(move, supply, frames, supply.input, supply.marks)

    def _drop(self, move: int, supply: Supply) -> None:
        self._watch()
        del self._supplies[move]
        self._operator.drop(supply.group)
        if self._spiller:
            self._spiller.forget(supply.group)
        under_way_s = 0.0 if supply.sent_s is None else self._rank.clock.wall_s - supply.sent_s
        self._say(move, steps.DROPPED, figures=Transfer(supply.octets, supply.transfer_s or under_way_s))

    def _send(
        self,
        move: int,
        supply: Supply,
        frames: list[np.ndarray],
        final: tuple[Slot, ...] = (),
        marks: tuple[tuple[int, ...], ...] = (),
    ) -> None:
        """Sends a message per frame, so that the consumer takes one while the next is made."""
        octets = sum(frame.nbytes for frame in frames)
        supply.octets += octets
        self._allowance_bytes -= octets
        supply.sent_s = self._rank.clock.wall_s if supply.sent_s is None else supply.sent_s
        for frame in frames[:-1]:
            self._rank.send(supply.consumer, State(move, self._rank.number, supply.group, (frame,)))
        last = State(move, self._rank.number, supply.group, (frames[-1],), final, marks=marks)
        self._rank.send(supply.consumer, last)

    def _watch(self) -> None:
        """Adds up the time during which state was under way."""
        for supply in self._supplies.values():
            if supply.sent_s is not None and self._rank.transport.unsent_bytes(supply.consumer) == 0:
                supply.transfer_s += self._rank.clock.wall_s - supply.sent_s
                supply.sent_s = None

    def _refuse(self, move: int, reason: str) -> None:
        """Gives up what has come. More may come until the supplier hears of the refusal."""
        staging = self._stagings[move]
        staging.state = consumer.advance(move, staging.state, consumer.NO_ROOM)
        self._let_go(staging)
        staging.frames, staging.octets, staging.input = [], 0, ()
        self._say(move, steps.REFUSED, reason)

    def _on_disk(self, supply: Supply, octets_max: int) -> list[np.ndarray]:
        """Returns the next frames of the group's rows on disk, up to about so many bytes."""
        if self._spiller is None:
            return []
        # A group with kept rows cannot be read out.
        self._spiller.write_kept([supply.group])
        frames = self._spiller.portion(supply.group, supply.rows_sent, octets_max)
        supply.rows_sent += len(frames)
        return frames

    def _let_go(self, staging: Staging) -> None:
        """Gives the space back that what has come takes on disk."""
        if self._spiller:
            self._spiller.refuse(staging.group)

    def _say(self, move: int, step: str, reason: str = "", figures: Transfer = Transfer()) -> None:
        self._rank.send(MASTER, Step(move, self._rank.number, step, reason, figures))
