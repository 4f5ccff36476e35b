"""Counts the expected results. Spark's workers do it in groups of bounded size: a range of time and a share of the
keys."""

from __future__ import annotations

from functools import reduce
from typing import Any, Sequence

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mpijoin.pipeline.profile.arrivals import Arrivals
from mpijoin.pipeline.profile.findings import Extent
from mpijoin.pipeline.profile.results import (
    EXACT_ROWS_MAX,
    SAMPLED_FROM_MAX,
    SLOTS_MAX,
    Expected,
    Ranges,
    choose,
    cut_ranges,
    extrapolate,
    sharing,
)
from mpijoin.pipeline.profile.scan import Stream, collected
from mpijoin.pipeline.profile.worker import result_counter

FOUND = "slot long, results double"


def expected_results(
    spark: SparkSession,
    streams: Sequence[Stream],
    extents: Sequence[Extent],
    arrivals: Sequence[Arrivals],
    windows: Sequence[int],
    share: float | None,
) -> Expected:
    """The results to expect. windows: of each stream, in ticks · share: of the ranges of time to count; None for
    all."""
    start, end = min(one.first for one in extents), max(one.last for one in extents)
    reached = [min(window, end - start) for window in windows]  # further nobody can reach
    most = SLOTS_MAX if share is None else SAMPLED_FROM_MAX
    ranges = cut_ranges(start, end, sum(reached), most)
    chosen = choose(ranges, share)
    rows = np.array([_rows(one, ranges, stream.tick_s) for one, stream in zip(arrivals, streams)])
    table = _table(spark, chosen, *sharing(rows.sum(axis=0)[chosen]))
    parts = [_in_ranges(one, number, ranges, table, reached[number]) for number, one in enumerate(streams)]
    tuples = reduce(DataFrame.unionAll, parts)
    found = tuples.groupBy("block", "part").applyInPandas(result_counter(ranges, reached), FOUND)
    by_slot = collected(found.groupBy("slot").agg(F.sum("results").alias("results")))
    per_slot = np.zeros(ranges.count * ranges.slots)
    per_slot[by_slot["slot"].to_numpy()] = by_slot["results"].to_numpy()
    return extrapolate(ranges, chosen, per_slot, rows.prod(axis=0))


def sampled_share(sample: str | float, rows: int) -> float | None:
    """The share of the ranges of time that "auto", "exact" or a given share means. rows: of all streams.

    >>> sampled_share("auto", 1000), sampled_share("auto", 100_000_000), sampled_share(0.01, 1000)
    (None, 0.5, 0.01)
    """
    if sample == "auto":
        return None if rows <= EXACT_ROWS_MAX else EXACT_ROWS_MAX / rows
    return None if sample == "exact" else float(sample)


def _rows(arrivals: Arrivals, ranges: Ranges, tick_s: float) -> np.ndarray:
    """About how many tuples come in each range, float64[ranges.count]."""
    edges = ranges.start + ranges.length * np.arange(ranges.count + 1)
    return np.diff(arrivals.before(edges * tick_s))


def _table(spark: SparkSession, chosen: np.ndarray, block: np.ndarray, parts: np.ndarray) -> DataFrame:
    """A row for each range to count: range, block, parts. It goes to every worker."""
    return F.broadcast(spark.createDataFrame(pd.DataFrame({"range": chosen, "block": block, "parts": parts})))


def _in_ranges(stream: Stream, number: int, ranges: Ranges, table: DataFrame, window: int) -> DataFrame:
    """Tuples as (block, part, range, hash of the key, time, stream, is_own), once for each range that may have a result
    with them: their own range, and those that their window reaches into.

    number: of the stream · window: in ticks.
    """
    end = ranges.start + ranges.length * ranges.count - 1
    rows = stream.joinable.select("time", F.xxhash64(*stream.keys).alias("hash"), _range("time", ranges).alias("own"))
    # No tuple lies behind the end, so a window can be cut there, and sums cannot overflow.
    high = F.when(F.lit(end) - F.col("time") <= window, F.lit(end)).otherwise(F.col("time") + F.lit(window))
    spread = rows.withColumn("high", high)
    spread = spread.withColumn("range", F.explode(F.sequence(F.col("own"), _range("high", ranges))))
    part, is_own = F.expr("pmod(hash, parts)").alias("part"), F.expr("range = own").alias("is_own")
    numbered = F.lit(number).alias("stream")
    return spread.join(table, "range").select("block", part, "range", "hash", "time", numbered, is_own)


def _range(name: str, ranges: Ranges) -> Any:
    return F.expr(f"({name} - {ranges.start}) div {ranges.length}")
