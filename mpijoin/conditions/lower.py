"""Rewrites a condition so that it has no times any more, but integers that are counted in known units.

Columns keep their units, so that nothing has to be rounded, and no value leaves 64 bits where two are only compared. A
comparison of two units then has for its value two factors: those that make both sides one unit. What is worked out of
two units has the finer one.
"""

from __future__ import annotations

from mpijoin.conditions.literals import DAY_NS, SECOND_NS
from mpijoin.conditions.tree import BOOLEAN, DURATION, INT64, INTEGER, OF_JOIN, SPANS, Node
from mpijoin.config.units import DURATION_NS

UNITS_NS = (DAY_NS, *(DURATION_NS[unit] for unit in ("s", "ms", "us", "ns")))


def lowered(node: Node, tick_ns: int) -> Node:
    """Returns the condition, or another expression, without times. tick_ns: the unit of the join."""
    return _lowered(node, tick_ns)[0]


def unit_of(node: Node, tick_ns: int) -> int:
    """The nanoseconds of what an expression counts, of the kinds SPANS."""
    return _lowered(node, tick_ns)[1]


def _lowered(node: Node, tick_ns: int) -> tuple[Node, int]:
    """The expression and its unit in ns, which means nothing where it is no span of time."""
    if node.kind in SPANS and node.op == "constant":
        return _constant(node, tick_ns)
    if node.kind in SPANS and node.op == "column":
        return node._replace(kind=INTEGER, unit_ns=OF_JOIN, zone=None), node.unit_ns or tick_ns
    if len(node.parts) != 2 or node.parts[0].kind not in SPANS:
        known = [_lowered(part, tick_ns) for part in node.parts]
        kind = INTEGER if node.kind in SPANS else node.kind
        return node._replace(kind=kind, parts=tuple(part for part, _ in known)), known[0][1] if known else tick_ns
    (one, its_unit), (other, other_unit) = _pair(*node.parts, tick_ns)
    finer = min(its_unit, other_unit)
    factors = its_unit // finer, other_unit // finer
    if node.kind == BOOLEAN:
        return node._replace(parts=(one, other), value=factors if factors != (1, 1) else None), finer
    if node.kind == DURATION and finer > SECOND_NS:  # No column of results counts days.
        finer, factors = SECOND_NS, (its_unit // SECOND_NS, other_unit // SECOND_NS)
    parts = tuple(_times(part, factor) for part, factor in zip((one, other), factors))
    return Node(INTEGER, node.op, parts), finer


def _pair(one: Node, other: Node, tick_ns: int) -> tuple[tuple[Node, int], tuple[Node, int]]:
    """Both with their units. A constant takes the unit of the other part if it can."""
    if one.op == "constant" and other.op != "constant":
        known = _lowered(other, tick_ns)
        return _constant(one, known[1]), known
    known = _lowered(one, tick_ns)
    return known, _constant(other, known[1]) if other.op == "constant" else _lowered(other, tick_ns)


def _constant(node: Node, unit_ns: int) -> tuple[Node, int]:
    """The constant in this unit, or, where it is not whole there or leaves 64 bits, in the coarsest one."""
    for one in (unit_ns, *UNITS_NS):
        if node.value % one == 0 and node.value // one in INT64:
            return Node(INTEGER, "constant", value=node.value // one), one
    raise AssertionError(f"{node.value} ns has no unit")  # `literals` lets none of these through.


def _times(node: Node, factor: int) -> Node:
    return node if factor == 1 else Node(INTEGER, "*", (node, Node(INTEGER, "constant", value=factor)))
