"""The least time that the machine's rates allow for a stage's work, beside the time that it took.

The bound of a stage counts only what its contract asks for, and nothing that only its present form needs: no second
pass, and no copy that a better form could do without. Where a core can do two things at once, the bound is a measured
loop that does both at once. Rates are of one core.

The *whole* run cannot take less than the bounds of its longest rank, because a rank works on one core. It cannot take
less than the bounds of all ranks divided by the number of cores either. A run reaches that least time divided by its
wall time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mpijoin.store.simd import LANES, LINE_TAGS
from rooflines.engine import Case, Run, Work
from rooflines.kernels import SLOTS
from rooflines.machine import Rate, Rates, probe_s

WANTED = 0.40
# A probe is measured so many times longer than a rate, because a disturbed bound would flatter the engine.
PROBE_PATIENCE = 5
CODED_BYTES = 16  # A row number and a running maximum are made of as many bytes of time and key.


@dataclass(frozen=True)
class Bound:
    """The least time of a stage, in seconds. why: which rates it is made of, and how much of each per tuple or
    result."""

    seconds: float
    why: str


@dataclass(frozen=True)
class Stage:
    name: str
    rank: str
    seconds: float
    bound: Bound

    @property
    def reached(self) -> float:
        return self.bound.seconds / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Whole:
    """A run beside its bounds."""

    case: Case
    wall_s: float
    stages: list[Stage]

    @property
    def limits(self) -> dict[str, float]:
        """The seconds that the run takes at least: for the "master", one of the "slaves", and "all" ranks on their
        cores.

        No stage counts for more than it took, because a bound that was beaten had been measured while others disturbed.
        """
        least = {"master": 0.0, "slaves": 0.0}
        for stage in self.stages:
            least[stage.rank] += min(stage.bound.seconds, stage.seconds)
        slaves = self.case.ranks - 1
        return {
            "master": least["master"],
            "slaves": least["slaves"] / slaves,
            "all": sum(least.values()) / self.case.cores,
        }

    @property
    def critical(self) -> str:
        """The name of the greatest limit."""
        return max(self.limits, key=self.limits.__getitem__)

    @property
    def least_s(self) -> float:
        return self.limits[self.critical]

    @property
    def reached(self) -> float:
        return self.least_s / self.wall_s

    @property
    def slowest(self) -> Stage:
        """The stage that takes the most time beyond its bound."""
        return max(self.stages, key=lambda stage: stage.seconds - stage.bound.seconds)


def bounds(rates: Rates, work: Work, probe: Bound) -> dict[str, Bound]:
    """Returns the bound of every stage of both ranks, for all of the work."""
    sent = work.tuples * work.tuple_bytes / best(rates, "MPI").per_s
    return {
        "decode": Bound(
            work.tuples / rates["decode, 2 columns"].per_s, "pyarrow's decoding of two columns, nothing else"
        ),
        "key coding": Bound(
            work.tuples * CODED_BYTES / rates["copy, cached"].per_s,
            "in cache 16 bytes read (time, key) and 16 written (row, running maximum)",
        ),
        "scatter": Bound(
            work.tuples / rates["scatter, 60"].per_s, "one pass: a hash, a store of 24 bytes into 60 buffers"
        ),
        "send": Bound(sent, "24 bytes over MPI"),
        "receive": Bound(sent, "24 bytes over MPI"),
        "append": Bound(
            work.tuples / rates["append"].per_s, "one pass: a hash, a store of 24 bytes and a tag in a block"
        ),
        "probe": probe,
        "expire": Bound(
            work.expired / SLOTS / rates["lines"].per_s, f"a cache line per block of {SLOTS} expired tuples"
        ),
        "write": Bound(
            work.results / rates["encode, 2 columns"].per_s, "delta-packing two row numbers a result, to a file"
        ),
    }


def probe_bound(rates: Rates, work: Work, enough_s: float) -> Bound:
    """Returns the bound of a probe, which does several things at once.

    Tags are compared from L1 or looked up in a filter, tags are read from the state once an epoch, cache lines of old
    tuples are loaded, and pairs are certified. What that takes is measured. The bound is kept between two values that
    the machine's rates give: if the core overlaps computing and loading perfectly, and if it does not at all. So a
    clumsy loop of ours cannot flatter the engine.
    """
    parts = probe_parts(rates, work)
    per_row = (work.comparisons, work.comparisons / work.tags_first_read * work.tuples, work.lines_of_old, work.results)
    measured = work.tuples * probe_s(*(count / work.tuples for count in per_row), PROBE_PATIENCE * enough_s)
    processor, memory = parts["tags"] + parts["pairs"], parts["first reads"] + parts["old tuples"]
    seconds = min(max(measured, processor, memory), processor + memory)
    told = ", ".join(f"{name} {part:.3f} s" for name, part in parts.items())
    compared, first, old, pairs = (
        count / work.tuples
        for count in (work.comparisons, work.tags_first_read / LINE_TAGS, work.lines_of_old, work.results)
    )
    why = (
        f"in one loop, per tuple, {compared:.0f} tags met, {first:.2f} lines of tags and {old:.2f} of old tuples"
        f" loaded, {pairs:.2f} pairs certified (measured {measured:.3f} s; alone: {told})"
    )
    return Bound(seconds, why)


def probe_parts(rates: Rates, work: Work) -> dict[str, float]:
    """Returns the seconds of each part of a probe's work alone.

    Either all tags are compared with all, or they are looked up in a filter of the fresh ones and compared where a line
    of old tuples was wanted. The way that takes less counts.
    """
    rows = work.comparisons / work.tags_first_read  # A tag meets so many fresh rows.
    compared_s = work.comparisons / rates["tags, L1"].per_s
    looked_up_s = work.tags_first_read / rates["tags, looked up"].per_s
    looked_up_s += work.lines_of_old * math.ceil(rows / LANES) * LANES / rates["tags, L1"].per_s
    return {
        "tags": min(compared_s, looked_up_s),
        "first reads": work.tags_first_read / LINE_TAGS / rates["block lines"].per_s,
        "old tuples": work.lines_of_old / rates["lines"].per_s,
        "pairs": work.results / rates["certify"].per_s,
    }


def whole(run: Run, least: dict[str, Bound]) -> Whole:
    stages = [
        Stage(name, rank, seconds, least[name])
        for rank, own in run.seconds.items()
        for name, seconds in own.items()
        if name in least
    ]
    return Whole(run.case, run.wall_s, stages)


def best(rates: Rates, prefix: str) -> Rate:
    return max((rate for name, rate in rates.items() if name.startswith(prefix)), key=lambda rate: rate.per_s)
