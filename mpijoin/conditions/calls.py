"""Functions over the partners of a row, as `[join.reduce]` has them: `count()`, `max(right.price)`, ..."""

from __future__ import annotations

import ast
from typing import Sequence

from mpijoin.conditions.tree import (
    BOOLEAN,
    DURATION,
    INTEGER,
    REAL,
    SPANS,
    TEXT,
    UNSIGNED,
    ConditionError,
    Kinds,
    Node,
    expression,
    parsed_text,
)
from mpijoin.named import NamedTuple

ADDED, ORDERED = (INTEGER, REAL), (INTEGER, UNSIGNED, REAL, *SPANS)
# What each may be of. Nulls are left out. The first and the last are by the time of the partner, then by its row; of
# several partners with the least or the greatest value, arg_min and arg_max take the first.
TAKES = {
    "count": (BOOLEAN, TEXT, *ORDERED),
    "sum": (*ADDED, DURATION),
    "mean": ADDED,
    "min": ORDERED,
    "max": ORDERED,
    "first": ORDERED,
    "last": ORDERED,
    "arg_min": ORDERED,
    "arg_max": ORDERED,
}
OF_TWO = ("arg_min", "arg_max")


class Call(NamedTuple):
    """A function, and of what: None is of the partners themselves, which only "count" may be. by: of the functions
    OF_TWO, what is to be least or greatest."""

    name: str
    node: Node | None = None
    by: Node | None = None

    @property
    def nodes(self) -> list[Node]:
        """What it is of."""
        return [node for node in (self.node, self.by) if node]

    @property
    def answer(self) -> Node:
        """An expression of the kind that it gives."""
        if self.name == "count" or self.node is None:
            return Node(INTEGER, "constant", value=0)
        return Node(REAL, "constant", value=0.0) if self.name == "mean" else self.node


def parse_call(text: str, streams: Sequence[str], kind_of: Kinds) -> Call:
    """Returns the function that a text names. streams, kind_of: as for `parse`. ConditionError: what is wrong."""
    parsed = parsed_text(text, "function")
    known = ", ".join(f"{name}(...)" for name in TAKES)
    if not isinstance(parsed, ast.Call) or not isinstance(parsed.func, ast.Name) or parsed.keywords:
        raise ConditionError(0, f"this is no function of the partners, wanted one of {known}")
    name = parsed.func.id.lower()
    if name not in TAKES:
        raise ConditionError(0, f"got {parsed.func.id}, wanted one of {known}")
    if not parsed.args and name == "count":
        return Call(name)
    count = 2 if name in OF_TWO else 1
    if len(parsed.args) != count:
        raise ConditionError(0, f"{name}: got {len(parsed.args)} arguments, wanted {('one', 'two')[count - 1]}")
    nodes = [expression(one, streams, kind_of) for one in parsed.args]
    for node, one in zip(nodes, parsed.args):
        if node.kind not in TAKES[name]:
            wanted = " or ".join(TAKES[name])
            raise ConditionError(one.col_offset, f"{name}: {ast.unparse(one)} is {node.kind}, wanted {wanted}")
    return Call(name, *nodes)
