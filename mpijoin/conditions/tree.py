"""Conditions as trees, with the type of each part."""

from __future__ import annotations

import ast
from typing import Any, Callable, NamedTuple, Sequence

from mpijoin.config.units import duration_ns, show

BOOLEAN, INTEGER, REAL, TIME, DURATION = "boolean", "integer", "real", "time", "duration"
NUMBERS = (INTEGER, REAL)
ARITHMETIC = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
FUNCTIONS = {"abs": 1, "sqrt": 1, "floor": 1, "ceil": 1, "least": 2, "greatest": 2}  # and the fewest arguments
WORDS = {"true": True, "false": False}
INT64 = range(-(1 << 63), 1 << 63)
KEY, KEY_SIDE = "key", -1  # the key is the same on both sides, so it is of neither

Kinds = Callable[[int, str], str]


class ConditionError(Exception):
    """What is wrong with a condition, with the place in its text."""

    def __init__(self, place: int, problem: str):
        super().__init__(f"at character {place + 1}: {problem}")


class Node(NamedTuple):
    """A part of a condition. op: an operator or a function, "column", "constant", "and", "or", "not", "null" (whether
    its part is null) · value: of a constant; a duration has its nanoseconds · side, name: of a column."""

    kind: str
    op: str
    parts: tuple[Node, ...] = ()
    value: Any = None
    side: int = 0
    name: str = ""


def parse(text: str, streams: Sequence[str], kind_of: Kinds) -> Node:
    """Returns the tree of a condition over two streams of these names.

    kind_of: says which kind a column is, by the stream's index and the column's name. The key is column KEY of
    KEY_SIDE, and the time of a stream its column "time". It raises ValueError with what is wrong with the column.
    ConditionError: what is wrong with the text.
    """
    parsed = parsed_text(text, "condition")
    return _wanted(expression(parsed, streams, kind_of), parsed, (BOOLEAN,))


def parsed_text(text: str, called: str) -> ast.expr:
    """Returns what Python reads in a text. ConditionError: it is no `called`."""
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError) as error:
        place = (getattr(error, "offset", None) or 1) - 1
        advice = ", equality is ==" if "=" in text and "==" not in text else ""
        raise ConditionError(place, f"this is no {called}{advice}") from error


def expression(parsed: ast.expr, streams: Sequence[str], kind_of: Kinds) -> Node:
    """Returns the tree of an expression of any kind. streams, kind_of: as for `parse`, and so are the errors."""
    try:
        return _Parser(streams, kind_of).node(parsed)
    except RecursionError as error:
        raise ConditionError(parsed.col_offset, "this has too many parts within parts") from error


def names_in(text: str) -> set[tuple[str, str]]:
    """The (stream, column) that a text names, as far as it can be read."""
    try:
        parsed = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError):
        return set()
    found = (node for node in ast.walk(parsed) if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name))
    return {(node.value.id, node.attr) for node in found if isinstance(node.value, ast.Name)}


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
            case ast.Attribute(value=ast.Name(id=stream), attr=column):
                return self._column(parsed, stream, column)
            case ast.Name() | ast.Constant():
                return self._word(parsed)
        raise ConditionError(parsed.col_offset, f"got {show(ast.unparse(parsed))}, which conditions do not know")

    def _of(self, parsed: ast.expr, kinds: Sequence[str]) -> Node:
        return _wanted(self.node(parsed), parsed, kinds)

    def _word(self, parsed: ast.Name | ast.Constant) -> Node:
        value = parsed.value if isinstance(parsed, ast.Constant) else WORDS.get(parsed.id.lower(), parsed.id)
        if isinstance(value, bool):
            return Node(BOOLEAN, "constant", value=value)
        if isinstance(value, int) and value in INT64:
            return Node(INTEGER, "constant", value=value)
        if isinstance(value, float):
            return Node(REAL, "constant", value=value)
        if isinstance(parsed, ast.Name) and value == KEY:
            return self._column_node(parsed, KEY_SIDE, KEY)
        if isinstance(parsed, ast.Constant) and isinstance(value, str):
            try:
                return Node(DURATION, "constant", value=duration_ns(value))
            except ValueError as error:
                raise ConditionError(parsed.col_offset, str(error)) from error
        wanted = f"wanted {' or '.join(f'{name}.COLUMN' for name in self._streams)}, key, a number or a duration"
        raise ConditionError(parsed.col_offset, f"got {ast.unparse(parsed)}, {wanted}")

    def _column(self, parsed: ast.Attribute, stream: str, column: str) -> Node:
        if stream not in self._streams:
            wanted = " or ".join(map(show, self._streams))
            raise ConditionError(parsed.col_offset, f"got {show(stream)}, wanted a stream: {wanted}")
        return self._column_node(parsed, self._streams.index(stream), column)

    def _column_node(self, parsed: ast.expr, side: int, name: str) -> Node:
        try:
            return Node(self._kind_of(side, name), "column", side=side, name=name)
        except ValueError as error:
            raise ConditionError(parsed.col_offset, str(error)) from error

    def _negated(self, parsed: ast.UnaryOp) -> Node:
        part = self._of(parsed.operand, (*NUMBERS, DURATION))
        if part.op == "constant" and part.kind in NUMBERS:
            return part._replace(value=-part.value)
        zero = Node(part.kind, "constant", value=0.0 if part.kind == REAL else 0)
        return Node(part.kind, "-", (zero, part))

    def _arithmetic(self, parsed: ast.BinOp, op: str) -> Node:
        left, right = self.node(parsed.left), self.node(parsed.right)
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
        }
        if (op, *kinds) not in known:
            raise ConditionError(parsed.col_offset, f"got {kinds[0]} {op} {kinds[1]}, which means nothing")
        return Node(known[op, *kinds], op, (left, right))

    def _comparisons(self, parsed: ast.Compare) -> Node:
        steps = zip([parsed.left, *parsed.comparators], parsed.ops, parsed.comparators)
        found = [self._comparison(*step) for step in steps]
        return found[0] if len(found) == 1 else Node(BOOLEAN, "and", tuple(found))

    def _comparison(self, one: ast.expr, op: ast.cmpop, other: ast.expr) -> Node:
        if isinstance(op, (ast.Is, ast.IsNot)):
            is_null = isinstance(other, ast.Name) and other.id.lower() == "null"
            if not is_null and not (isinstance(other, ast.Constant) and other.value is None):
                raise ConditionError(other.col_offset, "wanted null after is")
            null = Node(BOOLEAN, "null", (self.node(one),))
            return null if isinstance(op, ast.Is) else Node(BOOLEAN, "not", (null,))
        if isinstance(op, (ast.In, ast.NotIn)):
            values = other.elts if isinstance(other, (ast.Tuple, ast.List)) else [other]
            equal = tuple(self._compared(one, "==", value) for value in values)
            if not equal:
                raise ConditionError(other.col_offset, "got an empty list, wanted at least one value")
            either = equal[0] if len(equal) == 1 else Node(BOOLEAN, "or", equal)
            return either if isinstance(op, ast.In) else Node(BOOLEAN, "not", (either,))
        return self._compared(one, COMPARISONS[type(op)], other)

    def _compared(self, one: ast.expr, op: str, other: ast.expr) -> Node:
        left, right = self.node(one), self.node(other)
        if left.kind != right.kind and not (left.kind in NUMBERS and right.kind in NUMBERS):
            raise ConditionError(one.col_offset, f"got {left.kind} {op} {right.kind}, wanted two of one type")
        return Node(BOOLEAN, op, (left, right))

    def _function(self, parsed: ast.Call, name: str) -> Node:
        least = FUNCTIONS[name]
        if len(parsed.args) != 1 if least == 1 else len(parsed.args) < least:
            wanted = "one argument" if least == 1 else "two arguments or more"
            raise ConditionError(parsed.col_offset, f"{name}: got {len(parsed.args)}, wanted {wanted}")
        if least == 1:
            part = self._of(parsed.args[0], (*NUMBERS, DURATION) if name == "abs" else NUMBERS)
            return Node(REAL if name == "sqrt" else part.kind, name, (part,))
        parts = [self._of(one, (*NUMBERS, TIME, DURATION)) for one in parsed.args]
        kinds = {part.kind for part in parts}
        if len(kinds) > 1 and not kinds <= set(NUMBERS):
            raise ConditionError(parsed.col_offset, f"{name}: got {' and '.join(sorted(kinds))}, wanted one type")
        found = parts[0]
        for part in parts[1:]:
            found = Node(REAL if REAL in kinds else found.kind, name, (found, part))
        return found


def _wanted(found: Node, parsed: ast.expr, kinds: Sequence[str]) -> Node:
    if found.kind not in kinds:
        text = f"{ast.unparse(parsed)} is {found.kind}, wanted {' or '.join(kinds)}"
        raise ConditionError(parsed.col_offset, text)
    return found
