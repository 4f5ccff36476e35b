"""Which slaves have parts of the groups that are spread, as the coordinator knows it (moving/spreading.py)."""

from __future__ import annotations

from mpijoin.config.moves import SPREAD
from mpijoin.coordinator.moves import OpenMove
from mpijoin.moving import coordinator, spreading
from mpijoin.named import NamedTuple
from mpijoin.partitioning.table import NO_STREAM, Copy, PartitionTable
from mpijoin.policy.plan import Gather, Move, Spread
from mpijoin.producer.events import Align, ToMembers


class Members(NamedTuple):
    """The slaves that have parts of a group, the first owner first, and the stream that is dealt among them."""

    slaves: tuple[int, ...]
    dealt: int


class Spreads:
    """Members come and go one at a time. `table` follows."""

    def __init__(self, table: PartitionTable):
        self._table = table
        self._members: dict[int, Members] = {}
        self._to_come: dict[int, list[int]] = {}  # further members of each group, the next one last

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, group: int) -> bool:
        return group in self._members

    def spread(self, wanted: Spread) -> Move:
        """What changes hands if the next of these slaves comes. The others shall follow, instead of any that were to
        come before."""
        further, *others = wanted.consumers
        self._to_come.pop(wanted.group, None)
        if others:
            self._to_come[wanted.group] = others[::-1]
        return Move(wanted.group, wanted.supplier, further)

    def gather(self, wanted: Gather) -> Move:
        """What changes hands if a member gives its part back. No others shall come any more."""
        self._to_come.pop(wanted.group, None)
        return self._leave(wanted.group, wanted.member)

    def _leave(self, group: int, member: int) -> Move:
        return Move(group, member, self._members[group].slaves[0])

    def leave_for_checkpoint(self) -> list[Move]:
        """Of each group, the last member leaves next. It shall come again."""
        leaves = [self._leave(group, members.slaves[-1]) for group, members in self._members.items()]
        for one in leaves:
            self._to_come.setdefault(one.group, []).append(one.supplier)
        return leaves

    def come_next(self) -> list[Move]:
        """What changes hands if of each group the next of those comes that shall."""
        known, self._to_come = self._to_come, {}
        comes = []
        for group, slaves in known.items():
            first = self._members[group].slaves[0] if group in self else self._table.owner_of(group)
            *rest, further = slaves
            comes.append(Move(group, first, further))
            if rest:
                self._to_come[group] = rest
        return comes

    def align(self, move: OpenMove, act: str) -> Align:
        """The group's input is held back, and its slaves hear of it."""
        if move.group in self._members:
            move.dealt = self._members[move.group].dealt
        self._table.route(move.group, None)
        said = zip((move.supplier, move.consumer), spreading.SAID[act])
        told = tuple((slave, step) for slave, step in said if step)
        return Align(move.number, move.group, move.supplier, move.consumer, told, move.dealt)

    def to_members(self, move: OpenMove) -> ToMembers:
        """A member has come or left, or nothing has changed."""
        before = self._members.pop(move.group, Members((move.supplier,), NO_STREAM))
        slaves = before.slaves
        if move.state != coordinator.MOVED:
            self._to_come.pop(move.group, None)
        elif move.kind == SPREAD:
            slaves = (*slaves, move.consumer)
        else:
            slaves = tuple(slave for slave in slaves if slave != move.supplier)
        if len(slaves) > 1:
            self._members[move.group] = Members(slaves, move.dealt)
            self._table.share(move.group, *(Copy(slave, dealt=move.dealt) for slave in slaves))
        else:
            self._table.route(move.group, slaves[0])
        return ToMembers(move.number, move.group, slaves, move.dealt)
