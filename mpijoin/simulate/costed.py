"""A wrapper around any operator. It charges the rank's clock for what the operator does."""

from __future__ import annotations

from typing import Any, Protocol, Sequence

import numpy as np

from mpijoin.operators.base import Operator, Out, Progress, Taken
from mpijoin.simulate.costs import Costs, Done
from mpijoin.simulate.engine import SimulatedClock

PIECE_NS = 50e6  # A slave looks at the network after at most so much joining.


class Costed:
    """Wraps an operator and charges for its work. It behaves like the operator in everything else."""

    def __init__(self, operator: Operator, meter: Meter, clock: SimulatedClock, costs: Costs):
        self._operator, self._meter, self._clock, self._costs = operator, meter, clock, costs
        self._budget = int(min(1 << 62, max(1.0, PIECE_NS / costs.comparison_ns))) if costs.comparison_ns else 1 << 62
        self._charged_ns = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operator, name)

    def insert(self, groups: np.ndarray, stream: int, batch: Any, bounds: np.ndarray, new: bool = False) -> Taken:
        return self._charged(self._operator.insert(groups, stream, batch, bounds, new))

    def probe(self, groups: np.ndarray, budget: int, out: Out) -> Progress:
        return self._charged(self._operator.probe(groups, min(budget, self._budget), out))

    def pause(self, budget: int, out: Out) -> Progress:
        return self._charged(self._operator.pause(min(budget, self._budget), out))

    def expire(self, groups: np.ndarray, watermarks: Sequence[int] | np.ndarray, out: Out) -> Progress:
        return self._charged(self._operator.expire(groups, watermarks, out))

    def get(self, group: int, since: int, octets_max: int | None = None, checksum: bool = False) -> list[np.ndarray]:
        frames = self._operator.get(group, since, octets_max, checksum)
        return self._charged(frames, sum(frame.nbytes for frame in frames))

    def install(self, parts: Sequence[np.ndarray], generation: int | None = None, replica: bool = False) -> int:
        group = self._operator.install(parts, generation, replica)
        return self._charged(group, sum(part.nbytes for part in parts))

    def deal(self, group: int, stream: int, deal: int, part: int) -> None:
        octets = int(self._operator.info(np.array([group])).live_bytes[0, stream])
        self._operator.deal(group, stream, deal, part)
        self._charged(None, octets)

    def give_dealt(self, group: int, stream: int) -> list[np.ndarray]:
        frames = self._operator.give_dealt(group, stream)
        return self._charged(frames, sum(frame.nbytes for frame in frames))

    def take_dealt(self, group: int, stream: int, frames: Sequence[np.ndarray]) -> None:
        self._operator.take_dealt(group, stream, frames)
        self._charged(None, sum(frame.nbytes for frame in frames))

    def _charged(self, outcome: Any, state_bytes: int = 0) -> Any:
        costs, done = self._costs, self._meter.look()
        spent_ns = (
            done.inserted * costs.tuple_ns + done.comparisons * costs.comparison_ns + done.results * costs.result_ns
        )
        spent_ns += done.rewritten * costs.split_tuple_ns
        now_ns = spent_ns - self._charged_ns + costs.call_ns + state_bytes * costs.state_byte_ns
        self._charged_ns = spent_ns
        self._clock.charge(now_ns / 1e9)
        return outcome


class Meter(Protocol):
    """Counts what an operator has done so far."""

    def look(self) -> Done: ...


class OperatorMeter:
    """Meters an operator that keeps tuples. A split or merge counts as rewriting all tuples of a mean bucket."""

    def __init__(self, operator: Operator, partitions: int):
        self._operator, self._groups = operator, np.arange(partitions)
        # The first counts splits and merges until the last look, the second the tuples that they have rewritten.
        self._seen, self._rewritten = 0, 0.0

    def look(self) -> Done:
        totals = self._operator.totals
        changes = totals.splits + totals.merges
        if changes > self._seen:
            buckets = int(self._operator.info(self._groups).buckets.sum())
            self._rewritten += sum(totals.held) / max(1, buckets) * (changes - self._seen)
            self._seen = changes
        return Done(sum(totals.joined), totals.comparisons, totals.results, self._rewritten)
