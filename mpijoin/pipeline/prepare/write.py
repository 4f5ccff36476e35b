"""Good rows -> Parquet files sorted by time, and those put aside beside them; complete or not there at all."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Mapping, Sequence

import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mpijoin.errors import JobError
from mpijoin.pipeline.prepare.clean import SUB, US, Clean
from mpijoin.pipeline.prepare.options import OWN_PREFIX, TYPES, Wanted, kept_names
from mpijoin.pipeline.prepare.order import PLACE
from mpijoin.pipeline.prepare.pieces import KEY, key, place, table
from mpijoin.pipeline.prepare.read import col, quoted
from mpijoin.pipeline.prepare.scan import Scan, Standing
from mpijoin.pipeline.prepare.times import beyond_ns

DATA, REJECTED, REPORT = "data", "rejected", "report.json"
# Of long texts the footer keeps the beginning: it leaves out all that it would tell of a column where that is too long.
WRITING = {"compression": "zstd", "parquet.statistics.truncate.length": "64"}
NUMBER = "__number"  # of a row's piece among all


@dataclass(frozen=True)
class Part:
    """A file as its footer tells it. first, last: its times, in the unit of the output; None without rows · nulls: by
    column, of those that the footer tells of."""

    file: str
    rows: int
    bytes: int
    first: int | None = None
    last: int | None = None
    nulls: dict[str, int] = field(default_factory=dict)


def typed(rows: DataFrame, names: Sequence[str], types: Mapping[str, str], wanted: Wanted) -> DataFrame:
    """As a filter sees them: columns whose type was found out have it, and the time is a timestamp of whole
    microseconds, whatever is written. names: of the columns, beside those that live only inside this command."""
    named = {name: col(name).cast(TYPES[kind]) for name, kind in types.items()} | {wanted.time: F.timestamp_micros(US)}
    own = [col(name) for name in rows.columns if name.startswith(OWN_PREFIX)]
    return rows.select(*[named.get(name, col(name)).alias(name) for name in names], *own)


def passing(wanted: Wanted) -> Column:
    """True for rows that the filter leaves."""
    return F.lit(True) if wanted.where is None else F.coalesce(F.expr(wanted.where), F.lit(False))


def good_rows(clean: Clean, found: Scan, wanted: Wanted) -> DataFrame:
    """The good rows that the filter leaves. Raises JobError if Spark does not understand it."""
    rows = typed(clean.good, clean.names, found.types, wanted)
    try:
        return rows.where(passing(wanted))
    except AnalysisException as error:
        raise _bad_filter(wanted.where, error) from error


def placed(spark: Any, rows: DataFrame, found: Scan, left: Standing, wanted: Wanted) -> DataFrame:
    """`good_rows`, but those put aside, with the time as a bigint in the output's unit, PLACE, US and SUB."""
    if left.in_ns:
        rows = rows.where(~beyond_ns(col(US), col(SUB)))
    numbers = table(spark, found.pieces, **{NUMBER: range(len(found.pieces.all))})
    stamp = col(US) * 1000 + col(SUB) if left.in_ns else col(US)
    values = [(stamp if name == wanted.time else col(name)).alias(name) for name in kept_names(wanted, rows.columns)]
    rows = rows.withColumn(KEY, key()).join(numbers, KEY)
    return rows.select(*values, place(col(NUMBER)).alias(PLACE), col(US), col(SUB))


def check_filter(clean: Clean, wanted: Wanted) -> None:
    """Raises JobError for what is wrong with the filter whatever the types are, which only a pass over all rows
    tells."""
    rows = clean.frame.select(*[F.lit(None).alias(name) for name in clean.names])
    try:
        rows.where(wanted.where or "true")
    except AnalysisException as error:
        if (error.getErrorClass() or "").startswith(("PARSE", "UNRESOLVED")):
            raise _bad_filter(wanted.where, error) from error


def _bad_filter(where: str | None, error: AnalysisException) -> JobError:
    reason = str(error).strip().splitlines()[0]
    return JobError([f"--where: got {where!r}, wanted a condition in SQL on the columns: {reason}"])


def without_duplicates(rows: DataFrame, wanted: Wanted) -> DataFrame:
    """Of rows that agree in the columns that count, the first by file and place in it."""
    kept = kept_names(wanted, rows.columns)
    same = list(wanted.dedup_on or kept)
    others = [PLACE, *(name for name in kept if name not in same)]
    first = F.min_by(F.struct(*map(col, others)), F.col(PLACE)).alias("__first")
    unique = rows.groupBy(*map(quoted, same)).agg(first)
    values = {name: col(name) for name in same} | {name: col("__first").getField(name) for name in others}
    return unique.select(*[values[name].alias(name) for name in (*kept, PLACE)])


def as_written(rows: DataFrame, in_ns: bool, wanted: Wanted) -> DataFrame:
    """The columns of the output, with their types."""
    stamp = col(wanted.time) if in_ns else F.timestamp_micros(col(wanted.time))
    return rows.select(
        *[stamp.alias(name) if name == wanted.time else col(name) for name in kept_names(wanted, rows.columns)]
    )


def write_sorted(rows: DataFrame, count: int, in_ns: bool, wanted: Wanted, folder: Path) -> list[Part]:
    """`count` rows (before duplicates are left out) into folder/part-*.parquet, in order of time inside and across
    files."""
    files = max(-(-count // wanted.rows_per_file), 1)
    order = [col(wanted.time), col(PLACE)]  # ties keep the order of the input, and many of them can be cut into files
    own = [col(name) for name in (*kept_names(wanted, rows.columns), PLACE)]
    rows = rows.select(*own).repartitionByRange(files, *order).sortWithinPartitions(*order)
    parts = write_parts(as_written(rows, in_ns, wanted), folder)
    return [_with_figures(part, folder / part.file, wanted.time) for part in parts]


def _with_figures(part: Part, path: Path, time: str) -> Part:
    """What the file's footer tells of its columns, so that nobody has to count once more."""
    footer = pq.read_metadata(path)
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    told: dict[str, list[Any]] = {}
    for index in range(footer.num_columns):
        told[footer.schema.column(index).path] = [group.column(index).statistics for group in groups]
    whole = {name: own for name, own in told.items() if all(one and one.has_null_count for one in own)}
    nulls = {name: sum(one.null_count for one in own) for name, own in whole.items()}
    span = (
        (min(one.min_raw for one in told[time]), max(one.max_raw for one in told[time])) if part.rows else (None, None)
    )
    return replace(part, first=span[0], last=span[1], nulls=nulls)


def count_nulls(spark: Any, parts: Sequence[Part], names: Sequence[str], folder: Path) -> dict[str, int]:
    """Of the rows written, by column. Footers tell them but of nested columns, which are counted."""
    known = {
        name: sum(part.nulls[name] for part in parts) for name in names if all(name in part.nulls for part in parts)
    }
    others = [name for name in names if name not in known]
    if others:
        counts = [F.count(F.when(col(name).isNull(), 1)) for name in others]
        known |= dict(zip(others, spark.read.parquet(f"file://{folder}").agg(*counts).first()))
    return known


def write_parts(rows: DataFrame, folder: Path) -> list[Part]:
    """Spark's files renamed to part-00000.parquet and so on in its own order; empty ones are left out if another is
    not."""
    unnamed = folder.with_name(f"{folder.name}.spark")
    rows.write.options(**WRITING).parquet(f"file://{unnamed}")
    parts = sorted(unnamed.glob("part-*.parquet"))
    counts = [pq.read_metadata(part).num_rows for part in parts]
    full = [(part, rows) for part, rows in zip(parts, counts) if rows] or list(zip(parts, counts))[:1]
    folder.mkdir()
    written = []
    for number, (part, count) in enumerate(full):
        name = f"part-{number:05d}.parquet"
        os.rename(part, folder / name)
        written.append(Part(name, count, (folder / name).stat().st_size))
    shutil.rmtree(unnamed)
    return written


def replace_former(new: Path, folder: Path) -> None:
    """What is in `new` takes the place of what an earlier call left in `folder`."""
    (folder / REPORT).unlink(missing_ok=True)  # what it tells of is about to go; it comes back last
    for name in (REJECTED, DATA):
        shutil.rmtree(folder / name, ignore_errors=True)
        if (new / name).exists():
            os.rename(new / name, folder / name)
    os.rename(new / REPORT, folder / REPORT)

