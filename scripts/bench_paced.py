"""How soon results come: production delay of paced runs against the distribution epoch, at a fifth and at half of capacity.

    python scripts/bench_paced.py [--epochs 2 1 0.5 0.2 0.1] [--rate N] [--quick] [-o FILE.json]

Four slaves, all active, uniform keys. For each epoch t_d capacity is measured first, at that t_d, by bisection on the rate.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

from paced import Load, capacity, run

SLAVES = 4
WANTED = {0.2: (0.65, 1.3), 0.5: (0.8, 1.6)}  # share of capacity -> mean and p99 of the delay, in epochs
ROUNDS = 3


def measured(load: Load, rate: float, folder: Path, cores: list[int]) -> dict[str, float]:
    """The run whose mean delay is the median of some: a busy neighbour spoils one."""
    delays = [run(load, rate, folder, cores).summary["delay_s"] for _ in range(ROUNDS)]
    return sorted(delays, key=lambda delay: delay["mean"])[ROUNDS // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=float, nargs="+", default=[2, 1, 0.5, 0.2, 0.1], help="t_d in seconds")
    parser.add_argument("--low", type=float, default=100_000, help="tuples per second and stream: where the search begins")
    parser.add_argument("--high", type=float, default=3_000_000, help="... and where it ends")
    parser.add_argument("--rate", type=float, help="the capacity, if it is known")
    parser.add_argument("--quick", action="store_true", help="one epoch, a small rate: is the benchmark itself sound?")
    parser.add_argument("-o", "--output", help="where to write the figures as JSON")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.epochs, arguments.rate = [0.5], arguments.rate or 50_000
    cores, rows = sorted(os.sched_getaffinity(0))[:2], []
    print("t_d, s   capacity, tuples/s/stream   share   mean / t_d (wanted)   p99 / t_d (wanted)")
    with tempfile.TemporaryDirectory() as name:
        for epoch_s in arguments.epochs:
            load = Load(SLAVES, epoch_s, seconds=max(6.0, 5 * epoch_s))
            most = arguments.rate or capacity(load, Path(name), cores, arguments.low, arguments.high)
            for share, (mean, p99) in WANTED.items():
                delay = measured(load, share * most, Path(name), cores)
                row = {"epoch_s": epoch_s, "capacity": round(most), "share": share}
                row |= {"mean": delay["mean"] / epoch_s, "p99": delay["p99"] / epoch_s, "mean_wanted": mean, "p99_wanted": p99}
                row["met"] = row["mean"] <= mean and row["p99"] <= p99
                rows.append(row)
                print(
                    f"{epoch_s:6.2f}   {most:25,.0f}   {share:5.1f}   {row['mean']:8.2f} ({mean})         "
                    f"{row['p99']:8.2f} ({p99})   {'met' if row['met'] else 'missed'}",
                    flush=True,
                )
    if arguments.output:
        Path(arguments.output).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
