"""The policies of Flux: pairs of sites, and at most one partition from one of a pair to the other in each round.

Where the paper leaves a question open, or this project differs:

- A round is a reorganization epoch. The first one is as long as the job says, since nothing has moved before it.
- What does a partition that an idle site gets do to it? A site that has processed nothing has no rate of its own, so it
  is taken for as fast as the donor.
- What is the imbalance of two sites by their memory? "the utilization ratio (i.e. imbalance) of the two sites" (5.3) is
  that of the shares of their memory that their state takes, on disk and not.
- A partition that would overfill its receiver is passed over like one that reduces no imbalance; smaller ones follow.
"""

from __future__ import annotations

from typing import Iterable, Iterator, Sequence

from mpijoin.config.job import Balance
from mpijoin.named import NamedTuple
from mpijoin.policy.plan import Change, Collect, Move, Plan, Policy
from mpijoin.policy.view import ClusterView, GroupView, SlaveView


class Pair(NamedTuple):
    """A partition may go from the one to the other."""

    donor: SlaveView
    receiver: SlaveView


def flux_load(settings: Balance) -> Policy:
    """Section 5.3: "Our policy aims to equalize the utilization of each of the sites as well as possible in the fewest
    number of moves." """
    return lambda view: _plan(view, settings, _load_moves(view, settings, has_room=False))


def flux_memory(settings: Balance) -> Policy:
    """Section 6.2: "a global repartitioning policy that attempts to balance memory usage amongst machines and balance
    disk usage when aggregate memory is exhausted." It "continues to proceed in rounds with a collection phase and move
    phase". """
    return lambda view: _plan(view, settings, _memory_moves(view, settings))


def flux_hybrid(settings: Balance) -> Policy:
    """Section 6.4: "If any operator instance has partitions spilled to disk, the hybrid policy resorts to the
    memory-based policy to avoid high average latencies. If partitions for all instances are resident in memory, it
    resorts to the load-balancing policy to improve throughput, subject to the constraint that a partition is moved only
    if sufficient memory exists at the destination site." """

    def policy(view: ClusterView) -> Plan:
        if any(slave.disk_bytes > 0 for slave in view.slaves):
            return _plan(view, settings, _memory_moves(view, settings))
        return _plan(view, settings, _load_moves(view, settings, has_room=True))

    return policy


def _plan(view: ClusterView, settings: Balance, moves: Iterable[Change]) -> Plan:
    """Section 5.3: "In case no partitions were moved, we set δ to half its previous value. Our collection phase length
    is subject to a minimum". """
    least_s = settings.collection_min_ns / 1e9
    return Plan(tuple(moves), collect=Collect(max(least_s, view.collected_s / 2), least_s))


def _memory_moves(view: ClusterView, settings: Balance) -> Iterator[Move]:
    sites = sorted(view.slaves, key=lambda slave: (excess_bytes(slave), slave.slave))
    mean = sum(map(excess_bytes, sites)) / max(1, len(sites))
    for donor, receiver in pairs(sites):
        if excess_bytes(donor) > mean or _filled(donor) < settings.imbalance_threshold * _filled(receiver):
            return
        group = next(_lighter(donor, receiver), None)
        if group is not None:
            yield Move(group.group, donor.slave, receiver.slave)


def pairs(sites: Sequence[SlaveView]) -> Iterator[Pair]:
    """The first with the last, the second with the last but one, "as we work toward the middle". """
    return (Pair(sites[at], sites[-1 - at]) for at in range(len(sites) // 2))


def utilization(slave: SlaveView) -> float:
    """U_j = 1 - I_j / delta: the share of its time in which it is not idle."""
    return min(1.0, slave.load + slave.communication)


def excess_bytes(slave: SlaveView) -> int:
    """The memory that it has left. "Note, excess capacity is negative when the free page list is exhausted and
    partitions are on disk." """
    return (slave.memory_bytes or 0) - slave.held_bytes - slave.disk_bytes


def _filled(slave: SlaveView) -> float:
    return (slave.held_bytes + slave.disk_bytes) / (slave.memory_bytes or 1)


def _load_moves(view: ClusterView, settings: Balance, has_room: bool) -> Iterator[Move]:
    """has_room: whether the receiver must have memory for what it gets."""
    sites = sorted(view.slaves, key=lambda slave: (-utilization(slave), slave.slave))
    mean = sum(map(utilization, sites)) / max(1, len(sites))
    for donor, receiver in pairs(sites):
        own, other = utilization(donor), utilization(receiver)
        if own < mean or own < settings.imbalance_threshold * other or other > settings.utilization_threshold:
            return
        fitting = (one for one in donor.groups if not has_room or one.state_bytes <= _room_bytes(receiver))
        for group in sorted(fitting, key=lambda group: (-group.load, group.group)):
            less, more = _after(group, donor, receiver)
            if abs(less - more) < own - other and more <= 1:
                yield Move(group.group, donor.slave, receiver.slave, own - less)
                break


def _room_bytes(slave: SlaveView) -> float:
    return float("inf") if slave.memory_bytes is None else slave.memory_bytes - slave.held_bytes


def _after(group: GroupView, donor: SlaveView, receiver: SlaveView) -> tuple[float, float]:
    """The utilization of both once the group has moved. "the donor's new utilization is estimated as U_d' = U_d(1 -
    N_p/T_d). Likewise, the receiver's new utilization is estimated as U_r' = U_r(1 + N_p/T_r)". The work of a group is
    that of its tuples."""
    given = sum(one.work for one in donor.groups)
    share = group.work / given if given else 0.0
    taken = sum(one.work for one in receiver.groups)
    own, other = utilization(donor), utilization(receiver)
    return own * (1 - share), other * (1 + group.work / taken) if taken else other + own * share


def _lighter(donor: SlaveView, receiver: SlaveView) -> Iterator[GroupView]:
    """The groups whose move reduces the imbalance in excess capacity, in the order in which they are preferred: "the
    partitions are sorted in decreasing order of size, with in-memory partitions listed or prioritized before on-disk
    partitions, because the latter require I/O and processing spilled input before movement". """
    gap = excess_bytes(receiver) - excess_bytes(donor)
    for group in sorted(donor.groups, key=lambda group: (group.on_disk, -_size(group), group.group)):
        if abs(gap - 2 * _size(group)) < gap:
            yield group


def _size(group: GroupView) -> int:
    return group.state_bytes + group.disk_bytes
