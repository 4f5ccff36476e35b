"""The moves of groups that are under way, as the master knows them."""

from __future__ import annotations

from dataclasses import dataclass

from mpijoin.errors import ProtocolError
from mpijoin.master.events import Command, Moved, Stepped
from mpijoin.moving import coordinator, steps
from mpijoin.policy import plan


@dataclass
class OpenMove:
    """A move under way."""

    number: int
    group: int
    supplier: int
    consumer: int
    gain: float
    state: str = coordinator.SHIPPING


class Moves:
    """They are numbered from 0 on. A move that was cancelled is remembered: its consumer may have refused it and not
    have been heard yet."""

    def __init__(self) -> None:
        self.begun = 0
        self._open: dict[int, OpenMove] = {}
        self._cancelled: dict[int, OpenMove] = {}

    def __len__(self) -> int:
        """How many are under way."""
        return len(self._open)

    def begin(self, wanted: plan.Move) -> Command:
        move = OpenMove(self.begun, wanted.group, wanted.supplier, wanted.consumer, wanted.gain)
        self._open[move.number] = move
        self.begun += 1
        return Command(move.number, steps.SHIP, move.supplier, move.group, move.consumer)

    def shipping(self) -> list[OpenMove]:
        """Those of which nothing is frozen yet."""
        return [move for move in self._open.values() if move.state == coordinator.SHIPPING]

    def frozen(self, group: int) -> OpenMove | None:
        """The move whose group has just been frozen; None: it is none."""
        held = (move for move in self._open.values() if move.group == group and move.state == coordinator.FROZEN)
        return next(held, None)

    def of(self, said: Stepped) -> OpenMove:
        """The move of which a slave speaks. ProtocolError where it is none of its business."""
        move = self._open.get(said.move) or self._cancelled.get(said.move)
        if move is None:
            raise ProtocolError(f"slave {said.slave} says {said.step!r} of move {said.move}, which is not under way")
        by = {**dict.fromkeys(steps.BY_SUPPLIER, move.supplier), **dict.fromkeys(steps.BY_CONSUMER, move.consumer)}
        if said.slave != by.get(said.step):
            wanted = f"that of slave {by[said.step]}" if said.step in by else f"one of {', '.join(by)}"
            raise ProtocolError(f"slave {said.slave} says {said.step!r} of move {said.move}, wanted {wanted}")
        return move

    def close(self, move: OpenMove) -> Moved:
        del self._open[move.number]
        if move.state == coordinator.CANCELLED:
            self._cancelled[move.number] = move
        return Moved(move.number, move.group, move.supplier, move.consumer, move.state, move.gain)
