"""Entropy plots say how uneven counts are, level by level of finer cells. They give the bias b of a b-model that is as
uneven.

A b-model halves its interval again and again and gives the share b of the mass to one half. So its entropy grows by
h(b) = -b log2 b - (1 - b) log2(1 - b) bits per level, which is a straight line (Wang et al., "Data mining meets
performance evaluation: fast algorithms for modeling bursty traffic", ICDE 2002, section 4).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, log2, sqrt

import numpy as np

# Tuples per cell on average. With fewer, the bias of the estimate is no longer small against the rest.
PER_CELL_MIN = 100
LINEAR_R2 = 0.999  # below it the plot bends, and its slope is the b of no b-model
BISECTIONS = 60  # halvings of [0.5, 1]: more than a double's bits


@dataclass(frozen=True)
class Line:
    """The line y = intercept + slope x by least squares. r2: the share of y's variance that it explains; 1 where y does
    not vary."""

    slope: float
    intercept: float
    r2: float


def fit_line(x: np.ndarray, y: np.ndarray) -> Line:
    """The line through the points x, y: float64[n], n >= 2."""
    slope, intercept = np.polyfit(x, y, 1)
    around = float(((y - y.mean()) ** 2).sum())
    left = float(((y - intercept - slope * x) ** 2).sum())
    return Line(float(slope), float(intercept), 1 - left / around if around > 0 else 1.0)


@dataclass(frozen=True)
class EntropyPlot:
    """An entropy plot. entropy[l]: the bits of the shares of 2^l equal cells, float64[levels + 1] · line: through level
    0 and the first `fitted` levels.

    The line is None, and so is the bias, where fewer than two levels have enough tuples.
    """

    entropy: np.ndarray
    fitted: int
    line: Line | None

    @property
    def bias(self) -> float | None:
        """The b, 0.5 to 1, whose h(b) is the slope."""
        return None if self.line is None else bias_of_entropy(self.line.slope)

    @property
    def is_linear(self) -> bool:
        """Whether the bias can be trusted."""
        return self.line is not None and self.line.r2 >= LINEAR_R2


def entropy_plot(counts: np.ndarray) -> EntropyPlot:
    """The plot of counts in 2^L equal cells, int64[2^L]. The levels above come from sums of neighbours."""
    total, levels = int(counts.sum()), len(counts).bit_length() - 1
    entropy = np.array([entropy_bits(coarser(counts, level)) for level in range(levels + 1)])
    fitted = min(levels, int(log2(max(1.0, total / PER_CELL_MIN))))
    line = fit_line(np.arange(fitted + 1.0), entropy[: fitted + 1]) if fitted >= 2 else None
    return EntropyPlot(entropy, fitted, line)


def coarser(counts: np.ndarray, level: int) -> np.ndarray:
    """int64[2^L], summed to int64[2^level], level <= L."""
    return counts.reshape(1 << level, -1).sum(axis=1)


def entropy_bits(counts: np.ndarray) -> float:
    """The entropy, in bits, of the distribution that gave these counts, int64[n]; 0 without any.

    The entropy of the counts themselves is too small by (cells - 1) / 2N nats on average, so that much is added
    (Miller, 1955; the cells are those that have tuples).
    """
    met = counts[counts > 0].astype(float)
    if len(met) == 0:
        return 0.0
    return entropy_of_sums(met.sum(), (met * np.log2(met)).sum(), len(met))


def entropy_of_sums(total: float, n_log2_n: float, cells: int) -> float:
    """The same from sums over the cells that have tuples: the sum of their counts n, and that of n log2 n."""
    return log2(total) - n_log2_n / total + (cells - 1) / (2 * total * log(2)) if total else 0.0


def binary_entropy(bias: float) -> float:
    """
    >>> binary_entropy(0.5), binary_entropy(1.0)
    (1.0, 0.0)
    """
    return -sum(share * log2(share) for share in (bias, 1 - bias) if share > 0) + 0.0


def bias_of_entropy(bits: float) -> float:
    """The b in [0.5, 1] with h(b) = bits. It is 0.5 for more than one bit, and 1 for less than none.

    >>> round(bias_of_entropy(binary_entropy(0.7)), 6)
    0.7
    """
    low, high = 0.5, 1.0
    if bits >= 1:
        return low
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if binary_entropy(middle) > bits else (low, middle)
    return (low + high) / 2


def bias_of_collisions(equal_share: float, distinct: int) -> float | None:
    """A rough b of keys without an order. In a b-model the chance that two tuples have one key, equal_share, is (b^2 +
    (1 - b)^2)^bits.

    bits = log2 distinct, of the keys that occur and not of those that could. None for fewer than two keys, or where no
    two tuples have the same one.
    """
    if distinct < 2 or equal_share <= 0:
        return None
    per_bit = min(1.0, equal_share ** (1 / log2(distinct)))
    return (1 + sqrt(max(0.0, 2 * per_bit - 1))) / 2
