"""The times at which tuples arrive. They follow a Poisson process whose rate is constant in steps, or the b-model,
which makes bursts.

Both give int64 times in ns, which never fall. A `position` is the state of a generator before some tuple. The times
from there on depend on it and on the tuple's number. Before the first tuple it is `START`.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from mpijoin.compiled import kernel, part
from mpijoin.config.job import B_MODEL, SyntheticSource
from mpijoin.errors import InputError
from mpijoin.generators.draws import draw, share
from mpijoin.generators.schedule import TIME_MAX, OperationalTime, segments_of

START = 0
SECOND_NS = 1e9
# An interval of 64-bit nanoseconds can be halved at most so often.
DEPTH_MAX = 64
_ONE, _TWO = np.uint64(1), np.uint64(2)


class ArrivalTimes(Protocol):
    @property
    def total(self) -> int | None:
        """The number of tuples of the stream, or None if its duration ends it."""

    @property
    def end_ns(self) -> int:
        """All times are below this."""

    def times(self, first: int, rows: int, position: int) -> tuple[np.ndarray, int]:
        """Returns the times of tuples first .. first + rows - 1, and the position after the last of them. There are
        fewer times if the stream ends before, or if the next time does not fit 64 bits."""

    def skip(self, first: int, rows: int) -> int:
        """Returns by how much tuples first .. first + rows - 1 move the position."""

    def time_before(self, first: int, position: int) -> int:
        """Returns a time that is not before that of tuple first - 1, and not after that of tuple `first`."""


def arrivals_of(source: SyntheticSource, base: np.uint64) -> ArrivalTimes:
    return Bursts(source, base) if source.arrivals == B_MODEL else Poisson(source, base)


class Poisson:
    """A Poisson process (WSJ, section VI-A). Its gaps are exponential and rounded to ns, because sums of integers are
    the same however they are split."""

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
    """The b-model over time (Wang et al., ICDE 2002). One half of an interval gets the share b of its tuples, and the
    other half gets 1 - b. Chance decides which half is which. Each half is split in the same way, until a tuple is
    alone or the interval is a nanosecond long."""

    def __init__(self, source: SyntheticSource, base: np.uint64):
        if source.tuples is None:
            # Either a number of tuples or a duration ends the stream.
            assert source.duration_ns is not None
            self.total, self.end_ns = round(source.rate * source.duration_ns / SECOND_NS), source.duration_ns
        else:
            self.total, self.end_ns = source.tuples, max(1, round(source.tuples / source.rate * SECOND_NS))
        if max(self.total, self.end_ns) > TIME_MAX:
            raise InputError(
                f"synthetic stream: {self.total} tuples end {self.end_ns} ns after the first, beyond {TIME_MAX}; "
                "wanted a higher rate or fewer tuples"
            )
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
    """Returns the exponential gap before tuple `index` in ns, rounded, as float64."""
    return np.rint(-np.log(share(draw(base, np.uint64(index)))) * mean_ns)


@kernel
def fill_times(base, first, mean_ns, start_ns, out):
    """Sets out[i], int64[n], to the time of tuple first + i in ns. `start_ns` is the time of the tuple before.

    Returns how many were filled. There are fewer than n if the next time would not fit an int64.
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
    """Returns how many ns tuple first + rows - 1 comes after tuple first - 1, at most TIME_MAX."""
    total = np.int64(0)
    for i in range(rows):
        step = gap(base, first + i, mean_ns)
        if step >= np.float64(TIME_MAX - total):
            return TIME_MAX
        total += np.int64(step)
    return total


def _path() -> tuple[np.ndarray, np.ndarray]:
    """Returns room for one node of each depth. The first array holds the node's number in the binary heap modulo 2**64.
    The root is 1, and the children of n are 2 n and 2 n + 1. The second array holds the node's interval: its start,
    width, number of its first tuple, and tuples."""
    return np.empty(DEPTH_MAX + 1, np.uint64), np.empty((DEPTH_MAX + 1, 4), np.int64)


@part
def _put(half, at, start, width, number, tuples):
    half[at, 0], half[at, 1], half[at, 2], half[at, 3] = start, width, number, tuples


@kernel
def fill_bursts(base, total, span_ns, burst, first, out, node, half):
    """Sets out[i], int64[n], to the time of tuple first + i of `total`, within [0, span_ns).

    It walks the tree of halves from left to right, and only where tuples of `out` lie. `node` and `half` come from
    `_path`, and hold the nodes that are still to be visited.
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
        # Chance decides how this is rounded. If it were always rounded the same way, small counts would get wrong
        # shares.
        left = min(tuples, np.int64(np.float64(tuples) * heavy + share(draw(base, this * _TWO + _ONE))))
        middle = width - width // 2
        node[top + 1] = this * _TWO + _ONE
        _put(half, top + 1, start + middle, width - middle, number + left, tuples - left)
        node[top + 2] = this * _TWO
        _put(half, top + 2, start, middle, number, left)
        top += 2
    return len(out)
