"""From what was measured to what is predicted: how fast each slave is, and how loaded it would be with other groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Iterable, NamedTuple

from mpijoin.policy.view import ClusterView, SlaveView

SATURATED = 0.9  # share of its time, communication included, from which a slave may not be getting all its work done
EVIDENCE = 0.002  # a slave that was busy for a smaller share of its time says nothing of its speed
ALIKE = 0.75  # speeds from here to the reference are taken for equal: comparisons are not all of the work
SLOWEST = 1 / 16
MEMORY_SHARE = 0.8  # of a slave's memory that groups may fill by moving: windows grow on, and frames wait to be installed


class Item(NamedTuple):
    """A group. work: the share of its time that it would take of a slave of speed 1."""

    group: int
    work: float
    state_bytes: int


@dataclass
class Node:
    """A slave as predicted. speed: 1 as fast as others, 0.5: half · level: the share of its time that its groups ask for;
    above 1 it cannot keep up."""

    slave: int
    speed: float
    items: dict[int, Item]
    memory_bytes: float = float("inf")
    level: float = field(init=False)
    state_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.level = self.work / self.speed
        self.state_bytes = sum(item.state_bytes for item in self.items.values())

    @property
    def work(self) -> float:
        return sum(item.work for item in self.items.values())

    def has_room(self, item: Item) -> bool:
        return self.state_bytes + item.state_bytes <= MEMORY_SHARE * self.memory_bytes

    def take(self, item: Item) -> None:
        self.items[item.group] = item
        self.level += item.work / self.speed
        self.state_bytes += item.state_bytes

    def give(self, item: Item) -> None:
        del self.items[item.group]
        self.level -= item.work / self.speed
        self.state_bytes -= item.state_bytes


def is_saturated(slave: SlaveView) -> bool:
    return slave.load + slave.communication >= SATURATED


def is_overloaded(slave: SlaveView) -> bool:
    """It has fallen behind by more than the buffer holds, and is not idle either."""
    return is_saturated(slave) and slave.occupancy > 1


def speeds(slaves: Iterable[SlaveView]) -> dict[int, float]:
    """How fast each slave is: work per busy second, relative to the (upper) median of those that worked.

    A slave that did not work counts as fast as the others; so does one that is faster: the median tells slow nodes from
    others as long as half of them are not slow, and a slave is not fast because its groups are of the cheap kind.
    """
    rates = {}
    for slave in slaves:
        busy = sum(group.load for group in slave.groups)
        work = sum(group.work for group in slave.groups)
        rates[slave.slave] = work / busy if busy >= EVIDENCE and work > 0 else None
    known = sorted(rate for rate in rates.values() if rate)
    if len(known) < 2:
        return dict.fromkeys(rates, 1.0)
    reference = known[len(known) // 2]
    relative = {slave: 1.0 if rate is None else rate / reference for slave, rate in rates.items()}
    return {slave: 1.0 if speed >= ALIKE else max(SLOWEST, speed) for slave, speed in relative.items()}


def demand(slave: SlaveView) -> float:
    """What its groups ask for / what they were seen to take. A saturated slave joins what it can, not what comes: its
    backlog grows by the difference, or shrinks if it is catching up."""
    return slave.inflow if is_saturated(slave) else 1.0


def nodes(view: ClusterView) -> list[Node]:
    """The active slaves."""
    speed = speeds(view.active)
    memory_bytes = float("inf") if view.memory_bytes is None else view.memory_bytes
    return [
        Node(slave.slave, speed[slave.slave], _items(slave, speed[slave.slave]), memory_bytes) for slave in view.active
    ]


def _items(slave: SlaveView, speed: float) -> dict[int, Item]:
    factor = demand(slave) * speed
    return {group.group: Item(group.group, group.load * factor, group.state_bytes) for group in slave.groups}


def ideal_level(pool: Iterable[Node]) -> float:
    """The level of all if work could be divided at will."""
    pool = list(pool)
    return sum(node.level * node.speed for node in pool) / sum(node.speed for node in pool)
