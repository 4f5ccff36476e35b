"""How far rows are behind the newest row before them in their file, and what `lateness` would cover that."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mpijoin.pipeline.prepare.pieces import ROW_BITS, Pieces
from mpijoin.pipeline.prepare.read import col

PLACE = "__place"  # bigint: of a row among all, by path and place in the file
EXACT_BITS = 10  # a lag is counted with those of the same leading bits: at most 0.1 % above it
BINS = (66 - EXACT_BITS) << EXACT_BITS
WORST_FILES = 10
# A row of LAGS says how many rows of all files (ALL) are in one bin, or how many rows of one file are behind, and how
# far. A lag of centuries is more nanoseconds than a bigint holds.
ALL = -1
LAGS = {"file": pa.int64(), "bin": pa.int64(), "longest": pa.decimal128(20), "rows": pa.int64()}
LAGS_IN_SPARK = "file bigint, bin bigint, longest decimal(20), rows bigint"
NONE_BEFORE = int(np.iinfo(np.int64).min)
Times = NDArray[np.int64]
Lags = NDArray[np.uint64]


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


def disorder(
    rows: DataFrame, time: str, unit_ns: int, share: float, pieces: Pieces, tops: Mapping[int, int]
) -> Disorder:
    """Measures the disorder in one pass. rows: the time and PLACE, in the order of the file within each piece ·
    unit_ns: of the time, in which lags are counted, too · tops: the newest time of pieces, by their keys."""
    count = partial(_count_lags, [piece.file for piece in pieces.all], newest_before(pieces, tops))
    slim = rows.select(F.shiftright(PLACE, ROW_BITS).cast("int").alias("piece"), col(time).alias("time"))
    found = slim.mapInArrow(count, LAGS_IN_SPARK).groupBy("file", "bin").agg(F.max("longest"), F.sum("rows")).collect()
    full = [(number, rows) for file, number, _, rows in found if file == ALL]
    edges = edge_of(np.array([number for number, _ in full], np.uint64)).tolist()
    by_edge = {edge: rows for edge, (_, rows) in zip(edges, full)}
    behind = sorted((-int(lag), file, rows) for file, _, lag, rows in found if file != ALL and rows)
    files = tuple((pieces.paths[file], rows, -lag * unit_ns) for lag, file, rows in behind[:WORST_FILES])
    all_lag = files[0][2] if files else 0
    total = sum(by_edge.values())
    share_lag = min(covering(by_edge, share) * unit_ns, all_lag)
    return Disorder(total, total - by_edge.get(0, 0), share_lag, all_lag, files)


def newest_before(pieces: Pieces, tops: Mapping[int, int]) -> list[int]:
    """For each piece, the newest time in earlier pieces of the same file; NONE_BEFORE for the first piece."""
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
    files: Sequence[int], before: Sequence[int], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Batches of (piece, time) of one task -> rows of LAGS. files, before: of each piece."""
    piece, newest = -1, NONE_BEFORE
    counts = np.zeros(BINS, np.int64)
    worst: dict[int, tuple[int, int]] = {}
    for batch in batches:
        if batch.num_rows == 0:
            continue
        pieces, times = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
        starts = np.flatnonzero(np.r_[True, pieces[1:] != pieces[:-1]])
        for start, end in zip(starts, np.r_[starts[1:], len(pieces)]):
            if pieces[start] != piece:
                piece = int(pieces[start])
                newest = before[piece]
            running = np.maximum.accumulate(np.r_[newest, times[start:end]])[1:]
            newest = int(running[-1])
            lag = lags(running, times[start:end])
            counts += np.bincount(bins(lag), minlength=BINS)
            longest, rows = worst.get(files[piece], (0, 0))
            worst[files[piece]] = max(longest, int(lag.max())), rows + int(np.count_nonzero(lag))
    yield _as_rows(counts, worst)


def lags(newest: Times, times: Times) -> Lags:
    """uint64[n]: how far times are behind the newest, which are no older. The difference of two times may be more than
    int64 holds, but never more than uint64 does.

    >>> lags(np.array([5, 2**63 - 1]), np.array([3, -(2**63)])).tolist()
    [2, 18446744073709551615]
    """
    return newest.view(np.uint64) - times.view(np.uint64)


def _as_rows(counts: NDArray[np.int64], worst: Mapping[int, tuple[int, int]]) -> pa.RecordBatch:
    """counts: int64[BINS], of rows by bin · worst: by file, (longest, rows behind)."""
    full = np.flatnonzero(counts)
    rows = [(ALL, number, Decimal(0), count) for number, count in zip(full.tolist(), counts[full].tolist())]
    rows += [(file, 0, Decimal(longest), behind) for file, (longest, behind) in worst.items()]
    columns = zip(*rows) if rows else [()] * len(LAGS)
    return pa.RecordBatch.from_arrays([pa.array(own, kind) for own, kind in zip(columns, LAGS.values())], list(LAGS))


def bins(lag: Lags) -> NDArray[np.int64]:
    """uint64[n] -> int64[n], below BINS: the same number for lags that have the same EXACT_BITS leading bits."""
    shift = np.maximum(np.frexp(lag.astype(np.float64))[1] - EXACT_BITS, 0).astype(np.int64)
    return (shift << EXACT_BITS) | (lag >> shift.view(np.uint64)).view(np.int64)


def edge_of(number: Lags) -> Lags:
    """uint64[n], of bins -> uint64[n]: the largest lag of each, so few edges stand for all lags.

    >>> edge_of(bins(np.array([0, 1000, 5000, 2**64 - 1], np.uint64)).view(np.uint64)).tolist()
    [0, 1000, 5007, 18446744073709551615]
    """
    shift, bits = number >> np.uint64(EXACT_BITS), number & np.uint64((1 << EXACT_BITS) - 1)
    return (bits << shift) | ((np.uint64(1) << shift) - np.uint64(1))
