"""Whether a further slave shall get a part of a group, or give it back: what no move of whole groups can even out.

A group is spread that alone asks for more of a slave than every slave would have if work could be divided at will, by
as much as moves ask for, and over no more than twice as many slaves as before. It comes together, one member at a time,
when all of it would fit one slave with time to spare. Between the two bounds, nothing changes.

All this is reckoned in shares of the slaves' time. How fast a slave is would not help: tuples with the same key are
results when they are compared, which takes longer, so that a slave with a hot key looks slow.
"""

from __future__ import annotations

from typing import Collection, Sequence

from mpijoin.named import NamedTuple
from mpijoin.policy.estimate import SATURATED, Item, Node, demand
from mpijoin.policy.evening import BAND, GAP_MIN, NOISES
from mpijoin.policy.plan import Gather, Spread
from mpijoin.policy.view import ClusterView

# A group is spread only if a part of it asks for this share of a slave's time: with less, a slave has time to spare.
SPREAD_ABOVE = 0.7
GATHER_BELOW = 0.5  # It comes together when all parts ask for less than this.


class Hot(NamedTuple):
    """A group, and what its members do for it: the levels that it makes, the first owner's first."""

    group: int
    members: tuple[Node, ...]
    levels: tuple[float, ...]
    state_bytes: int
    """Of the first one."""

    @property
    def whole(self) -> float:
        return sum(self.levels)


def changes_of_parts(
    view: ClusterView, pool: Sequence[Node], fixed: Collection[int], noise: float
) -> tuple[Spread, ...] | tuple[Gather, ...]:
    """Returns the member that shall come or leave now, if one shall. pool: the active slaves · fixed: groups that have
    changed not long ago · noise: the standard deviation of a level, relative to it."""
    if not view.may_spread:
        return ()
    spread = [one for one in _spread(view, pool) if one.group not in fixed]
    whole = [
        Hot(item.group, (node,), (item.work / node.speed,), item.state_bytes)
        for node in pool
        for item in node.items.values()
        if item.group not in fixed
    ]
    hottest = max([*spread, *whole], key=lambda one: (max(one.levels), -one.group), default=None)
    if hottest and (wanted := _spread_further(hottest, pool, noise)):
        return (wanted,)
    coolest = min(spread, key=lambda one: (one.whole, one.group), default=None)
    return (_gather(coolest),) if coolest and _comes_together(coolest) else ()


def _spread(view: ClusterView, pool: Sequence[Node]) -> list[Hot]:
    """The groups that are spread already."""
    nodes, slaves = {node.slave: node for node in pool}, {slave.slave: slave for slave in view.active}
    found = []
    for group, members in view.spread.items():
        parts = [next(part for part in slaves[slave].parts if part.group == group) for slave in members]
        levels = (part.load * demand(slaves[slave]) for part, slave in zip(parts, members))
        found.append(Hot(group, tuple(nodes[slave] for slave in members), tuple(levels), parts[0].state_bytes))
    return found


def _spread_further(hot: Hot, pool: Sequence[Node], noise: float) -> Spread | None:
    """Further members, the idlest slaves that have room, where they bring the level down that is too high. They are as
    many as it takes, but no more than there are: how much a group asks for of a slave without any time left, nobody
    knows."""
    first, level, share = hot.members[0], max(hot.levels), sum(node.level for node in pool) / len(pool)
    if level < SPREAD_ABOVE or level - share < max(GAP_MIN, max(BAND, NOISES * noise) * share):
        return None
    item = Item(hot.group, hot.whole, hot.state_bytes)
    others = [node for node in pool if node not in hot.members and node.has_room(item)]
    consumers: list[int] = []
    for node in sorted(others, key=lambda node: (node.level, node.slave))[: len(hot.levels)]:
        count = len(hot.levels) + len(consumers)
        is_enough = bool(consumers) and level < SATURATED and hot.whole / count < SPREAD_ABOVE
        if is_enough or node.level + hot.whole / (count + 1) > level - GAP_MIN / 2:
            break
        consumers.append(node.slave)
    if not consumers:
        return None
    why = f"it asks for {level:.2f} of a slave's time, and {share:.2f} is a fair share"
    return Spread(hot.group, first.slave, tuple(consumers), why)


def _comes_together(hot: Hot) -> bool:
    """Whether one slave can do with the whole group, beside what else it has."""
    first = hot.members[0]
    rest = sum(hot.levels[1:])
    fits = hot.whole < GATHER_BELOW and first.level + rest < SPREAD_ABOVE
    return fits and first.has_room(Item(hot.group, rest, hot.state_bytes))


def _gather(hot: Hot) -> Gather:
    return Gather(hot.group, hot.members[-1].slave, f"all of it asks for {hot.whole:.2f} of a slave's time")
