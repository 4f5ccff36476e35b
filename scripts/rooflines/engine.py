"""Measures the engine's stages on workload A: how long each takes in a real run, and how much work it does."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any

from benching.bench import Bench, check
from benching.data import Data
from benching.launch import environment, pin
from rooflines.machine import script_command

TIMEOUT_S = 600
COUNT_ONLY = ('output.results="count"',)
ROWS_ONLY = ('output.results="parquet"', 'output.columns=["left_row", "right_row"]')


@dataclass(frozen=True)
class Case:
    """How a run is started: with so many ranks, one of which is the master, on so many cores."""

    title: str
    ranks: int
    cores: int
    settings: tuple[str, ...] = COUNT_ONLY


@dataclass(frozen=True)
class Run:
    """A run whose answer was checked. wall_s: by its own clock · seconds: of each stage of the master and all
    slaves."""

    case: Case
    wall_s: float
    seconds: dict[str, dict[str, float]]


@dataclass(frozen=True)
class Work:
    """What there was to do.

    comparisons: of tags · tags_first_read: the tuples whose tags a probe read from beyond the caches, over all epochs ·
    lines_of_old: the cache lines of tuples that results touched for the first time.
    """

    tuples: int
    results: int
    comparisons: int
    tags_first_read: int
    lines_of_old: int
    expired: int
    tuple_bytes: int = 24


def timed(bench: Bench, data: Data, cases: list[Case]) -> list[Run]:
    """Returns the fastest run of each case. Cases take turns, and all figures of one run belong together."""
    runs: dict[str, list[Run]] = {case.title: [] for case in cases}
    for number in range(bench.rounds):
        for case in cases:
            summary, found = _watched(bench, data, case, "times")
            seconds = {"master": found[0], "slaves": dict(sum(map(Counter, found[1:]), Counter()))}
            runs[case.title].append(Run(case, summary["wall_s"], seconds))
            took = f"{case.title:<60}{summary['wall_s']:9.3f} s"
            print(f"  {number + 1}/{bench.rounds}  {took}", file=sys.stderr, flush=True)
    return [min(own, key=lambda run: run.wall_s) for own in runs.values()]


def counted(bench: Bench, data: Data) -> Work:
    """Returns the work of a run. Counting it slows the slave down, so this run is not timed."""
    _, (_, found) = _watched(bench, data, Case("counts", 2, 2, ROWS_ONLY), "counts")
    return Work(tuples=2 * data.tuples, **found)


def _watched(bench: Bench, data: Data, case: Case, kind: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Returns the summary of a run, and what was noted on each rank."""
    folder, output = bench.home / "watched", bench.home / "run"
    for one in (folder, output):
        shutil.rmtree(one, ignore_errors=True)
    folder.mkdir()
    sources = (f'path = "{path}"\ntime = "ts"\ntime_unit = "us"' for path in (data.left, data.right))
    job = bench.job(*sources, name=f"files-{data.tuples}")
    options = [
        part for setting in (f"output.path={json.dumps(str(output))}", *case.settings) for part in ("--set", setting)
    ]
    line = [*script_command(case.ranks, "rooflines/watched.py"), str(folder), kind, "run", str(job), *options]
    done = subprocess.run(
        line,
        env=environment(),
        preexec_fn=pin(bench.cores[: case.cores]),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(line)} ended with {done.returncode}:\n{done.stdout}")
    summary = json.loads((output / "summary.json").read_text())
    check(summary, data, f"mpijoin {case.settings}")
    return summary, [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(case.ranks)]
