"""From what was measured to what is predicted: how fast each slave is, and how loaded it would be with other groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Iterable, Mapping

from mpijoin.named import NamedTuple
from mpijoin.policy.view import SlaveView

# From this share of its time on, communication included, a slave may not be getting all its work done.
SATURATED = 0.9
# A slave that is asked for so much of its time falls behind, and no jitter at the ends of the period explains it,
BEHIND = 1.1
BEHIND_LOAD, BEHIND_OCCUPANCY = 0.5, 0.5  # ... if it was busy enough to tell what it can do, and its buffer filled.
EVIDENCE = 0.002  # A slave that was busy for a smaller share of its time says nothing of its speed.
ALIKE = 0.75  # Speeds from here to the reference count as equal, because comparisons are not all of the work.
SLOWEST = 1 / 16
# Moves fill no more than this share of a slave's memory: windows grow on, and frames wait to be installed.
MEMORY_SHARE = 0.8


class Item(NamedTuple):
    """A group. work: the share of its time that the group would take from a slave of speed 1."""

    group: int
    work: float
    state_bytes: int


@dataclass
class Node:
    """A slave as it is predicted. speed: 1 means as fast as others, 0.5 half as fast · parts, parts_bytes: the work and
    the state of its parts of groups that are spread, which do not move."""

    slave: int
    speed: float
    items: dict[int, Item]
    memory_bytes: float = float("inf")
    parts: float = 0.0
    parts_bytes: int = 0
    work: float = field(init=False)
    state_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.work = self.parts + sum(item.work for item in self.items.values())
        self.state_bytes = self.parts_bytes + sum(item.state_bytes for item in self.items.values())

    @property
    def level(self) -> float:
        """The share of its time that its groups ask for. Above 1 it cannot keep up."""
        return self.work / self.speed

    def copy(self) -> Node:
        return Node(self.slave, self.speed, dict(self.items), self.memory_bytes, self.parts, self.parts_bytes)

    def has_room(self, item: Item) -> bool:
        return self.state_bytes + item.state_bytes <= MEMORY_SHARE * self.memory_bytes

    def take(self, item: Item) -> None:
        self.items[item.group] = item
        self.work += item.work
        self.state_bytes += item.state_bytes

    def give(self, item: Item) -> None:
        del self.items[item.group]
        self.work -= item.work
        self.state_bytes -= item.state_bytes


def is_saturated(slave: SlaveView) -> bool:
    return slave.load + slave.communication >= SATURATED


def has_backlog(slave: SlaveView) -> bool:
    """Whether more waits for it than chance explains, and it was busy enough to tell what it can do."""
    return slave.load >= BEHIND_LOAD and slave.occupancy >= BEHIND_OCCUPANCY


def falls_behind(slave: SlaveView) -> bool:
    """Whether what came asks for more than all its time, no matter when it came within the period. A slave that stood
    still for a while does not fall behind, nor does one that catches up."""
    return has_backlog(slave) and slave.load * slave.inflow >= BEHIND


def is_overloaded(slave: SlaveView) -> bool:
    """Whether it falls behind, or is behind and has no time left to change that."""
    return falls_behind(slave) or (is_saturated(slave) and slave.occupancy > 1)


def speeds(slaves: Iterable[SlaveView]) -> dict[int, float | None]:
    """How fast each slave was: its work per busy second, relative to the (upper) median of those that worked. It is
    None where nothing tells.

    The median tells slow nodes from others as long as half of them are not slow.
    """
    rates = {}
    for slave in slaves:
        busy = sum(group.load for group in slave.groups)
        work = sum(group.work for group in slave.groups)
        rates[slave.slave] = work / busy if busy >= EVIDENCE and work > 0 else None
    known = sorted(rate for rate in rates.values() if rate)
    if len(known) < 2:
        return dict.fromkeys(rates)
    reference = known[len(known) // 2]
    return {slave: None if rate is None else max(SLOWEST, rate / reference) for slave, rate in rates.items()}


def demand(slave: SlaveView) -> float:
    """What its groups ask for / what they were seen to take. A saturated slave joins what it can and not what comes,
    and one that catches up joins more than what comes. Where a slave has time left and nothing waits, it is by chance
    that more came than was joined."""
    return slave.inflow if is_saturated(slave) or has_backlog(slave) else min(1.0, slave.inflow)


def node_of(slave: SlaveView, speed: float, works: Mapping[int, float]) -> Node:
    """The node of a slave, with what is known of its groups."""
    items = {group.group: Item(group.group, works[group.group], group.state_bytes) for group in slave.groups}
    memory_bytes = float("inf") if slave.memory_bytes is None else slave.memory_bytes
    parts = demand(slave) * speed * sum(part.load for part in slave.parts)
    return Node(slave.slave, speed, items, memory_bytes, parts, sum(part.state_bytes for part in slave.parts))


def ideal_level(pool: Iterable[Node]) -> float:
    """The level that all nodes would have if work could be divided at will."""
    pool = list(pool)
    return sum(node.work for node in pool) / sum(node.speed for node in pool)
