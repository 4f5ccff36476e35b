"""Which groups to move so that levels become even: the bottleneck first, and the group that relieves it best."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import log, sqrt
from typing import Collection, Iterable, Iterator

from mpijoin.named import NamedTuple
from mpijoin.policy.estimate import Item, Node, ideal_level
from mpijoin.policy.memory import MovingPace
from mpijoin.policy.plan import Move

# Groups move only if levels are so uneven that noise does not explain it. That is so if the highest or the lowest level
BAND = 0.15  # ... is off the ideal by more than this share of it,
BAND_OVERLOADED = 0.1  # ... or by this share where it is the level of a slave that falls behind,
NOISES = 3.0  # ... and by so many standard deviations of the noise more than the extremes of so many slaves stray,
GAP_MIN = 0.1  # ... and if the two are at least so far apart.
GAIN = 0.5  # The moves must bring the level that is off back by this share of the least difference that counts.
# Where all was well before and nothing has changed, the least difference is larger: by a factor of at most
SETTLED = 1.7
CAUTION, CAUTION_PERIODS = 0.35, 4  # ... which grows by this in each of the first few such periods, as for the noise.
HORIZON = 30  # A lower level must make up for the time that groups are under way in so many periods.
# Once begun, moves go on while one lowers the higher of two levels that are apart by twice this, or by twice
MARGIN = 0.025
MARGIN_SHARE = 0.05  # ... this share of the ideal.
USE = 0.1  # A move takes at least this part of what it takes off the supplier off the higher of the two levels, too.
LITTLE_BYTES = 16 << 20  # So much is moved in no time anywhere.
MOVES_MAX = 4096  # No more are thought of in one epoch.


class Shift(NamedTuple):
    """A group that would go from one node to another, as it is reckoned."""

    item: Item
    supplier: Node
    consumer: Node


class Bar(NamedTuple):
    """What a plan must overcome."""

    noise: float
    """The standard deviation of a level, relative to it."""
    overloaded: Collection[int]
    """The slaves that are known to be behind."""
    settled: int = 0
    """For so many periods there was nothing to move, and nothing has changed. What is close to the bar must not cross
    it one day, however long that is."""

    def height(self, pool: Collection[Node], highest: Node) -> float:
        """By how much a level must be off the ideal, where this is the node with the highest level."""
        # The expected maximum of n normal variables is about sqrt(2 ln n).
        strays = self.noise * (NOISES + sqrt(2 * log(len(pool))))
        if highest.slave in self.overloaded:
            return max(strays, BAND_OVERLOADED) * ideal_level(pool)
        return max(strays * caution(self.settled), BAND * min(SETTLED, caution(self.settled))) * ideal_level(pool)

    def is_uneven(self, pool: Collection[Node]) -> bool:
        ideal = ideal_level(pool)
        highest, lowest = max(pool, key=_height), min(node.level for node in pool)
        if highest.level - lowest < GAP_MIN:
            return False
        # Who falls behind is relieved at smaller differences; that another has less to do is no reason to hurry.
        return highest.level - ideal > self.height(pool, highest) or ideal - lowest > self._replace(
            overloaded=()
        ).height(pool, highest)


def caution(settled: int) -> float:
    """How many times the noise a difference must be, in proportion to what it must be at first."""
    return 1 + CAUTION * min(settled, CAUTION_PERIODS)


def even_out(pool: Collection[Node], fixed: Collection[int], bar: Bar, pace: MovingPace) -> tuple[Move, ...]:
    """The first moves, of groups that are not `fixed`, on the way to levels that are even; as many as are soon done.

    A node that none can relieve (its only group is too heavy, none of its groups may move) is left out, and the others
    are evened.
    """
    pool = list(pool)
    while len(pool) > 1 and bar.is_uneven(pool):
        trial = [node.copy() for node in pool]
        shifts = list(_shifts(trial, fixed))
        gain = max(
            max(node.level for node in pool) - max(node.level for node in trial),
            min(node.level for node in trial) - min(node.level for node in pool),
        )
        highest = max(pool, key=_height)
        if shifts and gain >= GAIN * bar.height(pool, highest) and gain * HORIZON >= len(shifts) * pace.group_periods:
            return tuple(within(pace, [move_of(shift) for shift in shifts], pool))
        pool.remove(highest)
    return ()


def within(pace: MovingPace, moves: Iterable[Move], pool: Iterable[Node]) -> list[Move]:
    """As many of the moves as should be done in time. The first is always among them, however large it is."""
    octets = {item.group: item.state_bytes for node in pool for item in node.items.values()}
    left_bytes = max(LITTLE_BYTES, pace.share * sum(octets.values()))
    taken: list[Move] = []
    for move in moves:
        left_bytes -= octets[move.group]
        if taken and (len(taken) >= int(pace.groups) or left_bytes < 0):
            break
        taken.append(move)
    return taken


def _height(node: Node) -> tuple[float, int]:
    return node.level, -node.slave


def _shifts(pool: list[Node], fixed: Collection[int]) -> Iterator[Shift]:
    """Carries out what evens the nodes, the bottleneck first, until levels are even or nothing helps."""
    left, givers, takers = list(pool), set(), set()
    shelves = {node.slave: Shelf(node, fixed) for node in pool}
    for _ in range(MOVES_MAX):
        if len(left) < 2:
            return
        supplier, ideal = max(left, key=_height), ideal_level(left)
        gap = 2 * max(MARGIN, MARGIN_SHARE * ideal)
        consumers = [node for node in left if node.slave not in givers and supplier.level - node.level > gap]
        shift = None if supplier.slave in takers else best_shift(supplier, consumers, shelves[supplier.slave])
        if shift is None:
            left.remove(supplier)
            continue
        givers.add(supplier.slave)
        takers.add(shift.consumer.slave)
        shelves[supplier.slave].remove(shift.item)
        shift.supplier.give(shift.item)
        shift.consumer.take(shift.item)
        yield shift


class Shelf:
    """The groups of a node that may move, in the order of their work. Of equal ones the cheapest to move comes last."""

    def __init__(self, node: Node, fixed: Collection[int]):
        free = [item for item in node.items.values() if item.work > 0 and item.group not in fixed]
        self._items = sorted(free, key=_place)

    def remove(self, item: Item) -> None:
        del self._items[bisect_left(self._items, _place(item), key=_place)]

    def lighter(self, work: float) -> Iterator[Item]:
        """The groups that take less, the heaviest first."""
        at = bisect_left(self._items, work, key=_work)
        return (self._items[index] for index in range(at - 1, -1, -1))

    def heavier(self, work: float) -> Iterator[Item]:
        """The groups that take as much or more, the lightest first."""
        at = bisect_left(self._items, work, key=_work)
        while at < len(self._items):
            end = bisect_right(self._items, self._items[at].work, key=_work)
            yield from (self._items[index] for index in range(end - 1, at - 1, -1))
            at = end


def best_shift(supplier: Node, consumers: list[Node], shelf: Shelf) -> Shift | None:
    """The group whose move makes the higher of both levels lowest. It goes to the least loaded consumer that has room
    for one. A supplier keeps one group, because without any nobody could see how fast it is."""
    if len(supplier.items) < 2:
        return None
    for consumer in sorted(consumers, key=lambda node: (node.level, node.slave)):
        even = (supplier.level - consumer.level) / (1 / supplier.speed + 1 / consumer.speed)
        sides = (next(filter(consumer.has_room, side(even)), None) for side in (shelf.lighter, shelf.heavier))
        best = min((item for item in sides if item), key=lambda item: _after(item, supplier, consumer), default=None)
        if best and supplier.level - _after(best, supplier, consumer)[0] > USE * best.work / supplier.speed:
            return Shift(best, supplier, consumer)
    return None


def _after(item: Item, supplier: Node, consumer: Node) -> tuple[float, int, int]:
    """The order in which shifts are preferred: by the higher level of both after it, then by what it costs."""
    higher = max(supplier.level - item.work / supplier.speed, consumer.level + item.work / consumer.speed)
    return higher, item.state_bytes, item.group


def move_of(shift: Shift) -> Move:
    return Move(shift.item.group, shift.supplier.slave, shift.consumer.slave, shift.item.work / shift.supplier.speed)


def _place(item: Item) -> tuple[float, int, int]:
    return item.work, -item.state_bytes, item.group


def _work(item: Item) -> float:
    return item.work
