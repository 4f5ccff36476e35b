"""Functions over the partners of a row, as `[join.reduce]` has them: `count()`, `max(right.price)`, ..."""

from __future__ import annotations

import ast
from typing import NamedTuple, Sequence

from mpijoin.conditions.tree import (
    BOOLEAN,
    DURATION,
    INTEGER,
    REAL,
    TIME,
    ConditionError,
    Kinds,
    Node,
    expression,
    parsed_text,
)

NUMBERS, ORDERED = (INTEGER, REAL), (INTEGER, REAL, TIME, DURATION)
# What each may be of. Nulls are left out. The first and the last are by the time of the partner, then by its row.
TAKES = {
    "count": (BOOLEAN, *ORDERED),
    "sum": (*NUMBERS, DURATION),
    "mean": NUMBERS,
    "min": ORDERED,
    "max": ORDERED,
    "first": ORDERED,
    "last": ORDERED,
}


class Call(NamedTuple):
    """A function, and of what: None is of the partners themselves, which only "count" may be."""

    name: str
    node: Node | None = None

    @property
    def kind(self) -> str:
        """What it gives."""
        if self.name == "count" or self.node is None:
            return INTEGER
        return REAL if self.name == "mean" else self.node.kind


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
    if len(parsed.args) != 1:
        raise ConditionError(0, f"{name}: got {len(parsed.args)} arguments, wanted one")
    node = expression(parsed.args[0], streams, kind_of)
    if node.kind not in TAKES[name]:
        wanted = " or ".join(TAKES[name])
        raise ConditionError(
            parsed.args[0].col_offset, f"{name}: {ast.unparse(parsed.args[0])} is {node.kind}, wanted {wanted}"
        )
    return Call(name, node)
