"""Works out a windowed aggregate once more, with DuckDB's window functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from mpijoin.config.job import Aggregate, Function, Job
from mpijoin.verify.combinations import row_name
from mpijoin.verify.inputs import JOINS, Stream
from mpijoin.verify.values import stored_type

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

INT64_MIN = -(1 << 63)
TOLERANCE = 1e-9  # DuckDB adds floats up in an order of its own; relative to the sum of their absolute values


def add_answers(database: DuckDBPyConnection, job: Job, stream: Stream, tick_ns: int) -> None:
    """Adds to the stream's table, for each function of the aggregate, its value a0, a1, ... for each row that is not
    late and has a key, and how far it may be off, t0, t1, ...; and `due`, whether the row has a result."""
    aggregate = job.aggregate
    time = _time(database, aggregate, stream, tick_ns)
    columns = [_sql_of(index, one, stream) for index, one in enumerate(aggregate.columns)]
    keys = ", ".join(stream.column(name) for name in job.streams[0].key)
    ordered = f"(PARTITION BY {keys} ORDER BY time, row)"
    database.execute(f"""
        CREATE TABLE answered AS SELECT *, {_due(aggregate, time, tick_ns)} AS due, {", ".join(columns)}
        FROM {stream.table} WHERE fate = {JOINS}
        WINDOW ordered AS {ordered}, history AS (PARTITION BY {keys} {_frame(aggregate, time, tick_ns)})
        UNION ALL BY NAME SELECT *, false AS due FROM {stream.table} WHERE fate <> {JOINS}""")
    database.execute(f"DROP TABLE {stream.table}")
    database.execute(f"ALTER TABLE answered RENAME TO {stream.table}")


def due_sql(stream: Stream) -> str:
    """A query of all wanted results, each by the row that it belongs to."""
    return f"SELECT row AS {row_name(stream)} FROM {stream.table} WHERE due"


def _time(database: DuckDBPyConnection, aggregate: Aggregate, stream: Stream, tick_ns: int) -> str:
    """The time as a number from which any history and period can be taken."""
    spans_ns = ((aggregate.history.span_ns if aggregate.history else None) or 0, aggregate.emit_ns or 0)
    lowest = INT64_MIN + max(spans_ns) // tick_ns
    is_low = database.execute(f"SELECT count(*) FROM {stream.table} WHERE time < {lowest}").fetchall()[0][0] > 0
    return "time::HUGEINT" if is_low else "time"


def _frame(aggregate: Aggregate, time: str, tick_ns: int) -> str:
    history = aggregate.history
    assert history is not None  # The run would not have begun.
    if history.rows is not None:
        return f"ORDER BY time, row ROWS BETWEEN {history.rows - 1} PRECEDING AND CURRENT ROW"
    assert history.span_ns is not None
    return f"ORDER BY {time} RANGE BETWEEN {history.span_ns // tick_ns} PRECEDING AND CURRENT ROW"


def _due(aggregate: Aggregate, time: str, tick_ns: int) -> str:
    """Whether the row is the last of its key in its period; without periods, each row is due."""
    if aggregate.emit_ns is None:
        return "true"
    period = aggregate.emit_ns // tick_ns
    start = f"{time} - ({time} % {period} + {period}) % {period}"  # Remainders have the sign of the time.
    return f"({start}) IS DISTINCT FROM lead({start}) OVER ordered"


def _sql_of(index: int, function: Function, stream: Stream) -> str:
    if function.column is None:
        return f"count(*) OVER history AS a{index}, 0.0 AS t{index}"
    value, name = stream.number(function.column), {"mean": "avg"}.get(function.name, function.name)
    off = "0.0"
    if is_rounded(function, stream):
        per = "avg" if function.name == "mean" else "sum"
        off = f"{TOLERANCE} * {per}(abs({value}::DOUBLE)) OVER history"
    return f"{name}({value}) OVER history AS a{index}, {off} AS t{index}"


def is_rounded(function: Function, stream: Stream) -> bool:
    """Whether the last digits of its values may differ, because floats were added up, or divided."""
    return function.name == "mean" or (function.name == "sum" and is_real(function, stream))


def is_real(function: Function, stream: Stream) -> bool:
    """Whether its values are floats."""
    return pa.types.is_floating(answer_kind(function, stream))


def answer_kind(function: Function, stream: Stream) -> pa.DataType:
    """The stored type of a function's result column."""
    if function.column is None or function.name == "count":
        return pa.int64()
    kind = stored_type(stream.fields[function.column])
    if function.name in ("min", "max"):
        return kind
    return pa.float64() if function.name == "mean" or pa.types.is_floating(kind) else pa.int64()
