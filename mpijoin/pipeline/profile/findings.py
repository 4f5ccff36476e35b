"""All that a profile found of streams, and what follows from it without another look at them."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, prod
from typing import Mapping

import numpy as np

from mpijoin.config.job import Job, Join
from mpijoin.pipeline.profile.arrivals import Arrivals, sliding_sums
from mpijoin.pipeline.profile.keys import Keys, TopKey
from mpijoin.pipeline.profile.results import Expected

PEAK_S = 1.0  # the busiest second is the peak


@dataclass(frozen=True)
class Extent:
    """What a stream holds. joinable: rows that have time and key, `first` and `last` their ticks · blob_bytes: of the
    values of variable size in a row, on average · key_least, key_most: of a key that is one integer column, else None ·
    disorder: the smallest lateness, in ticks, with which no row is late · keyless: rows that have a time and no key."""

    rows: int
    null_time: int
    null_key: int
    joinable: int
    first: int
    last: int
    blob_bytes: float
    key_least: int | None
    key_most: int | None
    disorder: int
    keyless: int = 0


@dataclass(frozen=True)
class Side:
    """What was found of one stream. words: 8-byte words of a stored tuple without its values of variable size ·
    tick_ns: of the join's unit · longer_ns: how much longer than its window a tuple is held; None: for ever."""

    name: str
    path: str
    window_ns: int | None  # None: unbounded
    words: int
    tick_ns: int
    extent: Extent
    arrivals: Arrivals
    keys: Keys
    longer_ns: int | None = 0

    @property
    def tuple_bytes(self) -> float:
        """The bytes of a tuple in the windows, on average."""
        return 8 * self.words + self.extent.blob_bytes

    @property
    def disorder_ns(self) -> int:
        return self.extent.disorder * self.tick_ns

    @property
    def window_s(self) -> float:
        return inf if self.window_ns is None else self.window_ns / 1e9

    @property
    def held_s(self) -> float:
        """How long a tuple is held."""
        return inf if self.longer_ns is None else self.window_s + self.longer_ns / 1e9

    @property
    def state_tuples(self) -> int:
        """At most so many tuples are held at once; no less than a bin of the rate curve has."""
        return int(self.arrivals.in_window(self.held_s).max())

    def state_within(self, edges_s: np.ndarray) -> np.ndarray:
        """At most so many bytes are held at once between each edge and the next, float64[len(edges_s) - 1]."""
        in_window = self.arrivals.in_window(self.held_s)
        bin_of = np.floor((edges_s - self.arrivals.start_s) / self.arrivals.bin_s).astype(np.int64)
        first, last = np.clip(bin_of[:-1], 0, None), np.clip(bin_of[1:], -1, len(in_window) - 1)
        most = [in_window[low : high + 1].max(initial=0) for low, high in zip(first.tolist(), last.tolist())]
        left = self.arrivals.left_in_window(first, self.held_s)
        return np.where(first < len(in_window), most, left) * self.tuple_bytes


@dataclass(frozen=True)
class Profile:
    """What was found of all streams. sides: the streams, in the job's order · common: distinct keys that all of them
    have · top: keys with the most tuples of all streams, most first · expected: the results · pairs: what the keys and
    windows alone give, of which a condition keeps a part · alone: those results that are rows without partner, by
    stream · join: what is a result."""

    sides: tuple[Side, ...]
    common: int
    top: tuple[TopKey, ...]
    expected: Expected
    pairs: Expected
    alone: Mapping[str, Expected]
    join: Join

    @property
    def rows(self) -> int:
        """Rows of all streams that may find partners."""
        return sum(side.extent.joinable for side in self.sides)

    @property
    def start_s(self) -> float:
        """Seconds since 1970."""
        return min(side.arrivals.start_s for side in self.sides)

    @property
    def end_s(self) -> float:
        return max(side.arrivals.start_s + side.arrivals.span_s for side in self.sides)

    @property
    def span_s(self) -> float:
        return self.end_s - self.start_s

    @property
    def peak_rate(self) -> float:
        """Tuples of all streams per second, each stream in its busiest second."""
        return sum(side.arrivals.peak_rate(PEAK_S) for side in self.sides)

    @property
    def state_bytes(self) -> float:
        """At most so many bytes of tuples are held at once."""
        return sum(side.state_tuples * side.tuple_bytes for side in self.sides)

    @property
    def tuple_bytes(self) -> float:
        """The bytes of a tuple in the windows, on average over all streams."""
        return sum(side.tuple_bytes * side.extent.joinable for side in self.sides) / self.rows

    @property
    def hottest_share(self) -> float:
        """The share of all tuples that have the hottest key."""
        return self.top[0].of_all / self.rows if self.top else 0.0

    @property
    def hottest_results_per_s(self) -> float:
        """Results per second of the hottest key, if its tuples were spread evenly over time."""
        if not self.top:
            return 0.0
        met = [min(1.0, side.window_s / self.span_s) for side in self.sides]  # of a stream, by another's latest tuple
        share = sum(prod(met[:latest] + met[latest + 1 :]) for latest in range(len(met)))
        return prod(self.top[0].tuples) * min(1.0, share) / self.span_s

    @property
    def slot_s(self) -> float:
        """The length of a slot in which results were counted."""
        return self.expected.ranges.slot_length * self.sides[0].tick_ns / 1e9

    @property
    def peak_results(self) -> float:
        """Results per second in the busiest second of those counted, or in the busiest slot where a slot is longer."""
        return self._peak(self.expected)

    @property
    def peak_pairs(self) -> float:
        """Pairs of equal keys in the windows, likewise."""
        return self._peak(self.pairs)

    def _peak(self, expected: Expected) -> float:
        counted = np.nan_to_num(expected.per_slot)
        slots = int(np.clip(round(PEAK_S / self.slot_s), 1, len(counted)))
        return float(sliding_sums(counted, slots).max()) / (slots * self.slot_s)

    @property
    def peak_work(self) -> float:
        """What slaves find per second in the busiest second. It costs a pair as much to fail a condition as to be a
        result."""
        return max(self.peak_pairs, self.peak_results)

    @property
    def results_bytes(self) -> float:
        """The bytes of all results, at most and before compression, if all columns are written."""
        shown = self.sides[: self.join.shown] if len(self.sides) == 2 else self.sides
        answers = 8 * len(self.join.reduce)
        return self.expected.results * (sum(side.tuple_bytes for side in shown) + answers)

    @property
    def peak_results_s(self) -> float:
        """The length of the stretch in which `peak_results` were found."""
        return max(PEAK_S, self.slot_s)


def held_longer(job: Job) -> list[int | None]:
    """How much longer than its window a tuple of each stream is held, in ns; None: for ever.

    Where a row of the first stream is answered when its window is over, it looks back at those of the second.
    """
    return [job.streams[0].window_ns if side == 1 and job.join.answers_rows else 0 for side in range(len(job.streams))]
