"""Says what functions over partners keep, and makes the code that adds a partner to them."""

from __future__ import annotations

from typing import NamedTuple, Sequence

import numpy as np

from mpijoin.aggregate.state import REAL, SIGNED
from mpijoin.conditions import tree
from mpijoin.conditions.calls import Call, parse_call
from mpijoin.conditions.code import values_of
from mpijoin.conditions.kinds import kinds_of_schema, place_in
from mpijoin.config.job import Reduced
from mpijoin.data.schema import UNIT_NS, JoinSchema
from mpijoin.matching.state import (
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

CODES = {
    "count": COUNT, "sum": SUM, "mean": MEAN, "min": MIN, "max": MAX, "first": FIRST_VALUE, "last": LAST_VALUE,
}  # fmt: skip
ADD = """
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
        (CODES[call.name], REAL if _is_real(call) else SIGNED, place.row, place.sum_at)
        for call, place in zip(calls, places)
    ]
    rows = max(place.row + place.rows for place in places)
    sums = sum(place.sum_at != NO_SUM for place in places)
    return Functions(np.array(table, np.int64).reshape(-1, FUNCTION_WORDS), rows, sums)


def source_of_add(calls: Sequence[Call], schema: JoinSchema) -> str:
    """Returns the source of a part `add(s, at, one, other)`, which adds a partner to all functions. It is made of a
    checked tree, and needs np, `unsigned` and the parts of `reduce`."""
    tick_ns = UNIT_NS[schema.unit]
    nodes = [call.node for call in calls if call.node]
    lines, values = values_of(nodes, lambda *column: place_in(schema, *column), lambda ns: ns // tick_ns)
    own = iter(values)
    for call, place in zip(calls, _places(calls)):
        if call.node:
            lines.append(_line(call, place, *next(own)))
    return ADD.format(lines="\n    ".join([*lines, "return"]))


def _is_real(call: Call) -> bool:
    return call.node is not None and call.node.kind == tree.REAL


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
            places.append(Place(row, 3 if is_sum else {"count": 1, "min": 2, "max": 2}.get(call.name, 4)))
        row += places[-1].rows
    return places


def _line(call: Call, place: Place, value: str, null: str) -> str:
    at = f"s, at, {place.row}"
    word = f"bits_of({value})" if _is_real(call) else f"np.int64({value})"
    match call.name:
        case "count":
            return f"add_count({at}, {null})"
        case "sum" | "mean" if _is_real(call):
            return f"add_float({at}, {place.sum_at}, {word}, {null})"
        case "sum" | "mean":
            return f"add_integer({at}, {word}, {null})"
        case "min" | "max":
            ordered = f"word_of_real({value})" if _is_real(call) else word
            return f"add_extreme({at}, {ordered}, {null}, {call.name == 'min'})"
    return f"add_placed({at}, {word}, {null}, other, {call.name == 'first'})"
