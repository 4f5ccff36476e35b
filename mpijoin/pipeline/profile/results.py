"""How many results the windows give. They are counted without being made, or estimated from some stretches of time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

import numpy as np

from mpijoin.named import NamedTuple

SLOTS_MAX = 1 << 10  # points of the curve of results over time
SAMPLED_FROM_MAX = 1 << 14  # ranges to draw a sample from
SAMPLED_MIN = 30  # fewer sampled ranges give no bound to trust
WINDOWS_PER_RANGE = 8  # a range holds the windows so often: few tuples are in reach of two ranges
GROUP_ROWS = 1_000_000  # tuples that one call counts among
EXACT_ROWS_MAX = 50_000_000  # of all streams: more are sampled, unless told otherwise
NORMAL_95 = 1.96
PAIRS_NAME = ""  # of a sample of pairs: no stream is called so


@dataclass(frozen=True)
class Ranges:
    """Equal ranges of time from tick `start`: `count` ranges of `length` ticks. Every tuple lies in one of them.

    Results are counted in the range of their latest tuple. Each range is cut into `slots` equal slots, which are the
    points of the curve of results over time.
    """

    start: int
    length: int
    count: int
    slots: int

    @property
    def slot_length(self) -> int:
        return self.length // self.slots


def cut_ranges(start: int, end: int, windows: int, most: int) -> Ranges:
    """Cuts the ticks from start to end, both included, into ranges. windows: those of all streams together, in ticks ·
    most: the largest number of slots.

    >>> cut_ranges(0, 999, 10, 1000)
    Ranges(start=0, length=80, count=13, slots=40)
    """
    span = end - start + 1
    length = min(span, max(WINDOWS_PER_RANGE * windows, -(-span // most)))
    slot = -(-length // (most // -(-span // length)))
    slots = -(-length // slot)
    return Ranges(start, slot * slots, -(-span // (slot * slots)), slots)


def count_results(
    group: np.ndarray,
    key: np.ndarray,
    time: np.ndarray,
    stream: np.ndarray,
    is_own: np.ndarray,
    windows: Sequence[int],
) -> np.ndarray:
    """Results of which each own tuple is the latest, in their order: float64[owns], of tuples int64[n] each, is_own
    bool[n].

    A result has a tuple of each stream, all of one group and key, whose latest, at t, is in the windows of the others:
    they lie in [t - window, t]. Of tuples of one time that of the last stream is the latest. So the latest tuple finds
    partners in each stream apart from the others, and no result is made: time O(n log n) a stream.
    """
    together, own = numbered(group, key), np.flatnonzero(is_own)
    found = np.ones(len(own))
    for other, window in enumerate(windows):
        until = time[own] - (stream[own] < other)
        met = reach(together, time, np.flatnonzero(stream == other), own, time[own] - window, until).met
        found *= np.where(stream[own] == other, 1, met)
    return found


class Reach(NamedTuple):
    """Whom own tuples meet: tuple i of them meets others[low[i]:high[i]]. low, high: int64[owns] · others: places of
    tuples, by key and time · order: int64[owns], the own tuples by key and time."""

    others: np.ndarray
    low: np.ndarray
    high: np.ndarray
    order: np.ndarray

    @property
    def met(self) -> np.ndarray:
        """How many each meets, int64[owns]."""
        return self.high - self.low


def reach(
    together: np.ndarray, time: np.ndarray, others: np.ndarray, own: np.ndarray, since: np.ndarray, until: np.ndarray
) -> Reach:
    """Which of the others, of the same number in `together`, lie in [since, until] of each own tuple.

    others, own: places of tuples.
    """
    # The sort is stable. So at equal times, a window's first end comes before the others, and its last end behind them.
    order = np.lexsort((np.concatenate([since, time[others], until]), together[np.concatenate([own, others, own])]))
    is_other = (order >= len(own)) & (order < len(own) + len(others))
    upto = np.empty(len(order), np.int64)
    upto[order] = np.cumsum(is_other)
    low, high = upto[: len(own)], upto[len(own) + len(others) :]
    return Reach(others[order[is_other] - len(own)], low, high, order[order < len(own)])


def numbered(group: np.ndarray, key: np.ndarray) -> np.ndarray:
    """int64[n]: a number for each (group, key). The numbers are equal where both are."""
    order = np.lexsort((key, group))
    differs = (np.diff(group[order]) != 0) | (np.diff(key[order]) != 0)
    number = np.empty(len(order), np.int64)
    number[order] = np.concatenate([[0], np.cumsum(differs)])[: len(order)]
    return number


class Sample(NamedTuple):
    """What was asked of a condition. what: PAIRS_NAME, or the stream whose tuples were drawn, of those with partners in
    the windows · taken: how many were drawn · held: how many of those pairs hold, or of those tuples have a partner for
    which the condition holds · undecided: tuples that have too many partners to ask all · of: what was drawn from."""

    what: str
    taken: int
    held: int
    undecided: int
    of: int

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left to chance."""
        return self.taken == self.of and not self.undecided


@dataclass(frozen=True)
class Expected:
    """The expected results. error: at 95 %; 0 where they were counted · counted: how many of the `ranges` were
    counted · samples: what was asked of a condition · is_bound: none was found in a sample, and there are fewer than
    `results` · is_known: the number is exact whatever was sampled, because each row of a stream is one result.

    per_slot: float64[ranges.count * ranges.slots], nan where nothing was counted.
    """

    results: float
    error: float
    ranges: Ranges
    counted: int
    per_slot: np.ndarray
    samples: tuple[Sample, ...] = ()
    is_bound: bool = False
    is_known: bool = False

    @property
    def is_exact(self) -> bool:
        return self.is_known or (self.counted == self.ranges.count and all(sample.is_whole for sample in self.samples))


class Found(NamedTuple):
    """The pairs of equal keys in the windows, the results, and the rows without partner of each stream that shows
    them."""

    pairs: Expected
    results: Expected
    alone: dict[str, Expected]


def choose(ranges: Ranges, share: float | None, seed: int = 0) -> np.ndarray:
    """int64[n]: the numbers of the ranges to count, ascending. These are all ranges if the share is None or a sample
    would be too small."""
    wanted = ranges.count if share is None else int(np.ceil(share * ranges.count))
    if wanted >= ranges.count or ranges.count < 2 * SAMPLED_MIN:
        return np.arange(ranges.count)
    generator = np.random.default_rng(seed)
    return np.sort(generator.choice(ranges.count, max(wanted, SAMPLED_MIN), replace=False))


def extrapolate(ranges: Ranges, chosen: np.ndarray, per_slot: np.ndarray, weight: np.ndarray) -> Expected:
    """The results of all ranges from those of the chosen ones, in proportion to weight, float64[ranges.count].

    per_slot: float64[ranges.count * ranges.slots], of any value where a range was not chosen. The weight is known for
    every range, and about proportional to its results; the closer it is, the smaller is the error (ratio estimate;
    Cochran, "Sampling techniques", 6.3).
    """
    by_range = per_slot.reshape(ranges.count, ranges.slots)
    found = by_range[chosen].sum(axis=1)
    known = np.full_like(by_range, np.nan)
    known[chosen] = by_range[chosen]
    if len(chosen) == ranges.count:
        return Expected(float(found.sum()), 0.0, ranges, ranges.count, known.ravel())
    own = weight[chosen]
    if own.sum() <= 0:
        weight, own = np.ones(ranges.count), np.ones(len(chosen))
    if not found.any():
        # If results came one by one, so few in the sample would be less likely than 2.5 % with more than this in all.
        most = NORMAL_95**2 * float(weight.sum() / own.sum())
        return Expected(most, most, ranges, len(chosen), known.ravel(), is_bound=True)
    ratio = found.sum() / own.sum()
    spread = float(((found - ratio * own) ** 2).sum()) / (len(chosen) - 1)
    unseen = 1 - len(chosen) / ranges.count
    error = NORMAL_95 * ranges.count * np.sqrt(unseen * spread / len(chosen))
    return Expected(float(ratio * weight.sum()), float(error), ranges, len(chosen), known.ravel())


def sharing(rows: np.ndarray, group_rows: int = GROUP_ROWS) -> tuple[np.ndarray, np.ndarray]:
    """Which ranges are counted in one call. A range that alone has too many rows is cut into several parts, by key.

    rows: about how many there are in each range, float64[n]. Gives (block int64[n], parts int64[n]).
    """
    parts = np.maximum(1, np.ceil(rows / group_rows)).astype(np.int64)
    upto = np.cumsum(np.minimum(rows, group_rows))
    block = (upto // group_rows).astype(np.int64)
    # A range that is cut has a call of its own, since its parts would mix with the rows of other ranges.
    alone = np.cumsum((parts > 1) | np.concatenate([[False], parts[:-1] > 1]))
    return block + alone, parts
