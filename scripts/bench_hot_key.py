"""Measures what it brings to spread a group whose one key has half of all rows over several slaves.

    python scripts/bench_hot_key.py [--slaves 4] [--seconds 300] [--rate 5000] [--simulate 4 16]

Two streams of so many rows per second have one key in half of their rows; the others are spread evenly. The run is as
fast as possible, once with policy "none" and once with "balance". Ranks take turns where cores are lacking, so the
table has CPU seconds: those of the busiest slave, of all slaves, and of the producer. "Implied" is the throughput if
each rank had a core of its own: the busiest rank decides. The certificates must be equal.

--simulate runs the same job with so many slaves in virtual time, by the costs of this machine.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benching.launch import launch
from mpijoin.config.check import resolve
from mpijoin.config.load import load_job
from mpijoin.simulate.cluster import Manner, simulate
from mpijoin.simulate.costs import load_costs
from peers.tables import aligned

HEAD = ("policy", "busiest slave", "all slaves", "producer", "implied M tuples/s", "members came", "results")
SIMULATED_HEAD = ("policy", "slaves", "virtual s", "M tuples/s", "members came")
KEYS, HOT_SHARE, HOT = 100_000, 0.5, 0
CORES = (0, 1)
STREAM = '[{name}]\npath = {path}\ntime = "ts"\ntime_unit = "us"\nkey = "key"\nwindow = "{window} s"\n'
CLUSTER = {
    "distribution_epoch": "1 s", "reorganization_epoch": "4 s", "buffer": "1 MiB", "master_buffer": "4 MiB",
}  # fmt: skip
BIAS, DOMAIN = 0.5 ** (1 / 20), 1 << 20  # of a b-model: HOT has half of all rows


def write_stream(path: Path, seconds: int, rate: int, seed: int) -> None:
    """Rows in the order of time, of which about half have the key HOT."""
    random, rows = np.random.default_rng(seed), seconds * rate
    times = np.sort(random.integers(0, seconds * 1_000_000, rows))
    keys = np.where(random.random(rows) < HOT_SHARE, HOT, random.integers(1, KEYS, rows))
    pq.write_table(pa.table({"ts": times, "key": keys}), path, row_group_size=1 << 16)


def job_text(folder: Path, policy: str, slaves: int, window: int) -> str:
    paths = {name: json.dumps(str(folder / f"{name}.parquet")) for name in ("left", "right")}
    streams = (STREAM.format(name=name, path=path, window=window) for name, path in paths.items())
    cluster = "".join(f'{name} = "{size}"\n' for name, size in CLUSTER.items())
    rest = f'[balance]\npolicy = "{policy}"\n[output]\nresults = "count"\n'
    return "".join(streams) + f"[cluster]\npartitions = {16 * slaves}\n{cluster}{rest}"


def measured(text: str, slaves: int, tuples: int) -> tuple[dict[str, Any], tuple[str, ...]]:
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.toml"
        job.write_text(text)
        summary = launch(job, Path(folder) / "run", 1 + slaves, CORES).summary
    cpu = {role: [one["cpu_s"] for one in summary[f"per_{role}"].values()] for role in ("slave", "producer")}
    busiest = max(cpu["slave"])
    implied = tuples / max(busiest, *cpu["producer"]) / 1e6
    figures = (f"{busiest:.2f}", f"{sum(cpu['slave']):.2f}", f"{cpu['producer'][0]:.2f}", f"{implied:.3f}")
    return summary, (*figures, str(summary["spread"]), str(summary["results"]))


def simulated(policy: str, slaves: int, args: argparse.Namespace) -> tuple[str, ...]:
    """The same in virtual time, where every rank has a core of its own, with rows of a b-model."""
    stream = {"kind": "synthetic", "rate": args.rate, "bias": BIAS, "domain": DOMAIN, "window": f"{args.window} s"}
    stream |= {"tuples": args.rate * args.seconds}
    streams = {name: {**stream, "seed": seed} for seed, name in enumerate(("left", "right"), 1)}
    rest = {"balance": {"policy": policy}, "output": {"results": "count"}}
    job = load_job({**streams, "cluster": {**CLUSTER, "partitions": 16 * slaves}, **rest})
    summary = simulate(job, resolve(job), slaves, Manner(load_costs(args.costs))).summary
    rate = summary["tuples_per_s"] / 1e6
    virtual_s = args.rate * args.seconds / rate / 5e5
    return policy, str(slaves), f"{virtual_s:.1f}", f"{rate:.3f}", str(summary["spread"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slaves", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--rate", type=int, default=5000, help="rows per second and stream")
    parser.add_argument("--window", type=int, default=1, help="seconds")
    parser.add_argument("--policies", nargs="*", default=["none", "balance"])
    parser.add_argument("--simulate", type=int, nargs="*", default=[4, 16], metavar="SLAVES", help="may be none")
    parser.add_argument("--costs", default="this_machine", help="as for mpijoin simulate")
    args = parser.parse_args()
    rows, certificates = [], set()
    with tempfile.TemporaryDirectory() as folder:
        for seed, name in enumerate(("left", "right")):
            write_stream(Path(folder) / f"{name}.parquet", args.seconds, args.rate, seed)
        for policy in args.policies:
            text = job_text(Path(folder), policy, args.slaves, args.window)
            summary, figures = measured(text, args.slaves, 2 * args.seconds * args.rate)
            certificates.add(summary["certificate"])
            rows.append((policy, *figures))
    print(aligned([HEAD, *rows]), flush=True)
    if len(certificates) != 1:
        raise SystemExit(f"the answers differ: {sorted(certificates)}")
    if args.simulate:
        several = [(policy, slaves) for slaves in args.simulate for policy in args.policies]
        print(aligned([SIMULATED_HEAD, *(simulated(*one, args) for one in several)]))


if __name__ == "__main__":
    main()
