"""Entropy plots: how uneven counts are, level by level of finer cells, and the bias b of a b-model that is as uneven.

A b-model halves its interval again and again and gives the share b of the mass to one half, so its entropy grows by
h(b) = -b log2 b - (1 - b) log2(1 - b) bits per level: a straight line (Wang et al., "Data mining meets performance
evaluation: fast algorithms for modeling bursty traffic", ICDE 2002, section 4).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, log2, sqrt

import numpy as np

# tuples per cell in the mean: with fewer, the bias of the estimate is no longer small against what is left
PER_CELL_MIN = 100
LINEAR_R2 = 0.999  # below it the plot bends, and its slope is the b of no b-model
BISECTIONS = 60  # halvings of [0.5, 1]: more than a double's bits


@dataclass(frozen=True)
class Line:
    """y = intercept + slope x by least squares; r2: the share of y's variance that it explains, 1 where y does not
    vary."""

    slope: float
    intercept: float
    r2: float


def fit_line(x: np.ndarray, y: np.ndarray) -> Line:
    """Of points x, y: float64[n], n >= 2."""
    slope, intercept = np.polyfit(x, y, 1)
    around = float(((y - y.mean()) ** 2).sum())
    left = float(((y - intercept - slope * x) ** 2).sum())
    return Line(float(slope), float(intercept), 1 - left / around if around > 0 else 1.0)


@dataclass(frozen=True)
class EntropyPlot:
    """entropy[l]: bits, of the shares of 2^l equal cells, float64[levels + 1]; line: through the first `fitted` levels
    and level 0.

    line is None, and so is the bias, where fewer than two levels have enough tuples.
    """

    entropy: np.ndarray
    fitted: int
    line: Line | None

    @property
    def bias(self) -> float | None:
        """The b whose h(b) is the slope, 0.5 to 1."""
        return None if self.line is None else bias_of_entropy(self.line.slope)

    @property
    def is_linear(self) -> bool:
        """Whether the bias is to be trusted."""
        return self.line is not None and self.line.r2 >= LINEAR_R2


def entropy_plot(counts: np.ndarray) -> EntropyPlot:
    """Of counts in 2^L equal cells, int64[2^L]; the levels above come from sums of neighbours."""
    total, levels = int(counts.sum()), len(counts).bit_length() - 1
    entropy = np.array([entropy_bits(coarser(counts, level)) for level in range(levels + 1)])
    fitted = min(levels, int(log2(max(1.0, total / PER_CELL_MIN))))
    line = fit_line(np.arange(fitted + 1.0), entropy[: fitted + 1]) if fitted >= 2 else None
    return EntropyPlot(entropy, fitted, line)


def coarser(counts: np.ndarray, level: int) -> np.ndarray:
    """int64[2^L] as int64[2^level], level <= L."""
    return counts.reshape(1 << level, -1).sum(axis=1)


def entropy_bits(counts: np.ndarray) -> float:
    """Bits of entropy of the distribution that gave these counts, int64[n]; 0 for none.

    What the counts themselves have is too little by (cells - 1) / 2N nats in the mean; that is added (Miller, 1955; the
    cells are those that were met).
    """
    met = counts[counts > 0].astype(float)
    if len(met) == 0:
        return 0.0
    return entropy_of_sums(met.sum(), (met * np.log2(met)).sum(), len(met))


def entropy_of_sums(total: float, n_log2_n: float, cells: int) -> float:
    """The same from sums over the cells met: of their counts n, and of n log2 n."""
    return log2(total) - n_log2_n / total + (cells - 1) / (2 * total * log(2)) if total else 0.0


def binary_entropy(bias: float) -> float:
    """
    >>> binary_entropy(0.5), binary_entropy(1.0)
    (1.0, 0.0)
    """
    return -sum(share * log2(share) for share in (bias, 1 - bias) if share > 0) + 0.0


def bias_of_entropy(bits: float) -> float:
    """The b in [0.5, 1] with h(b) = bits; 0.5 for more than one bit, 1 for less than none.

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
    """A rough b of keys without an order: equal_share, that two tuples have one key, is (b^2 + (1 - b)^2)^bits in a
    b-model.

    bits = log2 distinct: of the keys met, not of those there could be. None for fewer than two keys or where no two are
    equal.
    """
    if distinct < 2 or equal_share <= 0:
        return None
    per_bit = min(1.0, equal_share ** (1 / log2(distinct)))
    return (1 + sqrt(max(0.0, 2 * per_bit - 1))) / 2
