"""What Spark's Python workers run on batches of rows. Each worker imports this module, so the module imports little."""

from __future__ import annotations

from typing import Callable, Iterable, Iterator, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from mpijoin.pipeline.profile.results import Ranges, count_results

SEGMENT = ("file", "first", "least", "most", "disorder")
# by SEGMENT: file, position of its first row in it; least and most time; how far out of order within
Segment = list[int]


def segments(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Makes a segment, int64 columns, of each run of rows of one file. The batches are (file, place, time), int64
    without nulls.

    Rows of one file come in their order.
    """
    done: list[Segment] = []
    for batch in batches:
        for segment in _pieces(*(np.asarray(column) for column in batch.columns)):
            if done and done[-1][0] == segment[0] and done[-1][1] < segment[1]:
                done[-1] = _joined(done[-1], segment)
            else:
                done.append(segment)
    columns = [pa.array([segment[index] for segment in done], pa.int64()) for index in range(len(SEGMENT))]
    yield pa.RecordBatch.from_arrays(columns, SEGMENT)


def _pieces(file: np.ndarray, place: np.ndarray, time: np.ndarray) -> Iterator[Segment]:
    starts = np.flatnonzero(np.concatenate([[len(file) > 0], file[1:] != file[:-1]])).tolist()
    for first, end in zip(starts, [*starts[1:], len(file)]):
        own = time[first:end]
        behind = np.maximum.accumulate(own) - own
        yield [int(file[first]), int(place[first]), int(own.min()), int(own.max()), int(behind.max())]


def _joined(one: Segment, following: Segment) -> Segment:
    file, first, least, most, disorder = one
    _, _, next_least, next_most, next_disorder = following
    return [file, first, min(least, next_least), max(most, next_most), max(disorder, next_disorder, most - next_least)]


def worst_disorder(found: list[Segment]) -> int:
    """How far, at most, a row lies before the newest of those before it in its file. segments: all of all files."""
    whole: dict[int, Segment] = {}
    for segment in sorted(found):
        file = segment[0]
        whole[file] = _joined(whole[file], segment) if file in whole else segment
    return max((segment[-1] for segment in whole.values()), default=0)


def result_counter(ranges: Ranges, windows: Sequence[int]) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """A function of rows (range, hash, time, stream, is_own) that gives the results of each slot as (slot, results)."""

    def counted(rows: pd.DataFrame) -> pd.DataFrame:
        columns = ("range", "hash", "time", "stream", "is_own")
        group, key, time, stream, is_own = (rows[name].to_numpy() for name in columns)
        slots, place = np.unique((time[is_own] - ranges.start) // ranges.slot_length, return_inverse=True)
        results = np.bincount(place, count_results(group, key, time, stream, is_own, windows), len(slots))
        return pd.DataFrame({"slot": slots, "results": results})

    return counted
