"""The pieces of a stream. Where a piece begins is known once the gaps of all pieces before it are summed."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any, Iterator, Sequence

import pyarrow as pa

from mpijoin.config.job import section_of
from mpijoin.errors import InputError
from mpijoin.generators.arrivals import START
from mpijoin.generators.schedule import TIME_MAX, segments_of
from mpijoin.pipeline.generate.plan import Piece, StreamPlan

SUMMED = pa.schema([("number", pa.int64()), ("moved", pa.int64())])
SPARE = 6.0  # standard deviations of a Poisson count: the first guess at the number of pieces is rarely too small


def pieces_of(spark: Any, plan: StreamPlan) -> list[Piece]:
    """All pieces of a stream. Spark brings one number per piece to the driver. Raises InputError if times leave 64
    bits."""
    arrivals = plan.stream().arrivals
    if arrivals.total is not None:
        sizes = [min(plan.rows, arrivals.total - first) for first in range(0, arrivals.total, plan.rows)] or [0]
        return _placed(plan, _moves(spark, plan, 0, sizes))
    moves: list[tuple[int, int]] = []
    wanted = _likely_pieces(plan)
    while True:  # more of them until one starts after the stream's end
        moves += _moves(spark, plan, len(moves), [plan.rows] * (wanted - len(moves)))
        found = _placed(plan, moves)
        last = plan.stream().arrivals.time_before(plan.rows * wanted, _end_of(found[-1], moves[-1]))
        if last >= arrivals.end_ns:
            return [piece for piece in found if piece.start_ns < arrivals.end_ns]
        wanted += max(1, wanted // 8)


def fitted(plan: StreamPlan) -> StreamPlan:
    """The plan with pieces that are no larger than the stream: the gaps of a whole piece are summed."""
    total = plan.stream().arrivals.total
    return replace(plan, rows=max(1, min(plan.rows, _likely_rows(plan) if total is None else total)))


def _likely_pieces(plan: StreamPlan) -> int:
    """A number of pieces that is very likely enough for the stream's duration."""
    return max(1, math.ceil(_likely_rows(plan) / plan.rows))


def _likely_rows(plan: StreamPlan) -> int:
    """So many tuples that there are very likely no more within the stream's duration."""
    end_ns = plan.stream().arrivals.end_ns
    ends = [*(segment.start_ns for segment in segments_of(plan.source)[1:]), end_ns]
    expected = 0.0
    for segment, end in zip(segments_of(plan.source), ends):
        expected += max(0, min(end, end_ns) - segment.start_ns) / 1e9 * segment.rate
    return math.ceil(expected + SPARE * math.sqrt(expected))


def _moves(spark: Any, plan: StreamPlan, start: int, sizes: Sequence[int]) -> list[tuple[int, int]]:
    """(rows, by how much they move the position) of each piece from number `start` on."""
    if not sizes:
        return []
    stop = start + len(sizes)
    numbers = spark.range(start, stop, numPartitions=min(len(sizes), spark.sparkContext.defaultParallelism * 4))
    summed = numbers.mapInArrow(partial(_sum, plan, start, tuple(sizes)), "number long, moved long").collect()
    moved = {row.number: row.moved for row in summed}
    return [(size, moved[start + index]) for index, size in enumerate(sizes)]


def _sum(
    plan: StreamPlan, start: int, sizes: Sequence[int], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    arrivals = plan.stream().arrivals
    for batch in batches:
        numbers = batch.column(0).to_pylist()
        moved = [arrivals.skip(number * plan.rows, sizes[number - start]) for number in numbers]
        yield pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64()), pa.array(moved, pa.int64())], schema=SUMMED)


def _placed(plan: StreamPlan, moves: Sequence[tuple[int, int]]) -> list[Piece]:
    arrivals = plan.stream().arrivals
    positions = list(accumulate((moved for _, moved in moves), initial=START))
    if positions[-1] >= TIME_MAX:
        raise InputError(
            f"[{section_of(plan.name)}] rate: times leave 64-bit nanoseconds; wanted a higher rate or fewer tuples"
        )
    found = []
    for number, ((rows, _), position) in enumerate(zip(moves, positions)):
        first = number * plan.rows
        found.append(Piece(number, first, rows, position, arrivals.time_before(first, position)))
    return found


def _end_of(piece: Piece, move: tuple[int, int]) -> int:
    return piece.position + move[1]
