"""What a slave does when groups change hands. Each message about that belongs to one of three: to a move, whose rows
are held back meanwhile (`Mover`), to one by PTLB (`Tracks`), or to a group of which several slaves have parts
(`Spreads`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable, Sequence

from mpijoin.messages import Slot, State
from mpijoin.moving import spreading, steps
from mpijoin.operators.base import Operator
from mpijoin.orders import ComputePartitions, Order
from mpijoin.rank import Rank
from mpijoin.slave.inputs import Inputs
from mpijoin.slave.moving import Mover, Taken
from mpijoin.slave.spreads import Spreads
from mpijoin.slave.tracks import Tracks

if TYPE_CHECKING:
    from mpijoin.spill.spiller import Spiller


class HandOver:
    """All groups that come and go here. What is done to the operator is done between two slices."""

    def __init__(
        self,
        rank: Rank,
        operator: Operator,
        inputs: Inputs,
        producers: Sequence[int],
        spiller: Spiller | None,
        kind: str,
    ):
        """spiller: of rows on disk that go along · kind: of the run's moves, one of `config.moves.MOVES`."""
        self._mover = Mover(rank, operator, inputs, spiller, kind)
        self._tracks = Tracks(rank, operator, producers)
        self._spreads = Spreads(rank, operator, inputs, producers)

    @property
    def is_moving(self) -> bool:
        return self._mover.is_moving

    @property
    def supplied(self) -> set[int]:
        return self._mover.supplied

    def slot_came(self) -> None:
        self._mover.slot_came()

    def compute(self, asked: ComputePartitions, groups: Iterable[int]) -> None:
        self._mover.compute(asked, groups)

    def expects(self, order: Order) -> None:
        """Notes an order that is to be carried out between two slices. ProtocolError: no such move is known."""
        if not self._spreads.knows(order.move):
            self._mover.expects(order)

    def ship(self, nothing_to_join: bool) -> bool:
        """Sends a portion of one group, if one is to go and may. Returns whether it did."""
        return self._mover.ship(nothing_to_join) or self._spreads.send()

    def take(self, state: State) -> bool:
        """Takes a part of what comes from another slave. Returns whether it can be installed now."""
        if state.rows:
            self._spreads.take(state)
            return self._spreads.may_take(state.move)
        return self._mover.take(state)

    def comes(self, slot: Slot) -> bool:
        """Whether a slot of a shared group is the first by which this slave hears of a move that may bring it here."""
        return slot.step == steps.COPY and not self._tracks.knows(slot.move)

    def joined(self, slot: Slot) -> tuple[int | None, bool]:
        """All rows of a slot of a shared group are joined. Returns the group if it has left, and whether rows that have
        come can be installed now. ProtocolError: the slot is out of turn."""
        if slot.step not in spreading.SLAVE:
            return self._tracks.joined(slot), False
        return self._spreads.joined(slot), self._spreads.may_take(slot.move)

    def carry_out(self, move: int, step: str, group: int, taken: Sequence[Taken]) -> tuple[Slot, ...]:
        """Carries out an order. taken, and what is returned: as of `Mover.carry_out`."""
        if self._spreads.knows(move):
            self._spreads.carry_out(move, step)
            return ()
        return self._mover.carry_out(move, step, group, taken)

    def install(self, move: int) -> tuple[Slot, ...]:
        """Takes over what has come. Returns the input that came with a group, if one came and there is room."""
        if self._spreads.knows(move):
            self._spreads.install(move)
            return ()
        return self._mover.install(move)
