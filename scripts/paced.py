"""Paced runs of synthetic streams under mpirun, for the benchmarks: one run, and the highest rate that can be sustained."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Sequence

from bench_launch import Launched, launch

STREAM = """\
[{name}]
kind = "synthetic"
rate = 1000
bias = 0.5
domain = 10_000_000
duration = "10 s"
window = "{window_s} s"
seed = {seed}
"""
REST = """\
[cluster]
partitions = 60
memory = "1 GB"
[run]
speed = 1
[output]
results = "count"
"""
RATE_STEP = 1.08  # bisection ends when the highest rate that held and the lowest that did not are so close


@dataclass(frozen=True)
class Load:
    """A uniform load. epoch_s: distribution epoch · seconds: of the run, after `warmup_s`."""

    slaves: int
    epoch_s: float
    window_s: float = 4.0
    warmup_s: float = 5.0
    seconds: float = 6.0
    settings: tuple[str, ...] = ()


def run(load: Load, rate: float, folder: Path, cores: Sequence[int]) -> Launched:
    """One paced run at `rate` tuples per second and stream; its run directory is folder/run."""
    job = folder / "job.toml"
    streams = [STREAM.format(name=name, window_s=load.window_s, seed=seed) for name, seed in (("left", 1), ("right", 2))]
    job.write_text("".join(streams) + REST)
    settings = [f"{side}.{field}" for side in ("left", "right") for field in (f"rate={rate:.0f}", f'duration="{load.warmup_s + load.seconds} s"')]
    settings += [f'cluster.distribution_epoch="{load.epoch_s * 1000:.0f} ms"', f'run.warmup="{load.warmup_s} s"', *load.settings]
    return launch(job, folder / "run", load.slaves + 1, cores, settings)


def is_sustained(summary: dict[str, Any]) -> bool:
    """Bounded backlog: no slave, and not the master, was ever behind by more than two epochs."""
    return not summary["overload"]["overloaded"]


def capacity(load: Load, folder: Path, cores: Sequence[int], low: float, high: float) -> float:
    """The highest sustained rate per stream, by bisection on a logarithmic scale (WSJ, VI-A: "capacity of the system").

    low: a rate that is sustained, tried first; below it the search goes down · high: where the search ends.
    """
    while not is_sustained(run(load, low, folder, cores).summary):
        low, high = low / 2, low
    while high / low > RATE_STEP:
        middle = (low * high) ** 0.5
        if is_sustained(run(load, middle, folder, cores).summary):
            low = middle
        else:
            high = middle
    return low


def clear(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
