"""Thousands of small runs of the whole engine in virtual time, each from one seed, each compared with the oracle.

    python scripts/soak_simulated.py                      seeds 0 to 2000: about 15 minutes on one core
    python scripts/soak_simulated.py 5000 6000            others
    python scripts/soak_simulated.py 1234 1235 --debug    one, with a traceback

The jobs, clusters, costs, policies and troubles are those of tests/simulated_engine.py. Ends with 1 if any seed fails.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "tests")]

from simulated_engine import run_scenario, scenario

LINE_EVERY_S = 10.0


def soak(first: int, end: int, debug: bool) -> int:
    """Runs the seeds; returns how many failed."""
    failed = moves = refused = 0
    start_s = shown_s = time.monotonic()
    for seed in range(first, end):
        try:
            with tempfile.TemporaryDirectory() as folder:
                summary = run_scenario(scenario(seed), folder).summary
            moves, refused = moves + summary["moves"], refused + summary["moves_refused"]
        except Exception as error:
            failed += 1
            print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
            if debug:
                traceback.print_exc()
        if time.monotonic() - shown_s > LINE_EVERY_S or seed == end - 1:
            shown_s = time.monotonic()
            spent = f"{moves} moves, {refused} refused, {failed} seeds failed, {shown_s - start_s:.0f} s"
            print(f"{seed + 1 - first} of {end - first} seeds: {spent}", flush=True)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("end", type=int, nargs="?", default=2000, help="the seed after the last")
    parser.add_argument("--debug", action="store_true", help="show a traceback with each failure")
    options = parser.parse_args()
    return 1 if soak(options.first, options.end, options.debug) else 0


if __name__ == "__main__":
    sys.exit(main())
