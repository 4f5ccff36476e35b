"""Makes a Python function of a condition, in the form that Numba compiles.

Each part becomes two variables: what it is, and whether it is null. There are no branches, because a processor could
not foresee them.
"""

from __future__ import annotations

import math
from typing import Callable, NamedTuple, Sequence

from mpijoin.conditions.tree import INTEGER, REAL, Node

INT64_MIN = "np.int64(-9223372036854775808)"


class Place(NamedTuple):
    """Where a tuple has a column. word: of the tuple, counted from its slot id · shift, width: of the bits within the
    word · form: "signed", "unsigned", "real" or "boolean" · null: (word, bit) of what says that it is null; None: it
    never is."""

    word: int
    shift: int = 0
    width: int = 64
    form: str = "signed"
    null: tuple[int, int] | None = None


def source_of(node: Node, name: str, place_of: Callable[[int, str], Place], ticks: Callable[[int], int]) -> str:
    """Returns the source of a function `name(words, left, right)`, which says whether the condition is true for two
    tuples by their slot ids. It needs np and `unsigned`.

    place_of: where a column lies, by the stream's index and the column's name · ticks: of a duration in ns.
    """
    maker = _Maker(place_of, ticks)
    value, _ = maker.part(node)
    lines = [f"def {name}(words, left, right):", *maker.lines, f"return {value}"]
    return "\n    ".join(lines) + "\n"


def values_of(
    nodes: Sequence[Node], place_of: Callable[[int, str], Place], ticks: Callable[[int], int]
) -> tuple[list[str], list[tuple[str, str]]]:
    """Returns lines of code that work out values of two tuples, called `left` and `right` by their slot ids in `words`,
    and for each value the names of the variables that have it, and whether it is null. place_of, ticks: as for
    `source_of`."""
    maker = _Maker(place_of, ticks)
    names = [maker.part(node) for node in nodes]
    return maker.lines, names


class _Maker:
    """Collects lines. A truth value is false where it is null, so that it need not be asked twice."""

    def __init__(self, place_of: Callable[[int, str], Place], ticks: Callable[[int], int]):
        self._place_of, self._ticks = place_of, ticks
        self.lines: list[str] = []
        self._known: dict[Node, tuple[str, str]] = {}

    def part(self, node: Node) -> tuple[str, str]:
        """The names of the two variables of a part."""
        if node not in self._known:
            value, null = self._of(node, [self.part(part) for part in node.parts])
            number = len(self._known)
            self.lines += [f"v{number} = {value}", f"n{number} = {null}"]
            self._known[node] = f"v{number}", f"n{number}"
        return self._known[node]

    def _of(self, node: Node, parts: Sequence[tuple[str, str]]) -> tuple[str, str]:
        match node.op:
            case "constant":
                value = self._ticks(node.value) if node.kind == "duration" else node.value
                return _constant(value), "False"
            case "column":
                return _column(self._place_of(node.side, node.name), "right" if node.side == 1 else "left")
            case "and" | "or" | "not" | "null":
                return _logic(node.op, parts)
            case "abs" | "sqrt" | "floor" | "ceil":
                return _function(node.op, node.parts[0].kind, *parts[0])
        real = REAL in {part.kind for part in node.parts} or node.op == "/"
        values = [_as_real(value, part.kind) if real else value for (value, _), part in zip(parts, node.parts)]
        a, b = values
        null = f"{parts[0][1]} | {parts[1][1]}"
        if node.op in ("least", "greatest"):
            return _extreme(node.op, real, a, b, parts[0][1], parts[1][1])
        if node.op in ("+", "-", "*", "/"):
            return _arithmetic(node.op, real, a, b, null)
        return f"({_comparison(node.op, real, a, b)}) & (not ({null}))", null


def _constant(value: bool | int | float) -> str:
    if isinstance(value, float) and math.isinf(value):
        return "np.inf" if value > 0 else "(-np.inf)"
    return f"np.int64({value})" if type(value) is int else repr(value)


def _as_real(value: str, kind: str) -> str:
    return f"np.float64({value})" if kind == INTEGER else value


def _column(place: Place, slot: str) -> tuple[str, str]:
    word = f"words[unsigned({slot} + {place.word})]"
    shifted = f"({word} >> {place.shift})" if place.shift else word
    null = f"words[unsigned({slot} + {place.null[0]})] >> {place.null[1]} & 1 != 0" if place.null else "False"
    if place.form == "real":
        own = f"np.float64(np.int32({shifted} & 0xFFFFFFFF).view(np.float32))" if place.width == 32 else shifted
        return (own if place.width == 32 else f"np.int64({own}).view(np.float64)"), null
    if place.width == 64 and place.form == "boolean":
        return f"({shifted} != 0) & (not ({null}))", null
    if place.width == 64:
        return shifted, null
    mask = f"({shifted} & {(1 << place.width) - 1})"
    if place.form == "boolean":
        return f"({mask} != 0) & (not ({null}))", null
    sign = 1 << place.width - 1
    return (f"({mask} ^ {sign}) - {sign}" if place.form == "signed" else mask), null


def _logic(op: str, parts: Sequence[tuple[str, str]]) -> tuple[str, str]:
    if op == "null":
        return parts[0][1], "False"
    if op == "not":
        value, null = parts[0]
        return f"(not {value}) & (not {null})", null
    trues = [value for value, _ in parts]
    falses = [f"((not {value}) & (not {null}))" for value, null in parts]
    true = f"({' & '.join(trues) if op == 'and' else ' | '.join(trues)})"
    false = f"({' | '.join(falses) if op == 'and' else ' & '.join(falses)})"
    return true, f"(not {true}) & (not {false})"


def _function(op: str, kind: str, value: str, null: str) -> tuple[str, str]:
    if op == "sqrt":
        real = _as_real(value, kind)
        return f"np.sqrt({real} if not {real} < 0.0 else 0.0)", f"{null} | ({real} < 0.0)"
    if op == "abs":
        return f"abs({value})", null if kind == REAL else f"{null} | ({value} == {INT64_MIN})"
    return (f"np.{op}({value})" if kind == REAL else value), null


def _extreme(op: str, real: bool, a: str, b: str, a_null: str, b_null: str) -> tuple[str, str]:
    first = _comparison("<=" if op == "least" else ">=", real, a, b)
    takes_first = f"{b_null} | (({first}) & (not {a_null}))"
    return f"{a} if {takes_first} else {b}", f"{a_null} & {b_null}"


def _arithmetic(op: str, real: bool, a: str, b: str, null: str) -> tuple[str, str]:
    if op == "/":
        return f"{a} / ({b} if {b} != 0.0 else 1.0)", f"{null} | ({b} == 0.0)"
    value = f"{a} {op} {b}"
    if real:
        return value, null
    if op == "*":
        divisor = f"({a} if ({a} > 1) | ({a} < -1) else np.int64(1))"
        over = f"(({divisor} != 1) & (({value}) // {divisor} != {b})) | (({a} == -1) & ({b} == {INT64_MIN}))"
        return value, f"{null} | {over}"
    signs = f"(({a} ^ ({value})) & ({b} ^ ({value})))" if op == "+" else f"(({a} ^ {b}) & ({a} ^ ({value})))"
    return value, f"{null} | ({signs} < 0)"


def _comparison(op: str, real: bool, a: str, b: str) -> str:
    if not real:
        return f"{a} {op} {b}"
    equal = f"(({a} == {b}) | (({a} != {a}) & ({b} != {b})))"
    less, more = (f"(({x} < {y}) | (({y} != {y}) & ({x} == {x})))" for x, y in ((a, b), (b, a)))
    return {"==": equal, "!=": f"not {equal}", "<": less, ">": more, "<=": f"not {more}", ">=": f"not {less}"}[op]
