"""Makes a Python function of a condition, in the form that Numba compiles.

Each part becomes two variables: what it is, and whether it is null. There are no branches, because a processor could
not foresee them.
"""

from __future__ import annotations

import itertools
import math
import operator
from typing import Callable, Iterable, Sequence

from mpijoin.conditions.lists import with_lists
from mpijoin.conditions.lower import lowered
from mpijoin.conditions.tree import INT64, INTEGER, REAL, TEXT, UNSIGNED, Node
from mpijoin.named import NamedTuple

INT64_MIN = "np.int64(-9223372036854775808)"
ADDRESS_AT = 3  # the word of a tuple that says where its blob begins
COMPARED = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Place(NamedTuple):
    """Where a tuple has a column. word: of the tuple, counted from its slot id · shift, width: of the bits within the
    word · form: "signed", "unsigned", "real", "boolean" or "octets", of which these bits are the length · null: (word,
    bit) of what says that it is null; None: it never is · per: what the bits count more finely, and have to be divided
    by · before: the lengths of what comes before the octets in the blob, negative ones for nulls."""

    word: int
    shift: int = 0
    width: int = 64
    form: str = "signed"
    null: tuple[int, int] | None = None
    per: int = 1
    before: tuple[Place, ...] = ()


class Code(NamedTuple):
    """Code that works out values of two tuples, called `left` and `right` by their slot ids in `words`, which belong to
    the store `s`. It needs np, `unsigned` and CONDITION_PARTS of join/where.py.

    arrays: lines of the module · lines: of the function · values: for each value, the names of the variables that have
    it, and whether it is null.
    """

    arrays: list[str]
    lines: list[str]
    values: list[tuple[str, str]]


def code_of(nodes: Sequence[Node], place_of: Callable[[int, str], Place], tick_ns: int) -> Code:
    """place_of: where a column lies, by the stream's index and the column's name · tick_ns: the unit of the join."""
    maker = _Maker(place_of)
    values = [maker.part(with_lists(lowered(node, tick_ns))) for node in nodes]
    return Code(maker.arrays, maker.lines, values)


def source_of(node: Node, name: str, place_of: Callable[[int, str], Place], tick_ns: int) -> str:
    """Returns the source of a function `name(s, left, right)`, which says whether the condition is true for two tuples
    by their slot ids. s: has the arrays of `Stored` · place_of, tick_ns: as for `code_of`."""
    code = code_of([node], place_of, tick_ns)
    lines = [f"def {name}(s, left, right):", "words = s.words", *code.lines, f"return {code.values[0][0]}"]
    return "\n".join([*code.arrays, "\n    ".join(lines)]) + "\n"


class _Maker:
    """Collects lines. A truth value is false where it is null, so that it need not be asked twice."""

    def __init__(self, place_of: Callable[[int, str], Place]):
        self._place_of = place_of
        self._arrays: dict[tuple[str, tuple[int, ...]], str] = {}  # the names of those of a type, and of these values
        self.lines: list[str] = []
        self._known: dict[Node, tuple[str, str]] = {}

    @property
    def arrays(self) -> list[str]:
        return [
            f"{name} = np.array(({''.join(f'{value}, ' for value in values)}), np.{dtype})"
            for (dtype, values), name in self._arrays.items()
        ]

    def _array(self, dtype: str, values: Iterable[int]) -> str:
        """The name of an array that the function needs."""
        return self._arrays.setdefault((dtype, tuple(values)), f"A{len(self._arrays)}")

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
                return _constant(node.value), "False"
            case "column":
                return _column(self._place_of(node.side, node.name), _slot(node))
            case "and" | "or" | "not" | "null":
                return _logic(node.op, parts)
            case "abs" | "sqrt" | "floor" | "ceil":
                return _function(node.op, node.parts[0].kind, *parts[0])
            case "among":
                value, null = parts[0]
                return f"({self._lookup(node, value)}) & (not ({null}))", null
        return self._of_two(node, parts)

    def _of_two(self, node: Node, parts: Sequence[tuple[str, str]]) -> tuple[str, str]:
        kinds = [part.kind for part in node.parts]
        null = f"{parts[0][1]} | {parts[1][1]}"
        if TEXT in kinds:
            return f"({self._text_comparison(node)}) & (not ({null}))", null
        # Of several arguments of least one may be real, and the others then are before they are compared.
        real = REAL in (*kinds, node.kind) or node.op == "/"
        a, b = (_as_real(value, kind) if real else value for (value, _), kind in zip(parts, kinds))
        if node.op in ("least", "greatest"):
            kinds = [node.kind] * 2 if node.kind == REAL else kinds
            return _extreme(node.op, kinds, a, b, parts[0][1], parts[1][1])
        if node.op in ("+", "-", "*", "/"):
            return _arithmetic(node.op, kinds, a, b, null)
        compared = _scaled(node.op, a, b, *node.value) if node.value else _comparison(node.op, kinds, a, b)
        return f"({compared}) & (not ({null}))", null

    def _text_comparison(self, node: Node) -> str:
        """Strings are compared byte by byte, as numbers without sign. If all are equal, the shorter one is less."""
        one, other = node.parts
        if one.op == other.op == "constant":
            return repr(COMPARED[node.op](one.value, other.value))
        op = node.op if one.op == "column" else MIRRORED[node.op]
        stored, given = (one, other) if one.op == "column" else (other, one)
        arguments = ", ".join([*self._octets(stored), *self._octets(given)])
        kind = "stored" if given.op == "column" else "given"
        if op in ("==", "!="):
            return f"{'not ' if op == '!=' else ''}same_{kind}(s, {arguments})"
        return f"order_of_{kind}(s, {arguments}) {op} 0"

    def _lookup(self, node: Node, value: str) -> str:
        if node.parts[0].kind != TEXT:
            return f"is_among({self._array('int64', sorted(map(_signed, node.value)))}, {value})"
        ends = itertools.accumulate(map(len, node.value))
        lists = self._array("uint8", b"".join(node.value)), self._array("int64", ends)
        return f"is_among_given(s, {', '.join([*self._octets(node.parts[0]), *lists])})"

    def _octets(self, node: Node) -> list[str]:
        """What tells the bytes of a string: an array, or the address of its blob, the bytes before it there, and its
        length."""
        if node.op == "constant":
            return [self._array("uint8", node.value)]
        slot, place = _slot(node), self._place_of(node.side, node.name)
        before = [f"max({_column(one, slot)[0]}, 0)" for one in place.before]
        return [f"words[unsigned({slot} + {ADDRESS_AT})]", " + ".join(["np.int64(0)", *before]), self.part(node)[0]]


def _slot(node: Node) -> str:
    return "right" if node.side == 1 else "left"


def _constant(value: bool | int | float | bytes) -> str:
    if isinstance(value, float) and math.isinf(value):
        return "np.inf" if value > 0 else "(-np.inf)"
    if isinstance(value, bytes):
        return repr(len(value))
    if type(value) is int:
        return f"np.int64({_signed(value)})"
    return repr(value)


def _signed(value: int) -> int:
    """The int64 that has the bits of an integer of 64 bits."""
    return value if value in INT64 else value - (1 << 64)


def _as_real(value: str, kind: str) -> str:
    if kind == UNSIGNED:
        return f"np.float64({_bits(value)})"
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
        return (shifted if place.per == 1 else f"{shifted} // np.int64({place.per})"), null
    mask = f"({shifted} & {(1 << place.width) - 1})"
    if place.form == "boolean":
        return f"({mask} != 0) & (not ({null}))", null
    sign = 1 << place.width - 1
    return (f"({mask} ^ {sign}) - {sign}" if place.form in ("signed", "octets") else mask), null


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
    if kind == UNSIGNED:
        return value, null
    if op == "abs":
        return f"abs({value})", null if kind == REAL else f"{null} | ({value} == {INT64_MIN})"
    return (f"np.{op}({value})" if kind == REAL else value), null


def _extreme(op: str, kinds: Sequence[str], a: str, b: str, a_null: str, b_null: str) -> tuple[str, str]:
    first = _comparison("<=" if op == "least" else ">=", kinds, a, b)
    takes_first = f"{b_null} | (({first}) & (not {a_null}))"
    return f"{a} if {takes_first} else {b}", f"{a_null} & {b_null}"


def _arithmetic(op: str, kinds: Sequence[str], a: str, b: str, null: str) -> tuple[str, str]:
    if op == "/":
        return f"{a} / ({b} if {b} != 0.0 else 1.0)", f"{null} | ({b} == 0.0)"
    if REAL in kinds:
        return f"{a} {op} {b}", null
    # Of integers with a sign the compiler takes for granted that nothing overflows, so that the test for it would go.
    value = f"np.int64({_bits(a)} {op} {_bits(b)})"
    return value, f"{null} | {_overflow(op, kinds, a, b, value)}"


def _bits(value: str) -> str:
    """Returns the bits of an int64 as a uint64, which counts modulo 2**64."""
    return f"np.int64({value}).view(np.uint64)"


def _overflow(op: str, kinds: Sequence[str], a: str, b: str, value: str) -> str:
    """Whether the result of integers is none of 64 bits with a sign. value: its lower 64 bits."""
    if op == "*":
        divisor = f"({a} if ({a} > 1) | ({a} < -1) else np.int64(1))"
        over = f"(({divisor} != 1) & (({value}) // {divisor} != {b})) | (({a} == -1) & ({b} == {INT64_MIN}))"
        for large, other in ((a, b), (b, a)) if UNSIGNED in kinds else ():
            if kinds[(a, b).index(large)] == UNSIGNED:  # What is beyond 2**63 - 1 looks negative.
                is_signed = kinds[(a, b).index(other)] != UNSIGNED
                fits = f"({other} == 0)" + f" | (({other} == -1) & ({large} == {INT64_MIN}))" * is_signed
                over = f"((not ({fits})) if {large} < 0 else ({over}))"
        return over
    if UNSIGNED not in kinds:
        signs = f"(({a} ^ ({value})) & ({b} ^ ({value})))" if op == "+" else f"(({a} ^ {b}) & ({a} ^ ({value})))"
        return f"({signs} < 0)"
    # The upper 64 bits of the exact result, by the carry out of the lower ones.
    upper = [f"({one} >> 63)" if kind != UNSIGNED else "0" for one, kind in zip((a, b), kinds)]
    carry = _unsigned_less(value, a) if op == "+" else _unsigned_less(a, b)
    return f"({upper[0]} {op} {upper[1]} {op} np.int64({carry}) != ({value}) >> 63)"


def _unsigned_less(a: str, b: str) -> str:
    return f"(({a}) ^ {INT64_MIN}) < (({b}) ^ {INT64_MIN})"


def _comparison(op: str, kinds: Sequence[str], a: str, b: str) -> str:
    if REAL in kinds:
        equal = f"(({a} == {b}) | (({a} != {a}) & ({b} != {b})))"
        less, more = (f"(({x} < {y}) | (({y} != {y}) & ({x} == {x})))" for x, y in ((a, b), (b, a)))
        return {"==": equal, "!=": f"not {equal}", "<": less, ">": more, "<=": f"not {more}", ">=": f"not {less}"}[op]
    if UNSIGNED not in kinds:
        return f"{a} {op} {b}"
    if INTEGER not in kinds:
        return f"({a} ^ {INT64_MIN}) {op} ({b} ^ {INT64_MIN})"
    if kinds[0] == INTEGER:
        a, b, op = b, a, MIRRORED[op]
    # A uint64 that looks negative is larger than each int64.
    return f"({a} < 0) | ({a} {op} {b})" if op in (">", ">=", "!=") else f"({a} >= 0) & ({a} {op} {b})"


def _scaled(op: str, a: str, b: str, a_factor: int, b_factor: int) -> str:
    """Compares two integers, of which one counts a unit that is so many times as long. The finer one is divided, so
    that nothing leaves 64 bits."""
    if a_factor == 1:
        a, b, op, a_factor = b, a, MIRRORED[op], b_factor
    whole = f"({b} // np.int64({a_factor}))"
    exact = f"({whole} * np.int64({a_factor}) == {b})"
    if op in ("<=", ">"):
        return f"{a} {op} {whole}"
    if op in ("==", "!="):
        return f"{'not ' if op == '!=' else ''}(({a} == {whole}) & {exact})"
    return f"({a} < {whole}) | (({a} == {whole}) & (not {exact}))" if op == "<" else (
        f"({a} > {whole}) | (({a} == {whole}) & {exact})"
    )
