"""When tuples arrive: a Poisson process of stepwise constant rate, or bursts by the b-model.

Both give int64 times in ns, never falling. A `position` is where a generator stands before some tuple: what the times
after it depend on besides the tuple's number; `START` before the first.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from mpijoin.compiled import kernel, part
from mpijoin.config.job import B_MODEL, SyntheticSource
from mpijoin.generators.draws import draw, share
from mpijoin.generators.schedule import TIME_MAX, OperationalTime, segments_of

START = 0
SECOND_NS = 1e9
DEPTH_MAX = 64  # halvings of an interval of 64-bit nanoseconds
_ONE, _TWO = np.uint64(1), np.uint64(2)


class ArrivalTimes(Protocol):
    @property
    def total(self) -> int | None:
        """Tuples of the stream; None: its duration ends it."""

    @property
    def end_ns(self) -> int:
        """Times are below this."""

    def times(self, first: int, rows: int, position: int) -> tuple[np.ndarray, int]:
        """Of tuples first .. first + rows - 1, and the position after the last; fewer where the next is beyond 64
        bits."""

    def skip(self, first: int, rows: int) -> int:
        """By how much those tuples move the position."""

    def time_before(self, first: int, position: int) -> int:
        """A time not before that of tuple first - 1 and not after that of tuple `first`."""


def arrivals_of(source: SyntheticSource, base: np.uint64) -> ArrivalTimes:
    return Bursts(source, base) if source.arrivals == B_MODEL else Poisson(source, base)


class Poisson:
    """Exponential gaps, rounded to ns: prefix sums of integers are the same however they are split (WSJ, section
    VI-A)."""

    def __init__(self, source: SyntheticSource, base: np.uint64):
        self.total = source.tuples
        self.end_ns = TIME_MAX if source.duration_ns is None else source.duration_ns
        self._base, self._mean_ns = base, SECOND_NS / source.rate
        self._clock = OperationalTime(segments_of(source))

    def times(self, first: int, rows: int, position: int) -> tuple[np.ndarray, int]:
        operational = np.empty(rows, np.int64)
        filled = fill_times(self._base, first, self._mean_ns, position, operational)
        time = self._clock.event_ns(operational[:filled])
        fits = int(np.searchsorted(time, TIME_MAX, "left"))
        return time[:fits], int(operational[fits - 1]) if fits else position

    def skip(self, first: int, rows: int) -> int:
        return int(sum_gaps(self._base, first, rows, self._mean_ns))

    def time_before(self, first: int, position: int) -> int:
        return int(self._clock.event_ns(np.array([position], np.int64))[0])


class Bursts:
    """The b-model over time: of the tuples of an interval one half gets the share b, the other 1 - b, which is which by
    chance; the halves again, until a tuple is alone or a nanosecond is reached (Wang et al., ICDE 2002)."""

    def __init__(self, source: SyntheticSource, base: np.uint64):
        if source.tuples is None:
            assert source.duration_ns is not None  # one of the two ends the stream
            self.total, self.end_ns = round(source.rate * source.duration_ns / SECOND_NS), source.duration_ns
        else:
            self.total, self.end_ns = source.tuples, max(1, round(source.tuples / source.rate * SECOND_NS))
        self._base, self._burst = base, source.burst

    def times(self, first: int, rows: int, position: int) -> tuple[np.ndarray, int]:
        time = np.empty(max(0, min(rows, self.total - first)), np.int64)
        fill_bursts(self._base, self.total, self.end_ns, self._burst, first, time, *_path())
        return time, START

    def skip(self, first: int, rows: int) -> int:
        return 0

    def time_before(self, first: int, position: int) -> int:
        if first >= self.total:
            return self.end_ns
        return int(self.times(first, 1, START)[0][0])


@kernel
def gap(base, index, mean_ns):
    """Exponential gap before tuple `index`, in ns, rounded, float64."""
    return np.rint(-np.log(share(draw(base, np.uint64(index)))) * mean_ns)


@kernel
def fill_times(base, first, mean_ns, start_ns, out):
    """out[i] = time of tuple first + i in ns, int64[n], given that of the one before.

    Returns how many were filled: fewer than n when the next one would not fit an int64.
    """
    time = start_ns
    for i in range(len(out)):
        step = gap(base, first + i, mean_ns)
        if step >= np.float64(TIME_MAX - time):
            return i
        time += np.int64(step)
        out[i] = time
    return len(out)


@kernel
def sum_gaps(base, first, rows, mean_ns):
    """By how many ns tuple first + rows - 1 comes after tuple first - 1; TIME_MAX at most."""
    total = np.int64(0)
    for i in range(rows):
        step = gap(base, first + i, mean_ns)
        if step >= np.float64(TIME_MAX - total):
            return TIME_MAX
        total += np.int64(step)
    return total


def _path() -> tuple[np.ndarray, np.ndarray]:
    """Room for one node of each depth: its number in the binary heap, 1, then 2 n and 2 n + 1, modulo 2**64; and of its
    interval start, width, number of its first tuple, and tuples."""
    return np.empty(DEPTH_MAX + 1, np.uint64), np.empty((DEPTH_MAX + 1, 4), np.int64)


@part
def _put(half, at, start, width, number, tuples):
    half[at, 0], half[at, 1], half[at, 2], half[at, 3] = start, width, number, tuples


@kernel
def fill_bursts(base, total, span_ns, burst, first, out, node, half):
    """out[i] = time of tuple first + i of `total`, int64[n], within [0, span_ns).

    Walks the tree of halves from left to right, and only where tuples of `out` lie. node, half: the way to where it is,
    as `_path` makes them.
    """
    node[0] = _ONE
    _put(half, 0, 0, span_ns, 0, total)
    top, last = 0, first + len(out)
    while top >= 0:
        this = node[top]
        start, width, number, tuples = half[top, 0], half[top, 1], half[top, 2], half[top, 3]
        top -= 1
        if tuples == 0 or number + tuples <= first or number >= last:
            continue
        if tuples == 1 or width == 1:
            offset = np.int64(share(draw(base, this * _TWO)) * np.float64(width)) if tuples == 1 else np.int64(0)
            for i in range(max(number, first), min(number + tuples, last)):
                out[i - first] = start + min(offset, width - 1)
            continue
        heavy = burst if draw(base, this * _TWO) & _ONE == _ONE else 1.0 - burst
        # Rounded by chance: always rounding the same way would bend the shares of small counts.
        left = min(tuples, np.int64(np.float64(tuples) * heavy + share(draw(base, this * _TWO + _ONE))))
        middle = width - width // 2
        node[top + 1] = this * _TWO + _ONE
        _put(half, top + 1, start + middle, width - middle, number + left, tuples - left)
        node[top + 2] = this * _TWO
        _put(half, top + 2, start, middle, number, left)
        top += 2
    return len(out)
