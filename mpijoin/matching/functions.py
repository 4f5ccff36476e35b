"""Says what functions over partners keep, and makes the code that adds a partner to them."""

from __future__ import annotations

from typing import Sequence

import numpy as np

from mpijoin.aggregate.state import REAL, SIGNED, UNSIGNED
from mpijoin.conditions import tree
from mpijoin.conditions.calls import Call, parse_call
from mpijoin.conditions.code import INT64_MIN, code_of
from mpijoin.conditions.kinds import kinds_of_schema, place_in
from mpijoin.conditions.tree import Node
from mpijoin.config.job import Reduced
from mpijoin.data.schema import UNIT_NS, JoinSchema
from mpijoin.matching.state import (
    ARG_MAX,
    ARG_MIN,
    COUNT,
    FIRST_VALUE,
    FUNCTION_WORDS,
    LAST_VALUE,
    MAX,
    MEAN,
    MIN,
    NO_SUM,
    PARTNERS,
    SUM,
    Functions,
)
from mpijoin.named import NamedTuple

CODES = {
    "count": COUNT, "sum": SUM, "mean": MEAN, "min": MIN, "max": MAX, "first": FIRST_VALUE, "last": LAST_VALUE,
    "arg_min": ARG_MIN, "arg_max": ARG_MAX,
}  # fmt: skip
# Rows of `found` that each keeps.
ROWS = {"count": 1, "sum": 3, "mean": 3, "min": 2, "max": 2, "first": 4, "last": 4, "arg_min": 5, "arg_max": 5}
FORMS = {tree.REAL: REAL, tree.UNSIGNED: UNSIGNED}
ADD = """{arrays}
def add(s, at, one, other):
    words, left, right = s.words, one, other
    {lines}
"""


class Place(NamedTuple):
    """Where a function keeps what it knows: its first row of `found`, how many it has, and which of the exact sums."""

    row: int
    rows: int
    sum_at: int = NO_SUM


def calls_of(reduced: Sequence[Reduced], schema: JoinSchema) -> list[Call]:
    """Returns the functions as trees. They have been checked against the schema."""
    names, kinds = [stream.name for stream in schema.streams], kinds_of_schema(schema)
    return [parse_call(one.text, names, kinds) for one in reduced]


def functions_of(calls: Sequence[Call]) -> Functions:
    """Returns what the kernels must know of the functions."""
    places = _places(calls)
    table = [
        (CODES[call.name], FORMS.get(call.answer.kind, SIGNED), place.row, place.sum_at)
        for call, place in zip(calls, places)
    ]
    rows = max(place.row + place.rows for place in places)
    sums = sum(place.sum_at != NO_SUM for place in places)
    return Functions(np.array(table, np.int64).reshape(-1, FUNCTION_WORDS), rows, sums)


def source_of_add(calls: Sequence[Call], schema: JoinSchema) -> str:
    """Returns the source of a part `add(s, at, one, other)`, which adds a partner to all functions. It is made of a
    checked tree, and needs np, `unsigned` and the parts of `reduce`."""
    nodes = [node for call in calls for node in call.nodes]
    arrays, lines, values = code_of(nodes, lambda *column: place_in(schema, *column), UNIT_NS[schema.unit])
    own = iter(values)
    for call, place in zip(calls, _places(calls)):
        if call.node:
            lines.append(_line(call, place, *next(own), *(next(own) if call.by else ())))
    return ADD.format(arrays="\n".join(arrays), lines="\n    ".join([*lines, "return"]))


def _is_real(call: Call) -> bool:
    return call.node is not None and call.node.kind == tree.REAL


def _word(node: Node, value: str) -> str:
    return f"bits_of({value})" if node.kind == tree.REAL else f"np.int64({value})"


def _ordered(node: Node, value: str) -> str:
    """An int64 in the order of the values."""
    if node.kind == tree.REAL:
        return f"word_of_real({value})"
    return f"np.int64({value}) ^ {INT64_MIN}" if node.kind == tree.UNSIGNED else f"np.int64({value})"


def _places(calls: Sequence[Call]) -> list[Place]:
    places, row, sums = [], PARTNERS + 1, 0
    for call in calls:
        if call.node is None:
            places.append(Place(PARTNERS, 1))
            continue
        is_sum = call.name in ("sum", "mean")
        if is_sum and _is_real(call):
            places.append(Place(row, 1, sums))
            sums += 1
        else:
            places.append(Place(row, ROWS[call.name]))
        row += places[-1].rows
    return places


def _line(call: Call, place: Place, value: str, null: str, by: str = "", by_null: str = "") -> str:
    assert call.node
    at, word = f"s, at, {place.row}", _word(call.node, value)
    match call.name:
        case "count":
            return f"add_count({at}, {null})"
        case "sum" | "mean" if _is_real(call):
            return f"add_float({at}, {place.sum_at}, {word}, {null})"
        case "sum" | "mean":
            return f"add_integer({at}, {word}, {null})"
        case "min" | "max":
            return f"add_extreme({at}, {_ordered(call.node, value)}, {null}, {call.name == 'min'})"
        case "arg_min" | "arg_max":
            assert call.by
            # Of the two zeros none is less.
            ordered = _ordered(call.by, f"{by} + 0.0" if call.by.kind == tree.REAL else by)
            return f"add_best({at}, {word}, {ordered}, {null} | {by_null}, other, {call.name == 'arg_min'})"
    return f"add_placed({at}, {word}, {null}, other, {call.name == 'first'})"
