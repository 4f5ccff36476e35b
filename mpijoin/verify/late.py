"""Compares a stream's late file with the rows that the late rule leaves out."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from mpijoin.config.units import plural
from mpijoin.data.schema import UNIT_NS
from mpijoin.verify.inputs import BATCH_ROWS, INT64_MIN, LATE, NULL_TIME, Stream, insert
from mpijoin.verify.report import SHOWN, Difference, one_row, two_sided
from mpijoin.verify.values import canonical, sql_type, stored_type, words

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

REASONS = f"CASE fate WHEN {LATE} THEN 'late' WHEN {NULL_TIME} THEN 'null_time' END"
EXTRA = ("row", "watermark", "reason")


def compare_late(database: DuckDBPyConnection, run_path: str, stream: Stream, tick_ns: int) -> list[Difference]:
    """Compares rows, reasons, watermarks and the columns kept of late rows. A run without late rows may have no late
    file."""
    path = os.path.join(run_path, "late", f"{stream.name}.parquet")
    wanted = one_row(database, f"SELECT count(*) FROM {stream.table} WHERE fate IN ({LATE}, {NULL_TIME})")[0]
    if not os.path.exists(path):
        return [Difference(f"late/{stream.name}.parquet is missing: wanted {plural(wanted, 'row')}")] if wanted else []
    try:
        kinds = _kept_columns(path, stream)
        _load(database, path, stream, kinds)
    except (OSError, ValueError, pa.ArrowException) as error:
        return [Difference(f"late/{stream.name}.parquet cannot be compared: {str(error).splitlines()[0]}")]
    return [
        *_row_differences(database, stream),
        *_watermark_differences(database, stream, tick_ns),
        *_value_differences(database, stream, kinds),
    ]


def _kept_columns(path: str, stream: Stream) -> dict[str, pa.DataType]:
    """The input's columns that the late file keeps, with their stored types. ValueError: columns missing or changed."""
    found = pq.read_schema(path)
    names = _late_names(stream)
    needed = [names[name] for name in (stream.job.time, *stream.job.key)]
    missing = [name for name in (*needed, *EXTRA) if name not in found.names]
    if missing:
        raise ValueError(f"it has no column {', '.join(missing)}")
    kept = {name: stored_type(stream.fields[name]) for name in names if names[name] in found.names}
    for name, kind in kept.items():
        if found.field(names[name]).type != kind:
            raise ValueError(f"column {names[name]} is {found.field(names[name]).type}, wanted {kind}")
    return kept


def _late_names(stream: Stream) -> dict[str, str]:
    """What the late file calls the input's columns: their own names, with underscores behind where one is taken."""
    names: dict[str, str] = {}
    taken = set(EXTRA)
    for name in (stream.job.time, *stream.job.key, *stream.payload):
        late_name = name
        while late_name in taken:
            late_name += "_"
        taken.add(late_name)
        names[name] = late_name
    return names


def _load(database: DuckDBPyConnection, path: str, stream: Stream, kinds: dict[str, pa.DataType]) -> None:
    columns = "".join(f", {stream.column(name)} {sql_type(kind)}" for name, kind in kinds.items())
    database.execute(f"CREATE TABLE {stream.table}_late (row BIGINT, watermark BIGINT, reason VARCHAR{columns})")
    insert(database, f"{stream.table}_late", _late_rows(path, stream, kinds))


def _late_rows(path: str, stream: Stream, kinds: dict[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
    names = _late_names(stream)
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(BATCH_ROWS):
            watermark = canonical(batch["watermark"], kinds[stream.job.time])
            arrays = [batch["row"].cast(pa.int64()), watermark, batch["reason"].cast(pa.string())]
            arrays += [canonical(batch[names[name]], kind) for name, kind in kinds.items()]
            yield pa.RecordBatch.from_arrays(arrays, [*EXTRA, *map(stream.column, kinds)])


def _row_differences(database: DuckDBPyConnection, stream: Stream) -> list[Difference]:
    """Compares late rows by (row, reason), as a multiset."""
    unequal = f"""(SELECT row, reason, sum(n) AS n FROM
        (SELECT row, {REASONS} AS reason, 1 AS n FROM {stream.table} WHERE fate IN ({LATE}, {NULL_TIME})
         UNION ALL SELECT row, reason, -1 FROM {stream.table}_late) GROUP BY row, reason HAVING sum(n) <> 0)"""

    def lines_of(condition: str) -> list[str]:
        query = f"SELECT row, reason FROM {unequal} WHERE {condition} ORDER BY ALL LIMIT {SHOWN}"
        return [f"row {row}, reason {reason}" for row, reason in database.execute(query).fetchall()]

    return two_sided(database, f"late/{stream.name}.parquet", unequal, lines_of)


def _watermark_differences(database: DuckDBPyConnection, stream: Stream, tick_ns: int) -> list[Difference]:
    """Compares watermarks. They may be cut to the time column's unit and range: less than one unit off counts as
    equal."""
    unit_ns = _stored_unit_ns(stream)
    kind = stored_type(stream.fields[stream.job.time])
    lowest, highest = _range_of(kind)
    wanted = f"greatest({lowest}, least({highest}, i.mark::HUGEINT * {tick_ns} // {unit_ns}))"
    rows = database.execute(f"""
        SELECT a.row, a.watermark, {wanted} FROM {stream.table}_late a JOIN {stream.table} i ON i.row = a.row
        WHERE (a.watermark IS NULL) <> (i.mark IS NULL) OR abs(a.watermark::HUGEINT - {wanted}) > {tick_ns < unit_ns:d}
        ORDER BY 1 LIMIT {SHOWN}""").fetchall()
    lines = [f"row {row}: got {words(got, kind)}, wanted {words(wanted, kind)}" for row, got, wanted in rows]
    return [Difference(f"late/{stream.name}.parquet: column watermark differs", tuple(lines))] if lines else []


def _range_of(kind: pa.DataType) -> tuple[int, int]:
    """The watermarks that a time column of this type can hold; the lowest int64 stands for none."""
    if pa.types.is_unsigned_integer(kind):
        return 0, min(2**kind.bit_width, 2**63) - 1
    lowest = -(2 ** (kind.bit_width - 1))
    return max(lowest, INT64_MIN + 1), -lowest - 1


def _stored_unit_ns(stream: Stream) -> int:
    """Nanoseconds of one unit of the time column as late files store it."""
    kind = stored_type(stream.fields[stream.job.time])
    return UNIT_NS[kind.unit] if pa.types.is_timestamp(kind) else stream.time_ns


def _value_differences(database: DuckDBPyConnection, stream: Stream, kinds: dict[str, pa.DataType]) -> list[Difference]:
    differences = []
    for name, kind in kinds.items():
        column = stream.column(name)
        rows = database.execute(f"""
            SELECT a.row, a.{column}, i.{column} FROM {stream.table}_late a JOIN {stream.table} i ON i.row = a.row
            WHERE a.{column} IS DISTINCT FROM i.{column} ORDER BY a.row LIMIT {SHOWN}""").fetchall()
        if rows:
            lines = tuple(
                f"row {row}: got {words(got, kind)}, wanted {words(wanted, kind)}" for row, got, wanted in rows
            )
            differences.append(Difference(f"late/{stream.name}.parquet: column {name} differs", lines))
    return differences
