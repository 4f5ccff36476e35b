"""How keys are spread: the top keys, the distinct keys, and the b of a b-model that is as skewed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpijoin.pipeline.profile.entropy import EntropyPlot, bias_of_collisions, entropy_of_sums, entropy_plot

CELL_LEVEL = 14  # an integer key's span is cut into at most 2^14 cells
FIRST_CELLS = 64  # a span begins at 0 if the least key lies in the first of so many cells
ROUND_SHARE = 0.02  # a span from 0 ends at a round number if that is no farther beyond the greatest key


@dataclass(frozen=True)
class KeySums:
    """Sums over the distinct keys of one stream, with n tuples each: the number of keys, the sums of n, n log2 n and n
    (n - 1), and the largest n."""

    distinct: int
    rows: int
    n_log2_n: float
    equal_pairs: float
    most: int


@dataclass(frozen=True)
class TopKey:
    """A key, as text, and how many tuples of each stream have it."""

    key: str
    tuples: tuple[int, ...]

    @property
    def of_all(self) -> int:
        """Tuples of all streams."""
        return sum(self.tuples)


@dataclass(frozen=True)
class KeySpan:
    """`length` whole numbers from `start` on, in 2^level cells."""

    start: int
    length: int

    @property
    def level(self) -> int:
        return min(CELL_LEVEL, self.length.bit_length() - 1)


@dataclass(frozen=True)
class Keys:
    """The keys of one stream. cells: counts over the span of integer keys, int64[2^level]; None for other keys."""

    sums: KeySums
    cells: np.ndarray | None

    @property
    def entropy_bits(self) -> float:
        """The entropy of the distribution of single keys, in bits. It is too low where most keys occur only once."""
        return entropy_of_sums(self.sums.rows, self.sums.n_log2_n, self.sums.distinct)

    @property
    def equal_share(self) -> float:
        """How likely two different tuples have the same key."""
        rows = self.sums.rows
        return self.sums.equal_pairs / (rows * (rows - 1)) if rows > 1 else 0.0

    @property
    def top_share(self) -> float:
        return self.sums.most / self.sums.rows if self.sums.rows else 0.0

    @property
    def plot(self) -> EntropyPlot | None:
        return None if self.cells is None else entropy_plot(self.cells)

    @property
    def skew(self) -> Skew:
        plot = self.plot
        if plot is not None and plot.is_linear:
            return Skew(plot.bias, "entropy plot", True)
        return Skew(bias_of_collisions(self.equal_share, self.sums.distinct), "collisions", False)


@dataclass(frozen=True)
class Skew:
    """The b that fits the keys, None where nothing does; how it was found; whether it is more than rough."""

    bias: float | None
    method: str
    is_trusted: bool


def key_span(least: int, most: int) -> KeySpan:
    """The span of integer keys between these. Keys that begin at 0 were most likely meant to end at a round number.

    The largest keys are rare in a skewed stream, and a span that ends at the largest key that occurs would shift every
    cell.

    >>> key_span(3, 9_980_474), key_span(1_000, 1_099)
    (KeySpan(start=0, length=10000000), KeySpan(start=1000, length=100))
    """
    if not 0 <= least <= most // FIRST_CELLS:
        return KeySpan(least, most - least + 1)
    digit = 10 ** (len(str(most)) - 1)
    rounded = [1 << most.bit_length(), -(-(most + 1) // digit) * digit]
    close = [end for end in rounded if end <= (1 + ROUND_SHARE) * (most + 1)]
    return KeySpan(0, min(close, default=most + 1))


def printable(key: str) -> str:
    """The key in one line, whatever letters it has.

    >>> printable("a\\nb")
    'a\\\\nb'
    """
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in key)
