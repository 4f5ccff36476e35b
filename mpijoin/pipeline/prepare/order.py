"""How far rows are behind the newest before them in their file, and what `lateness` would cover."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from mpijoin.config.units import INT64_MAX
from mpijoin.pipeline.prepare.read import BLOCK, FILE, col

TIME = "__time"  # bigint, in the unit of the output
BEFORE = "__before"
EXACT_BITS = 10  # a lag is counted with those of the same leading bits: at most 0.1 % above it
WORST_FILES = 10
LAGS = "file string, edge bigint, longest bigint, rows bigint"


@dataclass(frozen=True)
class Disorder:
    """Lags in the unit of the output's time. share_lag: covers the wanted share of the rows, or at most 0.1 % more than
    needed · all_lag: covers all, exactly · files: the worst ones, (URI, rows behind, largest lag)."""

    rows: int
    behind: int
    share_lag: int
    all_lag: int
    files: tuple[tuple[str, int, int], ...]


def disorder(rows: DataFrame, share: float) -> Disorder:
    """`rows`: columns FILE, BLOCK and TIME, in the order of the file within each block."""
    lags = with_newest_before(rows).mapInArrow(_count_lags, LAGS).groupBy("file", "edge").agg(
        F.max("longest").alias("longest"), F.sum("rows").alias("rows")
    )
    lags.persist()
    try:
        by_edge = {edge: count for edge, count in lags.groupBy("edge").agg(F.sum("rows")).collect()}
        behind = F.sum(F.when(F.col("longest") > 0, F.col("rows")).otherwise(0))
        by_file = lags.groupBy("file").agg(behind.alias("behind"), F.max("longest").alias("longest"))
        worst = by_file.where("behind > 0").orderBy(F.desc("longest"), "file").limit(WORST_FILES).collect()
    finally:
        lags.unpersist()
    all_lag = worst[0]["longest"] if worst else 0
    count = sum(by_edge.values())
    share_lag = min(covering(by_edge, share), all_lag)
    return Disorder(count, count - by_edge.get(0, 0), share_lag, all_lag, tuple(tuple(row) for row in worst))


def with_newest_before(rows: DataFrame) -> DataFrame:
    """With BEFORE: the newest time in earlier blocks of the same file, null in the first.

    Only files of several blocks have one, so what is broadcast grows with the bytes read, one row in 128 MiB."""
    tops = rows.groupBy(FILE, BLOCK).agg(F.max(TIME).alias(BEFORE))
    earlier = Window.partitionBy(FILE).orderBy(BLOCK).rowsBetween(Window.unboundedPreceding, -1)
    tops = tops.withColumn(BEFORE, F.max(BEFORE).over(earlier)).where(col(BEFORE).isNotNull())
    # A broadcast join leaves the rows where they are, and so in order.
    return rows.join(F.broadcast(tops), [FILE, BLOCK], "left").select(FILE, F.xxhash64(FILE, BLOCK), BEFORE, TIME)


def covering(by_edge: dict[int, int], share: float) -> int:
    """The smallest edge such that rows up to it are at least that share of all; 0 without rows.

    >>> covering({0: 90, 5: 9, 70: 1}, 0.99)
    5
    """
    missing = (1 - share) * sum(by_edge.values()) * (1 + 1e-12)
    for edge in sorted(by_edge, reverse=True):
        missing -= by_edge[edge]
        if missing < 0:
            return edge
    return 0


def _count_lags(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches of (file, block as a number, BEFORE, TIME) of one partition -> rows of LAGS."""
    block, newest = None, 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        files, blocks = batch.column(0), batch.column(1).to_numpy(zero_copy_only=False)
        times = batch.column(3).to_numpy(zero_copy_only=False)
        starts = np.flatnonzero(np.r_[True, blocks[1:] != blocks[:-1]])
        for start, end in zip(starts, np.r_[starts[1:], len(blocks)]):
            if blocks[start] != block:
                before = batch.column(2)[int(start)].as_py()
                block, newest = blocks[start], int(times[start]) if before is None else before
            running = np.maximum.accumulate(np.r_[newest, times[start:end]])
            newest = int(running[-1])
            yield _counted(files[int(start)].as_py(), lags(running[:-1], times[start:end]))


def lags(newest: np.ndarray, times: np.ndarray) -> np.ndarray:
    """int64[n]: newest before - own time, at least 0; nanoseconds of centuries may go beyond int64, and count as its largest."""
    behind = newest - times
    behind[(newest > times) & (behind < 0)] = INT64_MAX
    return np.where(newest > times, behind, 0)


def _counted(file: str, lag: np.ndarray) -> pa.RecordBatch:
    """int64[n] -> a row of LAGS for each edge."""
    edge, index, rows = np.unique(edges(lag), return_inverse=True, return_counts=True)
    longest = np.zeros(len(edge), np.int64)
    np.maximum.at(longest, index, lag)
    columns = [pa.array([file] * len(edge), pa.string()), pa.array(edge), pa.array(longest), pa.array(rows)]
    return pa.RecordBatch.from_arrays(columns, names=["file", "edge", "longest", "rows"])


def edges(lag: np.ndarray) -> np.ndarray:
    """int64[n] -> the largest number with the same EXACT_BITS leading bits, so few edges stand for all lags.

    >>> edges(np.array([0, 1000, 5000])).tolist()
    [0, 1000, 5007]
    """
    shift = np.maximum(np.frexp(lag.astype(np.float64))[1] - EXACT_BITS, 0).astype(np.int64)
    return lag | ((np.int64(1) << shift) - 1)

