"""Finds the lists in a condition. What is compared with many values is looked up in them instead: each comparison would
take time for every pair, and 25 ms to be compiled."""

from __future__ import annotations

from mpijoin.conditions.tree import BOOLEAN, INT64, INTEGER, TEXT, UINT64, UNSIGNED, Node

VALUES_MIN = 8  # Fewer values are compared one by one, without a branch.
RANGES = {INTEGER: INT64, UNSIGNED: UINT64}


def with_lists(node: Node) -> Node:
    """Returns a condition, or another expression, whose lists are parts of their own. It has no times any more.

    The op of such a part is "among". Its value is the values of which its only part may be one: each once, in ascending
    order, strings as bytes. It is null where its part is.
    """
    node = node._replace(parts=tuple(map(with_lists, node.parts)))
    if node.op != "or":
        return node
    found = list(map(_looked_up, node.parts))
    values: dict[Node, set[int | bytes]] = {}
    for one, value in filter(None, found):
        values.setdefault(one, set()).add(value)
    lists = {
        one: Node(BOOLEAN, "among", (one,), value=tuple(sorted(own)))
        for one, own in values.items()
        if len(own) >= VALUES_MIN
    }
    others = [part for part, own in zip(node.parts, found) if own is None or own[0] not in lists]
    parts = (*lists.values(), *others)
    return parts[0] if len(parts) == 1 else node._replace(parts=parts)


def _looked_up(part: Node) -> tuple[Node, int | bytes] | None:
    """What is compared with a value that it may have, and this value; None: the part is something else."""
    if part.op != "==" or part.value:  # Two units are not compared by their numbers.
        return None
    one, other = part.parts if part.parts[1].op == "constant" else part.parts[::-1]
    if other.op != "constant" or one.op == "constant":
        return None
    is_text = one.kind == other.kind == TEXT
    return (one, other.value) if is_text or (other.kind in RANGES and other.value in RANGES.get(one.kind, ())) else None
