"""A node is not dedicated: one of four slaves falls to a third of its speed at half load, and the policies answer.

    python scripts/bench_recovery.py [--rate N] [--policies none threshold balance] [--quick] [-o FILE.json]

Capacity is measured first. Prints, per policy, after how many reorganization epochs the mean delay is back within 1.5 times of
what it was before, and for how many groups that took; with --back the slave is fast again later, and its load comes back.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from paced import Load, capacity, run

SLAVES, SLOW = 4, 2
EPOCH_S, REORGANIZATION_S = 0.2, 2.0
SHARE = 1 / 3
BEFORE_S, SLOW_S, BACK_S = 8.0, 24.0, 16.0
WANTED = {"balance": 5}  # reorganization epochs


def load_of(policy: str, back: bool) -> Load:
    end = f', to = "{BEFORE_S + SLOW_S} s"' if back else ""
    settings = (
        f'balance.policy="{policy}"',
        f'cluster.reorganization_epoch="{REORGANIZATION_S * 1000:.0f} ms"',
        f'inject.slow=[{{rank = {SLOW}, share = {SHARE:.3f}, from = "{BEFORE_S} s"{end}}}]',
    )
    seconds = BEFORE_S + SLOW_S + (BACK_S if back else 0.0)
    return Load(SLAVES, EPOCH_S, window_s=2.0, warmup_s=3.0, seconds=seconds - 3.0, settings=settings)


def mean_delays(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Mean delay in seconds of all slaves' results per second of the run: (second, delay)."""
    counts, sums = {}, {}
    for file in path.glob("metrics/rank-*.parquet"):
        table = pq.read_table(file, columns=["role", "end_us", "delay_count", "delay_sum_us"]).to_pylist()
        for row in (one for one in table if one["role"] == "slave" and one["delay_count"]):
            second = row["end_us"] // 1_000_000
            counts[second] = counts.get(second, 0) + row["delay_count"]
            sums[second] = sums.get(second, 0) + row["delay_sum_us"]
    seconds = sorted(counts)
    return np.array(seconds, float), np.array([sums[one] / counts[one] / 1e6 for one in seconds])


def recovery(path: Path) -> dict[str, float | None]:
    """normal_s: median of the mean delays before · worst_s · epochs: reorganization epochs from the slowdown to the first
    second from which the mean delay stays within 1.5 x normal to the end of the slowdown; None: never."""
    seconds, delays = mean_delays(path)
    slow = (seconds >= BEFORE_S) & (seconds < BEFORE_S + SLOW_S)
    normal = float(np.median(delays[seconds < BEFORE_S - 1]))
    high = np.flatnonzero(delays[slow] > 1.5 * normal)
    last = -1 if len(high) == 0 else int(high[-1])
    recovered = last + 1 < slow.sum()
    after_s = seconds[slow][last + 1] - BEFORE_S if recovered else None
    epochs = None if after_s is None else round(float(after_s) / REORGANIZATION_S, 1)
    return {"normal_s": round(normal, 4), "worst_s": round(float(delays[slow].max()), 3), "epochs": epochs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, help="half of the capacity, if it is known: tuples per second and stream")
    parser.add_argument("--policies", nargs="+", default=["none", "threshold", "balance"])
    parser.add_argument("--back", action="store_true", help="the slave is fast again after a while")
    parser.add_argument("--quick", action="store_true", help="a small rate: is the benchmark itself sound?")
    parser.add_argument("-o", "--output", help="where to write the figures as JSON")
    arguments = parser.parse_args()
    cores, found = sorted(os.sched_getaffinity(0))[:2], []
    with tempfile.TemporaryDirectory() as name:
        rate = arguments.rate or (20_000 if arguments.quick else None)
        if rate is None:
            rate = capacity(Load(SLAVES, EPOCH_S, window_s=2.0), Path(name), cores, 100_000, 3_000_000) / 2
        print(f"{rate:,.0f} tuples/s/stream; slave {SLOW} at a third of its speed from {BEFORE_S} s on")
        print("policy      normal, ms   worst, ms   back within 1.5 x after   moves")
        for policy in arguments.policies:
            summary = run(load_of(policy, arguments.back), rate, Path(name), cores).summary
            figures = recovery(Path(name) / "run") | {"policy": policy, "rate": rate, "moves": summary["moves"]}
            found.append(figures)
            after = "never" if figures["epochs"] is None else f"{figures['epochs']:.1f} epochs"
            print(f"{policy:10}  {1e3 * figures['normal_s']:10.0f}   {1e3 * figures['worst_s']:9.0f}   {after:>23}   {figures['moves']:5}", flush=True)
    if arguments.output:
        Path(arguments.output).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
