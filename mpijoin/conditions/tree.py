"""Conditions as trees, with the type of each part."""

from __future__ import annotations

import ast
import itertools
import keyword
import re
import threading
import unicodedata
from typing import Any, Callable, Sequence

from mpijoin.conditions.literals import NAIVE, clock_of, moment_of
from mpijoin.config.units import duration_ns, show
from mpijoin.named import NamedTuple

BOOLEAN, INTEGER, UNSIGNED, REAL = "boolean", "integer", "uint64", "real"
TIME, DURATION, CLOCK, TEXT = "time", "duration", "time of day", "string"
QUOTED = "text"  # What stands in quotes is of this kind until something beside it tells what it is.
NUMBERS = (INTEGER, UNSIGNED, REAL)
SPANS = (TIME, DURATION, CLOCK)  # These are counted in some unit.
ARITHMETIC = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
FUNCTIONS = {"abs": 1, "sqrt": 1, "floor": 1, "ceil": 1, "least": 2, "greatest": 2}  # and the fewest arguments
WORDS = {"true": True, "false": False}
INT64, UINT64 = range(-(1 << 63), 1 << 63), range(1 << 64)
KEY, KEY_SIDE = "key", -1  # the key is the same on both sides, so it is of neither


class Kind(NamedTuple):
    """What a column is. unit_ns: of a time, a duration or a time of day, OF_JOIN: the unit of the join · zone: of a
    time: its zone, NAIVE if it has none, None if it is but a number, which goes with both."""

    name: str
    unit_ns: int = 0
    zone: str | None = None


Kinds = Callable[[int, str], Kind]
TOO_DEEP = "this has too many parts within parts"
# Each argument, and each float of a list, is code that is compiled.
VALUES_MAX, ARGUMENTS_MAX = 1000, 100
_reading = threading.Lock()
OF_JOIN = 0


class ConditionError(Exception):
    """What is wrong with a condition, with the place in its text."""

    def __init__(self, place: int, problem: str):
        super().__init__(f"at character {place + 1}: {problem}")


class Node(NamedTuple):
    """A part of a condition. op: an operator or a function, "column", "constant", "and", "or", "not", "null" (whether
    its part is null) · value: of a constant; spans of time have nanoseconds, strings bytes · side, name: of a column ·
    unit_ns, zone: as of `Kind`; only columns have a unit."""

    kind: str
    op: str
    parts: tuple[Node, ...] = ()
    value: Any = None
    side: int = 0
    name: str = ""
    unit_ns: int = OF_JOIN
    zone: str | None = None


def parse(text: str, streams: Sequence[str], kind_of: Kinds) -> Node:
    """Returns the tree of a condition over two streams of these names.

    kind_of: says which kind a column is, by the stream's index and the column's name. The key is column KEY of
    KEY_SIDE, and the time of a stream its column "time". It raises ValueError with what is wrong with the column.
    ConditionError: what is wrong with the text.
    """
    parsed = parsed_text(text, "condition")
    return _wanted(expression(parsed, streams, kind_of), parsed, (BOOLEAN,))


def _read(text: str) -> tuple[str, ast.Expression]:
    """Parses a text, one thread at a time: Python 3.11 counts the depth of what it makes for all threads together, and
    fails where two of them take turns. Returns the text without the blanks around it, and what Python reads in it."""
    text = text.strip()
    with _reading:
        try:
            parsed = ast.parse(text, mode="eval")
        except SyntaxError:
            if "\n" not in text:
                raise
            # A condition may go on in the next line wherever it likes; in Python it may between brackets.
            parsed = ast.parse(f"(\n{text}\n)", mode="eval")
            if parsed.body.lineno == 1:  # The text closes the bracket itself, and opens another one.
                raise
            ast.increment_lineno(parsed, -1)
    _keep_names(parsed, text)
    return text, parsed


def _keep_names(parsed: ast.AST, text: str) -> None:
    """Names get the letters that the text has. Python writes letters that look alike in one way (NFKC), but columns may
    be called by any."""
    lines = text.encode().split(b"\n")
    for node in ast.walk(parsed):
        if not isinstance(node, (ast.Attribute, ast.Name)):
            continue
        own = lines[(node.end_lineno or 1) - 1][: node.end_col_offset].decode()
        name = "".join(itertools.takewhile(_is_of_names, reversed(own)))[::-1]
        if isinstance(node, ast.Attribute) and unicodedata.normalize("NFKC", name) == node.attr:
            node.attr = name
        if isinstance(node, ast.Name) and unicodedata.normalize("NFKC", name) == node.id:
            node.id = name


def _is_of_names(letter: str) -> bool:
    return letter.isalnum() or letter == "_"


def parsed_text(text: str, called: str) -> ast.expr:
    """Returns what Python reads in a text. The places of its parts count characters. ConditionError: it is no `called`.
    """
    try:
        stripped, parsed = _read(text)
        _count_characters(parsed.body, stripped)
        return parsed.body
    except (RecursionError, MemoryError) as error:  # Python's parser says the latter.
        raise ConditionError(0, TOO_DEEP) from error
    except (SyntaxError, ValueError) as error:
        place = _place_of(error, text.strip())
        advice = ", equality is ==" if re.search("(?<![<>!=])=(?!=)", text) else ""
        word = re.search(rf"\b(\w+)\.({'|'.join(keyword.kwlist)})\b", text)
        advice += f', this column is written {word[1]}["{word[2]}"]' if word else ""
        raise ConditionError(place, f"this is no {called}{advice}") from error


def _place_of(error: Exception, text: str) -> int:
    """The place in the text of an error of Python's parser, which is its end if the error names none."""
    line, offset = getattr(error, "lineno", None) or 1, getattr(error, "offset", None)
    if not offset:
        return len(text)
    if error.__context__ is not None:
        line -= 1  # It was parsed between brackets, the first one in a line of its own.
    return min(len(text), sum(len(before) + 1 for before in text.split("\n")[: max(0, line - 1)]) + offset - 1)


def _count_characters(parsed: ast.expr, text: str) -> None:
    """Python counts the bytes of each line."""
    starts = [0]
    for line in text.encode().split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    for node in ast.walk(parsed):
        if isinstance(node, ast.expr):
            octets = starts[node.lineno - 1] + node.col_offset
            node.col_offset = len(text.encode()[:octets].decode())


def expression(parsed: ast.expr, streams: Sequence[str], kind_of: Kinds) -> Node:
    """Returns the tree of an expression of any kind. streams, kind_of: as for `parse`, and so are the errors."""
    try:
        parser = _Parser(streams, kind_of)
        return parser.settled(parser.node(parsed), parsed)
    except RecursionError as error:
        raise ConditionError(parsed.col_offset, TOO_DEEP) from error


def names_in(text: str) -> set[tuple[str, str]]:
    """The (stream, column) that a text names, as far as it can be read."""
    try:
        parsed = _read(text)[1]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    return {named for node in ast.walk(parsed) if (named := _column_in(node)) is not None}


def _column_in(parsed: ast.AST) -> tuple[str, str] | None:
    """The stream and the column that stream.column or stream["column"] names, or None if it is neither."""
    match parsed:
        case ast.Attribute(value=ast.Name(id=stream), attr=column):
            return stream, column
        case ast.Subscript(value=ast.Name(id=stream), slice=ast.Constant(value=str(column))):
            return stream, column
    return None


def durations_of(node: Node) -> list[int]:
    """All durations in a condition, in ns."""
    own = [node.value] if node.kind == DURATION and node.op == "constant" else []
    return own + [one for part in node.parts for one in durations_of(part)]


class _Parser:
    def __init__(self, streams: Sequence[str], kind_of: Kinds):
        self._streams, self._kind_of = tuple(streams), kind_of

    def node(self, parsed: ast.expr) -> Node:
        match parsed:
            case ast.BoolOp():
                op = "and" if isinstance(parsed.op, ast.And) else "or"
                return Node(BOOLEAN, op, tuple(self._of(value, (BOOLEAN,)) for value in parsed.values))
            case ast.UnaryOp(op=ast.Not()):
                return Node(BOOLEAN, "not", (self._of(parsed.operand, (BOOLEAN,)),))
            case ast.UnaryOp(op=ast.USub()):
                return self._negated(parsed)
            case ast.BinOp() if type(parsed.op) in ARITHMETIC:
                return self._arithmetic(parsed, ARITHMETIC[type(parsed.op)])
            case ast.Compare():
                return self._comparisons(parsed)
            case ast.Call(func=ast.Name(id=name)) if name.lower() in FUNCTIONS and not parsed.keywords:
                return self._function(parsed, name.lower())
            case ast.Name() | ast.Constant():
                return self._word(parsed)
        named = _column_in(parsed)
        if named is not None:
            return self._column(parsed, *named)
        raise ConditionError(parsed.col_offset, f"got {show(ast.unparse(parsed))}, which conditions do not know")

    def _of(self, parsed: ast.expr, kinds: Sequence[str]) -> Node:
        return _wanted(self.settled(self.node(parsed), parsed), parsed, kinds)

    def _word(self, parsed: ast.Name | ast.Constant) -> Node:
        value = parsed.value if isinstance(parsed, ast.Constant) else WORDS.get(parsed.id.lower(), parsed.id)
        if isinstance(value, bool):
            return Node(BOOLEAN, "constant", value=value)
        if isinstance(value, int) and (value in INT64 or value in UINT64):
            return _whole(value)
        if isinstance(value, float):
            return Node(REAL, "constant", value=value)
        if isinstance(parsed, ast.Name) and value == KEY:
            return self._column_node(parsed, KEY_SIDE, KEY)
        if isinstance(parsed, ast.Constant) and isinstance(value, str):
            return Node(QUOTED, "constant", value=value)
        wanted = f"wanted {' or '.join(f'{name}.COLUMN' for name in self._streams)}, key, a number or a text in quotes"
        # What has a great many digits in another base than ten cannot be written in that of ten.
        shown = "a very large number" if isinstance(value, int) else ast.unparse(parsed)
        raise ConditionError(parsed.col_offset, f"got {shown}, {wanted}")

    def _column(self, parsed: ast.expr, stream: str, column: str) -> Node:
        if stream not in self._streams:
            wanted = " or ".join(map(show, self._streams))
            raise ConditionError(parsed.col_offset, f"got {show(stream)}, wanted a stream: {wanted}")
        return self._column_node(parsed, self._streams.index(stream), column)

    def _column_node(self, parsed: ast.expr, side: int, name: str) -> Node:
        try:
            kind = self._kind_of(side, name)
            return Node(kind.name, "column", side=side, name=name, unit_ns=kind.unit_ns, zone=kind.zone)
        except ValueError as error:
            raise ConditionError(parsed.col_offset, str(error)) from error

    def _negated(self, parsed: ast.UnaryOp) -> Node:
        part = self._of(parsed.operand, (*NUMBERS, DURATION))
        if part.op == "constant" and part.kind == REAL:
            return part._replace(value=-part.value)
        if part.op == "constant" and part.kind in NUMBERS and -part.value in INT64:
            return _whole(-part.value)
        kind = INTEGER if part.kind == UNSIGNED else part.kind
        return Node(kind, "-", (Node(kind, "constant", value=0.0 if kind == REAL else 0), part))

    def _arithmetic(self, parsed: ast.BinOp, op: str) -> Node:
        left = self.settled(self.node(parsed.left), parsed.left)
        right = self.settled(self.node(parsed.right), parsed.right)
        kinds = left.kind, right.kind
        if kinds[0] in NUMBERS and kinds[1] in NUMBERS:
            kind = REAL if op == "/" or REAL in kinds else INTEGER
            return Node(kind, op, (left, right))
        known = {
            ("-", TIME, TIME): DURATION,
            ("-", TIME, DURATION): TIME,
            ("+", TIME, DURATION): TIME,
            ("+", DURATION, TIME): TIME,
            ("+", DURATION, DURATION): DURATION,
            ("-", DURATION, DURATION): DURATION,
            ("-", CLOCK, CLOCK): DURATION,
        }
        if (op, *kinds) not in known:
            raise ConditionError(parsed.col_offset, f"got {kinds[0]} {op} {kinds[1]}, which means nothing")
        zone = _zone_of((left, right), parsed.col_offset)
        return Node(known[op, *kinds], op, (left, right), zone=zone if known[op, *kinds] == TIME else None)

    def _comparisons(self, parsed: ast.Compare) -> Node:
        steps = zip([parsed.left, *parsed.comparators], parsed.ops, parsed.comparators)
        found = [self._comparison(*step) for step in steps]
        return found[0] if len(found) == 1 else Node(BOOLEAN, "and", tuple(found))

    def _comparison(self, one: ast.expr, op: ast.cmpop, other: ast.expr) -> Node:
        if isinstance(op, (ast.Is, ast.IsNot)):
            is_null = isinstance(other, ast.Name) and other.id.lower() == "null"
            if not is_null and not (isinstance(other, ast.Constant) and other.value is None):
                raise ConditionError(other.col_offset, "wanted null after is")
            null = Node(BOOLEAN, "null", (self.settled(self.node(one), one),))
            return null if isinstance(op, ast.Is) else Node(BOOLEAN, "not", (null,))
        if isinstance(op, (ast.In, ast.NotIn)):
            values = other.elts if isinstance(other, (ast.Tuple, ast.List)) else [other]
            if len(values) > VALUES_MAX:
                wanted = f"wanted at most {VALUES_MAX}; join a stream that holds them instead"
                raise ConditionError(other.col_offset, f"got {len(values)} values, {wanted}")
            left, *others = self._alike([one, *values])
            equal = tuple(_compared(one, left, "==", value) for value in others)
            if not equal:
                raise ConditionError(other.col_offset, "got an empty list, wanted at least one value")
            either = equal[0] if len(equal) == 1 else Node(BOOLEAN, "or", equal)
            return either if isinstance(op, ast.In) else Node(BOOLEAN, "not", (either,))
        left, right = self._alike((one, other))
        return _compared(one, left, COMPARISONS[type(op)], right)

    def _alike(self, parsed: Sequence[ast.expr]) -> list[Node]:
        """The parts, of which those in quotes are what the first one of the others is."""
        found = [self.node(one) for one in parsed]
        kind = next((one.kind for one in found if one.kind != QUOTED), None)
        return [self.settled(part, one, kind) for part, one in zip(found, parsed)]

    def settled(self, part: Node, parsed: ast.expr, kind: str | None = None) -> Node:
        """The part; if it stands in quotes, as what it is. kind: of what it is compared with; None: nothing tells, so
        that it is a time if it reads like one, else a duration."""
        if part.kind != QUOTED or kind not in (None, TEXT, *SPANS):
            return part
        try:
            if kind == TEXT:
                return Node(TEXT, "constant", value=part.value.encode())
            if kind == CLOCK:
                return Node(CLOCK, "constant", value=clock_of(part.value))
            if kind == TIME or (kind is None and _is_moment(part.value)):
                ns, zone = moment_of(part.value)
                return Node(TIME, "constant", value=ns, zone=zone)
            return Node(DURATION, "constant", value=duration_ns(part.value))
        except UnicodeEncodeError as error:
            raise ConditionError(parsed.col_offset, "got half of a character, wanted whole ones") from error
        except ValueError as error:
            raise ConditionError(parsed.col_offset, str(error)) from error

    def _function(self, parsed: ast.Call, name: str) -> Node:
        least = FUNCTIONS[name]
        if len(parsed.args) != 1 if least == 1 else len(parsed.args) < least:
            wanted = "one argument" if least == 1 else "two arguments or more"
            raise ConditionError(parsed.col_offset, f"{name}: got {len(parsed.args)}, wanted {wanted}")
        if len(parsed.args) > ARGUMENTS_MAX:
            wanted = f"wanted at most {ARGUMENTS_MAX} arguments"
            raise ConditionError(parsed.col_offset, f"{name}: got {len(parsed.args)}, {wanted}")
        if least == 1:
            part = self._of(parsed.args[0], (*NUMBERS, DURATION) if name == "abs" else NUMBERS)
            return Node(REAL if name == "sqrt" else part.kind, name, (part,))
        parts = [_wanted(*each, (*NUMBERS, *SPANS)) for each in zip(self._alike(parsed.args), parsed.args)]
        if UNSIGNED in {part.kind for part in parts}:
            parts = [_unsigned(part) for part in parts]
        kinds = {part.kind for part in parts}
        if len(kinds) > 1 and not (kinds <= set(NUMBERS) and REAL in kinds):
            raise ConditionError(parsed.col_offset, f"{name}: got {' and '.join(sorted(kinds))}, wanted one type")
        zone, found = _zone_of(parts, parsed.col_offset), parts[0]
        for part in parts[1:]:
            found = Node(REAL if REAL in kinds else found.kind, name, (found, part), zone=zone)
        return found


def _compared(parsed: ast.expr, left: Node, op: str, right: Node) -> Node:
    if left.kind != right.kind and not (left.kind in NUMBERS and right.kind in NUMBERS):
        raise ConditionError(parsed.col_offset, f"got {left.kind} {op} {right.kind}, wanted two of one type")
    _zone_of((left, right), parsed.col_offset)
    return Node(BOOLEAN, op, (left, right))


def _whole(value: int) -> Node:
    return Node(INTEGER if value in INT64 else UNSIGNED, "constant", value=value)


def _unsigned(part: Node) -> Node:
    """The part, as a uint64 if it is an integer of the text that is not negative."""
    is_small = part.kind == INTEGER and part.op == "constant" and part.value >= 0
    return part._replace(kind=UNSIGNED) if is_small else part


def _is_moment(text: str) -> bool:
    try:
        moment_of(text)
    except ValueError:
        return False
    return True


def _zone_of(parts: Sequence[Node], place: int) -> str | None:
    """The zone of what is made of these parts. ConditionError: only some of the times have one."""
    zones = [part.zone for part in parts if part.zone is not None]
    if len({zone == NAIVE for zone in zones}) > 1:
        raise ConditionError(place, "got a time with a zone and one without, wanted both alike; cast one of them")
    return zones[0] if zones else None


def _wanted(found: Node, parsed: ast.expr, kinds: Sequence[str]) -> Node:
    if found.kind not in kinds:
        text = f"{ast.unparse(parsed)} is {found.kind}, wanted {' or '.join(kinds)}"
        raise ConditionError(parsed.col_offset, text)
    return found
