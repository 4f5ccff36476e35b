"""Hollow arrays: the tuples and frames of a simulated run. They have a size but take no memory."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from mpijoin.store.state import KEY, ROW, TIME


class Hollow(np.ndarray):
    """An array all of whose rows are the same one in memory. content: what a frame stands for."""

    content: Any = None

    def copy(self, order: Literal["K", "A", "C", "F"] | None = "C") -> Hollow:
        """Returns the array itself, because there is nothing in it that could be changed."""
        return self


def hollow_tuples(rows: int, words: int, first: int, last: int) -> Hollow:
    """Returns int64[rows, words] that stand for tuples which arrived between the instants `first` and `last`."""
    row = np.zeros(words, np.int64)
    row[KEY], row[TIME], row[ROW] = 0, last, first
    return np.broadcast_to(row, (rows, words)).view(Hollow)


def content_of(frame: np.ndarray) -> Any:
    """Returns what a hollow frame stands for, or None for any other frame."""
    return frame.content if isinstance(frame, Hollow) else None


def hollow_frame(octets: int, content: Any) -> Hollow:
    """Returns uint8[octets] that stand for `content`."""
    frame = np.broadcast_to(np.zeros(1, np.uint8), (octets,)).view(Hollow)
    frame.content = content
    return frame


def ticks_of(tuples: np.ndarray, bounds: np.ndarray) -> list[tuple[int, int, np.ndarray]]:
    """Returns (first instant, last instant, int64[m] tuples of each range) for each tick with tuples in the ranges.

    The ranges are tuples[bounds[i, 0]:bounds[i, 1]], and the tuples are hollow.
    """
    counts = bounds[:, 1] - bounds[:, 0]
    if len(tuples) == 0 or not counts.any():
        return []
    if tuples.strides[0] == 0:
        return [(int(tuples[0, ROW]), int(tuples[0, TIME]), counts)]
    found = []
    # There are several ticks if a group was held and its pieces were put together.
    for last in np.unique(tuples[:, TIME]):
        own = tuples[:, TIME] == last
        upto = np.concatenate([[0], np.cumsum(own)])
        first = int(tuples[np.flatnonzero(own)[0], ROW])
        found.append((first, int(last), upto[bounds[:, 1]] - upto[bounds[:, 0]]))
    return found
