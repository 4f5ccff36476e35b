"""Which of the good rows are kept: the filter of the user, on columns that have their types."""

from __future__ import annotations

from typing import Mapping, Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mpijoin.errors import JobError
from mpijoin.pipeline.prepare.clean import SUB, US, Clean, is_good
from mpijoin.pipeline.prepare.options import OWN_PREFIX, TYPES, Wanted
from mpijoin.pipeline.prepare.read import col

KEPT = "__kept"  # true: the row is good, and the filter leaves it; else false or null


def typed(rows: DataFrame, names: Sequence[str], types: Mapping[str, str], wanted: Wanted) -> DataFrame:
    """Rows as a filter sees them: columns whose type was found out have it, and the time is a timestamp of whole
    microseconds, whatever is written. names: of the columns, beside those that live only inside this command."""
    named = {name: col(name).cast(TYPES[kind]) for name, kind in types.items()} | {wanted.time: F.timestamp_micros(US)}
    own = [col(name) for name in rows.columns if name.startswith(OWN_PREFIX)]
    return rows.select(*[named.get(name, col(name)).alias(name) for name in names], *own)


def passing(wanted: Wanted) -> Column:
    """True for rows that the filter leaves."""
    return F.lit(True) if wanted.where is None else F.coalesce(F.expr(wanted.where), F.lit(False))


def marked(clean: Clean, types: Mapping[str, str], wanted: Wanted) -> DataFrame:
    """All rows with their types, SUB and KEPT. All passes must start from the same frame: a filter may draw random
    numbers, which are the same again only in one plan. Raises JobError if Spark does not understand the filter.

    types: those found out, by column.
    """
    rows = typed(clean.frame, clean.names, types, wanted)
    if SUB not in rows.columns:
        rows = rows.withColumn(SUB, F.lit(0))
    try:
        rows.where(passing(wanted))  # refuses what a column may be and a condition may not
        return rows.withColumn(KEPT, F.when(is_good(), passing(wanted)))
    except AnalysisException as error:
        raise _bad_filter(wanted.where, error) from error


def check_filter(clean: Clean, wanted: Wanted) -> None:
    """Raises JobError for what is wrong with the filter whatever the types are. They are found out only by a pass over
    all rows."""
    rows = clean.frame.select(*[F.lit(None).alias(name) for name in clean.names])
    try:
        rows.where(wanted.where or "true")
    except AnalysisException as error:
        if (error.getErrorClass() or "").startswith(("PARSE", "UNRESOLVED")):
            raise _bad_filter(wanted.where, error) from error


def _bad_filter(where: str | None, error: AnalysisException) -> JobError:
    reason = str(error).strip().splitlines()[0]
    return JobError([f"--where: got {where!r}, wanted a condition in SQL on the columns: {reason}"])
