"""A replay of two streams at a pace: when tuples are due, what was seen, and whether the pace was kept. Needs no
package."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, Iterable, Sequence

DELAY_MS_MAX = 60_000  # what took longer counts as that
GROWTH_MAX, GROWTH_FREE_S = 1.1, 0.1  # from one quarter of a replay to the next; with more of it a backlog grows


@dataclass(frozen=True)
class Replay:
    """Event time passes `speed` times as fast as the wall clock, from `lead_us` on; what comes before that is handed
    over at once, and the clock starts when that is done. Delays of the first warmup_s are left out; `seconds`
    follow."""

    speed: float
    lead_us: int
    warmup_s: float
    seconds: float

    @property
    def wall_s(self) -> float:
        """By the clock of the replay."""
        return self.warmup_s + self.seconds

    @property
    def until_us(self) -> int:
        """All tuples before this time take part, and no other."""
        return self.lead_us + round(self.speed * self.wall_s * 1e6)


def replay_of(speed: float, window_us: int, warmup_s: float, seconds: float) -> Replay:
    """With the shortest lead that lets windows be full when the warm-up ends.

    >>> [replay_of(speed, 600_000_000, 5.0, 20.0).lead_us for speed in (200, 100)]
    [0, 100000000]
    """
    return Replay(speed, max(0, window_us - round(warmup_s * speed * 1e6)), warmup_s, seconds)


class Clock:
    """Of a replay under way. started_ns: its start, by time.monotonic_ns, which all processes of a machine share."""

    def __init__(self, replay: Replay, started_ns: int):
        self._replay, self._started_ns = replay, started_ns

    def now_s(self) -> float:
        return (time.monotonic_ns() - self._started_ns) / 1e9

    def due_s(self, event_us: Any) -> Any:
        """When a tuple of this time is due (number or array); below 0 in the lead."""
        return (event_us - self._replay.lead_us) / 1e6 / self._replay.speed

    def event_us(self, now_s: float) -> int:
        """The newest event time that is due."""
        return self._replay.lead_us + int(now_s * 1e6 * self._replay.speed)


@dataclass(frozen=True)
class Seen:
    """delays: (second in which the later tuple was due, ms until its result was counted, how many) · lags: (second, ms
    by which the tuple that was latest in it was handed over too late), of any feeder."""

    results: int
    delays: Sequence[tuple[int, float, int]]
    lags: Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Verdict:
    """p50_s, p99_s: of the delay after the warm-up · limit: what was wrong, "" where the pace was kept."""

    speed: float
    p50_s: float
    p99_s: float
    lag_s: float
    limit: str

    @property
    def kept(self) -> bool:
        return not self.limit


def quantile_s(delays: Iterable[tuple[float, int]], share: float) -> float:
    """The delay that this share of the results does not exceed, from (ms, how many); 0 without results.

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
    """results: the right number of them."""
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
    """Whether the mean of the last quarter is above that of the quarter before; "" if it is not."""
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
    """For the highest speed that is kept, within the factor `precision`: steps of `step` until it lies between two
    speeds, then bisection on a logarithmic scale. A speed that failed is tried again: it takes a busy neighbour to make
    one fail that could be kept, nothing makes one be kept that could not."""

    speed: float  # to try next
    lowest: float
    highest: float
    step: float = 1.4
    precision: float = 1.1
    tries: int = 2
    kept: Verdict | None = None  # the best
    failed: Verdict | None = None  # the lowest
    failures: int = 0  # of `speed`

    @property
    def done(self) -> bool:
        if self.kept and self.failed:
            return self.failed.speed / self.kept.speed <= self.precision
        return bool(
            (self.kept and self.kept.speed >= self.highest) or (self.failed and self.failed.speed <= self.lowest)
        )

    def tell(self, verdict: Verdict) -> None:
        """Of a replay at `speed`."""
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
