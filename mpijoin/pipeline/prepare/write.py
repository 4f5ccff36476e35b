"""Good rows become Parquet files sorted by time, with those put aside beside them. Either all of it is there or
nothing."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Sequence

import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DecimalType, StringType

from mpijoin.pipeline.prepare.clean import SUB, US
from mpijoin.pipeline.prepare.options import DATA, REJECTED, REPORT, Wanted, kept_names
from mpijoin.pipeline.prepare.order import PLACE
from mpijoin.pipeline.prepare.pieces import KEY, key, place, table
from mpijoin.pipeline.prepare.read import col, quoted
from mpijoin.pipeline.prepare.scan import Scan, Standing
from mpijoin.pipeline.prepare.times import beyond_ns

# The footer keeps only the beginning of long texts. If they were too long, it would have no statistics of a column.
WRITING = {"compression": "zstd", "parquet.statistics.truncate.length": "64"}
# The second version packs the differences of whole numbers and times. They are decoded four times as fast then, and
# take three quarters of the bytes. But bytes that do not repeat are decoded half as fast, and all columns have one
# version.
PACKED = {"parquet.writer.version": "v2"}
OF_BYTES = StringType, BinaryType, DecimalType
NUMBER = "__number"  # of a row's piece among all


@dataclass(frozen=True)
class Part:
    """A file as its footer describes it. first, last: its times, in the unit of the output; None without rows · nulls:
    by column, of the columns that the footer describes."""

    file: str
    rows: int
    bytes: int
    first: int | None = None
    last: int | None = None
    nulls: dict[str, int] = field(default_factory=dict)


def placed(spark: Any, rows: DataFrame, found: Scan, left: Standing, wanted: Wanted) -> DataFrame:
    """The kept rows but those put aside: their columns, with the time as a bigint in the output's unit, and PLACE."""
    if left.in_ns:
        rows = rows.where(~beyond_ns(col(US), col(SUB)))
    numbers = table(spark, found.pieces, **{NUMBER: range(len(found.pieces.all))})
    stamp = col(US) * 1000 + col(SUB) if left.in_ns else col(US)
    values = [(stamp if name == wanted.time else col(name)).alias(name) for name in kept_names(wanted, rows.columns)]
    rows = rows.withColumn(KEY, key()).join(numbers, KEY)
    return rows.select(*values, place(col(NUMBER)).alias(PLACE))


def without_duplicates(rows: DataFrame, wanted: Wanted) -> DataFrame:
    """Of rows that agree in the columns that count, the first by file and by place in it."""
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
    """Writes rows into folder/part-*.parquet, in order of time inside and across files. count: of the rows, before
    duplicates are left out."""
    files = max(-(-count // wanted.rows_per_file), 1)
    order = [col(wanted.time), col(PLACE)]  # ties keep the order of the input, and many of them can be cut into files
    own = [col(name) for name in (*kept_names(wanted, rows.columns), PLACE)]
    rows = rows.select(*own).repartitionByRange(files, *order).sortWithinPartitions(*order)
    parts = write_parts(as_written(rows, in_ns, wanted), folder)
    return [_with_figures(part, folder / part.file, wanted.time) for part in parts]


def _with_figures(part: Part, path: Path, time: str) -> Part:
    """The part with what the file's footer says of its columns, so that nobody has to count once more."""
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
    """The nulls in the rows written, by column. Footers have them, but not those of nested columns, which are
    counted."""
    known = {
        name: sum(part.nulls[name] for part in parts) for name in names if all(name in part.nulls for part in parts)
    }
    others = [name for name in names if name not in known]
    if others:
        counts = [F.count(F.when(col(name).isNull(), 1)) for name in others]
        known |= dict(zip(others, spark.read.parquet(f"file://{folder}").agg(*counts).first()))
    return known


def write_parts(rows: DataFrame, folder: Path) -> list[Part]:
    """Writes rows, and renames Spark's files to part-00000.parquet and so on, in its own order. Empty files are left
    out if there is another one."""
    unnamed = folder.with_name(f"{folder.name}.spark")
    has_bytes = any(isinstance(column.dataType, OF_BYTES) for column in rows.schema)
    rows.write.options(**WRITING, **({} if has_bytes else PACKED)).parquet(f"file://{unnamed}")
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
    """Puts what is in `new` in the place of what an earlier call left in `folder`."""
    (folder / REPORT).unlink(missing_ok=True)  # what it tells of is about to go; it comes back last
    for name in (REJECTED, DATA):
        shutil.rmtree(folder / name, ignore_errors=True)
        if (new / name).exists():
            os.rename(new / name, folder / name)
    os.rename(new / REPORT, folder / REPORT)

