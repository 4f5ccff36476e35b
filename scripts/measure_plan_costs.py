"""What do the steps of the m-way operator and of trees of binary joins take? (mpijoin/plans/costs.py)

    python scripts/measure_plan_costs.py

One operator joins streams of many kinds: with few and many partners, alike, or where two of them seldom meet; m-way
and by two trees. Its nanoseconds per tuple are explained by how often each step was done, as the samples of the fresh
tuples tell. The costs are those, none below zero, whose relative errors are least in the mean of squares.
"""

from __future__ import annotations

import argparse
import time
from functools import reduce
from typing import Callable, Iterator, NamedTuple

import numpy as np

from mpijoin.config.plan import Binary, text_of
from mpijoin.data.batch import read_only
from mpijoin.join.window_join import Setup
from mpijoin.operators.base import Keep, Out, Progress
from mpijoin.plans.costs import Costs, Sample
from mpijoin.plans.kernels import MEMBERS
from mpijoin.plans.operator import PlannedJoin
from mpijoin.store.insert import Fresh
from mpijoin.store.pool import StreamSpec, new_pool

GROUPS, SLICE_ROWS, WINDOW, THETA = 60, 1 << 15, 60_000, 48 << 10
ROUNDS, MEASURED = 70, 12  # so many slices are joined, of which the last ones are measured
NAMES = ("TUPLE", "PARTNER", "MWAY_RESULT", "LOOK_UP", "MADE", "TREE_RESULT")

Keys = Callable[[int, int, np.random.Generator], np.ndarray]


class Case(NamedTuple):
    """keys: of a stream, int64[so many] · plan: None is m-way."""

    name: str
    streams: int
    keys: Keys
    plan: Binary | None


def alike(partners: float) -> Keys:
    return lambda stream, count, random: random.integers(0, int(WINDOW / partners), count)


def seldom(pair: tuple[int, int], partners: int) -> Keys:
    """The two streams have hardly a key in common, and each of their rows has partners in the others."""
    own = WINDOW // partners

    def keys(stream: int, count: int, random: np.random.Generator) -> np.ndarray:
        if stream == pair[0]:
            return random.integers(0, own, count)
        if stream == pair[1]:
            return np.where(random.random(count) < 0.0005, 0, own) + random.integers(0, own, count)
        return random.integers(0, 2 * own, count)

    return keys


def cases() -> Iterator[Case]:
    for streams in (3, 4):
        first = reduce(Binary, range(1, streams), 0)
        last = reduce(Binary, reversed(range(streams - 1)), streams - 1)
        for partners in (0.2, 1, 2):
            for plan in (None, first):
                yield Case(f"alike {partners}", streams, alike(partners), plan)
        for partners in (2, 8, 32):
            for name, pair, best, worst in (
                ("first", (0, 1), first, last),
                ("last", (streams - 2, streams - 1), last, first),
            ):
                for plan in (None, best, *([worst] if partners < 8 else [])):
                    yield Case(f"{name} two seldom, {partners}", streams, seldom(pair, partners), plan)


def measure(case: Case) -> tuple[float, Sample]:
    """Returns the nanoseconds per tuple, and what is known of the streams."""
    specs = tuple(StreamSpec(0, False, WINDOW) for _ in range(case.streams))
    pool = new_pool(1 << 29, 4096, MEMBERS + case.streams)
    some = case.plan or reduce(Binary, range(1, case.streams), 0)
    operator = PlannedJoin(Setup(GROUPS, THETA, specs), some, pool, 4096, period=SLICE_ROWS)
    if case.plan is None:
        operator.follow(None)
    out, groups, random = Out(case.streams, 1, Keep.NOTHING), np.arange(GROUPS), np.random.default_rng(1)
    rows, spent_s = SLICE_ROWS // case.streams, 0.0
    for number in range(ROUNDS):
        batches = [batch(case.keys(stream, rows, random), number * rows, random) for stream in range(case.streams)]
        if number == ROUNDS - MEASURED:
            operator.statistics.decided(held=0.0, is_content=False)
            spent_s = 0.0
        start_s = time.perf_counter()
        for stream, (fresh, bounds) in enumerate(batches):
            operator.insert(groups, stream, fresh, bounds)
        spent_s += time.perf_counter() - start_s
        operator.statistics.look(groups)
        start_s = time.perf_counter()
        while operator.probe(groups, 1 << 26, out) is not Progress.DONE:
            pass
        operator.expire(groups, (number * rows + rows,) * case.streams, out)
        spent_s += time.perf_counter() - start_s
    return spent_s / MEASURED / rows / case.streams * 1e9, operator.statistics.known()


def batch(keys: np.ndarray, time_min: int, random: np.random.Generator) -> tuple[Fresh, np.ndarray]:
    own = keys * 0x9E37 % GROUPS
    order = np.argsort(own, kind="stable")
    times = np.sort(random.integers(time_min, time_min + len(keys), len(keys)))
    tuples = np.stack([keys, times, np.arange(len(keys))], axis=1)[order]
    ends = np.searchsorted(own[order], np.arange(GROUPS + 1))
    bounds = np.stack([ends[:-1], ends[1:]], axis=1).astype(np.int64)
    return Fresh(read_only(np.ascontiguousarray(tuples)), read_only(np.empty(0, np.uint8))), bounds


def least_squares(steps: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Returns the costs, none below zero, that explain the wanted times best: those that would be are left out."""
    kept = np.arange(steps.shape[1])
    while True:
        found = np.linalg.lstsq(steps[:, kept], wanted, rcond=None)[0]
        if (found >= 0).all():
            costs = np.zeros(steps.shape[1])
            costs[kept] = found
            return costs
        kept = kept[found >= 0]


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    known, steps, times_ns = list(cases()), [], []
    for case in known:
        nanoseconds, sample = measure(case)
        times_ns.append(nanoseconds)
        steps.append(Costs(sample).steps(case.plan) / sample.rates.sum())
    times = np.array(times_ns)
    costs = least_squares(np.array(steps) / times[:, None], np.ones(len(times)))
    for case, nanoseconds, explained in zip(known, times, np.array(steps) @ costs):
        plan = text_of(case.plan, "abcd") if case.plan else "mway"
        told = f"{nanoseconds:8.0f} ns a tuple, {explained:8.0f} explained"
        print(f"{case.streams} streams, {case.name:<24}{plan:<16}{told}")
    print("ns: " + ", ".join(f"{one} {own:.0f}" for one, own in zip(NAMES, costs)))


if __name__ == "__main__":
    main()
