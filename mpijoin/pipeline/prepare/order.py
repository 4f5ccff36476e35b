"""How far rows are behind the newest row before them in their file, and what `lateness` would cover that."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mpijoin.config.units import INT64_MAX
from mpijoin.pipeline.prepare.clean import SUB, US
from mpijoin.pipeline.prepare.pieces import ROW_BITS, Pieces
from mpijoin.pipeline.prepare.read import col

PLACE = "__place"  # bigint: of a row among all, by path and place in the file
EXACT_BITS = 10  # a lag is counted with those of the same leading bits: at most 0.1 % above it
BINS = (65 - EXACT_BITS) << EXACT_BITS
WORST_FILES = 10
# A row of LAGS says how many rows of all files (ALL) have one edge, or how many rows of one file are behind, and how
# far.
ALL = -1
LAGS = "file bigint, edge bigint, longest bigint, longest_us bigint, rows bigint"
LAG_NAMES = tuple(field.split()[0] for field in LAGS.split(", "))
NONE_BEFORE = (int(np.iinfo(np.int64).min), 0)
Counts = NDArray[np.int64]
LARGEST_US = INT64_MAX // 1000 - 1  # above it a lag is more nanoseconds than int64 holds


@dataclass(frozen=True)
class Disorder:
    """How far out of order the files were. Lags are in nanoseconds. share_lag: covers the wanted share of the rows; it
    may be 0.1 % more than needed · all_lag: covers all rows, exactly · files: the worst ones, as (path, rows behind,
    largest lag)."""

    rows: int
    behind: int
    share_lag: int
    all_lag: int
    files: tuple[tuple[str, int, int], ...]


def disorder(rows: DataFrame, share: float, pieces: Pieces, tops: Mapping[int, tuple[int, int]]) -> Disorder:
    """Measures the disorder in one pass. rows: US, SUB and PLACE, in the order of the file within each piece · tops:
    the newest (US, SUB) of pieces, by their keys."""
    count = partial(_count_lags, [piece.file for piece in pieces.all], newest_before(pieces, tops))
    slim = rows.select(F.shiftright(PLACE, ROW_BITS).alias("piece"), col(US), col(SUB))
    totals = [F.max("longest"), F.max("longest_us"), F.sum("rows")]
    found = slim.mapInArrow(count, LAGS).groupBy("file", "edge").agg(*totals).collect()
    by_edge = {edge: rows for file, edge, _, _, rows in found if file == ALL}
    behind = sorted((-lag, -lag_us, file, rows) for file, _, lag, lag_us, rows in found if file != ALL and rows)
    files = tuple((pieces.paths[file], rows, _exact(-lag, -lag_us)) for lag, lag_us, file, rows in behind[:WORST_FILES])
    all_lag = files[0][2] if files else 0
    total = sum(by_edge.values())
    share_lag = covering(by_edge, share)
    share_lag = all_lag if share_lag == INT64_MAX else min(share_lag, all_lag)
    return Disorder(total, total - by_edge.get(0, 0), share_lag, all_lag, files)


def _exact(lag: int, lag_us: int) -> int:
    """The largest lag in nanoseconds. Of lags of centuries, int64 holds only the microseconds."""
    return lag_us * 1000 if lag == INT64_MAX else lag


def newest_before(pieces: Pieces, tops: Mapping[int, tuple[int, int]]) -> list[tuple[int, int]]:
    """For each piece, the newest (US, SUB) in earlier pieces of the same file; NONE_BEFORE for the first piece."""
    before, file, newest = [], None, NONE_BEFORE
    for piece in pieces.all:
        newest = newest if piece.file == file else NONE_BEFORE
        before.append(newest)
        file, newest = piece.file, max(newest, tops.get(piece.key, NONE_BEFORE))
    return before


def covering(by_edge: dict[int, int], share: float) -> int:
    """The smallest edge such that rows up to it are at least that share of all rows; 0 without rows.

    >>> covering({0: 90, 5: 9, 70: 1}, 0.99)
    5
    """
    missing = (1 - share) * sum(by_edge.values()) * (1 + 1e-12)
    for edge in sorted(by_edge, reverse=True):
        missing -= by_edge[edge]
        if missing < 0:
            return edge
    return 0


def _count_lags(
    files: Sequence[int], before: Sequence[tuple[int, int]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Batches of (piece, US, SUB) of one task -> rows of LAGS. files, before: of each piece."""
    piece, newest, newest_sub = -1, 0, 0
    counts = np.zeros(BINS, np.int64)
    worst: dict[int, tuple[int, int, int]] = {}
    for batch in batches:
        if batch.num_rows == 0:
            continue
        pieces, times, subs = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
        starts = np.flatnonzero(np.r_[True, pieces[1:] != pieces[:-1]])
        for start, end in zip(starts, np.r_[starts[1:], len(pieces)]):
            if pieces[start] != piece:
                piece = int(pieces[start])
                newest, newest_sub = max(before[piece], (int(times[start]), 0))
            running = np.maximum.accumulate(np.r_[newest, times[start:end]])
            running_sub = subs_of_newest(running, np.r_[newest, times[start:end]], np.r_[newest_sub, subs[start:end]])
            newest, newest_sub = int(running[-1]), int(running_sub[-1])
            behind_us = running[1:] - times[start:end]
            lag = lags(behind_us, running_sub[1:] - subs[start:end])
            counts += np.bincount(bins(lag), minlength=BINS)
            longest, longest_us, rows = worst.get(files[piece], (0, 0, 0))
            own = max(longest, int(lag.max())), max(longest_us, int(behind_us.max())), rows + int(np.count_nonzero(lag))
            worst[files[piece]] = own
    yield _as_rows(counts, worst)


def subs_of_newest(running: Counts, times: Counts, subs: Counts) -> Counts:
    """int64[n]: the nanoseconds beyond the whole microseconds of the newest time so far, which are `running`.

    >>> subs_of_newest(np.array([5, 5, 7, 7]), np.array([5, 5, 7, 6]), np.array([1, 3, 0, 9])).tolist()
    [1, 3, 0, 0]
    """
    run = np.cumsum(np.r_[False, running[1:] != running[:-1]]) * 1000
    return np.maximum.accumulate(run + np.where(times == running, subs, 0)) - run


def lags(behind_us: Counts, behind_sub: Counts) -> Counts:
    """int64[n]: nanoseconds, never negative; of centuries the largest that int64 holds."""
    fits = behind_us <= LARGEST_US
    return np.where(fits, np.where(fits, behind_us, 0) * 1000 + behind_sub, INT64_MAX)


def _as_rows(counts: Counts, worst: Mapping[int, tuple[int, int, int]]) -> pa.RecordBatch:
    """counts: int64[BINS], of rows by bin · worst: by file, (longest, longest_us, rows behind)."""
    full = np.flatnonzero(counts)
    rows = [(ALL, edge, 0, 0, count) for edge, count in zip(edge_of(full).tolist(), counts[full].tolist())]
    rows += [(file, 0, *own) for file, own in worst.items()]
    columns = zip(*rows) if rows else [()] * len(LAG_NAMES)
    return pa.RecordBatch.from_arrays([pa.array(column, pa.int64()) for column in columns], names=list(LAG_NAMES))


def bins(lag: Counts) -> Counts:
    """int64[n] -> int64[n], below BINS: the same number for lags that have the same EXACT_BITS leading bits."""
    shift = np.maximum(np.frexp(lag.astype(np.float64))[1] - EXACT_BITS, 0).astype(np.int64)
    return (shift << EXACT_BITS) | (lag >> shift)


def edge_of(number: Counts) -> Counts:
    """int64[n], of bins -> int64[n]: the largest lag of each, so few edges stand for all lags.

    >>> edge_of(bins(np.array([0, 1000, 5000, INT64_MAX]))).tolist()
    [0, 1000, 5007, 9223372036854775807]
    """
    shift = number >> EXACT_BITS
    return ((number & ((1 << EXACT_BITS) - 1)) << shift) | ((np.int64(1) << shift) - 1)
