"""Counts the expected results. Spark's workers do it in groups of bounded size: a range of time and a share of the
keys."""

from __future__ import annotations

from functools import reduce
from typing import Any, Sequence

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mpijoin.errors import InputError
from mpijoin.named import NamedTuple
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
SPAN_MAX = 1 << 62  # in ticks: with the rest of the last range, it fits into 63 bits


class Tuples(NamedTuple):
    """The tuples of all streams in groups by block and part. reached: how far each stream's windows reach, in ticks ·
    rows: about how many tuples of each stream are in each range, float64[streams, ranges.count] · chosen: the ranges
    that are counted."""

    frame: DataFrame
    ranges: Ranges
    chosen: np.ndarray
    reached: Sequence[int]
    rows: np.ndarray


def grouped_tuples(
    spark: SparkSession,
    streams: Sequence[Stream],
    extents: Sequence[Extent],
    arrivals: Sequence[Arrivals],
    windows: Sequence[int],
    share: float | None,
    sides: Sequence[int] = (),
    slots: Sequence[str] = (),
) -> Tuples:
    """windows: of each stream, in ticks · share: of the ranges of time to count; None for all · sides: streams whose
    tuples see also those partners that come after them · slots: further columns."""
    start, end = min(one.first for one in extents), max(one.last for one in extents)
    if end - start > SPAN_MAX:
        raise InputError(
            f"the times from {start} to {end} in the streams' finest unit are so far apart that their differences take "
            "more than 63 bits: leave out rows whose time stands for none, or give the streams a coarser time_unit"
        )
    reached = [min(window, end - start) for window in windows]  # further nobody can reach
    most = SLOTS_MAX if share is None else SAMPLED_FROM_MAX
    ranges = cut_ranges(start, end, sum(reached), most)
    chosen = choose(ranges, share)
    rows = np.array([_rows(one, ranges, stream.tick_s) for one, stream in zip(arrivals, streams)])
    table = _table(spark, chosen, *sharing(rows.sum(axis=0)[chosen]))
    parts = []
    for number, one in enumerate(streams):
        back = max((reached[side] for side in sides if side != number), default=0)
        parts.append(_in_ranges(one, number, ranges, table, reached[number], back, slots))
    return Tuples(reduce(DataFrame.unionAll, parts), ranges, chosen, reached, rows)


def expected_results(tuples: Tuples) -> Expected:
    """How many results there are: one tuple of each stream, of equal keys, in each other's windows."""
    ranges = tuples.ranges
    found = tuples.frame.groupBy("block", "part").applyInPandas(result_counter(ranges, tuples.reached), FOUND)
    by_slot = collected(found.groupBy("slot").agg(F.sum("results").alias("results")))
    per_slot = np.zeros(ranges.count * ranges.slots)
    per_slot[by_slot["slot"].to_numpy()] = by_slot["results"].to_numpy()
    return extrapolate(ranges, tuples.chosen, per_slot, tuples.rows.prod(axis=0))


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


def _in_ranges(
    stream: Stream, number: int, ranges: Ranges, table: DataFrame, window: int, back: int, slots: Sequence[str]
) -> DataFrame:
    """Tuples as (block, part, range, hash of the key, time, stream, is_own, slots ...), once for each range that may
    have a result with them: their own range, and those that they reach into.

    number: of the stream · window: how far a tuple reaches ahead, in ticks · back: and how far back.
    """
    end = ranges.start + ranges.length * ranges.count - 1
    told = ["time", *slots, *(f"{slot}_null" for slot in slots)]
    rows = stream.joinable.select(*told, F.xxhash64(*stream.keys).alias("hash"), _range("time", ranges).alias("own"))
    # No tuple lies outside, so a window can be cut there, and sums cannot overflow.
    high = F.when(F.lit(end) - F.col("time") <= window, F.lit(end)).otherwise(F.col("time") + F.lit(window))
    start = F.lit(ranges.start)
    low = F.when(F.col("time") - start <= back, start).otherwise(F.col("time") - F.lit(back))
    spread = rows.withColumn("high", high).withColumn("low", low)
    spread = spread.withColumn("range", F.explode(F.sequence(_range("low", ranges), _range("high", ranges))))
    part, is_own = F.expr("pmod(hash, parts)").alias("part"), F.expr("range = own").alias("is_own")
    numbered = F.lit(number).alias("stream")
    return spread.join(table, "range").select("block", part, "range", "hash", numbered, is_own, *told)


def _range(name: str, ranges: Ranges) -> Any:
    return F.expr(f"({name} - {ranges.start}) div {ranges.length}")
