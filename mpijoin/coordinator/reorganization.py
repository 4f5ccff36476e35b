"""Reorganization epochs: when the slaves are asked for their loads, what becomes of the answers, and what the policy
makes of it.

f_i, the occupancy of a slave, is the mean, over the distribution epochs of the reorganization epoch, of what was left
in its buffer at their end / the buffer memory (WSJ, section IV-C). What the master held back for want of credit is part
of it.
"""

from __future__ import annotations

from typing import Any, Collection, Iterable, Mapping

from mpijoin.errors import ProtocolError
from mpijoin.named import NamedTuple
from mpijoin.partitioning.table import SHARED, PartitionTable
from mpijoin.policy.plan import RANKINGS, Change, Collect, Gather, Move, Plan, Policy, Relocate, Resize, Spill, Spread
from mpijoin.policy.view import ClusterView, GroupView, Moving, SlaveView

BUFFER_EPOCHS = 2  # A buffer of no stated size holds the bytes of two distribution epochs.
INFLOW_MAX = 8.0  # Where the inflow is higher, the slave has joined next to nothing.


class Loaded(NamedTuple):
    """A slave's answer: means and shares since its last one."""

    slave: int
    period: int
    backlog_bytes: float
    busy: float
    communication: float
    groups: tuple[GroupView, ...]
    held_bytes: int = 0
    memory_bytes: int | None = None


class Traffic:
    """Bytes per slave in one reorganization epoch."""

    def __init__(self) -> None:
        self.came: dict[int, int] = {}
        self.joined: dict[int, int] = {}
        self.overdue: dict[int, int] = {}  # what was due and not sent, summed over the slots
        self.slots = 0

    def inflow(self, slave: int) -> float:
        """What came for the slave / what it joined."""
        came = self.came.get(slave, 0)
        return min(INFLOW_MAX, came / max(1, self.joined.get(slave, 0))) if came else 1.0


class EpochLength:
    """How long a reorganization epoch is: so many slots, or what the policy's last plan says (`Collect`). Even then it
    has a whole distribution epoch, so that every slave has been served in it."""

    def __init__(self, now_s: float):
        self.began_s = now_s  # the second of the run in which the epoch began
        self._decided_s = now_s  # ... in which the last plan was made
        self._collect: Collect | None = None
        self._collect_s = 0.0
        self._subgroups = 1

    def begin(self, now_s: float) -> None:
        self.began_s = now_s

    def decided(self, collect: Collect | None, subgroups: int, now_s: float) -> None:
        """subgroups: the slots of a distribution epoch."""
        self._collect, self._subgroups, self._decided_s = collect, subgroups, now_s
        self._collect_s = collect.unmoved_s if collect else 0.0

    def moved(self, now_s: float) -> None:
        """The moves of the last plan have ended: the next collection is as long as they took."""
        if self._collect:
            self._collect_s = max(self._collect.least_s, now_s - self._decided_s)

    def is_over(self, passed_slots: int, slots: int, now_s: float) -> bool:
        """passed_slots: of this epoch · slots: of an epoch as long as the job says."""
        if self._collect is None:
            return passed_slots >= slots
        return passed_slots >= self._subgroups and now_s - self.began_s >= self._collect_s


class Reorganization:
    """Asks a policy at the end of every reorganization epoch. An epoch has `slots` slots, which may be changed at any
    time, unless the policy wants another length (`Collect`)."""

    def __init__(
        self,
        policy: Policy,
        slots: int,
        slaves_min: int,
        seed: int = 0,
        load_buffer_bytes: int | None = None,
        memory_bytes: int | None = None,
        now_s: float = 0.0,
        may_spread: bool = False,
    ):
        """load_buffer_bytes: the buffer of which f_i is a share; None: it holds two epochs · memory_bytes: the budget
        of a slave's state; None: it is not known · now_s: the second of the run in which it begins ·
        may_spread: whether several slaves may have parts of a group."""
        self.slots = slots
        self.period = 0
        self._policy = policy
        self._slaves_min, self._seed = slaves_min, seed
        self._load_buffer_bytes, self._memory_bytes = load_buffer_bytes, memory_bytes
        self._may_spread = may_spread
        self._moved: dict[int, int] = {}
        self._resized = -1
        self._traffic = Traffic()
        self._length = EpochLength(now_s)
        self._memory: Any = None
        self._slots_in_all = 0
        self._under_way = Moving(0, 0, 0.0)  # its periods: when they began, in slots
        self._state_bytes: dict[int, int] = {}  # of each group, as the last view showed it
        self._moving: Moving | None = None
        self._asked: set[int] = set()
        self._void = False  # Whether what is answered is thrown away.
        self._answers: dict[int, Loaded] = {}

    @property
    def has_moved(self) -> bool:
        """Whether groups that the last plan has moved were not seen at their new places yet."""
        return self._under_way.groups > 0

    @property
    def asking(self) -> bool:
        """Whether answers are outstanding."""
        return bool(self._asked)

    def came(self, octets: Mapping[int, int]) -> None:
        for slave, count in octets.items():
            self._traffic.came[slave] = self._traffic.came.get(slave, 0) + count

    def joined(self, slave: int, octets: int) -> None:
        self._traffic.joined[slave] = self._traffic.joined.get(slave, 0) + octets

    def slot_ended(self, overdue: Mapping[int, int], now_s: float = 0.0) -> bool:
        """Returns whether the reorganization epoch has ended. overdue: bytes per slave that were due and not sent ·
        now_s: the second of the run."""
        traffic = self._traffic
        traffic.slots += 1
        self._slots_in_all += 1
        for slave, count in overdue.items():
            traffic.overdue[slave] = traffic.overdue.get(slave, 0) + count
        return self._length.is_over(traffic.slots, self.slots, now_s)

    def skip(self, now_s: float = 0.0) -> None:
        """This epoch brings no decision. The next one begins now."""
        self.period += 1
        self._traffic = Traffic()
        self._length.begin(now_s)

    def ask(self, slaves: Iterable[int]) -> int:
        """These slaves shall answer. Returns the number of the epoch."""
        self._asked, self._answers, self._void = set(slaves), {}, False
        return self.period

    def make_void(self) -> None:
        """What is answered is thrown away, because groups have changed hands since it was asked for."""
        self._void = True

    def begin_anew(self, slaves: Iterable[int], now_s: float = 0.0) -> int:
        """Groups have changed hands, and no move is open any more. A new epoch begins, and these slaves shall measure
        from now on. What was measured meanwhile says nothing about where groups are now: a slave that got its groups at
        the end looks idle. Returns the number of the epoch."""
        slots = max(1.0, self._slots_in_all - self._under_way.periods) - 0.5  # they ended within a slot
        self._moving = self._under_way._replace(periods=slots / max(1, self.slots))
        self._under_way = Moving(0, 0, 0.0)
        self._length.moved(now_s)
        self.skip(now_s)
        self.ask(slaves)
        self.make_void()
        return self.period

    def answered(self, answer: Loaded) -> bool:
        """Returns whether all have answered, so that it can be decided. ProtocolError for an answer that was not asked
        for."""
        if answer.slave not in self._asked or answer.period != self.period:
            asked = " ".join(map(str, sorted(self._asked))) or "nobody"
            raise ProtocolError(
                f"slave {answer.slave} answered for period {answer.period}, wanted slaves {asked} and period"
                f" {self.period}"
            )
        self._asked.discard(answer.slave)
        self._answers[answer.slave] = answer
        return not self._asked and not self._void

    def decide(
        self, slaves: Iterable[int], table: PartitionTable, subgroups: int, paced: bool, now_s: float = 0.0
    ) -> tuple[ClusterView, Plan]:
        """Asks the policy; returns what it was shown and what it wants. ProtocolError where its plan cannot be carried
        out. now_s: the second of the run."""
        buffer_bytes = self._load_buffer_bytes or max(1, self._epoch_bytes(subgroups) * BUFFER_EPOCHS)
        views = tuple(self._slave_view(slave, table, buffer_bytes, paced) for slave in sorted(slaves))
        collected_s = now_s - self._length.began_s
        known = (dict(self._moved), self._resized, self._moving, now_s, collected_s)
        spread = (members_of(table), self._may_spread)
        view = ClusterView(self.period, views, self._slaves_min, self._seed, *known, *spread, self._memory)
        plan = self._policy(view)
        if plan.spreads and not self._may_spread:
            raise ProtocolError(f"the policy wants {plan.spreads[0]}: wanted none, for the job does not allow it")
        check_plan(plan, table, {one.slave for one in views})
        self._memory, self._moving = plan.memory, None
        self._state_bytes = {group.group: group.state_bytes for one in views for group in (*one.parts, *one.groups)}
        self._under_way = Moving(0, 0, self._slots_in_all)
        changes: tuple[Move | Spread | Gather, ...] = (*plan.moves, *plan.spreads, *plan.gathers)
        self.begun([one.group for one in changes])
        if plan.active is not None and set(plan.active) != {one.slave for one in view.active}:
            self._resized = self.period
        self._length.decided(plan.collect, subgroups, now_s)
        self.skip(now_s)
        return view, plan

    def begun(self, groups: Collection[int]) -> None:
        """Moves of these groups have begun, after the last plan."""
        count, octets, since = self._under_way
        more = sum(self._state_bytes.get(group, 0) for group in groups)
        self._under_way = Moving(count + len(groups), octets + more, since)

    def closed(self, group: int) -> None:
        """A move of this group has ended, well or not."""
        self._moved[group] = self.period

    def _epoch_bytes(self, subgroups: int) -> float:
        """The mean of the bytes that came for a slave in a distribution epoch."""
        traffic = self._traffic
        return sum(traffic.came.values()) * subgroups / max(1, traffic.slots) / max(1, len(traffic.came))

    def _slave_view(self, slave: int, table: PartitionTable, buffer_bytes: float, paced: bool) -> SlaveView:
        answer = self._answers.get(slave)
        if answer is None:
            return SlaveView(slave, False, 0.0, 0.0, 0.0, (), memory_bytes=self._memory_bytes)
        own, known = table.groups_of(slave).tolist(), {group.group: group for group in answer.groups}
        shared = [group for group, members in members_of(table).items() if slave in members]
        groups, parts = (
            tuple(known.get(group) or GroupView(group, 0.0, 0) for group in some) for some in (own, shared)
        )
        traffic = self._traffic
        waiting_bytes = answer.backlog_bytes + traffic.overdue.get(slave, 0) / max(1, traffic.slots)
        occupancy = waiting_bytes / buffer_bytes if paced else answer.busy
        inflow = traffic.inflow(slave) if paced else 1.0
        memory_bytes = self._memory_bytes if answer.memory_bytes is None else answer.memory_bytes
        spent = (occupancy, answer.busy, answer.communication)
        return SlaveView(slave, bool(own or shared), *spent, groups, inflow, answer.held_bytes, memory_bytes, parts)


def members_of(table: PartitionTable) -> dict[int, tuple[int, ...]]:
    """Returns the slaves of each group that is shared."""
    shared = table.groups_of(SHARED).tolist()
    return {group: tuple(copy.slave for copy in table.copies_of(group)) for group in shared}


def check_plan(plan: Plan, table: PartitionTable, slaves: Collection[int]) -> None:
    """Raises ProtocolError for a plan that cannot be carried out as a whole."""
    seen: set[int] = set()
    for change in plan.changes:
        match change:
            case Move():
                _check_move(change, table, slaves, seen)
                seen.add(change.group)
            case Spread() | Gather():
                _check_members(change, table, slaves, seen)
                seen.add(change.group)
            case Relocate():
                _check_octets(change, slaves, (change.supplier, change.consumer))
            case Spill():
                _check_octets(change, slaves, (change.slave,))
            case Resize():
                _check_resize(change, plan, table, slaves)
    _check_parts(plan, table)


def _check_move(move: Move, table: PartitionTable, slaves: Collection[int], seen: Collection[int]) -> None:
    """It takes a group of its supplier's to another slave, and none twice."""
    owner = table.owner_of(move.group) if 0 <= move.group < table.partitions else None
    if owner != move.supplier or move.consumer not in {*slaves} - {move.supplier} or move.group in seen:
        raise ProtocolError(
            f"the policy wants group {move.group} moved from {move.supplier} to {move.consumer}: wanted a group of"
            f" the supplier's (it is {owner}'s), moved once, and another slave"
        )


def _check_members(
    change: Spread | Gather, table: PartitionTable, slaves: Collection[int], seen: Collection[int]
) -> None:
    """Some slaves come to the group, or one leaves it and was not the first, and the plan has no other change of it."""
    known = 0 <= change.group < table.partitions and change.group not in seen
    members = members_of(table).get(change.group, (table.owner_of(change.group),)) if known else ()
    match change:
        case Spread(_, supplier, consumers):
            further = {*slaves} - {*members}
            is_legal = members[:1] == (supplier,) and 0 < len(consumers) == len(further.intersection(consumers))
        case Gather(_, member):
            is_legal = member in members[1:]
    if not is_legal:
        raise ProtocolError(
            f"the policy wants {change}: wanted a change of a group with members {members}, the only one of it, by"
            f" which others of slaves {tuple(sorted(slaves))} come or one but the first leaves"
        )


def _check_octets(change: Relocate | Spill, slaves: Collection[int], parties: tuple[int, ...]) -> None:
    """It is about some bytes of slaves that there are, in an order that they know."""
    known = {*parties} <= {*slaves} and len({*parties}) == len(parties)
    if not known or change.octets <= 0 or change.ranking not in RANKINGS:
        raise ProtocolError(
            f"the policy wants {change}: wanted slaves of {tuple(sorted(slaves))}, some bytes, and a ranking of"
            f" {', '.join(RANKINGS)}"
        )


def _check_parts(plan: Plan, table: PartitionTable) -> None:
    """No slave spills and takes part in a move, for "these two adaptations are not concurrent" (LAD-TR, section 6). Nor
    does it relocate and take part in another move, because only it knows which of its groups go."""
    alone: dict[int, Change] = {}
    others = {slave for move in plan.moves for slave in (move.supplier, move.consumer)}
    others |= {slave for one in plan.spreads for slave in (one.supplier, *one.consumers)}
    others |= {slave for one in plan.gathers for slave in (one.member, members_of(table)[one.group][0])}
    for change in plan.changes:
        match change:
            case Relocate(supplier, consumer):
                parties: tuple[int, ...] = (supplier, consumer)
            case Spill(slave):
                parties = (slave,)
            case _:
                continue
        for slave in parties:
            if slave in alone or slave in others:
                raise ProtocolError(f"the policy wants {change}, and slave {slave} to take part in another change, too")
            alone[slave] = change


def _check_resize(resize: Resize, plan: Plan, table: PartitionTable, slaves: Collection[int]) -> None:
    """It is the plan's only one, it names slaves that there are, and the moves leave no group with another one."""
    moved = {move.group for move in plan.moves}
    kept = (owner for owner in table.owners if not moved.issuperset(table.groups_of(owner).tolist()))
    parts = {slave for members in members_of(table).values() for slave in members}
    takers = {move.consumer for move in plan.moves} | {move.consumer for move in plan.relocations}
    owners = {*kept, *parts, *takers, *(slave for one in plan.spreads for slave in one.consumers)}
    resizes = sum(isinstance(change, Resize) for change in plan.changes)
    if resizes > 1 or not owners.issubset(resize.active) or not set(resize.active).issubset(slaves):
        raise ProtocolError(
            f"the policy wants slaves {resize.active} active: wanted once a choice of {tuple(sorted(slaves))} with all"
            f" that have groups after the plan's moves, {tuple(sorted(owners))}"
        )
