"""The policies of LAD: memory in use is evened out by relocation before anything is spilled (section 5).

The coordinator decides how much, each slave decides which groups: productive ones move, unproductive ones spill. That a
slave spills when its own memory overflows is the slave's own affair; it is not asked for here.

Where the paper leaves a question open:

- Is there room? The receiver gets no more than what it may hold before it would spill. Its memory may be smaller than
  that of others for a while ([inject] memory).
- What will the query need (M_query)? As much as it has now, in memory and on disks, and for as long as it has run so
  far what it needs more each second. What windows let go of stops growing, and then nothing is forced to the disk.
- What is M_cluster? What all slaves together may hold before they spill.
"""

from __future__ import annotations

from math import inf

from mpijoin.config.job import LEAST_PRODUCTIVE, MOST_PRODUCTIVE, Balance, Memory
from mpijoin.named import NamedTuple
from mpijoin.policy.plan import Plan, Policy, Relocate, Spill
from mpijoin.policy.view import ClusterView, SlaveView


class Adapted(NamedTuple):
    """What a policy of LAD remembers."""

    relocated_s: float = -inf
    """The second of the run at which the last relocation began."""
    forced_bytes: int = 0
    """So much was forced to the disk in all."""
    looked_s: float = 0.0
    """The second of the run at which the last view was taken."""
    need_bytes: int = 0
    """What all state took then, in memory and on disks."""


def lazy_disk(settings: Balance, memory: Memory) -> Policy:
    """Section 5.1: "In the lazy-disk strategy, state spill is postponed until there is no main memory in the cluster
    that can hold the states from overloaded machines." """

    def policy(view: ClusterView) -> Plan:
        known = view.memory or Adapted()
        return _relocated(view, known, _relocation(view, settings, memory, known))

    return policy


def active_disk(settings: Balance, memory: Memory) -> Policy:
    """Section 5.3: "if we raise the state spill decision to the global coordinator at a global level, we could instead
    spill the globally least productive partitions among all machines." """

    def policy(view: ClusterView) -> Plan:
        known: Adapted = view.memory or Adapted()
        bound_bytes = _need_of_query(view, known) - _room_of_cluster(view, memory) - known.forced_bytes
        known = known._replace(looked_s=view.now_s, need_bytes=_need(view))
        if _is_uneven(view, settings):
            return _relocated(view, known, _relocation(view, settings, memory, known))
        slave = _unproductive(view, settings)
        octets = 0 if slave is None else min(int(bound_bytes), int(memory.share * slave.held_bytes))
        if slave is None or octets <= 0:
            return Plan(memory=known)
        known = known._replace(forced_bytes=known.forced_bytes + octets)
        return Plan((Spill(slave.slave, octets, LEAST_PRODUCTIVE),), known)

    return policy


def _relocated(view: ClusterView, known: Adapted, wanted: Relocate | None) -> Plan:
    return Plan((wanted,), known._replace(relocated_s=view.now_s)) if wanted else Plan(memory=known)


def _sender(view: ClusterView) -> SlaveView:
    return max(view.slaves, key=lambda slave: (slave.held_bytes, -slave.slave))


def _receiver(view: ClusterView) -> SlaveView:
    return min(view.slaves, key=lambda slave: (slave.held_bytes, slave.slave))


def _is_uneven(view: ClusterView, settings: Balance) -> bool:
    """Whether M_least / M_max < theta_r."""
    if not view.slaves:
        return False
    return _receiver(view).held_bytes < settings.relocation_threshold * _sender(view).held_bytes


def _relocation(view: ClusterView, settings: Balance, memory: Memory, known: Adapted) -> Relocate | None:
    """Section 4: "the global coordinator moves (M_max - M_least)/2 amount of states from the sender to the receiver if
    it is observed that M_least/M_max reaches a threshold", not sooner than tau_m after the last time."""
    if not _is_uneven(view, settings) or view.now_s - known.relocated_s <= settings.relocation_pause_ns / 1e9:
        return None
    sender, receiver = _sender(view), _receiver(view)
    octets = min((sender.held_bytes - receiver.held_bytes) // 2, int(_limit(receiver, memory) - receiver.held_bytes))
    return Relocate(sender.slave, receiver.slave, octets, MOST_PRODUCTIVE) if octets > 0 else None


def _limit(slave: SlaveView, memory: Memory) -> float:
    """What a slave may hold before it spills; where that is not known, more than there can be."""
    return 1 << 62 if slave.memory_bytes is None else memory.threshold * slave.memory_bytes


def _need(view: ClusterView) -> int:
    return sum(slave.held_bytes + slave.disk_bytes for slave in view.slaves)


def _need_of_query(view: ClusterView, known: Adapted) -> float:
    """The estimate of M_query."""
    need, passed_s = _need(view), view.now_s - known.looked_s
    growth = max(0.0, (need - known.need_bytes) / passed_s) if passed_s > 0 else 0.0
    return need + growth * view.now_s


def _room_of_cluster(view: ClusterView, memory: Memory) -> float:
    """M_cluster."""
    return sum(_limit(slave, memory) for slave in view.slaves)


def _unproductive(view: ClusterView, settings: Balance) -> SlaveView | None:
    """The slave that is to spill, if R_max / R_min > lambda. "the average productivity rate (R) of one machine is
    defined as the total number of tuples that have been generated by this machine during the sampling time divided by
    the number of partition groups in the machine." """
    rates = {slave.slave: slave.results / len(slave.groups) for slave in view.active if slave.groups}
    if len(rates) < 2:
        return None
    least = min(rates, key=lambda slave: (rates[slave], slave))
    if max(rates.values()) <= settings.productivity_ratio * rates[least]:
        return None
    return next(slave for slave in view.active if slave.slave == least)
