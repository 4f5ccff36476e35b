"""LAD's own comparisons, small: what to push to the disk, and what relocation and a global view bring.

    python scripts/lad_experiments.py                          all three, about ten minutes
    python scripts/lad_experiments.py --only ranking --quick   one of them, in less than a minute

Three streams without windows are joined by one key, as in LAD, section 3.1: in every k rows of a stream (the tuple
range) each key of a partition comes r times (its join rate), so that results grow with the cube of the time.

ranking (figure 7)      one slave; a third of the partitions each with join rates 4, 2 and 1. The least productive, the
                        most productive, or random partitions go to the disk when memory is full.
relocation (figure 12)  three slaves, of which one has two thirds of the partitions. All of them run out of memory.
                        Nothing moves ("none"), or memory in use is evened out ("lazy-disk").
active (figure 14)      three slaves; the partitions of one have join rate 4 and a small tuple range, the others 1 and a
                        large one. Slaves spill for themselves ("lazy-disk"), or the least productive one has to spill
                        before memory is full ("active-disk").

All strategies of an experiment get the same rows at the same pace, and find the same results: some of them while the
input comes ("run time"), the others in the clean-up at its end. Each slave may hold a share of what all hold in a run
with enough memory. Times of the paper are scaled: 40 minutes are 40 seconds, and tau_m is 3 seconds.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benching.launch import launch
from mpijoin.partitioning.hashing import hash_keys
from peers.tables import aligned

PARTITIONS, STREAMS = 60, ("a", "b", "c")
PLENTY = "2 GiB"
HEAD = ("experiment", "strategy", "run time", "of all", "clean-up", "results", "spilled", "moves", "whole run")
JOB = """\
[cluster]
partitions = {partitions}
distribution_epoch = "200 ms"
reorganization_epoch = "1 s"
[tuning]
block = "1 KiB"
[memory]
cleanup = "end"
[balance]
relocation_pause = "3 s"
[run]
speed = 1
[output]
results = "count"
"""
STREAM = """\
[streams.{name}]
path = {path}
time = "ts"
time_unit = "us"
key = "key"
window = "unbounded"
"""


@dataclass(frozen=True)
class Kind:
    """Partitions that are alike. join_rate: r · tuple_range: k, in rows of the whole stream."""

    partitions: tuple[int, ...]
    join_rate: int
    tuple_range: int


@dataclass(frozen=True)
class Experiment:
    """share: what each slave may hold, of what all hold in a run with enough memory · strategies: by name, what each
    sets in the job."""

    slaves: int
    kinds: tuple[Kind, ...]
    share: float
    strategies: dict[str, tuple[str, ...]]

    @property
    def partitions(self) -> list[int]:
        return [one for kind in self.kinds for one in kind.partitions]


def of_slave(slave: int, count: int = PARTITIONS) -> tuple[int, ...]:
    """So many partitions of one of three slaves, to which they are dealt out in turn."""
    return tuple(range(slave - 1, PARTITIONS, 3))[:count]


def policy(name: str) -> tuple[str, ...]:
    return (f'balance.policy="{name}"',)


RANKINGS = ("least productive", "most productive", "random")
EXPERIMENTS = {
    "ranking": Experiment(
        1,
        tuple(Kind(of_slave(slave), rate, 30_000) for slave, rate in ((1, 4), (2, 2), (3, 1))),
        0.4,
        {f"push {name}": (f'memory.rank="{name}"',) for name in RANKINGS},
    ),
    "relocation": Experiment(
        3,
        tuple(Kind(of_slave(slave, count), 3, 30_000) for slave, count in ((1, 20), (2, 5), (3, 5))),
        0.15,
        {"no relocation": policy("none"), "lazy-disk": policy("lazy-disk")},
    ),
    "active": Experiment(
        3,
        (Kind(of_slave(1), 4, 15_000), Kind((*of_slave(2), *of_slave(3)), 1, 45_000)),
        0.22,
        {name: policy(name) for name in ("lazy-disk", "active-disk")},
    ),
}


def keys_of(partitions: Iterable[int], count: int) -> dict[int, np.ndarray]:
    """So many keys of each of these partitions."""
    keys = np.arange(4 * PARTITIONS * count, dtype=np.int64)
    found = ((hash_keys(keys) >> np.uint64(32)) * np.uint64(PARTITIONS) >> np.uint64(32)).astype(np.int64)
    return {one: keys[found == one][:count] for one in partitions}


def write_streams(experiment: Experiment, rows: int, seconds: float, folder: Path) -> list[Path]:
    """Each row's partition is any of the experiment's, and its key is any of the partition's."""
    count = len(experiment.partitions)
    domains = {one: kind.tuple_range // count // kind.join_rate for kind in experiment.kinds for one in kind.partitions}
    keys = keys_of(domains, max(domains.values()))
    times = (np.arange(rows) * (1e6 * seconds / rows)).astype(np.int64)
    paths = []
    for number, name in enumerate(STREAMS):
        chance = np.random.default_rng(number)
        partitions = np.array(experiment.partitions)[chance.integers(0, count, rows)]
        own = np.empty(rows, np.int64)
        for one, domain in domains.items():
            at = np.flatnonzero(partitions == one)
            own[at] = keys[one][chance.integers(0, domain, len(at))]
        paths.append(folder / f"{name}.parquet")
        pq.write_table(pa.table({"ts": times, "key": own}), paths[-1], row_group_size=10_000)
    return paths


class Run:
    """The runs of one experiment, all with the same rows."""

    def __init__(self, name: str, rows: int, seconds: float, cores: Sequence[int], home: Path):
        self.name, self.experiment, self._cores, self._home = name, EXPERIMENTS[name], cores, home
        paths = write_streams(self.experiment, rows, seconds, home)
        streams = (STREAM.format(name=own, path=json.dumps(str(path))) for own, path in zip(STREAMS, paths))
        self._job = home / "job.toml"
        self._job.write_text(JOB.format(partitions=PARTITIONS) + "".join(streams))

    def summary(self, *settings: str) -> dict[str, Any]:
        return launch(self._job, self._home / "run", self.experiment.slaves + 1, self._cores, settings).summary

    def rows(self) -> Iterable[dict[str, Any]]:
        """What came of each strategy, and before of a run with enough memory."""
        whole = self.summary(f'memory.limit="{PLENTY}"')
        yield figures(self.name, "all in memory", whole)
        held = sum(slave["memory_bytes_max"] for slave in whole["per_slave"].values())
        limit = f'memory.limit="{int(self.experiment.share * held)} B"'
        for strategy, settings in self.experiment.strategies.items():
            summary = self.summary(limit, 'memory.spill="generations"', *settings)
            if summary["certificate"] != whole["certificate"]:
                raise SystemExit(f"{self.name}, {strategy}: the answer is not that of the run in memory")
            yield figures(self.name, strategy, summary)


def warm_up(cores: Sequence[int]) -> None:
    """A short run that spills and cleans up: it compiles what is not compiled yet, and nobody looks at its times."""
    with tempfile.TemporaryDirectory() as folder:
        limit, spill = 'memory.limit="300 KB"', 'memory.spill="generations"'
        Run("ranking", 10_000, 1.0, cores, Path(folder)).summary(limit, spill)


def figures(experiment: str, strategy: str, summary: dict[str, Any]) -> dict[str, Any]:
    memory, results = summary["memory"], summary["results"]
    return {
        "experiment": experiment,
        "strategy": strategy,
        "results": results,
        "runtime_results": results - memory["cleanup_results"],
        "cleanup_results": memory["cleanup_results"],
        "cleanup_s": memory["cleanup_s"],
        "spilled_bytes": memory["spilled_bytes"],
        "moves": summary["moves"],
        "wall_s": summary["wall_s"],
        "slave_limit_bytes": memory["limit_bytes"],
    }


def cells(row: dict[str, Any]) -> list[str]:
    return [
        row["experiment"],
        row["strategy"],
        f"{row['runtime_results'] / 1e6:.2f} M",
        f"{row['runtime_results'] / max(1, row['results']):.0%}",
        f"{row['cleanup_s']:.2f} s",
        f"{row['cleanup_results'] / 1e6:.2f} M",
        f"{row['spilled_bytes'] / 1e6:.1f} MB",
        str(row["moves"]),
        f"{row['wall_s']:.1f} s",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=list(EXPERIMENTS), choices=list(EXPERIMENTS))
    parser.add_argument("--rows", type=int, default=300_000, help="of each stream")
    parser.add_argument("--seconds", type=float, default=40.0, help="for which the input comes")
    parser.add_argument("--quick", action="store_true", help="60,000 rows in 10 seconds")
    parser.add_argument("--cores", type=int, nargs="+", default=[0, 1])
    parser.add_argument("-o", "--output", help="where to write the figures as JSON")
    arguments = parser.parse_args()
    rows, seconds = (60_000, 10.0) if arguments.quick else (arguments.rows, arguments.seconds)
    found = []
    warm_up(arguments.cores)
    for name in arguments.only:
        with tempfile.TemporaryDirectory() as folder:
            for row in Run(name, rows, seconds, arguments.cores, Path(folder)).rows():
                found.append(row)
                print(f"{row['experiment']}: {row['strategy']} took {row['wall_s']:.1f} s", flush=True)
    print(aligned([HEAD, *map(cells, found)]))
    if arguments.output:
        Path(arguments.output).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
