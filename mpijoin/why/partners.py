"""Reads the rows of one key in another stream, and tells which of them a row met, and which it just missed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, Sequence

import pyarrow as pa

from mpijoin.config.job import Job
from mpijoin.named import NamedTuple
from mpijoin.verify.inputs import JOINS, LATE, Clock, Stream, input_rows, insert, make_table
from mpijoin.verify.report import one_row
from mpijoin.why.choose import InputRow, rows_like

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SHOWN = 10  # partners that are named; the others are counted
MISSED = 3  # rows before the windows, and as many after them


class Near(NamedTuple):
    """A row of the same key. time: canonical, of its time column · distance: ticks from the row that is asked about to
    this one · missed: by how many ticks the later of the two came too late for the other; 0 or less where it did not.
    """

    row: int
    time: Any
    distance: int
    missed: int


class Found(NamedTuple):
    """So many rows (`total`), of which the first are named."""

    total: int
    first: tuple[Near, ...]


class Other(NamedTuple):
    """What another stream has of the key. rows: all of them · partners: those within the windows · failed: those within
    the windows for which the condition is not true · late: those that would be partners, but were late · before, after:
    the nearest ones that are too early and too late for it."""

    stream: Stream
    rows: int
    partners: Found
    failed: Found
    late: Found
    before: tuple[Near, ...]
    after: tuple[Near, ...]


class Results(NamedTuple):
    """How many results the row is in (`total`), and the rows of the first ones, in the order of the job's streams."""

    total: int
    first: tuple[tuple[int, ...], ...]


def other_stream(
    database: DuckDBPyConnection, job: Job, stream: Stream, clock: Clock, own: InputRow, holds: str
) -> Other:
    """Reads the rows of the key into the stream's table, and looks at them. `own` must have a key and a time, and its
    stream's table has only this row. holds: the condition, as `holds_sql` gives it."""
    values = [own.values[name] for name in own.stream.job.key]
    wanted = {stream.column(name): value for name, value in zip(stream.job.key, values)}
    theirs = f"s{stream.index}"
    make_table(database, stream)
    insert(database, stream.table, _of_key(job, stream, clock, wanted))
    database.execute(f"""
        CREATE VIEW {_near(stream)} AS SELECT {theirs}.row, {theirs}.{stream.column(stream.job.time)} AS shown,
               {theirs}.time, {theirs}.until, {theirs}.fate, {theirs}.time::HUGEINT - {own.time} AS distance,
               greatest({theirs}.time::HUGEINT - {own.until}, {own.time} - {theirs}.until::HUGEINT) AS missed,
               coalesce({holds}, false) AS holds
        FROM {stream.table} {theirs}, {own.stream.table} s{own.stream.index} WHERE {theirs}.time IS NOT NULL""")
    met = "missed <= 0 AND holds"
    return Other(
        stream,
        one_row(database, f"SELECT count(*) FROM {stream.table}")[0],
        _found(database, stream, f"fate = {JOINS} AND {met}"),
        _found(database, stream, f"fate = {JOINS} AND missed <= 0 AND NOT holds"),
        _found(database, stream, f"fate = {LATE} AND {met}"),
        _nearest(database, stream, f"fate = {JOINS} AND missed > 0 AND distance < 0", "time DESC, row DESC")[::-1],
        _nearest(database, stream, f"fate = {JOINS} AND missed > 0 AND distance > 0", "time, row"),
    )


def _near(stream: Stream) -> str:
    """The view of a stream's rows of the key as the row that is asked about sees them."""
    return f"near_{stream.index}"


def _of_key(job: Job, stream: Stream, clock: Clock, wanted: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    for batch in input_rows(job, stream, clock):
        rows = rows_like(batch, wanted)
        if rows.num_rows:
            yield rows


def _found(database: DuckDBPyConnection, stream: Stream, condition: str) -> Found:
    count = one_row(database, f"SELECT count(*) FROM {_near(stream)} WHERE {condition}")[0]
    return Found(count, _some(database, stream, condition, "time, row", SHOWN))


def _nearest(database: DuckDBPyConnection, stream: Stream, condition: str, order: str) -> tuple[Near, ...]:
    return _some(database, stream, condition, order, MISSED)


def _some(database: DuckDBPyConnection, stream: Stream, condition: str, order: str, limit: int) -> tuple[Near, ...]:
    query = f"SELECT row, shown, distance, missed FROM {_near(stream)} WHERE {condition} ORDER BY {order} LIMIT {limit}"
    return tuple(Near(*row) for row in database.execute(query).fetchall())


def results_of(database: DuckDBPyConnection, own: InputRow, others: Sequence[Stream]) -> Results:
    """The results that the row is in: of each other stream one partner, all of which meet each other, too. The others'
    rows have been read by `other_stream`."""
    source = f"(SELECT {own.row} AS row)" + f" s{own.stream.index}"
    for index, stream in enumerate(others):
        meets = [f"{_meet(stream, other)}" for other in others[:index]]
        partners = f"(SELECT * FROM {_near(stream)} WHERE fate = {JOINS} AND missed <= 0 AND holds) s{stream.index}"
        source += f" JOIN {partners} ON {' AND '.join(meets) or 'true'}"
    indices = sorted([own.stream.index, *(stream.index for stream in others)])
    rows = ", ".join(f"s{index}.row" for index in indices)
    order = ", ".join([*(f"s{stream.index}.time" for stream in others), rows])
    count = one_row(database, f"SELECT count(*) FROM {source}")[0]
    first = database.execute(f"SELECT {rows} FROM {source} ORDER BY {order} LIMIT {SHOWN}").fetchall()
    return Results(count, tuple(first))


def _meet(one: Stream, other: Stream) -> str:
    """Whether rows of two streams wait for each other, as SQL."""
    return f"s{one.index}.time <= s{other.index}.until AND s{other.index}.time <= s{one.index}.until"
