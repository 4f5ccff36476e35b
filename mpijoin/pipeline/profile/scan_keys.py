"""Counts the keys of all streams in Spark: sums over all keys, the top keys, and counts over the span of integer
keys."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Sequence

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from mpijoin.pipeline.profile.findings import Extent
from mpijoin.pipeline.profile.keys import Keys, KeySpan, KeySums, TopKey, key_span
from mpijoin.pipeline.profile.scan import Stream, collected


@dataclass(frozen=True)
class AllKeys:
    """The keys of all streams. keys: of each stream · common: distinct keys that all streams have · top: by the tuples
    of all streams, most first."""

    keys: tuple[Keys, ...]
    common: int
    top: tuple[TopKey, ...]


def scan_keys(streams: Sequence[Stream], extents: Sequence[Extent], top: int) -> AllKeys:
    """One pass over the streams, whose counts by key stay with Spark."""
    counted = _counted(streams).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        counts = _counts(streams)
        sums = [_sums(counted, count) for count in counts]
        common = counted.where(" AND ".join(f"{count} > 0" for count in counts)).count()
        has_cells = streams[0].has_integer_key
        cells = _cells(counted, counts, _span(extents)) if has_cells else [None] * len(streams)
        return AllKeys(tuple(map(Keys, sums, cells)), common, _top(counted, counts, streams[0].keys, top))
    finally:
        counted.unpersist()


def _counts(streams: Sequence[Stream]) -> list[str]:
    """The names of the columns with the streams' counts. They are not called after the streams, whose names other
    columns may have."""
    return [f"tuples_{number}" for number in range(len(streams))]


def _counted(streams: Sequence[Stream]) -> DataFrame:
    """A row for each key: k0, k1 ..., and its tuples in each stream."""
    keys = streams[0].keys
    marked = [stream.joinable.select(*keys, F.lit(number).alias("stream")) for number, stream in enumerate(streams)]
    counts = [F.count(F.when(F.col("stream") == number, 1)).alias(name) for number, name in enumerate(_counts(streams))]
    return reduce(DataFrame.unionAll, marked).groupBy(*keys).agg(*counts)


def _sums(counted: DataFrame, name: str) -> KeySums:
    count = F.col(name).cast("double")
    sums = [F.count("*"), F.sum(name), F.sum(count * F.log2(count)), F.sum(count * (count - 1)), F.max(name)]
    return KeySums(*counted.where(F.col(name) > 0).agg(*sums).collect()[0])


def _top(counted: DataFrame, counts: list[str], keys: list[str], top: int) -> tuple[TopKey, ...]:
    text = F.concat_ws(", ", *(F.col(key).cast("string") for key in keys))
    ordered = counted.orderBy(reduce(Column.__add__, map(F.col, counts)).desc(), *keys).limit(top)
    return tuple(TopKey(key, tuple(tuples)) for key, *tuples in ordered.select(text, *counts).collect())


def _span(extents: Sequence[Extent]) -> KeySpan:
    least = min(one.key_least for one in extents if one.key_least is not None)
    return key_span(least, max(one.key_most for one in extents if one.key_most is not None))


def _cells(counted: DataFrame, names: list[str], span: KeySpan) -> list[np.ndarray]:
    """Tuples of each stream in each cell, int64[2^level]."""
    cells = 1 << span.level
    # These are doubles, since the span of 64-bit keys does not fit into a long. The cells stay nearly equal.
    place = F.floor((F.col("k0").cast("double") - F.lit(float(span.start))) * F.lit(cells / span.length))
    inside = F.greatest(F.lit(0), F.least(place, F.lit(cells - 1)))
    found = collected(counted.groupBy(inside.alias("cell")).agg(*(F.sum(name).alias(name) for name in names)))
    counts = np.zeros((len(names), cells), np.int64)
    counts[:, found["cell"].to_numpy()] = found[names].to_numpy().T
    return list(counts)
