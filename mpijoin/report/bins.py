"""Epoch records, which end whenever they end, brought to bins of equal length."""

from __future__ import annotations

import math

import numpy as np

BINS_MAX = 180  # more would be finer than a figure can show
STALE_EPOCHS = 5  # a rank that has recorded nothing for so many epochs has no groups: what it held before is not drawn on


def bin_width_us(span_us: int, epoch_us: int) -> int:
    """The shortest of 1, 2, 5, 10, ... ms, ... that makes at most BINS_MAX bins, each of at least an epoch.

    >>> bin_width_us(60_000_000, 300_000)
    500000
    """
    wanted = max(span_us / BINS_MAX, epoch_us, 1_000)
    decade = 10 ** math.floor(math.log10(wanted))
    return next(width for width in (decade, 2 * decade, 5 * decade, 10 * decade) if width >= wanted)


def edges_of(end_us: np.ndarray, wall_us: np.ndarray) -> np.ndarray:
    """int64[bins + 1]: edges of bins that hold epochs ending at end_us after wall_us, int64[n] each, n at least 1."""
    start, stop = int((end_us - wall_us).min()), int(end_us.max())
    epoch_us = int(np.median(wall_us))
    width = bin_width_us(stop - start, epoch_us)
    first = start // width
    return width * np.arange(first, max(first + 1, -(-stop // width)) + 1)


def flow(edges: np.ndarray, end_us: np.ndarray, wall_us: np.ndarray, amounts: np.ndarray) -> np.ndarray:
    """float64[bins]: how much of what flowed evenly through each epoch did so in each bin. Epochs in order of time.

    >>> flow(np.array([0, 10, 20]), np.array([5, 15]), np.array([5, 10]), np.array([1, 4]))
    array([3., 2.])
    """
    if len(end_us) == 0:
        return np.zeros(len(edges) - 1)
    begin_us = np.concatenate([[end_us[0] - wall_us[0]], end_us[:-1]])
    known_us = np.stack([begin_us, end_us], axis=1).ravel()
    total = np.cumsum(amounts, dtype=np.float64)
    known = np.stack([total - amounts, total], axis=1).ravel()
    return np.diff(np.interp(edges, known_us, known))


def peak(edges: np.ndarray, end_us: np.ndarray, wall_us: np.ndarray, values: np.ndarray) -> np.ndarray:
    """float64[bins]: the largest value recorded in each bin, else the last before it, else nan."""
    bins = len(edges) - 1
    largest = np.full(bins, -np.inf)
    if len(end_us) == 0:
        return np.full(bins, np.nan)
    np.maximum.at(largest, bin_of(edges, end_us), values)
    stops = edges[1:]
    last = np.searchsorted(end_us, stops, side="right") - 1
    carried = np.where(last >= 0, values[last], np.nan)
    stale = stops - end_us[last] > STALE_EPOCHS * np.median(wall_us) + (edges[1] - edges[0])
    return np.where(np.isfinite(largest), largest, np.where(stale, np.nan, carried))


def bin_of(edges: np.ndarray, end_us: np.ndarray) -> np.ndarray:
    """int64[n]: the bin in which each moment lies; one on an edge belongs to the bin before it."""
    return np.clip(np.searchsorted(edges, end_us, side="left") - 1, 0, len(edges) - 2)
