"""Any operator, with the rank's clock charged for what it does."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from mpijoin.join.window_join import WindowJoin
from mpijoin.operators.base import Operator, Progress
from mpijoin.simulate.costs import Costs
from mpijoin.simulate.engine import SimulatedClock
from mpijoin.store.state import (
    BUCKETS,
    COMPARED,
    GROUP_STREAM_WORDS,
    GROUP_TUPLES,
    INSERTED,
    MERGED,
    SPLIT,
    STREAMS_MAX,
)

PIECE_NS = 50e6  # a slave looks at the network after at most so much joining


class Costed:
    """Wraps an operator whose `meter` counts what it does, and is it in everything else."""

    def __init__(self, operator: Operator, meter: Any, clock: SimulatedClock, costs: Costs):
        """meter: inserted, comparisons, results, rewritten: running totals."""
        self._operator, self._meter, self._clock, self._costs = operator, meter, clock, costs
        self._budget = int(min(1 << 62, max(1.0, PIECE_NS / costs.comparison_ns))) if costs.comparison_ns else 1 << 62
        self._charged_ns = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operator, name)

    def insert(self, groups: np.ndarray, stream: int, fresh: Any, bounds: np.ndarray) -> int:
        return self._charged(self._operator.insert(groups, stream, fresh, bounds))

    def probe(self, groups: np.ndarray, budget: int) -> Progress:
        return self._charged(self._operator.probe(groups, min(budget, self._budget)))

    def expire(self, groups: np.ndarray, watermarks: Sequence[int]) -> Progress:
        return self._charged(self._operator.expire(groups, watermarks))

    def get(self, group: int, since: int, *options: Any) -> list[np.ndarray]:
        frames = self._operator.get(group, since, *options)
        return self._charged(frames, sum(frame.nbytes for frame in frames))

    def install(self, parts: Sequence[np.ndarray]) -> int:
        return self._charged(self._operator.install(parts), sum(part.nbytes for part in parts))

    def _charged(self, outcome: Any, state_bytes: int = 0) -> Any:
        costs, meter = self._costs, self._meter
        spent_ns = (
            meter.inserted * costs.tuple_ns + meter.comparisons * costs.comparison_ns + meter.results * costs.result_ns
        )
        spent_ns += meter.rewritten * costs.split_tuple_ns
        now_ns = spent_ns - self._charged_ns + costs.call_ns + state_bytes * costs.state_byte_ns
        self._charged_ns = spent_ns
        self._clock.charge(now_ns / 1e9)
        return outcome


class WindowMeter:
    """What a real window join has done so far; a split or merge is taken to rewrite as many tuples as a mean bucket
    has."""

    def __init__(self, operator: WindowJoin):
        self._operator = operator
        self._seen, self._rewritten = 0, 0.0  # splits and merges until the last look, and what they have rewritten

    @property
    def inserted(self) -> int:
        return int(self._operator.state.counters[INSERTED : INSERTED + STREAMS_MAX].sum())

    @property
    def comparisons(self) -> int:
        return int(self._operator.state.counters[COMPARED])

    @property
    def results(self) -> int:
        return self._operator.found_in_all

    @property
    def rewritten(self) -> float:
        groups, done = self._operator.state.groups, int(self._operator.state.counters[[SPLIT, MERGED]].sum())
        tuples = groups[:, GROUP_TUPLES :: GROUP_STREAM_WORDS].sum() / max(1, int(groups[:, BUCKETS].sum()))
        self._rewritten += float(tuples) * (done - self._seen)
        self._seen = done
        return self._rewritten
