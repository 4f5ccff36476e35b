"""The kinds of values in [aggregate]: how much of a key's past counts, and what is worked out of it."""

from __future__ import annotations

import re
from typing import Any

from mpijoin.config.job import Function, History
from mpijoin.config.kinds import BadEntries, Kind, in_utf8, quote, read_entries
from mpijoin.config.units import duration_ns, format_duration, show

FUNCTIONS = ("count", "sum", "min", "max", "mean")
ROWS = re.compile(r"\s*([0-9]+)\s+rows?\s*")
CALL = re.compile(r"\s*([A-Za-z_]+)\s*\((.*)\)\s*", re.DOTALL)
HISTORY_WANTED = 'wanted a number of rows or a time, such as "100 rows" or "10 min"'
COLUMNS_WANTED = 'wanted a table of result column = function, such as {n = "count()", mean = "mean(bytes)"}'


def _parse_history(value: Any) -> History:
    if isinstance(value, str) and (found := ROWS.fullmatch(value)):
        return History(rows=int(found[1]))
    try:
        return History(span_ns=duration_ns(value))
    except ValueError as error:
        raise ValueError(f"got {show(value)}, {HISTORY_WANTED}") from error


def _write_history(history: History) -> str:
    if history.rows is not None:
        return quote("1 row" if history.rows == 1 else f"{history.rows} rows")
    assert history.span_ns is not None  # one of them is given
    return quote(format_duration(history.span_ns))


def _parse_columns(value: Any) -> tuple[Function, ...]:
    if not isinstance(value, dict):
        raise ValueError(f"got {show(value)}, {COLUMNS_WANTED}")
    columns, problems = read_entries(value.items(), _parse_column)
    if problems:
        raise BadEntries(problems, tuple(columns))
    return tuple(columns)


def _parse_column(entry: tuple[Any, Any]) -> Function:
    result, text = entry
    if not isinstance(result, str) or not result or not isinstance(text, str):
        raise ValueError(f"got {show(result)} = {show(text)}, {COLUMNS_WANTED}")
    found = CALL.fullmatch(text)
    if found is None or found[1] not in FUNCTIONS:
        raise ValueError(f"got {result} = {show(text)}, wanted {', '.join(f'{name}(column)' for name in FUNCTIONS)}")
    column = found[2].strip() or None
    if column is None and found[1] != "count":
        raise ValueError(f"got {result} = {show(text)}, wanted a column: {found[1]}(column)")
    return Function(in_utf8(result), found[1], None if column is None else in_utf8(column))


def _write_columns(columns: tuple[Function, ...]) -> str:
    return "{" + ", ".join(f"{quote(one.result)} = {quote(one.text)}" for one in columns) + "}"


HISTORY = Kind(_parse_history, _write_history, "number of rows, or duration")
AGGREGATE_COLUMNS = Kind(_parse_columns, _write_columns, "table of column = function")
