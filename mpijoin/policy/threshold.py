"""The policy of WSJ, sections IV-C and V-A: thresholds on the mean buffer occupancy, one group per supplier."""

from __future__ import annotations

from mpijoin.config.job import Balance
from mpijoin.policy.chance import chance
from mpijoin.policy.plan import Move, Plan, Policy, Resize
from mpijoin.policy.view import ClusterView, SlaveView


def threshold(settings: Balance) -> Policy:
    """The paper's policy with its three parameters: supplier_threshold (Th_sup), consumer_threshold (Th_con), growth
    (beta).

    Active slaves with f > Th_sup are suppliers, those with f < Th_con are consumers, and the others are neutral. One
    scan over the slaves pairs consumers with suppliers. A supplier gives one group, chosen at random. If there is no
    supplier, one slave leaves. If N_sup > beta * N_con, one slave comes. The paper leaves some questions open:

    - Which consumer meets which supplier? Here the i-th of one kind meets the i-th of the other, by rank. Without a
      partner nothing moves.
    - May a supplier give its last group? No: that would lower the degree of declustering against the rule above.
    - Which slave leaves? The one whose groups took the least time, for that is what the others must take over. Of
      equals it is the one with the fewest groups, then the least occupied, then the last by rank. An empty buffer says
      nothing about it, because a slave that keeps up with 59 of 60 groups has one, too. Its groups go, the heaviest
      first, to whichever staying slave has the least load by then. Nothing else moves in this epoch.
    - Which slave comes? The first idle one. It is empty, so f = 0 and it is a consumer, and it is the first in the
      scan: otherwise it might get no group, and the degree would not have grown.
    - What keeps it from growing and shrinking by turns? Nothing. A load that fits neither k slaves without suppliers
      nor k + 1 slaves with one makes the degree change for ever (tests/property/test_policies.py measures it). Policy
      "balance" does not do that.
    """

    def policy(view: ClusterView) -> Plan:
        suppliers = [slave for slave in view.active if slave.occupancy > settings.supplier_threshold]
        consumers = [slave for slave in view.active if slave.occupancy < settings.consumer_threshold]
        if not suppliers:
            return _shrink(view)
        idle = [slave for slave in view.slaves if not slave.active]
        if idle and len(suppliers) > settings.growth * len(consumers):
            active = sorted([idle[0].slave, *(slave.slave for slave in view.active)])
            return Plan((*_pair(view, suppliers, [idle[0], *consumers]), Resize(tuple(active))))
        return Plan(_pair(view, suppliers, consumers))

    return policy


def _pair(view: ClusterView, suppliers: list[SlaveView], consumers: list[SlaveView]) -> tuple[Move, ...]:
    able = [slave for slave in suppliers if len(slave.groups) > 1]
    return tuple(_yield_one(view, supplier, consumer) for supplier, consumer in zip(able, consumers))


def _yield_one(view: ClusterView, supplier: SlaveView, consumer: SlaveView) -> Move:
    groups = sorted(supplier.groups)
    chosen = groups[chance(view.seed, view.period, supplier.slave) % len(groups)]
    return Move(chosen.group, supplier.slave, consumer.slave, chosen.load)


def _shrink(view: ClusterView) -> Plan:
    if len(view.active) <= max(1, view.slaves_min):
        return Plan()
    leaving = min(view.active, key=_worth)
    loads = {slave.slave: slave.load for slave in view.active if slave is not leaving}
    moves = []
    for group in sorted(leaving.groups, key=lambda group: (-group.load, group.group)):
        consumer = min(loads, key=lambda slave: (loads[slave], slave))
        loads[consumer] += group.load
        moves.append(Move(group.group, leaving.slave, consumer, group.load))
    return Plan((*moves, Resize(tuple(loads))))


def _worth(slave: SlaveView) -> tuple[float, int, float, int]:
    """The slave with the least of it leaves."""
    return sum(group.load for group in slave.groups), len(slave.groups), slave.occupancy, -slave.slave
