"""Good rows -> Parquet files sorted by time, and those put aside beside them; complete or not there at all."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mpijoin.errors import JobError
from mpijoin.pipeline.prepare.clean import RAW, REASON, SUB, US, Clean
from mpijoin.pipeline.prepare.options import TYPES, Wanted, kept_names
from mpijoin.pipeline.prepare.order import TIME
from mpijoin.pipeline.prepare.read import BLOCK, FILE, ROW, col, quoted, source_path
from mpijoin.pipeline.prepare.scan import Scan

DATA, REJECTED, REPORT = "data", "rejected", "report.json"
PLACE = (FILE, BLOCK, ROW)
REJECTED_PER_FILE = 1_000_000


@dataclass(frozen=True)
class Part:
    """A file as its footer tells it. first, last: its times, in the unit of the output; None without rows."""

    file: str
    rows: int
    bytes: int
    first: int | None = None
    last: int | None = None


def typed_rows(clean: Clean, found: Scan, wanted: Wanted) -> DataFrame:
    """The good rows that the filter leaves: columns of the input with their types, PLACE, and TIME in the output's unit.

    Raises JobError if Spark does not understand the filter."""
    in_ns = found.in_ns(clean)
    stamp = col(US) * 1000 + col(SUB) if in_ns else col(US)
    named = {wanted.time: stamp if in_ns else F.timestamp_micros(stamp)}
    for name, kind in found.types.items():
        named[name] = col(name).cast(TYPES[kind])
    values = [named.get(name, col(name)).alias(name) for name in clean.names]
    rows = clean.good.select(*values, *map(col, PLACE), stamp.alias(TIME))
    if wanted.where is None:
        return rows
    try:
        return rows.where(wanted.where)
    except AnalysisException as error:
        raise _bad_filter(wanted.where, error) from error


def check_filter(clean: Clean, wanted: Wanted) -> None:
    """Raises JobError for what is wrong with the filter whatever the types are, which only a pass over all rows tells."""
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
    """Of rows that agree in the columns that count, the first by file and place in it; of the columns, those that are kept."""
    kept = kept_names(wanted, rows.columns)
    same = list(wanted.dedup_on or kept)
    others = [*PLACE, TIME, *(name for name in kept if name not in same)]
    first = F.min_by(F.struct(*map(col, others)), F.struct(*map(col, PLACE))).alias("__first")
    unique = rows.groupBy(*map(quoted, same)).agg(first)
    values = {name: col(name) for name in same} | {name: col("__first").getField(name) for name in others}
    return unique.select(*[values[name].alias(name) for name in (*kept, *PLACE, TIME)])


def write_sorted(rows: DataFrame, count: int, wanted: Wanted, folder: Path) -> list[Part]:
    """`count` rows (before duplicates are left out) into folder/part-*.parquet, in order of time inside and across files."""
    files = max(-(-count // wanted.rows_per_file), 1)
    order = [col(TIME), *map(col, PLACE)]  # ties keep the order of the input, and many of them can be cut into files
    rows = rows.repartitionByRange(files, *order).sortWithinPartitions(*order)
    parts = _write(rows.select(*map(col, kept_names(wanted, rows.columns))), folder)
    return [_with_span(part, folder / part.file, wanted.time) for part in parts]


def _with_span(part: Part, path: Path, time: str) -> Part:
    footer = pq.read_metadata(path)
    index = [footer.schema.column(i).path for i in range(footer.num_columns)].index(time)
    groups = [footer.row_group(i).column(index).statistics for i in range(footer.num_row_groups)]
    if not part.rows:
        return part
    return replace(part, first=min(group.min_raw for group in groups), last=max(group.max_raw for group in groups))


def write_rejected(clean: Clean, count: int, folder: Path) -> None:
    """The rows put aside, as file, reason, raw; nothing where there are none."""
    if count == 0:
        return
    rows = clean.rejected.select(source_path().alias("file"), col(REASON).alias("reason"), col(RAW).alias("raw"))
    _write(rows.coalesce(-(-count // REJECTED_PER_FILE)), folder)


def _write(rows: DataFrame, folder: Path) -> list[Part]:
    """Spark's files renamed to part-00000.parquet and so on in its own order; empty ones are left out if another is not."""
    unnamed = folder.with_name(f"{folder.name}.spark")
    rows.write.option("compression", "zstd").parquet(f"file://{unnamed}")
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

