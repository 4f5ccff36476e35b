"""Our policy: as many moves as the measured loads ask for, the best first, and none for noise.

The policy of WSJ moves one random group per supplier and epoch. This one predicts. It remembers how fast each slave is
(its work per busy second: a node that has other things to do is slow), what each group takes, and how well that has
foretold the loads so far (`memory.py`). So it knows what a group will take from any slave, and evens out the predicted
levels (`evening.py`).

It does not oscillate. A difference must last for more than one period. The exception is a slave that falls behind,
which is seen within one: it joins all the time and yet gets less done than what comes. A difference must be more than
15 %, and more than the noise that was measured can make. The moves must bring the level that is off back by half of
that, and must make up for the time that they take. Of all that would even the levels only so much is begun as is done
in half a period. A group that moved, or was refused, stays for two periods. A slave either gives or takes in one
period, and never does both.

A group that alone is too much for a slave is spread over several, if the job allows it (`parts.py`). Nothing else moves
in such a period, and no slave leaves while a group is spread.

A slave's only group moves only to a slave that has none, and only if that one is so much faster that it is worth it.
Then the one becomes idle and the other active.

The degree of declustering lies between slaves_min and all slaves. Slaves leave, but at least half of them stay, if for
three periods those who stay would have been loaded below 0.7, nobody had fallen behind and no load was suspect, and if
the last change is as long ago. Slaves come, as many as it takes, when even the best distribution would load the active
ones above 0.85 for two periods, or when one falls behind. Both bounds give way by the noise of the load of all. Between
the two the degree stays: a slave that came at 0.85 can go only at 0.7.
"""

from __future__ import annotations

from math import ceil, exp, sqrt
from typing import Collection, Sequence

from mpijoin.named import NamedTuple
from mpijoin.policy.estimate import Node, falls_behind, ideal_level, is_overloaded, node_of
from mpijoin.policy.evening import Bar, Shift, caution, even_out, move_of, within
from mpijoin.policy.memory import COMMON_SHARE, DOUBTS, Learned, learn
from mpijoin.policy.parts import changes_of_parts
from mpijoin.policy.plan import Move, Plan, Resize
from mpijoin.policy.view import ClusterView, SlaveView

REST_PERIODS = 2  # A group that moved does not move again in so many periods.
# One that a slave came to share, or left, stays as it is for fewer: what its slaves need is known after one period.
PARTS_REST_PERIODS = 1
PERIODS_MIN = 2  # Nothing moves for a difference that was not there for so many periods.
# Slaves may leave if those who stay would be loaded by less than this share of their time, communication included,
SHRINK_BELOW = 0.7
SHRINK_AFTER = 3  # ... if that was so for so many periods, and as many have passed since the last change of the degree,
SHRINK_OCCUPANCY = 0.5  # ... and if no buffer was fuller than this on average: that slave has no time to spare.
GROW_ABOVE = 0.85
GROW_AFTER = 2  # periods
GROW_DOUBTS, GROW_LEAN = 1.5, 3.0  # The bound gives way by so many doubts, less for a load that goes on rising.
ALONE = 0.3  # An only group moves to another slave where its level falls by this share,
ALONE_MIN = 0.1  # ... and by this much.


def balance(view: ClusterView) -> Plan:
    """The plan for a view, and what to remember. Equal views give equal plans."""
    if not view.active:
        return Plan(memory=view.memory)
    known = learn(view)
    behind = {slave.slave for slave in view.active if falls_behind(slave)}
    level = _level(view, known)
    margin = caution(known.settled) * GROW_DOUBTS * _doubt(known) - GROW_LEAN * known.lean
    crowded = level > GROW_ABOVE + (0.0 if behind else level * max(0.0, margin))
    known = known._replace(grows=known.grows + 1 if crowded else 0, calm=_calm(view, known, behind))
    plan = _plan(view, known, behind, level)
    has_moved = bool(plan.moves or plan.spreads or plan.gathers)
    calm = not has_moved and (known.settled or (known.periods(view) >= PERIODS_MIN and not known.is_suspect(view)))
    settled = known.settled + 1 if calm else 0
    return Plan(plan.changes, known._replace(has_moved=has_moved, settled=settled))


def _plan(view: ClusterView, known: Learned, behind: Collection[int], level: float) -> Plan:
    if known.calm >= SHRINK_AFTER and (leave := _leave(view, known)):
        return _shrink(known, leave)
    if not behind and (known.periods(view) < PERIODS_MIN or known.is_suspect(view)):
        return Plan()
    pool, grown = known.nodes(view), []
    if known.grows >= GROW_AFTER or (known.grows and (behind or known.lean > _doubt(known))):
        grown = _grow(view, known, level)
    fixed, parts_fixed = (_moved_within(view, periods) for periods in (REST_PERIODS, PARTS_REST_PERIODS))
    overloaded = {slave.slave for slave in view.active if is_overloaded(slave)}
    bar = Bar(known.noise / max(1, known.periods(view)) ** 0.5, overloaded, known.settled)
    replaced = _replace_slow(view, known, fixed)  # A slow slave is no reason to spread what a faster one can join.
    if not replaced and (parts := changes_of_parts(view, pool, parts_fixed, bar.noise)):
        return Plan(parts)
    moves = even_out([*pool, *grown], fixed, bar, known.pace)
    takers = {move.consumer for move in moves}
    active = {slave.slave for slave in view.active} | {node.slave for node in grown if node.slave in takers}
    if not moves and (moves := replaced):
        active = active - {move.supplier for move in moves} | {move.consumer for move in moves}
    resized = active != {slave.slave for slave in view.active}
    return Plan((*moves, Resize(tuple(sorted(active)))) if resized else moves)


def _moved_within(view: ClusterView, periods: int) -> set[int]:
    """The groups that have moved within so many periods before this one."""
    return {group for group, period in view.moved.items() if view.period - period <= periods}


def _communication(view: ClusterView) -> float:
    return sum(slave.communication for slave in view.active) / len(view.active)


def _doubt(known: Learned) -> float:
    """The share by which the work of all together may be misjudged."""
    return DOUBTS * known.common_noise * sqrt(COMMON_SHARE / (2 - COMMON_SHARE))


def _level(view: ClusterView, known: Learned) -> float:
    """The level of every active slave, communication included, if the work could be divided at will."""
    return ideal_level(known.nodes(view)) * exp(max(0.0, known.lean)) + _communication(view)


def _grow(view: ClusterView, known: Learned, level: float) -> list[Node]:
    """The idle slaves that should come, without groups, the fastest first as far as is known."""
    pool, communication = known.nodes(view), _communication(view)
    speed = sum(node.speed for node in pool)
    wanted = ceil((level - communication) * speed / max(0.1, GROW_ABOVE - communication) - speed)
    return [node_of(slave, known.speed(slave.slave), {}) for slave in _idle(view, known)[: max(1, wanted)]]


def _idle(view: ClusterView, known: Learned) -> list[SlaveView]:
    """The slaves without groups, the fastest first."""
    idle = [slave for slave in view.slaves if not slave.active]
    return sorted(idle, key=lambda slave: (-known.speed(slave.slave), slave.slave))


def _calm(view: ClusterView, known: Learned, behind: Collection[int]) -> int:
    """For how many periods, this one included, one slave less would have done."""
    recent = view.resized >= 0 and view.period - view.resized < SHRINK_AFTER
    suspect = known.is_suspect(view)
    waits = any(slave.occupancy > max(SHRINK_OCCUPANCY, slave.load) for slave in view.active)
    if recent or suspect or waits or behind or view.spread or len(view.active) <= max(1, view.slaves_min):
        return 0
    return known.calm + 1 if _leave(view, known) else 0


class Leave(NamedTuple):
    """Some slaves give up all their groups."""

    pool: list[Node]
    """All active slaves as they are now."""
    moves: list[Move]
    """Of all groups of those that leave."""
    staying: tuple[int, ...]


def _leave(view: ClusterView, known: Learned) -> Leave | None:
    """How as many slaves leave as the others can do without, those with the least work first, but not more than half
    of all. It is None where not one can leave."""
    limit = SHRINK_BELOW * (1 - caution(known.settled) * _doubt(known)) - _communication(view)
    pool = sorted(known.nodes(view), key=lambda node: (node.work, -node.slave))
    for count in range(min(len(pool) - max(1, view.slaves_min), max(1, len(pool) // 2)), 0, -1):
        staying = [node.copy() for node in pool[count:]]
        if sum(node.work for node in pool) >= limit * sum(node.speed for node in staying):
            continue
        moves = rehouse(pool[:count], staying)
        if moves is not None and max(node.level for node in staying) < limit:
            return Leave(pool, moves, tuple(sorted(node.slave for node in staying)))
    return None


def _shrink(known: Learned, leave: Leave) -> Plan:
    """One slave or more leave. Where they have more groups than can move in one epoch, that takes several."""
    begun = within(known.pace, leave.moves, leave.pool)
    return Plan((*begun, Resize(leave.staying)) if len(begun) == len(leave.moves) else tuple(begun))


def rehouse(leaving: Sequence[Node], staying: list[Node]) -> list[Move] | None:
    """Moves of all groups of some nodes, the heaviest first, each to the node whose level will be lowest. It changes
    the nodes that stay. It is None where they lack memory."""
    moves, items = [], [(item, node) for node in leaving for item in node.items.values()]
    for item, node in sorted(items, key=lambda one: (-one[0].work, one[0].group)):
        able = [other for other in staying if other.has_room(item)]
        if not able:
            return None
        consumer = min(able, key=lambda other: (other.level + item.work / other.speed, other.slave))
        consumer.take(item)
        moves.append(move_of(Shift(item, node, consumer)))
    return moves


def _replace_slow(view: ClusterView, known: Learned, fixed: Collection[int]) -> tuple[Move, ...]:
    """Moves of the only groups of slow slaves, each to an idle slave that is so much faster that it is worth it."""
    moves, idle = [], _idle(view, known)
    for node in sorted(known.nodes(view), key=lambda node: (-node.level, node.slave)):
        if not node.items:
            continue
        (item, *others) = node.items.values()
        if others or item.group in fixed or not idle or node.parts:
            continue
        level = item.work / known.speed(idle[0].slave)
        if node.level + _communication(view) >= SHRINK_BELOW and node.level - level >= max(
            ALONE_MIN, ALONE * node.level
        ):
            consumer = node_of(idle.pop(0), 1.0, {})
            moves.append(move_of(Shift(item, node, consumer)))
    return tuple(moves)
