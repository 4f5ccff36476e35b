"""Thousands of small runs of the whole engine in virtual time. Each comes from one seed and is compared with the
oracle.

    python scripts/soak_simulated.py                             seeds 0 to 1999: about 10 minutes on one core
    python scripts/soak_simulated.py --seeds 2000:9000 --processes 4
    python scripts/soak_simulated.py --seeds 1234:1235           a single seed; a failure comes with its traceback

The jobs, clusters, costs, policies and troubles are those of tests/harness/simulated_engine.py. What slaves must hold
and let go is checked as well (tests/harness/simulated_expiry.py). Every fiftieth seed runs twice, and both runs must be
the same course of events. The soak ends with 1 at the first seed that fails, and says how to repeat it. It also ends
with 1 if many seeds together have missed something that they are for.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Iterator, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(1, str(Path(__file__).parents[1] / "tests/harness"))

from simulated_engine import THINGS, Course, run_scenario, scenario

LINE_EVERY_S = 10.0
TWICE_EVERY = 50
ENOUGH_SEEDS = 200  # In so many seeds, everything should have happened.


class Outcome(NamedTuple):
    """What came of one seed. fault: a traceback, which is empty if all is well."""

    seed: int
    seen: Counter
    fault: str


def run(seed: int) -> Course:
    with tempfile.TemporaryDirectory() as folder:
        return run_scenario(scenario(seed), folder)


def attempt(seed: int) -> Outcome:
    try:
        course = run(seed)
        if seed % TWICE_EVERY == 0 and run(seed).trace != course.trace:
            raise AssertionError("the seed's two runs took different courses")
        return Outcome(seed, course.seen, "")
    except Exception:  # The soak is for errors of every kind.
        return Outcome(seed, Counter(), traceback.format_exc())


def attempts(seeds: range, processes: int) -> Iterator[Outcome]:
    if processes == 1:
        yield from map(attempt, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(attempt, seeds)


def soak(seeds: range, processes: int) -> int:
    """Runs the seeds, and returns the exit code."""
    seen: Counter = Counter()
    start_s = shown_s = time.monotonic()
    for done, outcome in enumerate(attempts(seeds, processes), 1):
        if outcome.fault:
            print(f"{outcome.fault}\nseed {outcome.seed} failed, the first of {done}. Again:")
            print(f"python scripts/soak_simulated.py --seeds {outcome.seed}:{outcome.seed + 1}")
            return 1
        seen += outcome.seen
        if time.monotonic() - shown_s > LINE_EVERY_S or done == len(seeds):
            shown_s = time.monotonic()
            print(f"{done} of {len(seeds)} seeds, {seen['moved']} moves, {shown_s - start_s:.0f} s", flush=True)
    print(", ".join(f"{name} {seen[name]}" for name in THINGS))
    missed = [name for name in THINGS if not seen[name]]
    if missed and len(seeds) >= ENOUGH_SEEDS:
        print(f"these proved nothing, for they never happened: {', '.join(missed)}")
        return 1
    return 0


def seeds_of(text: str) -> range:
    first, _, end = text.partition(":")
    if not (first.isdecimal() and end.isdecimal() and int(first) < int(end)):
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted FIRST:LAST, as in 0:2000, without the last")
    return range(int(first), int(end))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=seeds_of, metavar="FIRST:LAST", default=range(2000), help="default: 0:2000")
    parser.add_argument("--processes", type=int, metavar="N", default=1, help="default: 1")
    options = parser.parse_args()
    return soak(options.seeds, options.processes)


if __name__ == "__main__":
    sys.exit(main())
