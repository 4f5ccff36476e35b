"""How tuples arrive: rates over time, and how bursty they are. Both come from counts on a grid of time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mpijoin.pipeline.profile.entropy import EntropyPlot, Line, coarser, entropy_plot, fit_line

GRID_LEVEL = 16  # counts are taken in at most 2^16 bins
HURST_LEVEL_MIN = 5  # the variance of fewer than 32 blocks is too uncertain to fit
HURST_LEVELS_MIN = 4
HURST_PER_BIN = 1.0  # tuples per bin in the mean: in finer bins nothing but the grain of single tuples is left


@dataclass(frozen=True)
class Arrivals:
    """The arrivals of one stream. counts: int64[2^k], in equal bins from `start_s`, seconds since 1970, over `span_s`
    seconds."""

    start_s: float
    span_s: float
    counts: np.ndarray

    @property
    def rows(self) -> int:
        return int(self.counts.sum())

    @property
    def rate(self) -> float:
        """Tuples per second on average."""
        return self.rows / self.span_s

    @property
    def bin_s(self) -> float:
        return self.span_s / len(self.counts)

    @cached_property
    def entropy(self) -> EntropyPlot:
        return entropy_plot(self.counts)

    @cached_property
    def hurst_line(self) -> Line | None:
        return variance_line(self.counts)

    @property
    def hurst(self) -> float | None:
        """A rough Hurst parameter: 0.5 for arrivals without memory, and closer to 1 the longer bursts last. None where
        the fit is not between 0 and 1.

        It is None, for example, for arrivals by a timetable.
        """
        estimate = -1.0 if self.hurst_line is None else 1 + self.hurst_line.slope / 2
        return estimate if 0 <= estimate <= 1 else None

    def binned(self, bins: int) -> np.ndarray:
        """The counts in `bins` bins, a power of two, or in all there are if those are fewer."""
        return coarser(self.counts, min(bins, len(self.counts)).bit_length() - 1)

    def edges_s(self, bins: int) -> np.ndarray:
        """float64[bins + 1], seconds since 1970."""
        return self.start_s + np.linspace(0, self.span_s, bins + 1)

    def before(self, time_s: np.ndarray) -> np.ndarray:
        """How many tuples came before each time, float64[n]. It is exact at the edges of bins, and even between
        them."""
        return np.interp(time_s, self.edges_s(len(self.counts)), np.concatenate([[0], np.cumsum(self.counts)]))

    def peak_rate(self, length_s: float) -> float:
        """Tuples per second in the busiest stretch of about this length. The stretch is at least one bin, and at most
        the whole span."""
        if self.span_s <= length_s:
            return self.rows / length_s
        bins = int(np.clip(round(length_s / self.bin_s), 1, len(self.counts)))
        return int(sliding_sums(self.counts, bins).max()) / (bins * self.bin_s)

    def in_window(self, window_s: float) -> np.ndarray:
        """At most so many tuples lie in the window that ends in each bin, int64[2^k]: all tuples of the bins that it
        touches."""
        bins = int(min(np.ceil(window_s / self.bin_s) + 1, len(self.counts)))
        return sliding_sums(np.concatenate([np.zeros(bins - 1, np.int64), self.counts]), bins)

    def left_in_window(self, bins: np.ndarray, window_s: float) -> np.ndarray:
        """At most so many tuples, int64[n], lie in the windows that end in these bins behind the last one, int64[n]."""
        upto = np.concatenate([[0], np.cumsum(self.counts)])
        gone = np.clip(bins + 1 - (np.ceil(window_s / self.bin_s) + 1), 0, len(self.counts))
        return upto[-1] - upto[gone.astype(np.int64)]


def grid_level(span: int) -> int:
    """The level of the finest grid whose bins have at least one whole tick, so that no bin is empty by design.

    >>> grid_level(86_400_000_000), grid_level(3600), grid_level(1)
    (16, 11, 0)
    """
    return min(GRID_LEVEL, span.bit_length() - 1)


def sliding_sums(counts: np.ndarray, length: int) -> np.ndarray:
    """int64[n - length + 1]: the sum of each `length` neighbours."""
    upto = np.concatenate([[0], np.cumsum(counts)])
    return upto[length:] - upto[:-length]


def dispersion(counts: np.ndarray) -> float | None:
    """The index of dispersion, variance over mean. It is 1 for Poisson arrivals and more for bursty ones; None without
    any."""
    return float(counts.var() / counts.mean()) if counts.any() else None


def dispersions(counts: np.ndarray) -> np.ndarray:
    """float64[L]: the index of dispersion of int64[2^L] at the levels 1, 2, ... L."""
    levels = range(1, len(counts).bit_length())
    return np.array([dispersion(coarser(counts, level)) or np.nan for level in levels])


def variances(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(levels int64[n], variances float64[n]) of the mean count per finest bin within each of 2^level blocks.

    The levels are those that the estimate of Hurst uses: from 32 blocks up to blocks with one tuple each on average.
    """
    finest = len(counts).bit_length() - 1
    finest_level = min(finest, int(np.log2(max(1.0, counts.sum() / HURST_PER_BIN))))
    levels = np.arange(HURST_LEVEL_MIN, finest_level + 1)
    means = [coarser(counts, level) / (1 << (finest - level)) for level in levels.tolist()]
    return levels, np.array([mean.var() for mean in means])


def variance_line(counts: np.ndarray) -> Line | None:
    """The line through log2 of the variance over log2 of the block's length. Its slope is 2H - 2 (Beran, "Statistics
    for long-memory processes", 4.4)."""
    levels, variance = variances(counts)
    known = variance > 0
    if known.sum() < HURST_LEVELS_MIN:
        return None
    return fit_line(-levels[known].astype(float), np.log2(variance[known]))
