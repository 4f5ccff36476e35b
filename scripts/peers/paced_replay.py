"""A replay of two streams at a pace: when tuples are due, what was seen, and whether the pace was kept.

It needs no package beyond Python's own.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, Iterable, Sequence

DELAY_MS_MAX = 60_000  # A longer delay counts as this.
# A backlog grows if the mean of a quarter of the replay is more than so many times that of the quarter before, plus so
# many seconds.
GROWTH_MAX, GROWTH_FREE_S = 1.1, 0.1


@dataclass(frozen=True)
class Replay:
    """A replay in which event time passes `speed` times as fast as the wall clock, from `lead_us` on.

    What comes before `lead_us` is handed over at once, and the clock starts when that is done. Delays of the first
    warmup_s are left out. The measured `seconds` follow.
    """

    speed: float
    lead_us: int
    warmup_s: float
    seconds: float

    @property
    def wall_s(self) -> float:
        """How long the replay takes, by its own clock."""
        return self.warmup_s + self.seconds

    @property
    def until_us(self) -> int:
        """The event time before which tuples take part."""
        return self.lead_us + round(self.speed * self.wall_s * 1e6)


def replay_of(speed: float, window_us: int, warmup_s: float, seconds: float) -> Replay:
    """Returns a replay with the shortest lead that lets windows be full when the warm-up ends.

    >>> [replay_of(speed, 600_000_000, 5.0, 20.0).lead_us for speed in (200, 100)]
    [0, 100000000]
    """
    return Replay(speed, max(0, window_us - round(warmup_s * speed * 1e6)), warmup_s, seconds)


class Clock:
    """The clock of a replay under way.

    started_ns: when it started, by time.monotonic_ns, which all processes of a machine share.
    """

    def __init__(self, replay: Replay, started_ns: int):
        self._replay, self._started_ns = replay, started_ns

    def now_s(self) -> float:
        return (time.monotonic_ns() - self._started_ns) / 1e9

    def due_s(self, event_us: Any) -> Any:
        """Returns when a tuple of this time is due (number or array). It is below 0 in the lead."""
        return (event_us - self._replay.lead_us) / 1e6 / self._replay.speed

    def event_us(self, now_s: float) -> int:
        """Returns the newest event time that is due."""
        return self._replay.lead_us + int(now_s * 1e6 * self._replay.speed)


@dataclass(frozen=True)
class Seen:
    """What was seen of a replay.

    delays: (second in which the later tuple was due, ms until its result was counted, how many) · lags: (second, the
    most ms by which a tuple in it was handed over too late), of any feeder.
    """

    results: int
    delays: Sequence[tuple[int, float, int]]
    lags: Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Verdict:
    """What came of a replay. p50_s, p99_s: of the delay after the warm-up · limit: what was wrong, or "" if nothing."""

    speed: float
    p50_s: float
    p99_s: float
    lag_s: float
    limit: str

    @property
    def kept(self) -> bool:
        return not self.limit


def quantile_s(delays: Iterable[tuple[float, int]], share: float) -> float:
    """Returns the delay that this share of the results does not exceed, from (ms, how many). It is 0 without results.

    >>> quantile_s([(10, 98), (500, 1), (20, 1)], 0.99)
    0.02
    """
    counts: Counter[float] = Counter()
    for ms, count in delays:
        counts[ms] += count
    left = share * counts.total()
    for ms in sorted(counts):
        left -= counts[ms]
        if left <= 0:
            return ms / 1e3
    return 0.0


def judge(seen: Seen, replay: Replay, results: int, delay_s_max: float) -> Verdict:
    """Returns whether a replay kept its pace. results: the right number of them."""
    measured = [(second, ms, count) for second, ms, count in seen.delays if replay.warmup_s <= second < replay.wall_s]
    p50_s, p99_s = (quantile_s(((ms, count) for _, ms, count in measured), share) for share in (0.5, 0.99))
    lags = [(second, ms, 1) for second, ms in seen.lags if replay.warmup_s <= second < replay.wall_s]
    lag_s = max((ms for _, ms, _ in lags), default=0.0) / 1e3
    if seen.results != results:
        limit = f"WRONG: {seen.results:,} results, wanted {results:,}"
    elif p99_s >= delay_s_max:
        limit = f"p99 of the delay {p99_s:.2f} s"
    else:
        limit = _growing("delays", measured, replay) or _growing("lags of the input", lags, replay)
    return Verdict(replay.speed, p50_s, p99_s, lag_s, limit)


def _growing(what: str, rows: Sequence[tuple[int, float, int]], replay: Replay) -> str:
    """Returns a text if the mean of the last quarter is above that of the quarter before, else an empty one."""
    quarter_s = replay.seconds / 4
    third_s, fourth_s = (
        _mean_s([row for row in rows if begin_s <= row[0] < begin_s + quarter_s])
        for begin_s in (replay.wall_s - 2 * quarter_s, replay.wall_s - quarter_s)
    )
    grows = fourth_s > GROWTH_MAX * third_s + GROWTH_FREE_S
    return f"{what} grow from {third_s:.2f} to {fourth_s:.2f} s" if grows else ""


def _mean_s(rows: Sequence[tuple[int, float, int]]) -> float:
    counted = sum(count for _, _, count in rows)
    return sum(ms * count for _, ms, count in rows) / counted / 1e3 if counted else 0.0


@dataclass
class Search:
    """A search for the highest speed that is kept, within the factor `precision`.

    It goes in steps of `step` until that speed lies between two others, then by bisection on a logarithmic scale. A
    speed that failed is tried again. A busy neighbour can make a speed fail that could be kept, but nothing can make a
    speed be kept that could not.
    """

    speed: float  # It is tried next.
    lowest: float
    highest: float
    step: float = 1.4
    precision: float = 1.1
    tries: int = 2
    kept: Verdict | None = None  # This is the fastest replay that was kept.
    failed: Verdict | None = None  # This is the slowest replay that failed.
    failures: int = 0  # So often has `speed` failed.

    @property
    def done(self) -> bool:
        if self.kept and self.failed:
            return self.failed.speed / self.kept.speed <= self.precision
        return bool(
            (self.kept and self.kept.speed >= self.highest) or (self.failed and self.failed.speed <= self.lowest)
        )

    def tell(self, verdict: Verdict) -> None:
        """Takes the verdict of a replay at `speed`."""
        self.failures += not verdict.kept
        if not verdict.kept and self.failures < self.tries:
            return
        self.failures = 0
        if verdict.kept:
            self.kept = verdict
        else:
            self.failed = verdict
        if self.kept and self.failed:
            self.speed = (self.kept.speed * self.failed.speed) ** 0.5
        elif self.kept:
            self.speed = min(self.highest, self.speed * self.step)
        else:
            self.speed = max(self.lowest, self.speed / self.step)
