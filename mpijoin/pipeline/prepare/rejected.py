"""Rows that cannot be used go to files with their place, the reason and what they looked like. This takes a second look
at the raw files that hold such rows."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from mpijoin.config.units import plural
from mpijoin.errors import ChangedInputError, InputError, TooManyRejectedError
from mpijoin.pipeline.prepare.clean import BEYOND, KINDS, RAW, REASON, TIME, Rules, accused, rules
from mpijoin.pipeline.prepare.conf import conf_set
from mpijoin.pipeline.prepare.files import Source
from mpijoin.pipeline.prepare.kept import passing, typed
from mpijoin.pipeline.prepare.options import Wanted
from mpijoin.pipeline.prepare.pieces import KEY, ROW_BITS, key, table
from mpijoin.pipeline.prepare.read import FILE, ROW, col, read_raw
from mpijoin.pipeline.prepare.scan import Scan, Standing
from mpijoin.pipeline.prepare.schema import Columns
from mpijoin.pipeline.prepare.write import write_parts

ROWS_PER_FILE = 1_000_000
BEFORE = "__before"  # lines of the file before the piece


@dataclass(frozen=True)
class Rejected:
    """What was put aside. kinds: what is wrong -> rows; a row may have several faults · example: place and reason of
    one row; None if there is none."""

    rows: int
    kinds: dict[str, int]
    example: str | None = None


def put_aside(
    spark: Any, source: Source, wanted: Wanted, columns: Columns, found: Scan, left: Standing, folder: Path
) -> Rejected:
    """Writes file, line, reason and raw of each row, and no file where there is no such row.

    Raises InputError if no row is good, TooManyRejectedError if more rows are bad than the call allows, and
    ChangedInputError if the files are not what they were before.
    """
    count = found.bad + sum(left.beyond.values())
    paths = found.pieces.bad_paths(left.beyond)
    # The pieces must be those of the first reading, with one task for each. Then ROW counts a piece's lines from 0.
    size = found.pieces.size(max(map(os.path.getsize, source.paths)))
    with conf_set(
        spark, {"spark.sql.files.maxPartitionBytes": f"{size}b", "spark.sql.files.openCostInBytes": f"{size}b"}
    ):
        rules_here = rules(read_raw(spark, source, wanted, columns, paths or source.paths[:1]), source, wanted)
        kinds = rules_here.kinds
        if not count:
            return Rejected(0, dict.fromkeys(kinds, 0))
        told = Observation("rejected")
        rows = _rejected(spark, rules_here, wanted, found, left).repartition(-(-count // ROWS_PER_FILE))
        figures = [F.count(F.when(F.array_contains(KINDS, kind), 1)).alias(f"k{i}") for i, kind in enumerate(kinds)]
        rows = rows.sortWithinPartitions("file", "line").observe(told, *figures)
        parts = write_parts(rows.select("file", "line", "reason", "raw"), folder)
    written = sum(part.rows for part in parts)
    if written != count:
        raise ChangedInputError(
            f"{paths[0]} or other files changed while they were read: {plural(count, 'row')} could not be used at"
            f" first, {written:,} at a second look; start again once nobody writes to them"
        )
    result = Rejected(
        count, {kind: told.get[f"k{i}"] for i, kind in enumerate(kinds)}, _example(folder / parts[0].file)
    )
    _check(result, source, wanted, found)
    return result


def _rejected(spark: Any, rules_here: Rules, wanted: Wanted, found: Scan, left: Standing) -> DataFrame:
    accused_rows = typed(accused(rules_here), rules_here.names, found.types, wanted)
    is_bad = col(REASON).isNotNull()
    if left.in_ns:
        is_bad = is_bad | (col(BEYOND).isNotNull() & passing(wanted))
    before = table(spark, found.pieces, **{BEFORE: found.pieces.lines_before()})
    rows = accused_rows.where(is_bad).withColumn(KEY, key()).join(before, KEY, "left")
    number = col(BEFORE) + col(ROW).bitwiseAND(2**ROW_BITS - 1) + 1
    return rows.select(
        source_path().alias("file"),
        (F.lit(None).cast("bigint") if wanted.multiline else number).alias("line"),
        F.coalesce(REASON, BEYOND).alias("reason"),
        col(RAW).alias("raw"),
        F.coalesce(KINDS, F.array(F.lit(TIME))).alias(KINDS),
    )


def source_path() -> Column:
    """The path of a row's file. Spark writes it as a URI, in which a "+" must stay what it is."""
    return F.regexp_replace(F.url_decode(F.regexp_replace(FILE, r"\+", "%2B")), "^file://", "")


def _example(path: Path) -> str:
    row = pq.ParquetFile(path).iter_batches(1, columns=["file", "line", "reason"]).__next__().to_pylist()[0]
    place = row["file"] if row["line"] is None else f"{row['file']}:{row['line']}"
    return f"{place}: {row['reason']}"


def _check(result: Rejected, source: Source, wanted: Wanted, found: Scan) -> None:
    if not found.good:
        raise InputError(f"none of the {found.rows:,} rows can be used, such as {result.example}{source.hint}")
    if result.rows > wanted.max_rejected * found.rows:
        kinds = ", ".join(f"{kind} {rows:,}" for kind, rows in result.kinds.items() if rows)
        raise TooManyRejectedError(
            f"{result.rows:,} of {plural(found.rows, 'row')} cannot be used ({kinds}), such as {result.example}"
            f"{source.hint}; wanted at most {100 * wanted.max_rejected:g} % of them: --max-rejected 1 takes any number,"
            " and shows them all"
        )
