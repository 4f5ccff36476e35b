"""Measures whole runs with more and more ranks, each on a core of its own: how much faster do more cores make a join?

    python scripts/bench_ranks.py [--workloads A C E] [--ranks 2 4 8 16] [--rounds N] [--data DIR] [--json FILE]

Every number of ranks is tried with one producer, with a quarter and with half of the ranks as producers, and with as
many as `producers = "auto"` chooses. A run may use as many cores as it has ranks. The efficiency is its rate, as a part
of so many times that of the first number of ranks per rank. DuckDB, and Polars if it is installed beside mpijoin, make
the same join with as many threads as there are ranks. Cases take turns, and every answer is checked before its time
counts. Times are by each system's own clock, from before the first file is opened to the answer.

What the machine itself loses comes first: how long a loop in pure Python takes in as many processes as there are ranks.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from multiprocessing import Pool
from pathlib import Path
from statistics import median
from typing import Any, Callable, Sequence

from benching.launch import ROOT, environment, launch, pin
from peers.catalogue import STREAM
from peers.tables import aligned
from peers.workloads import QUICK, Workload, make

HEAD = ("ranks", "best s", "median s", "M tuples/s", "speed-up", "efficiency", "CPU s / M tuples")
PARTITIONS_PER_SLAVE = 16
LOOPS = 10_000_000


@dataclass
class Case:
    """One way to make a join. cores: how many it has · cpu_s: of all its ranks or threads, where it says so."""

    title: str
    cores: int
    run: Callable[[], dict[str, Any]]
    times_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)


def distinct_cores(cores: Sequence[int]) -> list[int]:
    """Returns the cores in the order in which they are given to ranks: one hardware thread of every core comes first.

    A machine that does not say which threads share a core gives them in the order of their numbers.
    """
    met: dict[str, int] = {}
    turns = []
    for core in cores:
        try:
            siblings = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list").read_text().strip()
        except OSError:
            siblings = str(core)
        turns.append(met.setdefault(siblings, 0))
        met[siblings] += 1
    return [core for _, core in sorted(zip(turns, cores))]


def loop_s(_: int = 0) -> float:
    """Returns the seconds that a loop takes which needs nothing but a core."""
    start, total = time.perf_counter(), 0
    for number in range(LOOPS):
        total += number
    return time.perf_counter() - start


def slowest_loop_s(processes: int, cores: Sequence[int]) -> float:
    """Returns the longest time of the loop in so many processes at once, on these cores."""
    with Pool(processes, os.sched_setaffinity, (0, cores)) as pool:
        pool.map(int, range(processes), 1)  # By then, all of them are there.
        return max(pool.map(loop_s, range(processes), 1))


def producers_of(ranks: int) -> list[int | str]:
    """Returns the numbers of producers that are tried.

    >>> producers_of(2), producers_of(16)
    ([1], [1, 4, 8, 'auto'])
    """
    return [1] if ranks == 2 else [*sorted({1, max(1, ranks // 4), ranks // 2}), "auto"]


def mpijoin(workload: Workload, ranks: int, producers: int | str, cores: Sequence[int], home: Path) -> dict[str, Any]:
    job, output = home / "job.toml", home / "run"
    job.write_text(
        "\n".join(
            STREAM.format(side=side, path=json.dumps(str(path)), window_us=workload.window_us)
            for side, path in zip(workload.streams, workload.files())
        )
    )
    slaves = ranks - (producers if isinstance(producers, int) else ranks // 2)
    partitions = max(60, PARTITIONS_PER_SLAVE * slaves)
    settings = (f"cluster.producers={json.dumps(producers)}", f"cluster.partitions={partitions}")
    summary = launch(job, output, ranks, cores, ('output.results="count"', *settings)).summary
    cpu_s = sum(one["cpu_s"] for role in ("producer", "slave") for one in summary[f"per_{role}"].values())
    return {"seconds": summary["wall_s"], "cpu_s": cpu_s, **summary}


def peer(program: str, workload: Workload, threads: int, cores: Sequence[int]) -> dict[str, Any]:
    line = [sys.executable, str(ROOT / "scripts/peers" / program), "bucketed", *map(str, workload.files())]
    line += [str(workload.window_us), *([str(threads)] if program.startswith("duckdb") else [])]
    variables = environment({"POLARS_MAX_THREADS": str(threads)})
    done = subprocess.run(line, env=variables, preexec_fn=pin(cores), check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def cases_of(workload: Workload, ranks: int, cores: Sequence[int], home: Path) -> list[Case]:
    found = [
        Case(f"{ranks}, {producers} producing", ranks, lambda p=producers: mpijoin(workload, ranks, p, cores, home))
        for producers in producers_of(ranks)
    ]
    for system, program in (("duckdb", "duckdb_join.py"), ("polars", "polars_join.py")):
        if importlib.util.find_spec(system):
            title = f"{system}, {ranks} threads"
            found.append(Case(title, ranks, lambda program=program: peer(program, workload, ranks, cores)))
    return found


def take_turns(cases: Sequence[Case], workload: Workload, rounds: int) -> None:
    """Runs every case once, then each again, and so on. SystemExit: an answer is wrong."""
    right = asdict(workload.answer)
    for number in range(rounds):
        for case in cases:
            said = case.run()
            if wrong := [name for name in right if name in said and said[name] != right[name]]:
                raise SystemExit(f"{case.title}: {wrong[0]} is {said[wrong[0]]}, not {right[wrong[0]]}")
            case.times_s.append(said["seconds"])
            case.cpu_s.append(said["cpu_s"])
            print(f"  {workload.name} {number + 1}/{rounds}  {case.title:<24}{said['seconds']:8.3f} s", file=sys.stderr)


def table_of(cases: Sequence[Case], tuples: int) -> list[tuple[str, ...]]:
    """Returns a table whose speed-up and efficiency are those against the first case."""
    first = cases[0]
    rows = [HEAD]
    for case in cases:
        speed_up = min(first.times_s) / min(case.times_s)
        figures = min(case.times_s), median(case.times_s), tuples / min(case.times_s) / 1e6, speed_up
        efficiency, cpu_s = speed_up * first.cores / case.cores, min(case.cpu_s) / tuples * 1e6
        rows.append((case.title, *(f"{figure:.3g}" for figure in figures), f"{efficiency:.2f}", f"{cpu_s:.3f}"))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", default=["A", "C", "E"], help="two streams of peers/workloads.py")
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 4, 8, 16], help="2 or more each (default 2 4 8 16)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each case runs (default %(default)s)")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} times fewer tuples, one round")
    parser.add_argument("--data", type=Path, help="folder for data that later calls reuse (default: a temporary one)")
    parser.add_argument("--json", type=Path, help="write all times there, too")
    options = parser.parse_args()
    cores = distinct_cores(sorted(os.sched_getaffinity(0)))
    if max(options.ranks) > len(cores):
        print(f"only {len(cores)} cores: more ranks than that take turns, and say nothing", file=sys.stderr)
    loops_s = {ranks: slowest_loop_s(ranks, cores[:ranks]) for ranks in options.ranks}
    print("a loop in Python, s: " + ", ".join(f"{seconds:.2f} in {ranks}" for ranks, seconds in loops_s.items()) + "\n")
    figures: dict[str, Any] = {"loop_s": loops_s}
    with tempfile.TemporaryDirectory() as temporary:
        home = (options.data or Path(temporary)).resolve()
        for name in options.workloads:
            workload = make(name, home, ROOT / "tests/data", QUICK if options.quick else 1)
            cases = [
                case for ranks in options.ranks for case in cases_of(workload, ranks, cores[:ranks], Path(temporary))
            ]
            take_turns(cases[:1], workload, 1)  # This compiles what is not in the cache yet.
            cases[0].times_s.clear()
            cases[0].cpu_s.clear()
            take_turns(cases, workload, 1 if options.quick else options.rounds)
            print(f"{name}: {workload.title}, {workload.tuples / 1e6:.3g} M tuples\n")
            print(f"{aligned(table_of(cases, workload.tuples))}\n", flush=True)
            figures[name] = [
                {"title": case.title, "cores": case.cores, "times_s": case.times_s, "cpu_s": case.cpu_s}
                for case in cases
            ]
            if options.json:
                options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
