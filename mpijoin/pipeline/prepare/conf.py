"""Spark's settings that this command relies on, for as long as it runs."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator, Mapping

SETTINGS = {
    "spark.sql.ansi.enabled": "false",  # what does not fit becomes null, and then a reason
    "spark.sql.caseSensitive": "true",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.csv.parser.columnPruning.enabled": "false",  # with it, rows of too few fields pass
    # These would leave out fields when a line is parsed, and lines with too few or too many fields would pass.
    "spark.sql.optimizer.enableCsvExpressionOptimization": "false",
    "spark.sql.optimizer.enableJsonExpressionOptimization": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Dates before 1582 are read and written as the calendar of today counts them.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}


@contextmanager
def conf_set(spark: Any, values: Mapping[str, str] = SETTINGS) -> Iterator[None]:
    """Sets these values, and afterwards those of before, since the session may belong to somebody else."""
    before = {name: spark.conf.get(name) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
