"""Measures whole processes, from the command to its end: mpijoin, and a Python that asks DuckDB or Polars once.

    python scripts/bench_start.py --data DIR --environments DIR                workload B: 1 million rows a stream
    python scripts/bench_start.py --workload A --peers datafusion-symmetric    5 million rows, and one more system
    python scripts/bench_start.py --imports                                    also what `mpijoin run` spends on imports
    python scripts/bench_start.py --first                                      first starts alone, which compile

It measures all that a user waits for: interpreter, imports, kernels from the cache, MPI, reading, joining, and writing
the summary. Commands take turns, and each answer is checked before its time counts. Nothing samples the processes
meanwhile, so that nothing takes a core from them. "own" is the time by the system's own clock, from the first file
opened to the answer, as in bench_peers.py.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Mapping, Sequence

from benching.launch import ROOT, pin
from peers.catalogue import PEERS, Peer, Start
from peers.environments import Absent
from peers.tables import aligned
from peers.workloads import Workload, make

NAMES = ("mpijoin-local", "mpijoin-3", "duckdb-bucketed", "duckdb-plain", "polars-bucketed")
TARGETS_S = {"mpijoin-local": 0.35, "mpijoin-3": 0.60}  # They hold for two cores with nothing else to do.
TIMEOUT_S = 300
PACKAGES = ("mpijoin", "numba", "llvmlite", "numpy", "pyarrow")


@dataclass
class Command:
    """The runs of a peer: seconds of the whole process, by its own clock, and of CPU."""

    peer: Peer
    whole_s: list[float] = field(default_factory=list)
    own_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)

    def run(
        self, workload: Workload, cores: Sequence[int], environments: Path, home: Path, cache: Path | None = None
    ) -> None:
        """Runs the peer once. cache: a folder for mpijoin's kernels instead of the usual one · RuntimeError: it failed,
        or its answer is wrong · Absent: it cannot be had here."""
        with tempfile.TemporaryDirectory(dir=home) as scratch:
            start = Start(workload, len(cores), environments, Path(scratch))
            line = self.peer.line(start)
            before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            done = subprocess.run(
                line,
                env=surroundings(len(cores)) | ({"NUMBA_CACHE_DIR": str(cache)} if cache else {}),
                preexec_fn=pin(cores),
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
            )
            seconds, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
            if done.returncode:
                raise RuntimeError(f"{self.peer.title}: exit code {done.returncode}: {done.stderr[-300:]}")
            self.own_s.append(self.own_time(done.stdout, start))
            self.whole_s.append(seconds)
            self.cpu_s.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)

    def own_time(self, said: str, start: Start) -> float:
        """Returns the time by the peer's own clock. RuntimeError: the answer is wrong."""
        if self.peer.ranks is None:
            answer = json.loads(said.splitlines()[-1])
        else:
            summary = json.loads((start.scratch / "run/summary.json").read_text())
            answer = {name: summary[name] for name in ("results", "certificate")} | {"seconds": summary["wall_s"]}
        right = asdict(start.workload.answer)
        wrong = [name for name in right if name in answer and answer[name] != right[name]]
        if wrong:
            raise RuntimeError(f"{self.peer.title}: {wrong[0]} is {answer[wrong[0]]}, not {right[wrong[0]]}")
        return answer["seconds"]


def surroundings(threads: int) -> dict[str, str]:
    """Returns a user's environment: Python may keep its compiled files, and mpijoin is found in its own environment."""
    environ = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
    }
    return environ | {"POLARS_MAX_THREADS": str(threads)}


def compare(commands: Sequence[Command], rounds: int, run: Mapping[str, Any]) -> list[Command]:
    """Runs the commands in turns, and returns those that can be had here.

    The first run of each does not count, because it fills caches.
    """
    here = []
    for command in commands:
        try:
            command.run(**run)
            here.append(Command(command.peer))
        except Absent as absent:
            print(f"  {command.peer.title}: absent, {absent}", file=sys.stderr)
    for number in range(rounds):
        for command in here:
            command.run(**run)
            print(f"  {number + 1}/{rounds}  {command.peer.title:<26}{command.whole_s[-1]:6.2f} s", file=sys.stderr)
    return here


def first_starts(commands: Sequence[Command], rounds: int, run: Mapping[str, Any]) -> list[list[str]]:
    """Runs mpijoin's commands in turns, each time without any compiled kernel. Returns what they took."""
    own = [command for command in commands if command.peer.ranks is not None]
    for _ in range(rounds):
        for command in own:
            with tempfile.TemporaryDirectory(dir=run["home"]) as cache:
                command.run(**run, cache=Path(cache))
    rows = ([one.peer.title, ", ".join(f"{seconds:.0f}" for seconds in one.whole_s)] for one in own)
    return [["first starts", "whole, s"], *rows]


def table(commands: Sequence[Command], workload: str) -> list[list[str]]:
    head = ["", "whole, best s", "median s", "own, best s", "CPU s", "target s"]
    return [head, *(_row(command, TARGETS_S if workload == "B" else {}) for command in commands)]


def _row(command: Command, targets_s: Mapping[str, float]) -> list[str]:
    times = min(command.whole_s), median(command.whole_s), min(command.own_s), median(command.cpu_s)
    target = targets_s.get(command.peer.name)
    said = f"{target:.2f} {'met' if times[0] <= target else 'MISSED'}" if target else ""
    return [command.peer.title, *(f"{seconds:.2f}" for seconds in times), said]


def imports(
    command: Command, workload: Workload, cores: Sequence[int], environments: Path, home: Path
) -> list[list[str]]:
    """Returns the milliseconds that `mpijoin run` spends on imports, by package, as `python -X importtime` says."""
    with tempfile.TemporaryDirectory(dir=home) as scratch:
        line = command.peer.line(Start(workload, len(cores), environments, Path(scratch)))
        line[1:1] = ["-X", "importtime"]
        done = subprocess.run(
            line, env=surroundings(len(cores)), preexec_fn=pin(cores), capture_output=True, text=True, timeout=TIMEOUT_S
        )
    spent: Counter[str] = Counter()
    for row in (text.removeprefix("import time:").split("|") for text in done.stderr.splitlines() if "|" in text):
        if row[0].strip().isdigit():
            package = row[2].strip().partition(".")[0]
            spent[package if package in PACKAGES else "the rest"] += int(row[0])
    return [["imports of", "ms"], *([name, f"{us / 1000:.0f}"] for name, us in spent.most_common())]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="B", help="one of scripts/peers/workloads.py (default: %(default)s)")
    parser.add_argument("--peers", nargs="*", default=[], help="further systems of scripts/peers/catalogue.py")
    parser.add_argument("--rounds", type=int, default=5, help="how often each command runs (default %(default)s)")
    parser.add_argument("--imports", action="store_true", help="show what imports take, by package")
    parser.add_argument("--first", action="store_true", help="only first starts, for which mpijoin compiles")
    parser.add_argument("--data", type=Path, help="folder for data that later calls reuse (default: a temporary one)")
    parser.add_argument(
        "--environments", type=Path, default=Path("runs/peers"), help="of the peers (default %(default)s)"
    )
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[:2]
    with tempfile.TemporaryDirectory() as temporary:
        home = (options.data or Path(temporary)).resolve()
        home.mkdir(parents=True, exist_ok=True)
        workload = make(options.workload, home, ROOT / "tests/data")
        run = dict(workload=workload, cores=cores, environments=options.environments.resolve(), home=home)
        commands = [Command(peer) for name in (*NAMES, *options.peers) for peer in PEERS if peer.name == name]
        if options.first:
            print(aligned(first_starts(commands, options.rounds, run)))
            return
        print(aligned(table(compare(commands, options.rounds, run), options.workload)))
        if options.imports:
            print(f"\n{aligned(imports(commands[0], **run))}")


if __name__ == "__main__":
    main()
