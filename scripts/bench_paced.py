"""Measures how soon results come in paced runs: the production delay beside the distribution epoch.

    python scripts/bench_paced.py [--epochs 2 1 0.5 0.2 0.1] [--rate N] [--quick] [-o FILE.json]

The load is a fifth and half of the capacity. There are four slaves, all of them active, and keys are uniform. For each
epoch t_d, the capacity at that t_d is measured first, by bisection on the rate.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any, Mapping

from benching.paced import HIGH, LOW, Load, capacity, run

SLAVES = 4
# For each share of the capacity: the mean and the p99 of the delay that are wanted, in epochs.
WANTED = {0.2: (0.65, 1.3), 0.5: (0.8, 1.6)}
ROUNDS = 3
HEAD = "t_d, s   capacity, tuples/s/stream   share   mean / t_d (wanted)   p99 / t_d (wanted)"


def load_of(epoch_s: float) -> Load:
    """Returns a load that is long enough for the window to be full, and for some epochs after that."""
    return Load(SLAVES, epoch_s, warmup_s=4.0 + 2 * epoch_s, seconds=max(6.0, 5 * epoch_s))


def measured(load: Load, rate: float, folder: Path, cores: list[int], rounds: int) -> dict[str, float]:
    """Returns the figures of the run whose mean delay is the median, because a busy neighbour spoils a run."""
    delays = [run(load, rate, folder, cores).summary["delay_s"] for _ in range(rounds)]
    return sorted(delays, key=lambda delay: delay["mean"])[rounds // 2]


def row_of(delay: Mapping[str, float], epoch_s: float, most: float, share: float) -> dict[str, Any]:
    mean, p99 = WANTED[share]
    row = {"epoch_s": epoch_s, "capacity": round(most), "share": share}
    row |= {"mean": round(delay["mean"] / epoch_s, 3), "p99": round(delay["p99"] / epoch_s, 3)}
    return row | {"mean_wanted": mean, "p99_wanted": p99, "met": row["mean"] <= mean and row["p99"] <= p99}


def line_of(row: Mapping[str, Any]) -> str:
    figures = f"{row['mean']:8.2f} ({row['mean_wanted']})   {row['p99']:15.2f} ({row['p99_wanted']})"
    verdict = "met" if row["met"] else "missed"
    return f"{row['epoch_s']:6.2f}   {row['capacity']:25,d}   {row['share']:5.1f}   {figures}   {verdict}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=float, nargs="+", default=[2, 1, 0.5, 0.2, 0.1], help="t_d in seconds")
    parser.add_argument("--low", type=float, default=LOW, help="tuples per second and stream: where the search begins")
    parser.add_argument("--high", type=float, default=HIGH, help="... and where it ends")
    parser.add_argument("--rate", type=float, help="the capacity, if it is known")
    parser.add_argument(
        "--quick", action="store_true", help="one epoch, a small rate, one run each: is the script sound?"
    )
    parser.add_argument("-o", "--output", help="where to write the figures as JSON")
    arguments = parser.parse_args()
    rounds = ROUNDS
    if arguments.quick:
        arguments.epochs, arguments.rate, rounds = [0.5], arguments.rate or 50_000, 1
    cores, rows = sorted(os.sched_getaffinity(0))[:2], []
    print(HEAD)
    with tempfile.TemporaryDirectory() as name:
        for epoch_s in arguments.epochs:
            load = load_of(epoch_s)
            most = arguments.rate or capacity(load, Path(name), cores, arguments.low, arguments.high)
            for share in WANTED:
                delay = measured(load, share * most, Path(name), cores, rounds)
                rows.append(row_of(delay, epoch_s, most, share))
                print(line_of(rows[-1]), flush=True)
    if arguments.output:
        Path(arguments.output).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
