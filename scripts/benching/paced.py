"""Paced runs of synthetic streams under mpirun: their job, their runs, and the highest rate that is sustained."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Sequence

from benching.launch import Launched, launch
from mpijoin.sweep.capacity import highest, is_sustained

# The search for the capacity begins and ends at these rates, in tuples per second and stream.
LOW, HIGH = 100_000.0, 10_000_000.0
STREAM = """\
[{name}]
kind = "synthetic"
bias = 0.5
domain = 10_000_000
window = "{window_s} s"
seed = {seed}
rate = {rate:.0f}
duration = "{seconds} s"
"""
REST = """\
[cluster]
partitions = 60
distribution_epoch = "{epoch_us} us"
[memory]
limit = "1 GB"
[run]
speed = 1
warmup = "{warmup_s} s"
[output]
results = "count"
"""


@dataclass(frozen=True)
class Load:
    """A load with uniform keys.

    epoch_s: the distribution epoch · seconds: how long the run lasts after `warmup_s` · settings: other ones, as for
    --set.
    """

    slaves: int
    epoch_s: float
    window_s: float = 4.0
    warmup_s: float = 5.0
    seconds: float = 6.0
    settings: tuple[str, ...] = ()


def run(load: Load, rate: float, folder: Path, cores: Sequence[int]) -> Launched:
    """Makes one paced run at `rate` tuples per second and stream. Its run directory is folder/run."""
    job = folder / "job.toml"
    job.write_text(job_text(load, rate))
    return launch(job, folder / "run", load.slaves + 1, cores, load.settings)


def job_text(load: Load, rate: float) -> str:
    seconds = load.warmup_s + load.seconds
    streams = [
        STREAM.format(name=name, window_s=load.window_s, seed=seed, rate=rate, seconds=seconds)
        for name, seed in (("left", 1), ("right", 2))
    ]
    return "".join(streams) + REST.format(epoch_us=round(load.epoch_s * 1e6), warmup_s=load.warmup_s)


def capacity(load: Load, folder: Path, cores: Sequence[int], low: float = LOW, high: float = HIGH) -> float:
    """Returns the highest rate, in tuples per second and stream, that runs of this load sustain.

    A rate that failed once is tried again. A busy neighbour can make a sustainable rate fail, but nothing can make a
    rate hold that is not sustainable.
    """

    def sustained(rate: float) -> bool:
        for _ in range(2):
            run(load, rate, folder, cores)
            if is_sustained(folder / "run", load.epoch_s):
                return True
        return False

    return highest(sustained, low, high)
