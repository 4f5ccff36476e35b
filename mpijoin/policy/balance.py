"""Our policy: as many moves as the measured loads ask for, the best first, and none for noise.

Where WSJ's takes one random group per supplier and epoch, this one predicts. From a period's view it estimates how fast
each slave is (work per busy second: a node that has other things to do is slow) and what its groups ask for (what they
took, times what came / what was joined where a slave is saturated); so it knows what a group will take of any slave, and
evens out the predicted levels (`evening.py`).

It does not oscillate: moves begin only at differences that noise of 5 % does not make (a level that is off the ideal by
more than 15 % and what noise may add to the extremes of so many slaves), and then go on until levels are within a tenth;
a group that moved, or was refused, stays for two periods; a slave gives or takes in one period, never both.

Degree of declustering, between slaves_min and all: one slave fewer if those who stay are predicted to stay below 0.7 and
nobody falls behind, at the earliest three periods after the last change; as many more as it takes when even the best
distribution would load the active ones above 0.85. Between the two the degree stays; a slave that came at 0.85 could go
at 0.7 only.
"""

from __future__ import annotations

from math import ceil

from mpijoin.policy.estimate import Node, ideal_level, is_overloaded, nodes
from mpijoin.policy.evening import Step, carry_out, even_out
from mpijoin.policy.plan import Move, Plan
from mpijoin.policy.view import ClusterView

REST_PERIODS = 2  # a group that moved does not move again in so many
SHRINK_BELOW = 0.7  # predicted share of its time, communication included, of every slave that would stay
SHRINK_AFTER = 3  # periods since the last change of the degree of declustering
GROW_ABOVE = 0.85


def balance(view: ClusterView) -> Plan:
    """The plan for a view. Pure: equal views, equal plans."""
    if not view.active:
        return Plan()
    pool = nodes(view)
    communication = sum(slave.communication for slave in view.active) / len(view.active)
    overloaded = {slave.slave for slave in view.active if is_overloaded(slave)}
    if not overloaded and (smaller := _shrink(view, communication)):
        return smaller
    grown = _grow(view, pool, communication)
    fixed = {group for group, period in view.moved.items() if view.period - period <= REST_PERIODS}
    moves = even_out(pool, fixed, overloaded)
    grown = [node.slave for node in grown if node.items]
    active = tuple(sorted([*grown, *(slave.slave for slave in view.active)])) if grown else None
    return Plan(moves, active)


def _grow(view: ClusterView, pool: list[Node], communication: float) -> list[Node]:
    """Adds idle slaves, empty and as fast as the others, to the pool."""
    level = ideal_level(pool)
    idle = [slave.slave for slave in view.slaves if not slave.active]
    if level + communication <= GROW_ABOVE:
        return []
    speed = sum(node.speed for node in pool)
    wanted = ceil(level * speed / max(0.1, GROW_ABOVE - communication) - speed)
    memory_bytes = pool[0].memory_bytes
    grown = [Node(slave, 1.0, {}, memory_bytes) for slave in idle[: max(1, wanted)]]
    pool += grown
    return grown


def _shrink(view: ClusterView, communication: float) -> Plan | None:
    """The slave with the least work leaves, if the others can take it over."""
    recent = view.resized >= 0 and view.period - view.resized < SHRINK_AFTER
    if recent or len(view.active) <= max(1, view.slaves_min):
        return None
    staying = nodes(view)
    leaving = min(staying, key=lambda node: (node.work, -node.slave))
    staying.remove(leaving)
    moves = spread(leaving, staying)
    if moves is None or max(node.level for node in staying) + communication >= SHRINK_BELOW:
        return None
    return Plan(moves, tuple(node.slave for node in staying))


def spread(leaving: Node, staying: list[Node]) -> tuple[Move, ...] | None:
    """All groups of one node, the heaviest first, each to where the level will be lowest; None where there is no
    memory."""
    moves = []
    for item in sorted(leaving.items.values(), key=lambda item: (-item.work, item.group)):
        able = [node for node in staying if node.has_room(item)]
        if not able:
            return None
        consumer = min(able, key=lambda node: (node.level + item.work / node.speed, node.slave))
        moves.append(carry_out(Step(item, leaving, consumer)))
    return tuple(moves)
