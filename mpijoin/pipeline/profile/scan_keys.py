"""Keys of both streams, counted in Spark: sums over all keys, the top ones, and counts over the span of integer
keys."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from mpijoin.pipeline.profile.findings import Extent
from mpijoin.pipeline.profile.keys import Keys, KeySpan, KeySums, TopKey, key_span
from mpijoin.pipeline.profile.scan import Stream

SIDES = ("left", "right")


@dataclass(frozen=True)
class BothKeys:
    """common: distinct keys that both streams have; top: by the tuples of both streams, most first."""

    left: Keys
    right: Keys
    common: int
    top: tuple[TopKey, ...]


def scan_keys(streams: tuple[Stream, Stream], extents: tuple[Extent, Extent], top: int) -> BothKeys:
    """One pass over both streams, whose counts by key stay with Spark."""
    counted = _counted(streams).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        sums = [_sums(counted, side) for side in SIDES]
        common = counted.where("left > 0 AND right > 0").count()
        cells = _cells(counted, _span(extents)) if streams[0].has_integer_key else (None, None)
        return BothKeys(*map(Keys, sums, cells), common, _top(counted, streams[0].keys, top))
    finally:
        counted.unpersist()


def _counted(streams: tuple[Stream, Stream]) -> DataFrame:
    """A row for each key: k0, k1 ..., left, right."""
    keys = streams[0].keys
    marked = [stream.joinable.select(*keys, F.lit(side).alias("side")) for side, stream in enumerate(streams)]
    counts = [F.count(F.when(F.col("side") == index, 1)).alias(side) for index, side in enumerate(SIDES)]
    return marked[0].unionAll(marked[1]).groupBy(*keys).agg(*counts)


def _sums(counted: DataFrame, side: str) -> KeySums:
    count = F.col(side).cast("double")
    sums = [F.count("*"), F.sum(side), F.sum(count * F.log2(count)), F.sum(count * (count - 1)), F.max(side)]
    return KeySums(*counted.where(F.col(side) > 0).agg(*sums).first())


def _top(counted: DataFrame, keys: list[str], top: int) -> tuple[TopKey, ...]:
    text = F.concat_ws(", ", *(F.col(key).cast("string") for key in keys))
    ordered = counted.orderBy((F.col("left") + F.col("right")).desc(), *keys).limit(top)
    return tuple(TopKey(*row) for row in ordered.select(text, *SIDES).collect())


def _span(extents: tuple[Extent, Extent]) -> KeySpan:
    return key_span(min(one.key_least for one in extents), max(one.key_most for one in extents))


def _cells(counted: DataFrame, span: KeySpan) -> tuple[np.ndarray, np.ndarray]:
    """Tuples of either stream in each cell, int64[2^level]."""
    cells = 1 << span.level
    # As doubles: the span of 64-bit keys is more than a long holds. Cells are hardly the less equal for it.
    place = F.floor((F.col("k0").cast("double") - F.lit(float(span.start))) * F.lit(cells / span.length))
    inside = F.greatest(F.lit(0), F.least(place, F.lit(cells - 1)))
    found = counted.groupBy(inside.alias("cell")).agg(*(F.sum(side).alias(side) for side in SIDES)).toPandas()
    counts = np.zeros((2, cells), np.int64)
    counts[:, found["cell"].to_numpy()] = found[list(SIDES)].to_numpy().T
    return counts[0], counts[1]
