"""The capacity of paced runs: the highest rate at which neither the master nor any slave falls behind.

    python scripts/capacity.py [--slaves N] [--epoch SECONDS] [--window SECONDS] [--low RATE] [--high RATE]

WSJ, section VI-A: "this metric [the delay] also provide an indication of the capacity of the system: when the system is
overloaded, the incoming tuples stays a longer period of time in buffer". Here it is the buffers that are looked at.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Callable, Sequence

from paced import Load, records, run

RATE_STEP = 1.08  # bisection ends when the highest rate that was sustained and the lowest that was not are so close
RATE_MIN = 100.0  # tuples per second and stream; if not even this is sustained something is broken
BEHIND_MAX = 2.0  # epochs: as much as the load buffer holds
LOW, HIGH = 100_000.0, 10_000_000.0
SUSTAINED = 0.9  # of the epochs must be in time: one that a busy neighbour spoils says nothing of capacity


def is_sustained(path: Path, epoch_s: float) -> bool:
    """Whether the epochs of a run directory went out at most two epochs late and left at most two epochs' bytes unjoined."""
    rows = records(path, "lag_us", "occupancy_bytes", "received_bytes")
    lags_us = [row["lag_us"] for row in rows if row["role"] == "master"]
    in_time = [lag_us <= BEHIND_MAX * epoch_s * 1e6 for lag_us in lags_us]
    ends_in_time = all(in_time[-2:])
    for slave in {row["rank"] for row in rows if row["role"] == "slave"}:
        own = [row for row in rows if row["rank"] == slave]
        epoch_bytes = sum(row["received_bytes"] for row in own) / len(own)
        small = [row["occupancy_bytes"] <= BEHIND_MAX * epoch_bytes for row in own]
        ends_in_time &= all(small[-2:])
        in_time += small
    return bool(in_time) and ends_in_time and sum(in_time) >= SUSTAINED * len(in_time)


def highest(sustained: Callable[[float], bool], low: float, high: float, step: float = RATE_STEP) -> float:
    """The highest rate that is sustained, within the factor `step`, by bisection on a logarithmic scale.

    low: where the search begins; if it is too much already the search goes down · high: where it ends.
    """
    while not sustained(low):
        low, high = low / 2, low
        if low < RATE_MIN:
            raise SystemExit(f"not even {2 * low:,.0f} tuples/s/stream are sustained")
    while high / low > step:
        middle = (low * high) ** 0.5
        if sustained(middle):
            low = middle
        else:
            high = middle
    return low


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
    print(f"{rate:,.0f} tuples/s/stream ({arguments.slaves} slaves, epochs of {arguments.epoch:g} s)")


if __name__ == "__main__":
    main()
