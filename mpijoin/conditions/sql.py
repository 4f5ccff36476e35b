"""Writes a condition as DuckDB reads it."""

from __future__ import annotations

from typing import Callable

from mpijoin.conditions.tree import BOOLEAN, INTEGER, REAL, Node

TYPES = {BOOLEAN: "BOOLEAN", REAL: "DOUBLE"}
OPERATORS = {"==": "=", "!=": "<>"}


def sql_of(node: Node, column: Callable[[int, str], str], ticks: Callable[[int], int]) -> str:
    """Returns the condition as SQL. column: of a column, by the stream's index and its name; times are integers in
    ticks · ticks: of a duration in ns."""
    parts = [sql_of(part, column, ticks) for part in node.parts]
    match node.op:
        case "constant":
            value = ticks(node.value) if node.kind == "duration" else node.value
            return f"('{value}'::{TYPES.get(node.kind, 'BIGINT')})"
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
        case "abs" if node.kind != REAL:
            return f"try_cast(abs({parts[0]}::HUGEINT) as BIGINT)"
        case "floor" | "ceil" if node.kind == INTEGER:
            return parts[0]
        case "abs" | "floor" | "ceil":
            return f"{node.op}({parts[0]})"
    if node.op == "/" or REAL in {part.kind for part in node.parts}:
        parts = [f"{part}::DOUBLE" for part in parts]
    if node.op in ("least", "greatest"):
        return f"{node.op}({', '.join(parts)})"
    if node.op == "/":
        return f"({parts[0]} / nullif({parts[1]}, 0))"
    if node.op in ("+", "-", "*") and node.kind != REAL:
        return f"try_cast(({parts[0]}::HUGEINT {node.op} {parts[1]}::HUGEINT) as BIGINT)"
    return f"({parts[0]} {OPERATORS.get(node.op, node.op)} {parts[1]})"
