"""Arrays that say how large they are and take no memory: the tuples and frames of a simulated run."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from mpijoin.store.state import KEY, ROW, TIME


class Hollow(np.ndarray):
    """All rows are the same one. content: what a frame stands for."""

    content: Any = None

    def copy(self, order: Literal["K", "A", "C", "F"] | None = "C") -> Hollow:
        """Itself: there is nothing that could be changed."""
        return self


def hollow_tuples(rows: int, words: int, first: int, last: int) -> Hollow:
    """int64[rows, words] that stand for tuples which arrived between the instants `first` and `last`."""
    row = np.zeros(words, np.int64)
    row[KEY], row[TIME], row[ROW] = 0, last, first
    return np.broadcast_to(row, (rows, words)).view(Hollow)


def content_of(frame: np.ndarray) -> Any:
    """What a hollow frame stands for."""
    return frame.content if isinstance(frame, Hollow) else None


def hollow_frame(octets: int, content: Any) -> Hollow:
    """uint8[octets] that stand for `content`."""
    frame = np.broadcast_to(np.zeros(1, np.uint8), (octets,)).view(Hollow)
    frame.content = content
    return frame


def ticks_of(tuples: np.ndarray, bounds: np.ndarray) -> list[tuple[int, int, np.ndarray]]:
    """(first instant, last instant, int64[m] tuples of each range) of every tick of which there are hollow tuples in
    tuples[bounds[i, 0]:bounds[i, 1]]."""
    counts = bounds[:, 1] - bounds[:, 0]
    if len(tuples) == 0 or not counts.any():
        return []
    if tuples.strides[0] == 0:
        return [(int(tuples[0, ROW]), int(tuples[0, TIME]), counts)]
    found = []
    for last in np.unique(tuples[:, TIME]):  # put together of several pieces, when a group was held
        own = tuples[:, TIME] == last
        upto = np.concatenate([[0], np.cumsum(own)])
        first = int(tuples[np.flatnonzero(own)[0], ROW])
        found.append((first, int(last), upto[bounds[:, 1]] - upto[bounds[:, 0]]))
    return found
