"""The capacity of paced runs: the highest rate at which neither the master nor any slave falls behind.

    python scripts/capacity.py [--slaves N] [--epoch SECONDS] [--window SECONDS] [--low RATE] [--high RATE]

What counts as sustained is in mpijoin/sweep/capacity.py, which `mpijoin sweep` searches with, too.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Sequence

from mpijoin.sweep.capacity import highest, is_sustained
from paced import Load, run

LOW, HIGH = 100_000.0, 10_000_000.0


def capacity(load: Load, folder: Path, cores: Sequence[int], low: float = LOW, high: float = HIGH) -> float:
    """Tuples per second and stream, measured with runs of this load. A rate that failed once is tried again: it takes a busy
    neighbour to make a sustainable rate fail, nothing makes one hold that is not."""

    def sustained(rate: float) -> bool:
        for _ in range(2):
            run(load, rate, folder, cores)
            if is_sustained(folder / "run", load.epoch_s):
                return True
        return False

    return highest(sustained, low, high)


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
