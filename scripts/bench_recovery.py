"""How the policies answer when a node is not dedicated: at half load, one of four slaves falls to a third of its speed.

    python scripts/bench_recovery.py [--rate N] [--policies none threshold balance] [--back] [--quick] [-o FILE.json]

Each slave is a node with a quarter of a core, so that the slow slave falls behind and not this machine. The capacity is
measured first, with such nodes, unless the rate is given. For each policy it prints after how many reorganization
epochs the mean delay is back within 1.5 times of what it was before, and how many groups moved in each. With --back the
slave is fast again later, and its load comes back. For "threshold", a small model says what to expect.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any, Mapping

import numpy as np
import pyarrow.parquet as pq

from benching.paced import Load, capacity, run
from mpijoin.sweep.capacity import epoch_records

SLAVES, SLOW, PARTITIONS = 4, 2, 60
EPOCH_S, REORGANIZATION_S, WINDOW_S = 0.2, 2.0, 2.0
# A node is this share of a core. The slow slave gets this share of a node, and the load is this share of the capacity.
NODE, SHARE, HALF = 0.25, 1 / 3, 0.5
WARMUP_S, BEFORE_S, SLOW_S, BACK_S = 4.0, 12.0, 24.0, 16.0
NORMAL = 1.5  # A delay is "back" if it is at most so many times the mean delay before.
WANTED = {"balance": 5}  # Within so many reorganization epochs the delay should be back.
HEAD = "policy      normal, ms   worst, ms   back within 1.5 x after   wanted   moves per epoch"


def load_of(policy: str, back: bool) -> Load:
    """Returns a load that is normal until BEFORE_S.

    Then slave SLOW has a third of its speed, for SLOW_S if `back`, else to the end.
    """
    end = f', to = "{BEFORE_S + SLOW_S} s"' if back else ""
    settings = (
        f'balance.policy="{policy}"',
        f'cluster.reorganization_epoch="{REORGANIZATION_S} s"',
        nodes(f'{{rank = {SLOW}, share = {SHARE:.3f}, from = "{BEFORE_S} s"{end}}}'),
    )
    seconds = BEFORE_S + SLOW_S + (BACK_S if back else 0.0)
    return Load(SLAVES, EPOCH_S, WINDOW_S, WARMUP_S, seconds - WARMUP_S, settings)


def nodes(*slower: str) -> str:
    """Returns the setting that makes each slave a part of a core. slower: further entries of [inject] slow."""
    every = [f"{{rank = {slave}, share = {NODE}}}" for slave in range(1, SLAVES + 1)]
    return f"inject.slow=[{', '.join([*every, *slower])}]"


def mean_delays(path: Path) -> dict[int, float]:
    """Returns, for each reorganization epoch, the mean delay in seconds of its results.

    Epochs are counted from the slowdown on; those before it are negative.
    """
    counts: dict[int, int] = {}
    sums_us: dict[int, int] = {}
    for row in epoch_records(path, "end_us", "delay_count", "delay_sum_us"):
        if row["role"] == "slave" and row["delay_count"]:
            epoch = int((row["end_us"] / 1e6 - BEFORE_S) // REORGANIZATION_S)
            counts[epoch] = counts.get(epoch, 0) + row["delay_count"]
            sums_us[epoch] = sums_us.get(epoch, 0) + row["delay_sum_us"]
    return {epoch: sums_us[epoch] / counts[epoch] / 1e6 for epoch in sorted(counts)}


def recovery(delays_s: Mapping[int, float]) -> dict[str, Any]:
    """Returns how bad the delay became, and when it was normal again.

    normal_s: the median of the mean delays before · worst_s: the greatest · epochs: after so many reorganization epochs
    of the slowdown the mean delay was back within 1.5 x normal, and stayed there as long as the slave was slow. None:
    never.
    """
    slow = {epoch: delay_s for epoch, delay_s in delays_s.items() if 0 <= epoch < SLOW_S / REORGANIZATION_S}
    normal_s = float(np.median([delay_s for epoch, delay_s in delays_s.items() if epoch < 0]))
    late = [epoch for epoch, delay_s in slow.items() if delay_s > NORMAL * normal_s]
    epochs = max(late, default=-1) + 1
    return {
        "normal_s": round(normal_s, 4),
        "worst_s": round(max(slow.values()), 4),
        "epochs": epochs if epochs in slow else None,
    }


def moves_per_epoch(path: Path) -> list[int]:
    """Returns how many groups changed hands in each reorganization epoch from the slowdown on."""
    file = path / "metrics" / "moves.parquet"
    if not file.exists():
        return []
    moves = pq.read_table(file, columns=["begun_us", "outcome"]).to_pylist()
    after_s = [one["begun_us"] / 1e6 - BEFORE_S for one in moves if one["outcome"] == "moved"]
    epochs = [int(second // REORGANIZATION_S) for second in after_s if second >= 0]
    return np.bincount(epochs).tolist() if epochs else []


def expected(groups: int = PARTITIONS // SLAVES, threshold: float = 0.5, load_buffer_epochs: int = 2) -> int:
    """Returns after how many reorganization epochs policy "threshold" has relieved the slow slave, by a small model.

    The unit of bytes is what a slave gets in a distribution epoch. The slow slave can join SHARE / HALF of that. In
    each reorganization epoch in which it is a supplier, it gives one group away, with its part of the backlog.
    """
    kept, backlog = groups, 0.0
    for epoch in range(1, 1000):
        growth = REORGANIZATION_S / EPOCH_S * (kept / groups - SHARE / HALF)
        before, backlog = backlog, max(0.0, backlog + growth)
        if backlog == 0:
            return epoch
        if (before + backlog) / 2 / load_buffer_epochs > threshold and kept > 1:
            backlog *= 1 - 1 / kept
            kept -= 1
    raise AssertionError("the slow slave is never relieved")


def line_of(figures: Mapping[str, Any]) -> str:
    after = "never" if figures["epochs"] is None else f"{figures['epochs']} epochs"
    moves = " ".join(map(str, figures["moves_per_epoch"])) or "none"
    wanted = figures["wanted"] or ""
    times = f"{1e3 * figures['normal_s']:10.0f}   {1e3 * figures['worst_s']:9.0f}"
    return f"{figures['policy']:10}  {times}   {after:>23}   {wanted:>6}   {moves}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, help="tuples per second and stream, instead of half of the capacity")
    parser.add_argument("--policies", nargs="+", default=["none", "threshold", "balance"])
    parser.add_argument("--back", action="store_true", help="the slave is fast again after a while")
    parser.add_argument("--quick", action="store_true", help="a small rate, one policy: is the script sound?")
    parser.add_argument("-o", "--output", help="where to write the figures as JSON")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.policies, arguments.rate = ["balance"], arguments.rate or 20_000
    cores, found = sorted(os.sched_getaffinity(0))[:2], []
    with tempfile.TemporaryDirectory() as name:
        rate = arguments.rate or HALF * capacity(
            Load(SLAVES, EPOCH_S, WINDOW_S, settings=(nodes(),)), Path(name), cores
        )
        print(f"{rate:,.0f} tuples/s/stream; slave {SLOW} at a third of its speed from {BEFORE_S:g} s on")
        print(f'by the model "threshold" needs {expected()} reorganization epochs')
        print(HEAD)
        for policy in arguments.policies:
            run(load_of(policy, arguments.back), rate, Path(name), cores)
            path = Path(name) / "run"
            figures = {"policy": policy, "rate": round(rate), **recovery(mean_delays(path))}
            figures |= {"wanted": WANTED.get(policy), "moves_per_epoch": moves_per_epoch(path)}
            found.append(figures)
            print(line_of(figures), flush=True)
    if arguments.output:
        Path(arguments.output).write_text(
            json.dumps({"expected_threshold": expected(), "runs": found}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
