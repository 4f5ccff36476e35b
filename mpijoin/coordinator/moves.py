"""The moves of groups that are under way, and the relocations of which they are part, as the master knows them."""

from __future__ import annotations

from dataclasses import dataclass, field

from mpijoin.coordinator.events import Chosen, Compute, Moved, Stepped
from mpijoin.errors import ProtocolError
from mpijoin.moving import coordinator, relocation, steps
from mpijoin.partitioning.table import NO_STREAM, PartitionTable
from mpijoin.policy import plan


@dataclass
class OpenMove:
    """A move under way."""

    number: int
    group: int
    supplier: int
    consumer: int
    gain: float
    kind: str
    state: str = coordinator.BEGUN
    dealt: int = NO_STREAM  # of a group that is spread


@dataclass
class OpenRelocation:
    """A relocation under way. moves: the numbers of those of its moves that are."""

    number: int
    wanted: plan.Relocate
    state: str = relocation.COMPUTING
    moves: set[int] = field(default_factory=set)


class Moves:
    """Moves and relocations are numbered from 0 on, each for themselves. A move that was cancelled is remembered: its
    consumer may have refused it and not have been heard yet."""

    def __init__(self, kind: str) -> None:
        """kind: how groups move that are not spread."""
        self._kind = kind
        self.begun = self._relocations_begun = 0
        self._relocations: dict[int, OpenRelocation] = {}
        self._open: dict[int, OpenMove] = {}
        self._cancelled: dict[int, OpenMove] = {}

    def __len__(self) -> int:
        """How many moves and relocations are under way."""
        return len(self._open) + len(self._relocations)

    def begin(self, wanted: plan.Move, kind: str = "") -> OpenMove:
        """kind: "" for the usual one."""
        move = OpenMove(self.begun, *wanted, kind or self._kind)
        self._open[move.number] = move
        self.begun += 1
        return move

    def compute(self, wanted: plan.Relocate) -> Compute:
        """A relocation begins."""
        number = self._relocations_begun
        self._relocations_begun += 1
        self._relocations[number] = OpenRelocation(number, wanted)
        return Compute(number, wanted.supplier, wanted.octets, wanted.ranking)

    def computing(self) -> list[OpenRelocation]:
        """The relocations whose supplier has not chosen yet."""
        return [one for one in self._relocations.values() if one.state == relocation.COMPUTING]

    def chosen(self, said: Chosen, table: PartitionTable) -> OpenRelocation:
        """The relocation of which a slave speaks. ProtocolError where it is none of its business, or a group is."""
        one = self._relocations.get(said.relocation)
        if one is None or said.slave != one.wanted.supplier or one.state == relocation.MOVING:
            raise ProtocolError(
                f"slave {said.slave} has chosen groups for relocation {said.relocation}, for which it was not asked"
            )
        own = set(table.groups_of(said.slave).tolist())
        if not own.issuperset(said.groups) or len(set(said.groups)) < len(said.groups):
            raise ProtocolError(
                f"slave {said.slave} has chosen groups {said.groups} for relocation {said.relocation}, wanted groups of"
                " its own, each once"
            )
        return one

    def begin_all(self, one: OpenRelocation, groups: tuple[int, ...]) -> list[OpenMove]:
        """The hand-overs of a relocation's groups begin."""
        moves = [self.begin(plan.Move(group, one.wanted.supplier, one.wanted.consumer)) for group in groups]
        one.moves = {move.number for move in moves}
        return moves

    def relocation_of(self, move: OpenMove) -> OpenRelocation | None:
        """The relocation of which a move was the last one under way; None: there is none."""
        one = next((one for one in self._relocations.values() if move.number in one.moves), None)
        if one is None:
            return None
        one.moves.discard(move.number)
        return None if one.moves else one

    def forget(self, one: OpenRelocation) -> None:
        del self._relocations[one.number]

    def in_state(self, *states: str) -> list[OpenMove]:
        """Those that are in one of these states."""
        return [move for move in self._open.values() if move.state in states]

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
