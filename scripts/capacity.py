"""Finds the capacity of paced runs: the highest rate at which neither the master nor any slave falls behind.

    python scripts/capacity.py [--slaves N] [--epoch SECONDS] [--window SECONDS] [--low RATE] [--high RATE]

mpijoin/sweep/capacity.py says which rates count as sustained. `mpijoin sweep` searches with it, too.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from benching.paced import HIGH, LOW, Load, capacity


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slaves", type=int, default=4)
    parser.add_argument("--epoch", type=float, default=0.5, help="distribution epoch in seconds")
    parser.add_argument("--window", type=float, default=4.0, help="of both streams, in seconds")
    parser.add_argument("--low", type=float, default=LOW, help="tuples per second and stream: where the search begins")
    parser.add_argument("--high", type=float, default=HIGH, help="... and where it ends")
    arguments = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[:2]
    load = Load(arguments.slaves, arguments.epoch, arguments.window, seconds=max(6.0, 5 * arguments.epoch))
    with tempfile.TemporaryDirectory() as name:
        rate = capacity(load, Path(name), cores, arguments.low, arguments.high)
    least = "at least " if rate == arguments.high else ""
    print(f"{least}{rate:,.0f} tuples/s/stream ({arguments.slaves} slaves, epochs of {arguments.epoch:g} s)")


if __name__ == "__main__":
    main()
