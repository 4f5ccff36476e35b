"""How far rows are behind the newest before them in their file, and what `lateness` would cover."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mpijoin.config.units import INT64_MAX
from mpijoin.pipeline.prepare.clean import SUB, US
from mpijoin.pipeline.prepare.pieces import ROW_BITS, Pieces
from mpijoin.pipeline.prepare.read import col

PLACE = "__place"  # bigint: of a row among all, by path and place in the file
EXACT_BITS = 10  # a lag is counted with those of the same leading bits: at most 0.1 % above it
WORST_FILES = 10
# A row of LAGS tells of all files (ALL) how many rows have one edge, or of one file how many are behind, and how far.
ALL = -1
LAGS = "file bigint, edge bigint, longest bigint, longest_us bigint, rows bigint"
LAG_NAMES = tuple(field.split()[0] for field in LAGS.split(", "))
NONE_BEFORE = (int(np.iinfo(np.int64).min), 0)
LARGEST_US = INT64_MAX // 1000 - 1  # above it a lag is more nanoseconds than int64 holds


@dataclass(frozen=True)
class Disorder:
    """Lags in nanoseconds. share_lag: covers the wanted share of the rows, or at most 0.1 % more than needed · all_lag:
    covers all, exactly · files: the worst ones, (path, rows behind, largest lag)."""

    rows: int
    behind: int
    share_lag: int
    all_lag: int
    files: tuple[tuple[str, int, int], ...]


def disorder(rows: DataFrame, share: float, pieces: Pieces, tops: Mapping[int, tuple[int, int]]) -> Disorder:
    """rows: US, SUB and PLACE, in the order of the file within each piece · tops: newest (US, SUB) of pieces by their
    keys."""
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
    """Of centuries, int64 holds only the microseconds."""
    return lag_us * 1000 if lag == INT64_MAX else lag


def newest_before(pieces: Pieces, tops: Mapping[int, tuple[int, int]]) -> list[tuple[int, int]]:
    """Of each piece, the newest (US, SUB) in earlier pieces of the same file; NONE_BEFORE for the first."""
    before, file, newest = [], None, NONE_BEFORE
    for piece in pieces.all:
        newest = newest if piece.file == file else NONE_BEFORE
        before.append(newest)
        file, newest = piece.file, max(newest, tops.get(piece.key, NONE_BEFORE))
    return before


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


def _count_lags(
    files: Sequence[int], before: Sequence[tuple[int, int]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Batches of (piece, US, SUB) of one task -> rows of LAGS. files, before: of each piece."""
    piece, newest, newest_sub = None, 0, 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        pieces, times, subs = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
        starts = np.flatnonzero(np.r_[True, pieces[1:] != pieces[:-1]])
        for start, end in zip(starts, np.r_[starts[1:], len(pieces)]):
            if pieces[start] != piece:
                piece = pieces[start]
                newest, newest_sub = max(before[piece], (int(times[start]), 0))
            running = np.maximum.accumulate(np.r_[newest, times[start:end]])
            running_sub = subs_of_newest(running, np.r_[newest, times[start:end]], np.r_[newest_sub, subs[start:end]])
            newest, newest_sub = int(running[-1]), int(running_sub[-1])
            behind_us = running[1:] - times[start:end]
            yield _counted(files[piece], lags(behind_us, running_sub[1:] - subs[start:end]), behind_us)


def subs_of_newest(running: np.ndarray, times: np.ndarray, subs: np.ndarray) -> np.ndarray:
    """int64[n]: of the newest time so far, `running` in whole us, the ns beyond them.

    >>> subs_of_newest(np.array([5, 5, 7, 7]), np.array([5, 5, 7, 6]), np.array([1, 3, 0, 9])).tolist()
    [1, 3, 0, 0]
    """
    run = np.cumsum(np.r_[False, running[1:] != running[:-1]]) * 1000
    return np.maximum.accumulate(run + np.where(times == running, subs, 0)) - run


def lags(behind_us: np.ndarray, behind_sub: np.ndarray) -> np.ndarray:
    """int64[n]: nanoseconds, never negative; of centuries the largest that int64 holds."""
    fits = behind_us <= LARGEST_US
    return np.where(fits, np.where(fits, behind_us, 0) * 1000 + behind_sub, INT64_MAX)


def _counted(file: int, lag: np.ndarray, lag_us: np.ndarray) -> pa.RecordBatch:
    """int64[n] -> a row of LAGS for the file, and one for each edge."""
    edge, rows = np.unique(edges(lag), return_counts=True)
    none = np.zeros(len(edge), np.int64)
    own = (file, 0, lag.max(), lag_us.max(), np.count_nonzero(lag))
    columns = [np.r_[one, more] for one, more in zip(own, (none + ALL, edge, none, none, rows))]
    return pa.RecordBatch.from_arrays([pa.array(column, pa.int64()) for column in columns], names=list(LAG_NAMES))


def edges(lag: np.ndarray) -> np.ndarray:
    """int64[n] -> the largest number with the same EXACT_BITS leading bits, so few edges stand for all lags.

    >>> edges(np.array([0, 1000, 5000])).tolist()
    [0, 1000, 5007]
    """
    shift = np.maximum(np.frexp(lag.astype(np.float64))[1] - EXACT_BITS, 0).astype(np.int64)
    return lag | ((np.int64(1) << shift) - 1)
