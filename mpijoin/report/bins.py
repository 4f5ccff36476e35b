"""Bins of time that all ranks share. The epochs of different ranks end at different moments, bins do not."""

from __future__ import annotations

import math

import numpy as np

BINS_MAX = 180  # More bins would be finer than a figure can show.
# A rank that was idle for so many epochs without a break had no groups. The line of what it held before ends there.
GAP_EPOCHS = 5

# These are columns of EpochRecord of one rank, in order of time, int64[n] each.
Records = dict[str, np.ndarray]


def bin_width_us(span_us: int, epoch_us: int) -> int:
    """Returns the shortest of 1, 2, 5, 10, ... ms that gives at most BINS_MAX bins, each at least one epoch long.

    >>> bin_width_us(60_000_000, 300_000)
    500000
    """
    wanted = max(span_us / BINS_MAX, epoch_us, 1_000)
    decade = 10 ** math.floor(math.log10(wanted))
    return next(width for width in (decade, 2 * decade, 5 * decade, 10 * decade) if width >= wanted)


def edges_of(end_us: np.ndarray, wall_us: np.ndarray) -> np.ndarray:
    """Returns int64[bins + 1], the edges of the bins for epochs that ended at end_us and took wall_us.

    end_us, wall_us: int64[n], n at least 1. The edges are multiples of the width of a bin, except that the first and
    the last are where the epochs begin and end. Less than half a bin at either end belongs to the bin
    beside it.
    """
    start, stop = int((end_us - wall_us).min()), int(end_us.max())
    width = bin_width_us(stop - start, int(np.median(wall_us)))
    inner = width * np.arange(start // width + 1, -(-stop // width))
    inner = inner[(inner - start >= width / 2) & (stop - inner >= width / 2)]
    return np.concatenate([[start], inner, [stop]])


def flow(edges: np.ndarray, records: Records, field: str) -> np.ndarray:
    """Returns float64[bins]: how much of the field falls into each bin, if it is spread evenly over each epoch.

    >>> records = {"end_us": np.array([5, 15]), "wall_us": np.array([5, 10]), "results": np.array([1, 4])}
    >>> flow(np.array([0, 10, 20]), records, "results")
    array([3., 2.])
    """
    return np.diff(so_far(edges, records, field))


def so_far(edges: np.ndarray, records: Records, field: str) -> np.ndarray:
    """Returns float64[bins + 1]: the total of the field from the first epoch up to each edge."""
    end_us = records["end_us"]
    if len(end_us) == 0:
        return np.zeros(len(edges))
    begin_us = np.concatenate([[end_us[0] - records["wall_us"][0]], end_us[:-1]])
    total = np.cumsum(records[field], dtype=np.float64)
    known_us = np.stack([begin_us, end_us], axis=1).ravel()
    known = np.stack([total - records[field], total], axis=1).ravel()
    return np.interp(edges, known_us, known)


def peak(edges: np.ndarray, records: Records, field: str) -> np.ndarray:
    """Returns float64[bins]: the largest value recorded in each bin, or else the last one before it.

    It is nan before the first record and where the rank was idle for long.
    """
    bins, end_us, wall_us = len(edges) - 1, records["end_us"], records["wall_us"]
    if len(end_us) == 0:
        return np.full(bins, np.nan)
    largest = np.full(bins, -np.inf)
    np.maximum.at(largest, bin_of(edges, end_us), records[field])
    after = np.searchsorted(end_us, edges[1:], side="right")  # This is the record in whose epoch the bin ends.
    carried = np.where(after > 0, records[field][after - 1], np.nan)
    idle = (wall_us > GAP_EPOCHS * _epoch_us(records)) & (2 * records["idle_us"] > wall_us)
    carried = np.where(np.concatenate([idle, [False]])[after], np.nan, carried)
    return np.where(np.isfinite(largest), largest, carried)


def _epoch_us(records: Records) -> float:
    """Returns how long an epoch of the rank took, in the median. Each spill and clean-up adds records to its epoch."""
    _, epochs = np.unique(records["epoch"], return_inverse=True)
    return float(np.median(np.bincount(epochs, records["wall_us"])))


def bin_of(edges: np.ndarray, end_us: np.ndarray) -> np.ndarray:
    """Returns int64[n], the bin of each moment. A moment on an edge belongs to the bin before it."""
    return np.clip(np.searchsorted(edges, end_us, side="left") - 1, 0, len(edges) - 2)
