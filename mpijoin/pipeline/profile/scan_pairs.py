"""Expected results, counted by Spark's workers in groups of bounded size: a range of time and a share of the keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mpijoin.pipeline.profile.arrivals import Arrivals
from mpijoin.pipeline.profile.findings import Extent
from mpijoin.pipeline.profile.pairs import (
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
from mpijoin.pipeline.profile.scan import Stream
from mpijoin.pipeline.profile.worker import pair_counter

FOUND = "slot long, pairs long"


def expected_results(
    spark: SparkSession,
    streams: tuple[Stream, Stream],
    extents: tuple[Extent, Extent],
    arrivals: tuple[Arrivals, Arrivals],
    windows: tuple[int, int],
    share: float | None,
) -> Expected:
    """windows: of left and right, in ticks; share: of the ranges of time to count, None for all."""
    start, end = min(one.first for one in extents), max(one.last for one in extents)
    left_window, right_window = (min(window, end - start) for window in windows)  # further nobody can reach
    most = SLOTS_MAX if share is None else SAMPLED_FROM_MAX
    ranges = cut_ranges(start, end, left_window + right_window, most)
    chosen = choose(ranges, share)
    left_rows, right_rows = (_rows(one, ranges, streams[0].tick_s) for one in arrivals)
    table = _table(spark, chosen, *sharing((left_rows + right_rows)[chosen]))
    tuples = _in_ranges(streams[0], ranges, table, 0, 0).unionAll(
        _in_ranges(streams[1], ranges, table, left_window, right_window)
    )
    pairs = tuples.groupBy("block", "part").applyInPandas(pair_counter(ranges, left_window, right_window), FOUND)
    rows = pairs.groupBy("slot").agg(F.sum("pairs").alias("pairs")).toPandas()
    per_slot = np.zeros(ranges.count * ranges.slots)
    per_slot[rows["slot"].to_numpy()] = rows["pairs"].to_numpy()
    return extrapolate(ranges, chosen, per_slot, left_rows * right_rows)


def sampled_share(sample: str | float, rows: int) -> float | None:
    """Of the ranges of time, for "auto", "exact" or a share; rows: of both streams.

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


def _in_ranges(stream: Stream, ranges: Ranges, table: DataFrame, before: int, after: int) -> DataFrame:
    """Tuples as (block, part, range, hash of the key, time, is_right); a right one in each range where it may find a
    partner.

    before, after: how many ticks earlier or later its left partners may be; 0 for left tuples themselves.
    """
    is_right = stream.name == "right"
    end = ranges.start + ranges.length * ranges.count - 1
    hashed = F.xxhash64(*stream.keys).alias("hash")
    rows = stream.joinable.select("time", hashed)
    if is_right:
        # Left tuples lie within both streams' span, so nothing is lost by cutting a reach there; and sums cannot
        # overflow.
        low = F.when(F.col("time") - F.lit(ranges.start) <= before, F.lit(ranges.start)).otherwise(
            F.col("time") - F.lit(before)
        )
        high = F.when(F.lit(end) - F.col("time") <= after, F.lit(end)).otherwise(F.col("time") + F.lit(after))
        span = rows.withColumn("low", low).withColumn("high", high)
        rows = span.withColumn("range", F.explode(F.sequence(_range("low", ranges), _range("high", ranges))))
    else:
        rows = rows.withColumn("range", _range("time", ranges))
    part = F.expr("pmod(hash, parts)").alias("part")
    return rows.join(table, "range").select("block", part, "range", "hash", "time", F.lit(is_right).alias("is_right"))


def _range(name: str, ranges: Ranges) -> Any:
    return F.expr(f"({name} - {ranges.start}) div {ranges.length}")
