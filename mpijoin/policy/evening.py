"""Which groups to move so that levels become even: the bottleneck first, and the group that relieves it best."""

from __future__ import annotations

from math import log, sqrt
from typing import Collection, Iterable, NamedTuple

from mpijoin.policy.estimate import Item, Node, ideal_level
from mpijoin.policy.plan import Move

# Moves begin only if levels are so uneven that noise does not explain it ...
BAND = 0.15  # the highest or lowest level is off the ideal by more than this share of it,
BAND_OVERLOADED = 0.1  # ... or by this share if it is that of a slave that falls behind,
NOISE = 0.05  # ... and by as much as the extremes of so many measurements stray if each has this standard deviation,
GAP_MIN = 0.1  # ... and the highest and lowest level are at least so far apart.
MARGIN = 0.025  # Once begun, they go on while a move lowers the higher of two levels that are twice this apart, or twice
MARGIN_SHARE = 0.05  # ... this share of the ideal.
SHARE_MAX = 0.5  # of all groups, and of all state bytes: so much moves at once


class Step(NamedTuple):
    item: Item
    supplier: Node
    consumer: Node


class Allowance:
    """What may still move in this reorganization epoch. Of the bytes the first move may take any number."""

    def __init__(self, pool: Iterable[Node]):
        items = [item for node in pool for item in node.items.values()]
        self.moves = max(1, int(SHARE_MAX * len(items)))
        self.state_bytes = SHARE_MAX * sum(item.state_bytes for item in items)
        self._first = True

    def has_room(self, item: Item) -> bool:
        return self.moves > 0 and (self._first or item.state_bytes <= self.state_bytes)

    def use(self, item: Item) -> None:
        self._first = False
        self.moves -= 1
        self.state_bytes -= item.state_bytes


def is_uneven(pool: Collection[Node], overloaded: Collection[int]) -> bool:
    """Whether levels differ by more than noise makes them. overloaded: slaves that are known to fall behind."""
    ideal = ideal_level(pool)
    highest, lowest = max(pool, key=lambda node: node.level), min(node.level for node in pool)
    if highest.level - lowest < GAP_MIN:
        return False
    if highest.slave in overloaded and highest.level > (1 + BAND_OVERLOADED) * ideal:
        return True
    band = BAND + NOISE * sqrt(2 * log(len(pool)))  # the expected maximum of n normal variables is about sqrt(2 ln n)
    return max(highest.level / ideal - 1, 1 - lowest / ideal) > band


def even_out(pool: list[Node], fixed: Collection[int], overloaded: Collection[int]) -> tuple[Move, ...]:
    """Moves of groups that are not `fixed`, until levels are even, nothing helps or enough has moved; changes the nodes.

    A node that none can relieve (its only group is too heavy, none of its groups may move) is left out, and the others
    are evened.
    """
    pool, allowance = list(pool), Allowance(pool)
    moves: list[Move] = []
    givers: set[int] = set()
    takers: set[int] = set()
    while len(pool) > 1 and allowance.moves and (moves or is_uneven(pool, overloaded)):
        supplier = max(pool, key=lambda node: (node.level, -node.slave))
        ideal = ideal_level(pool)
        gap = 2 * max(MARGIN, MARGIN_SHARE * ideal)
        consumers = [node for node in pool if node.slave not in givers and supplier.level - node.level > gap]
        step = None
        if supplier.slave not in takers:
            step = best_step(supplier, consumers, fixed, allowance)
        if step is None:
            pool.remove(supplier)
            continue
        givers.add(supplier.slave)
        takers.add(step.consumer.slave)
        moves.append(carry_out(step))
        allowance.use(step.item)
    return tuple(moves)


def best_step(supplier: Node, consumers: list[Node], fixed: Collection[int], allowance: Allowance) -> Step | None:
    """The group whose move leaves the higher of both levels lowest, to the least loaded consumer that any may go to. A
    supplier keeps one group: without any it could not be seen how fast it is."""
    free = [item for item in supplier.items.values() if item.group not in fixed and item.work > 0]
    items = [item for item in free if allowance.has_room(item)]
    if len(supplier.items) < 2 or not items:
        return None
    for consumer in sorted(consumers, key=lambda node: (node.level, node.slave)):
        able = [item for item in items if consumer.has_room(item)]
        best = min(able, key=lambda item: _after(item, supplier, consumer), default=None)
        if best is not None and _after(best, supplier, consumer)[0] < supplier.level:
            return Step(best, supplier, consumer)
    return None


def _after(item: Item, supplier: Node, consumer: Node) -> tuple[float, int, int]:
    """The higher level of both; of equals the group that is cheapest to move."""
    higher = max(supplier.level - item.work / supplier.speed, consumer.level + item.work / consumer.speed)
    return higher, item.state_bytes, item.group


def carry_out(step: Step) -> Move:
    item, supplier, consumer = step
    supplier.give(item)
    consumer.take(item)
    return Move(item.group, supplier.slave, consumer.slave, item.work / supplier.speed)
