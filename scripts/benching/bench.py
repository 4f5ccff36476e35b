"""Cases that take turns, their times and targets, and the machine on which they were measured."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, Callable

from benching.data import WINDOW_US, Data, make_data
from benching.launch import ROOT, Launched, environment, launch, pin

FULL_TUPLES, QUICK_TUPLES = 5_000_000, 1_000_000
JOB = """\
[{stream}]
{source}
key = "key"
window = "{window_us} us"
"""


@dataclass(frozen=True)
class Target:
    what: str
    wanted: str
    got: str
    met: bool


@dataclass
class Section:
    """Cases that are compared with each other.

    times_s: the times of each case, in the order in which they were taken · tuples: those of both streams, or None
    where a rate makes no sense.
    """

    title: str
    tuples: int | None = None
    times_s: dict[str, list[float]] = field(default_factory=dict)
    targets: list[Target] = field(default_factory=list)

    def best_s(self, *cases: str) -> float:
        return min(min(self.times_s[case]) for case in cases)

    def at_most(self, what: str, got: float, wanted: float, unit: str) -> None:
        self.targets.append(Target(what, f"<= {wanted:.4g} {unit}", f"{got:.4g} {unit}", got <= wanted))

    def at_least(self, what: str, got: float, wanted: float, unit: str) -> None:
        self.targets.append(Target(what, f">= {wanted:.4g} {unit}", f"{got:.4g} {unit}", got >= wanted))


class Bench:
    """What the sections share: data, places, cores and the number of rounds."""

    def __init__(self, home: Path, tuples: int, scale: int, rounds: int):
        self.home, self.tuples, self.scale, self.rounds = home, tuples, scale, rounds
        self.cores = sorted(os.sched_getaffinity(0))

    def data(self, scale: int = 1) -> Data:
        return make_data(self.home / "data", self.tuples * scale)

    def measure(self, section: Section, cases: dict[str, Callable[[], float]]) -> Section:
        """Runs each case once, then each again, and so on."""
        for number in range(self.rounds):
            for name, run in cases.items():
                seconds = run()
                section.times_s.setdefault(name, []).append(seconds)
                print(f"  {number + 1}/{self.rounds}  {name:<32}{seconds:9.3f} s", file=sys.stderr, flush=True)
        return section

    def worker(self, script: str, cores: int, data: Data, *arguments: str, options: tuple[str, ...] = ()) -> float:
        """Returns the seconds that a script of this folder measured on so many cores. Its answer is checked."""
        line = [sys.executable, str(ROOT / "scripts" / script), *arguments, str(data.left), str(data.right), *options]
        done = subprocess.run(
            line, env=environment(), preexec_fn=pin(self.cores[:cores]), check=True, stdout=subprocess.PIPE, text=True
        )
        said = json.loads(done.stdout.splitlines()[-1])
        check(said, data, script)
        return said["seconds"]

    def duckdb(self, form: str, threads: int, data: Data, *options: str) -> float:
        return self.worker("bench_duckdb.py", threads, data, form, str(threads), str(WINDOW_US), options=options)

    def engine(self, data: Data, ranks: int, *settings: str) -> float:
        """Returns the seconds of a whole run on two cores, by its own clock.

        They are counted from before the first source is opened to the last rename.
        """
        done = self.launch(data, ranks, 'output.results="count"', *settings)
        return done.summary["wall_s"]

    def launch(self, data: Data, ranks: int, *settings: str, **options: Any) -> Launched:
        job = self.job(
            *(f'path = "{path}"\ntime = "ts"\ntime_unit = "us"' for path in (data.left, data.right)),
            name=f"files-{data.tuples}",
        )
        done = launch(job, self.home / "run", ranks, self.cores[:2], settings, **options)
        check(done.summary, data, f"mpijoin {settings}")
        return done

    def job(self, left: str, right: str, name: str) -> Path:
        """Writes a job file whose streams come from these sources, and returns its path."""
        path = self.home / f"{name}.toml"
        sections = ((("left", left), ("right", right)))
        path.write_text(
            "\n".join(JOB.format(stream=one, source=source, window_us=WINDOW_US) for one, source in sections)
        )
        return path


def check(said: dict[str, Any], data: Data, who: str) -> None:
    right = asdict(data.answer)
    wrong = {name: said[name] for name in right if name in said and said[name] != right[name]}
    if wrong or "results" not in said:
        raise SystemExit(f"{who}: wrong answer {wrong}, wanted {right}")


def section_text(section: Section) -> str:
    lines = [section.title, f"  {'':<36}{'best s':>9}{'median s':>10}{'M tuples/s':>12}"]
    for case, times_s in section.times_s.items():
        rate = f"{section.tuples / min(times_s) / 1e6:12.2f}" if section.tuples else ""
        lines.append(f"  {case:<36}{min(times_s):9.3f}{median(times_s):10.3f}{rate}")
    for one in section.targets:
        lines.append(f"  {'met   ' if one.met else 'MISSED'}  {one.what}: {one.got} (wanted {one.wanted})")
    return "\n".join(lines) + "\n"


def machine(bench: Bench) -> dict[str, Any]:
    """Returns what the figures were measured on."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    packages = ("numpy", "numba", "pyarrow", "mpi4py", "duckdb")
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": len(bench.cores),
        "load_1min": os.getloadavg()[0],
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "tuples_per_stream": bench.tuples,
        "rounds": bench.rounds,
    }
