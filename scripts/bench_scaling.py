"""Measures what a tuple of workload A costs by role, with more and more producers and slaves, and what follows from it.

    python scripts/bench_scaling.py [--producers 1 2 4 8] [--slaves 1 2 4 8 16] [--tuples N] [--simulate 2 16 64]

On few cores the ranks take turns, so that wall time says nothing of a cluster. CPU time does: every run prints the CPU
seconds per million tuples of its producers, of its slaves, and of all, as a part of those of one producer and two
slaves. "Predicted" is the throughput if each rank had a core of its own: the busiest role decides, or the link of a
producer, by the bandwidth in the costs of this machine.

--simulate runs A with these numbers of ranks, half of them producers, in virtual time, with rows that grow with the
ranks. The efficiency is their throughput, as a part of so many times that of the first number's.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any, Sequence

from benching.data import Data, make_data
from benching.launch import launch
from mpijoin.config.check import resolve
from mpijoin.config.load import load_job
from mpijoin.simulate.cluster import Manner, simulate
from mpijoin.simulate.costs import load_costs
from peers.tables import aligned

HEAD = ("producers", "slaves", "producers' CPU s/M", "slaves' CPU s/M", "all", "of 1 and 2", "predicted M tuples/s")
SIMULATED_HEAD = ("ranks", "producers", "slaves", "M tuples/s", "efficiency")
TUPLE_BYTES = 24  # of A on its way
PARTITIONS_PER_SLAVE = 16
STREAM = '[{name}]\npath = {path}\ntime = "ts"\ntime_unit = "us"\nkey = "key"\nwindow = "600 s"\n'
REST = '[cluster]\nproducers = {producers}\npartitions = {partitions}\n[output]\nresults = "count"\n'


def partitions_of(slaves: int) -> int:
    return max(60, PARTITIONS_PER_SLAVE * slaves)


def measured(data: Data, producers: int, slaves: int, cores: Sequence[int], rounds: int) -> dict[str, float]:
    """CPU seconds per million tuples, of the round in which all took least."""
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.toml"
        streams = (("left", data.left), ("right", data.right))
        text = "".join(STREAM.format(name=name, path=json.dumps(str(path))) for name, path in streams)
        job.write_text(text + REST.format(producers=producers, partitions=partitions_of(slaves)))
        runs = [launch(job, Path(folder) / "run", producers + slaves, cores).summary for _ in range(rounds)]
    for summary in runs:
        if summary["certificate"] != data.answer.certificate:
            raise SystemExit(f"{producers} producers and {slaves} slaves gave a wrong answer")
    return min(map(costs_of, runs), key=lambda one: one["all"])


def costs_of(summary: dict[str, Any]) -> dict[str, float]:
    millions = sum(stream["read"] for stream in summary["streams"].values()) / 1e6
    by_role = {
        role: sum(one["cpu_s"] for one in summary[f"per_{role}"].values()) / millions for role in ("producer", "slave")
    }
    return {**by_role, "all": sum(by_role.values())}


def predicted(cost: dict[str, float], producers: int, slaves: int, bytes_per_s: float) -> float:
    """Million tuples per second, if every rank has a core and a link of its own.

    >>> predicted({"producer": 0.04, "slave": 0.04}, 2, 4, 1e9)
    50.0
    """
    link_s = 1e6 * TUPLE_BYTES / bytes_per_s / min(producers, slaves)
    return 1 / max(cost["producer"] / producers, cost["slave"] / slaves, link_s)


def simulated(ranks: int, tuples: int, costs: str) -> float:
    """Million tuples per second of a run with so many tuples of each stream for every rank."""
    producers = ranks // 2
    slaves = ranks - producers
    stream = {"kind": "synthetic", "rate": 1500, "bias": 0.7, "tuples": tuples * ranks, "window": "600 s"}
    job = load_job(
        {
            "left": {**stream, "seed": 1},
            "right": {**stream, "seed": 2},
            "cluster": {"producers": producers, "partitions": partitions_of(slaves)},
            "output": {"results": "count"},
        }
    )
    return simulate(job, resolve(job), slaves, Manner(load_costs(costs))).summary["tuples_per_s"] / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--producers", type=int, nargs="*", default=[1, 2, 4, 8], help="may be none")
    parser.add_argument("--slaves", type=int, nargs="*", default=[1, 2, 4, 8, 16])
    parser.add_argument("--tuples", type=int, default=5_000_000, help="of each stream of the real runs")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--simulate", type=int, nargs="*", default=[2, 16, 64], metavar="RANKS", help="may be none")
    parser.add_argument("--simulated-tuples", type=int, default=500_000, help="of each stream, for every rank")
    parser.add_argument("--costs", default="this_machine", help="as for mpijoin simulate")
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()) / "mpijoin-bench")
    parser.add_argument("--cores", type=int, nargs="+", default=[0, 1])
    arguments = parser.parse_args()
    bytes_per_s = load_costs(arguments.costs).bandwidth_bytes_per_s
    if arguments.producers:
        data = make_data(arguments.data, arguments.tuples)
        base = measured(data, 1, 2, arguments.cores, arguments.rounds)["all"]
        table = [HEAD]
        for producers in arguments.producers:
            for slaves in arguments.slaves:
                cost = measured(data, producers, slaves, arguments.cores, arguments.rounds)
                rate = predicted(cost, producers, slaves, bytes_per_s)
                own = (f"{cost[name]:.4f}" for name in ("producer", "slave", "all"))
                table.append((str(producers), str(slaves), *own, f"{cost['all'] / base:.2f}", f"{rate:.1f}"))
        print(aligned(table), flush=True)
    rates = {ranks: simulated(ranks, arguments.simulated_tuples, arguments.costs) for ranks in arguments.simulate}
    if rates:
        first = min(rates)
        table = [SIMULATED_HEAD]
        for ranks, rate in rates.items():
            efficiency = rate / rates[first] * first / ranks
            table.append((str(ranks), str(ranks // 2), str(ranks - ranks // 2), f"{rate:.1f}", f"{efficiency:.2f}"))
        print(aligned(table))


if __name__ == "__main__":
    main()
