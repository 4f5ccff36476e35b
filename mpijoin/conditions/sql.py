"""Writes a condition as DuckDB reads it."""

from __future__ import annotations

from typing import Callable

from mpijoin.conditions.lower import lowered
from mpijoin.conditions.tree import BOOLEAN, INTEGER, REAL, TEXT, UNSIGNED, Node

TYPES = {BOOLEAN: "BOOLEAN", REAL: "DOUBLE", UNSIGNED: "UBIGINT", TEXT: "BLOB"}
OPERATORS = {"==": "=", "!=": "<>"}


def sql_of(node: Node, column: Callable[[int, str], str], tick_ns: int) -> str:
    """Returns the condition as SQL. column: of a column, by the stream's index and its name; strings are BLOBs, and
    times integers in the units of their columns · tick_ns: the unit of the join."""
    return _sql_of(lowered(node, tick_ns), column)


def _sql_of(node: Node, column: Callable[[int, str], str]) -> str:
    parts = [_sql_of(part, column) for part in node.parts]
    match node.op:
        case "constant":
            return _constant(node)
        case "column":
            return column(node.side, node.name)
        case "and" | "or":
            return f"({f' {node.op} '.join(parts)})"
        case "not":
            return f"(not {parts[0]})"
        case "null":
            return f"({parts[0]} is null)"
        case "sqrt":
            return f"sqrt(case when {parts[0]} < 0 then null else {parts[0]}::DOUBLE end)"
        case "abs" if node.kind == INTEGER:
            return f"try_cast(abs({parts[0]}::HUGEINT) as BIGINT)"
        case "floor" | "ceil" if node.kind != REAL:
            return parts[0]
        case "abs" | "floor" | "ceil":
            return f"{node.op}({parts[0]})"
    kinds = {part.kind for part in node.parts}
    if node.op == "/" or REAL in (*kinds, node.kind):
        parts = [f"{part}::DOUBLE" for part in parts]
    elif node.kind == BOOLEAN and (node.value or len(kinds) > 1):
        parts = [f"({part}::HUGEINT * {factor})" for part, factor in zip(parts, node.value or (1, 1))]
    if node.op in ("least", "greatest"):
        return f"{node.op}({', '.join(parts)})"
    if node.op == "/":
        return f"({parts[0]} / nullif({parts[1]}, 0))"
    if node.op in ("+", "-", "*") and node.kind != REAL:
        large = "UHUGEINT" if node.op == "*" and kinds == {UNSIGNED} else "HUGEINT"
        return f"try_cast(({parts[0]}::{large} {node.op} {parts[1]}::{large}) as BIGINT)"
    return f"({parts[0]} {OPERATORS.get(node.op, node.op)} {parts[1]})"


def _constant(node: Node) -> str:
    value = node.value
    if node.kind == TEXT:
        value = "".join(f"\\x{octet:02X}" for octet in value)
    return f"('{value}'::{TYPES.get(node.kind, 'BIGINT')})"
