"""Finds which rows belong together, by SQL over the loaded inputs; counts the results and computes their
certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mpijoin.conditions.kinds import Columns, kinds_of
from mpijoin.conditions.sql import sql_of
from mpijoin.conditions.tree import KEY_SIDE, Kinds, Node, parse
from mpijoin.config.job import ALL, ANTI, FIRST, INNER, LAST, NEAREST, SEMI, Job, Join
from mpijoin.named import NamedTuple
from mpijoin.verify.inputs import INT64_MIN, JOINS, KEYLESS, Clock, Stream
from mpijoin.verify.values import decoded, finer_by

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

BATCH_ROWS = 1 << 17
SPAN_MAX = 2**62  # wider than this, buckets could overflow; such windows cover all of history anyhow


class Totals(NamedTuple):
    """Number of results and their certificate, the sum of their hashes modulo 2^64."""

    results: int
    certificate: int


def row_name(stream: Stream) -> str:
    """What the rows of a stream are called in the wanted results."""
    return f"row_{stream.index}"


def results_sql(streams: tuple[Stream, ...], clock: Clock) -> str:
    """A query of all wanted results as (row_0, row_1, ...), each once: one stream is joined after the other."""
    steps = [f"joined_0 AS ({_first_sql(streams[0])})"]
    for index in range(1, len(streams)):
        steps.append(f"joined_{index} AS ({_step_sql(streams[: index + 1], clock)})")
    rows = ", ".join(map(row_name, streams))
    return f"WITH {', '.join(steps)} SELECT {rows} FROM joined_{len(streams) - 1}"


def _first_sql(stream: Stream) -> str:
    keys = "".join(f", {stream.column(name)} AS k{i}" for i, name in enumerate(stream.job.key))
    return f"SELECT row AS {row_name(stream)}, time AS latest, until{keys} FROM {stream.table} WHERE fate = {JOINS}"


def _step_sql(streams: tuple[Stream, ...], clock: Clock) -> str:
    """Joins what the streams before the last have in common with the last. latest: the latest of the times so far ·
    until: up to when all of them wait.

    Plain SQL would try all rows of equal keys in all of history. Here time is cut into buckets. The last stream's
    partners lie in a span that ends at `until`, and is no wider than its window and the shortest of those before;
    buckets are as wide as that, so that a span touches two at most, and copies meet a partner once.
    """
    *before, last = streams
    span, window = _span(clock, len(before)), clock.window[last.index]
    low, high, bucket = "0", "0", "0"
    if span is not None and window is not None:
        low, high = f"(greatest(latest, {INT64_MIN + window}) - {window}) // {span}", f"until // {span}"
        bucket = f"time // {span}"
    equal = "".join(f" AND l.k{i} = r.{last.column(name)}" for i, name in enumerate(last.job.key))
    keys = "".join(f", l.k{i}" for i in range(len(last.job.key)))
    rows = ", ".join(f"l.{row_name(stream)}" for stream in before)
    return f"""
        SELECT {rows}, r.row AS {row_name(last)},
               greatest(l.latest, r.time) AS latest, least(l.until, r.until) AS until{keys}
        FROM (SELECT *, unnest(CASE WHEN {low} = {high} THEN [{high}] ELSE [{low}, {high}] END) AS bucket
              FROM joined_{len(before) - 1}) l
        JOIN (SELECT *, {bucket} AS bucket FROM {last.table} WHERE fate = {JOINS}) r ON l.bucket = r.bucket{equal}
        WHERE r.time <= l.until AND l.latest <= r.until"""


def _span(clock: Clock, index: int) -> int | None:
    """The widest span in which partners of stream `index` can lie; None if there is no useful bound."""
    own, windows = clock.window[index], [window for window in clock.window[:index] if window is not None]
    if own is None or not windows or own + min(windows) >= SPAN_MAX:
        return None
    return max(1, own + min(windows))


def condition_of(job: Job, streams: tuple[Stream, ...]) -> Node | None:
    """The job's condition; None: there is none."""
    if not job.join.where:
        return None
    return parse(job.join.where, [stream.name for stream in streams], kinds_of_streams(streams))


def kinds_of_streams(streams: tuple[Stream, ...]) -> Kinds:
    """What the columns are that expressions may name."""
    return kinds_of([
        Columns(
            {name: stream.fields[name] for name in stream.payload},
            {name: stream.fields[name] for name in stream.job.key},
            stream.fields[stream.job.time],
        )
        for stream in streams
    ])  # fmt: skip


def holds_sql(condition: Node, streams: tuple[Stream, ...], clock: Clock) -> str:
    """The condition over the tables of the two streams, which are called s0 and s1."""

    return sql_of(condition, lambda *column: column_of(streams, *column), clock.tick_ns)


def column_of(streams: tuple[Stream, ...], side: int, name: str) -> str:
    """A column of an expression, over the same tables, in the unit of its type."""
    if side != KEY_SIDE and name == "time":
        return f"s{side}.time"
    stream = streams[max(side, 0)]
    name = stream.job.key[0] if side == KEY_SIDE else name
    finer = finer_by(decoded(stream.fields[name]))
    column = f"s{stream.index}.{stream.number(name)}"
    return column if finer == 1 else f"({column} // {finer})"


def pairs_sql(condition: Node | None, streams: tuple[Stream, ...], clock: Clock) -> str:
    """A query of all pairs, or of those for which the condition is true."""
    pairs = results_sql(streams, clock)
    return pairs if condition is None else _where_sql(pairs, condition, streams, clock)


def _where_sql(pairs: str, condition: Node, streams: tuple[Stream, ...], clock: Clock) -> str:
    """Those of the pairs for which the condition is true."""
    names = ", ".join(f"p.{row_name(stream)}" for stream in streams)
    joined = " ".join(f"JOIN {one.table} s{one.index} ON s{one.index}.row = p.{row_name(one)}" for one in streams)
    return f"SELECT {names} FROM ({pairs}) p {joined} WHERE {holds_sql(condition, streams, clock)}"


def _matched_sql(pairs: str, match: str, streams: tuple[Stream, ...]) -> str:
    """Of the pairs of each row of the first stream, the one that is wanted."""
    ranks = {FIRST: "s1.time", LAST: "s1.time DESC", NEAREST: "abs(s1.time::HUGEINT - s0.time)"}
    names = [f"p.{row_name(stream)}" for stream in streams]
    joined = " ".join(f"JOIN {one.table} s{one.index} ON s{one.index}.row = p.{row_name(one)}" for one in streams)
    order = f"PARTITION BY {names[0]} ORDER BY {ranks[match]}, s1.time, s1.row"
    return f"SELECT {', '.join(names)} FROM ({pairs}) p {joined} QUALIFY row_number() OVER ({order}) = 1"


def typed_sql(join: Join, condition: Node | None, streams: tuple[Stream, ...], clock: Clock) -> str:
    """A query of the wanted results of this type of join, each once. A side that is missing is null."""
    pairs = pairs_sql(condition, streams, clock)
    if join.match != ALL:
        pairs = _matched_sql(pairs, join.match, streams)
    if join.type == INNER:
        return pairs
    names = [row_name(stream) for stream in streams]
    parts = [] if join.type in (SEMI, ANTI) else ["FROM pairs"]
    if join.type == SEMI:
        parts.append(f"SELECT DISTINCT {names[0]}, NULL::BIGINT AS {names[1]} FROM pairs")
    for side in join.alone:
        rows = [f"s.row AS {name}" if at == side else f"NULL::BIGINT AS {name}" for at, name in enumerate(names)]
        parts.append(
            f"SELECT {', '.join(rows)} FROM {streams[side].table} s ANTI JOIN pairs p ON p.{names[side]} = s.row "
            f"WHERE s.fate IN ({JOINS}, {KEYLESS})"
        )
    return f"WITH pairs AS MATERIALIZED ({pairs}) {' UNION ALL '.join(parts)}"


def totals_of(database: DuckDBPyConnection, streams: tuple[Stream, ...], wanted: str) -> Totals:
    """Count and certificate of the wanted results, a table or a query, read in bounded pieces. A row that is missing
    counts as -1."""
    query = f"SELECT {', '.join(f'coalesce({row_name(stream)}, -1)' for stream in streams)} FROM {wanted}"
    results = certificate = 0
    for batch in database.sql(query).to_arrow_reader(BATCH_ROWS):
        results += batch.num_rows
        certificate += int(_hashes(batch).sum(dtype=np.uint64))
    return Totals(results, certificate % 2**64)


def _hashes(batch: pa.RecordBatch) -> np.ndarray:
    """uint64[n]: h(r_1) = r_1, h(r_1 ... r_k) = mix(mix(h(r_1 ... r_k-1) + 9e3779b97f4a7c15) + r_k), modulo 2^64."""
    hashed, *others = (np.asarray(column).astype(np.uint64) for column in batch.columns)
    for rows in others:
        hashed = _mix(_mix(hashed + np.uint64(0x9E3779B97F4A7C15)) + rows)
    return hashed


def _mix(word: np.ndarray) -> np.ndarray:
    """The finalizer of splitmix64 on uint64[n]; numpy's arrays wrap around silently."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))
