"""Epoch records, which end whenever they end, brought to bins of time that all ranks share."""

from __future__ import annotations

import math

import numpy as np

BINS_MAX = 180  # more would be finer than a figure can show
# a rank that was idle for so many epochs without a break had no groups: what it held before is not drawn on
GAP_EPOCHS = 5

Records = dict[str, np.ndarray]  # columns of EpochRecord, of one rank and in order of time, int64[n] each


def bin_width_us(span_us: int, epoch_us: int) -> int:
    """The shortest of 1, 2, 5, 10, ... ms, ... that makes at most BINS_MAX bins, each of at least an epoch.

    >>> bin_width_us(60_000_000, 300_000)
    500000
    """
    wanted = max(span_us / BINS_MAX, epoch_us, 1_000)
    decade = 10 ** math.floor(math.log10(wanted))
    return next(width for width in (decade, 2 * decade, 5 * decade, 10 * decade) if width >= wanted)


def edges_of(end_us: np.ndarray, wall_us: np.ndarray) -> np.ndarray:
    """int64[bins + 1]: edges of bins for epochs that ended at end_us after wall_us, int64[n] each, n at least 1.

    They are multiples of the width, but for the first and last, which are those of the epochs; an end that would be
    less than half a bin belongs to the bin before it.
    """
    start, stop = int((end_us - wall_us).min()), int(end_us.max())
    width = bin_width_us(stop - start, int(np.median(wall_us)))
    inner = width * np.arange(start // width + 1, -(-stop // width))
    inner = inner[(inner - start >= width / 2) & (stop - inner >= width / 2)]
    return np.concatenate([[start], inner, [stop]])


def flow(edges: np.ndarray, records: Records, field: str) -> np.ndarray:
    """float64[bins]: how much of what flowed evenly through each epoch did so in each bin.

    >>> records = {"end_us": np.array([5, 15]), "wall_us": np.array([5, 10]), "results": np.array([1, 4])}
    >>> flow(np.array([0, 10, 20]), records, "results")
    array([3., 2.])
    """
    return np.diff(so_far(edges, records, field))


def so_far(edges: np.ndarray, records: Records, field: str) -> np.ndarray:
    """float64[bins + 1]: how much of it had flowed at each edge, from the first epoch on."""
    end_us = records["end_us"]
    if len(end_us) == 0:
        return np.zeros(len(edges))
    begin_us = np.concatenate([[end_us[0] - records["wall_us"][0]], end_us[:-1]])
    total = np.cumsum(records[field], dtype=np.float64)
    known_us = np.stack([begin_us, end_us], axis=1).ravel()
    known = np.stack([total - records[field], total], axis=1).ravel()
    return np.interp(edges, known_us, known)


def peak(edges: np.ndarray, records: Records, field: str) -> np.ndarray:
    """float64[bins]: the largest value recorded in each bin, else the last before it; nan before the first and in long
    idleness."""
    bins, end_us, wall_us = len(edges) - 1, records["end_us"], records["wall_us"]
    if len(end_us) == 0:
        return np.full(bins, np.nan)
    largest = np.full(bins, -np.inf)
    np.maximum.at(largest, bin_of(edges, end_us), records[field])
    after = np.searchsorted(end_us, edges[1:], side="right")  # the record whose epoch the bin ends in
    carried = np.where(after > 0, records[field][after - 1], np.nan)
    idle = (wall_us > GAP_EPOCHS * np.median(wall_us)) & (2 * records["idle_us"] > wall_us)
    carried = np.where(np.concatenate([idle, [False]])[after], np.nan, carried)
    return np.where(np.isfinite(largest), largest, carried)


def bin_of(edges: np.ndarray, end_us: np.ndarray) -> np.ndarray:
    """int64[n]: the bin in which each moment lies; one on an edge belongs to the bin before it."""
    return np.clip(np.searchsorted(edges, end_us, side="left") - 1, 0, len(edges) - 2)
