"""Measures what policies make of noise: delays and moves, in the simulator and in real runs.

    python scripts/bench_policies.py [--shapes …] [--real] [--rate N] [--seeds N] [--policies …] [-o FILE.json]

The policies are "none", "threshold" and "balance". These shapes are simulated (wsj_2005 costs, paced): slaves that are
alike and stand still now and then; one group more than slaves; a slave at a third of its speed; a load that becomes
fivefold; and so many groups that each is next to nothing. With --seeds there are so many runs of each shape, each with
the noise of another seed. "late" are moves that began after the tenth reorganization epoch. Under a steady load there
should be none.

With --real there is also a small real run of four slaves, each with a quarter of a core. Each of them is slowed to a
third for a second now and then. Its rate is a part of what this machine can do, see --rate.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any, Iterable

import pyarrow.parquet as pq

from benching.paced import Load, run
from mpijoin.config.check import resolve
from mpijoin.config.load import load_job
from mpijoin.simulate.cluster import Manner, simulate
from mpijoin.simulate.costs import load_costs
from mpijoin.transport.simulated import Disturbance

PERIOD_S, EPOCH_S = 2.0, 0.2
STEADY_AFTER = 10  # After so many reorganization epochs, moves count as late.
BASE = {"slaves": 4, "partitions": 60, "rate": 4000, "window": "20 s", "seconds": 80}
# Each shape has the mean seconds of a stall, and what differs from BASE.
SHAPES: dict[str, tuple[float, dict[str, Any]]] = {
    "alike": (0.0, {}),
    "stalls of 0.3 s": (0.3, {}),
    "stalls of 1 s": (1.0, {}),
    "n + 1 groups": (0.1, {"slaves": 2, "partitions": 3, "rate": 2000}),
    "one slow": (0.1, {"slow": {2: 0.33}}),
    "load x 5": (0.0, {"slaves": 8, "slaves_min": 1, "rate": 2000, "window": "2 s", "rises": 10_000}),
    "2,000 groups": (0.0, {"partitions": 2000, "window": "5 s", "slow": {1: 0.3, 2: 0.6}, "seconds": 40}),
}
HEAD = "shape                policy        mean, s    p95, s    max, s  behind, s   moves    late  slaves"
# The real runs have so many nodes, each with so much of a core. Every so often a node falls to a share of that for a
# while.
SLAVES, NODE = 4, 0.25
REAL_S, REAL_WARMUP_S, SLOW_S, SLOW_EVERY_S, SLOW_SHARE = 60.0, 4.0, 1.0, 8.0, 0.33


def job_of(policy: str, path: str, shape: dict[str, Any], seed: int) -> dict[str, Any]:
    own = {**BASE, **shape}
    stream = {"kind": "synthetic", "bias": 0.5, "duration": f"{own['seconds']} s", "payload_bytes": 40}
    stream |= {"rate": own["rate"], "window": own["window"]}
    if "rises" in own:
        stream["changes"] = [{"from": f"{own['seconds'] // 2} s", "rate": own["rises"]}]
    return {
        "left": {**stream, "seed": 2 * seed + 1},
        "right": {**stream, "seed": 2 * seed + 2},
        "cluster": {
            "partitions": own["partitions"],
            "distribution_epoch": f"{EPOCH_S} s",
            "reorganization_epoch": f"{PERIOD_S} s",
            "slaves_min": own.get("slaves_min", "all"),
        },
        "balance": {"policy": policy},
        "inject": {"slow": own.get("slow", {})},
        "run": {"speed": 1, "seed": seed},
        "output": {"path": path},
    }


def simulated(policy: str, stall_s: float, shape: dict[str, Any], seed: int) -> dict[str, Any]:
    """Makes one run in virtual time, and returns its delays and moves."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        job = load_job(job_of(policy, str(path), shape, seed))
        noise = Disturbance(seed, 0.0, stall_s, 20 * stall_s)
        manner = Manner(load_costs("wsj_2005"), disturbance=noise)
        summary = simulate(job, resolve(job), shape.get("slaves", BASE["slaves"]), manner).summary
        return figures(summary, path)


def real(policy: str, rate: float, seed: int, cores: list[int]) -> dict[str, Any]:
    """Makes one run under mpirun in which slaves are slow for a second now and then. Returns its delays and moves."""
    chance, slow = random.Random(seed), [f"{{rank = {slave}, share = {NODE}}}" for slave in range(1, SLAVES + 1)]
    for slave in range(1, SLAVES + 1):
        at_s = chance.expovariate(1 / SLOW_EVERY_S)
        while at_s < REAL_WARMUP_S + REAL_S:
            slow.append(
                f'{{rank = {slave}, share = {SLOW_SHARE}, from = "{at_s:.2f} s", to = "{at_s + SLOW_S:.2f} s"}}'
            )
            at_s += SLOW_S + chance.expovariate(1 / SLOW_EVERY_S)
    settings = (
        f'balance.policy="{policy}"',
        f'cluster.reorganization_epoch="{PERIOD_S} s"',
        f"inject.slow=[{', '.join(slow)}]",
    )
    with tempfile.TemporaryDirectory() as folder:
        run(Load(SLAVES, EPOCH_S, 2.0, REAL_WARMUP_S, REAL_S, settings), rate, Path(folder), cores)
        path = Path(folder) / "run"
        return figures(json.loads((path / "summary.json").read_text()), path)


def figures(summary: dict[str, Any], path: Path) -> dict[str, Any]:
    """Returns the figures of a run. late: the moves that began after the tenth reorganization epoch."""
    begun_s = []
    if (path / "metrics" / "moves.parquet").exists():
        moves = pq.read_table(path / "metrics" / "moves.parquet", columns=["begun_us", "outcome"]).to_pylist()
        begun_s = [one["begun_us"] / 1e6 for one in moves if one["outcome"] == "moved"]
    delay = summary["delay_s"] or dict.fromkeys(("mean", "p95", "max"), float("nan"))
    return {
        **{name: delay[name] for name in ("mean", "p95", "max")},
        "behind_s": summary["overload"]["behind_s_max"],
        "moves": summary["moves"],
        "late": sum(second > STEADY_AFTER * PERIOD_S for second in begun_s),
        "slaves": summary["declustering"]["mean"],
    }


def line_of(shape: str, policy: str, found: dict[str, Any]) -> str:
    delays = "".join(f"{found[name]:10.3f}" for name in ("mean", "p95", "max"))
    return (
        f"{shape:19}  {policy:10} {delays} {found['behind_s']:10.2f} {found['moves']:7.0f} {found['late']:7.0f}"
        f" {found['slaves']:7.2f}"
    )


def mean_of(runs: Iterable[dict[str, Any]]) -> dict[str, Any]:
    runs = list(runs)
    return {name: sum(one[name] for one in runs) / len(runs) for name in runs[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policies", nargs="+", default=["none", "threshold", "balance"])
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES), choices=list(SHAPES), help="may be none")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each shape; their mean is shown")
    parser.add_argument("--real", action="store_true", help="also real runs, of a minute each")
    parser.add_argument("--rate", type=float, default=20_000, help="of the real runs, tuples per second and stream")
    parser.add_argument("-o", "--output", help="where to write the figures as JSON")
    arguments = parser.parse_args()
    found, start_s = [], time.monotonic()
    print(HEAD)
    for name in arguments.shapes:
        for policy in arguments.policies:
            own = mean_of(simulated(policy, *SHAPES[name], seed) for seed in range(arguments.seeds))
            found.append({"shape": name, "policy": policy, **own})
            print(line_of(name, policy, own), flush=True)
    for policy in arguments.policies if arguments.real else []:
        own = real(policy, arguments.rate, 1, [0, 1])
        found.append({"shape": "real", "policy": policy, **own})
        print(line_of("real, slow at times", policy, own), flush=True)
    if arguments.output:
        Path(arguments.output).write_text(
            json.dumps({"seconds": time.monotonic() - start_s, "runs": found}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
