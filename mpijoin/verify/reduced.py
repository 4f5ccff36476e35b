"""Works out functions over the partners of rows once more, by grouping the pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from mpijoin.conditions.calls import Call, parse_call
from mpijoin.conditions.kinds import type_of
from mpijoin.conditions.sql import sql_of
from mpijoin.conditions.tree import REAL, Node, durations_of
from mpijoin.config.job import Job
from mpijoin.verify.aggregates import TOLERANCE
from mpijoin.verify.combinations import column_of, kinds_of_streams, pairs_sql, row_name
from mpijoin.verify.inputs import JOINS, KEYLESS, Clock, Stream
from mpijoin.verify.results import Wanted
from mpijoin.verify.values import finer_by, stored_type

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def calls_of(job: Job, streams: tuple[Stream, ...]) -> list[Call]:
    """The functions of the job, as trees."""
    if not job.join.reduce:
        return []
    names, kinds = [stream.name for stream in streams], kinds_of_streams(streams)
    return [parse_call(one.text, names, kinds) for one in job.join.reduce]


def durations_in(calls: list[Call]) -> list[int]:
    """The durations that functions name, in ns."""
    return [ns for call in calls for node in call.nodes for ns in durations_of(node)]


def add_reduced(
    database: DuckDBPyConnection, calls: list[Call], condition: Node | None, streams: tuple[Stream, ...], clock: Clock
) -> None:
    """Adds to the first stream's table, for each function, its value a0, a1, ... for each row, and how far it may be
    off, t0, t1, ...; and `partners`, how many it has."""
    names = [row_name(stream) for stream in streams]
    joined = " ".join(f"JOIN {one.table} s{one.index} ON s{one.index}.row = p.{row_name(one)}" for one in streams)
    columns = ", ".join(_sql_of(index, call, streams, clock) for index, call in enumerate(calls))
    database.execute(
        f"CREATE TABLE reduced AS SELECT p.{names[0]} AS its_row, count(*) AS partners, {columns} "
        f"FROM ({pairs_sql(condition, streams, clock)}) p {joined} GROUP BY p.{names[0]}"
    )
    known = ", ".join(
        f"{f'coalesce(a{index}, 0)' if call.name == 'count' else f'a{index}'} AS a{index}, t{index}"
        for index, call in enumerate(calls)
    )
    table = streams[0].table
    database.execute(
        f"CREATE TABLE answered AS SELECT s.*, coalesce(partners, 0) AS partners, {known} "
        f"FROM {table} s LEFT JOIN reduced ON its_row = s.row"
    )
    database.execute(f"DROP TABLE {table}")
    database.execute(f"ALTER TABLE answered RENAME TO {table}")


def reduced_sql(job: Job, streams: tuple[Stream, ...]) -> str:
    """A query of all wanted results, each by the row that it belongs to."""
    rows = ", ".join((f"row AS {row_name(streams[0])}", f"NULL::BIGINT AS {row_name(streams[1])}"))
    wanted = f"fate IN ({JOINS}, {KEYLESS})" if job.join.alone else "partners > 0"
    return f"SELECT {rows} FROM {streams[0].table} WHERE {wanted}"


def reduced_columns(job: Job, calls: list[Call], streams: tuple[Stream, ...], clock: Clock) -> list[Wanted]:
    """The result columns of the functions."""
    return [
        _column(one.result, index, call, clock)
        for index, (one, call) in enumerate(zip(job.join.reduce, calls))
    ]


def _column(result: str, index: int, call: Call, clock: Clock) -> Wanted:
    if call.answer.kind == REAL:
        return Wanted(result, pa.float64(), f"s0.a{index}", f"s0.t{index}")
    kind = type_of(call.answer, clock.tick_ns)
    return Wanted(result, stored_type(kind), f"(s0.a{index} * {finer_by(kind)})")


def _sql_of(index: int, call: Call, streams: tuple[Stream, ...], clock: Clock) -> str:
    if call.node is None:
        return f"count(*) AS a{index}, 0.0 AS t{index}"
    value, *by = (sql_of(one, lambda *column: column_of(streams, *column), clock.tick_ns) for one in call.nodes)
    off = "0.0"
    if call.name in ("sum", "mean") and REAL in (call.answer.kind, call.node.kind):
        off = f"{TOLERANCE} * {'avg' if call.name == 'mean' else 'sum'}(abs({value}::DOUBLE))"
    match call.name:
        case "first" | "last":
            order = "s1.time" if call.name == "first" else "s1.time DESC"
            found = f"first({value} ORDER BY {order}, s1.row) FILTER (WHERE {value} IS NOT NULL)"
        case "arg_min" | "arg_max":
            order = by[0] if call.name == "arg_min" else f"{by[0]} DESC"
            known = f"{value} IS NOT NULL AND {by[0]} IS NOT NULL"
            found = f"first({value} ORDER BY {order}, s1.time, s1.row) FILTER (WHERE {known})"
        case "mean":
            found = f"avg({value}::DOUBLE)"
        case "sum" if call.node.kind != REAL:
            found = f"sum({value})::BIGINT"
        case _:
            found = f"{call.name}({value})"
    return f"{found} AS a{index}, {off} AS t{index}"
