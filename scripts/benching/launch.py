"""Starts `mpijoin run` as a user would, and watches its summary, memory and time to the first epoch from outside."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 1200
SAMPLE_S = 0.05
RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK")


@dataclass(frozen=True)
class Launched:
    """A finished run.

    wall_s: the time of the whole command · first_epoch_s: the time from the command to the first joined epoch of any
    slave · pss_bytes: the greatest sum over all ranks, or 0 if it was not sampled.
    """

    summary: Mapping[str, Any]
    wall_s: float
    first_epoch_s: float
    pss_bytes: int


def pin(cores: Sequence[int]) -> Any:
    """Returns a preexec_fn for `subprocess` that makes a process and its children run on these cores only."""
    return lambda: os.sched_setaffinity(0, cores)


def environment(extra: Mapping[str, str] = {}) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT)} | extra


def command(ranks: int, *arguments: str, python: Path = Path(sys.executable)) -> list[str]:
    """Returns the command of mpijoin with these arguments, under mpirun unless `ranks` is 0.

    python: the interpreter of the environment in which mpijoin is.
    """
    mpijoin = [str(python), "-m", "mpijoin", *arguments]
    own = python.with_name("mpirun")
    return (
        [str(own) if own.exists() else shutil.which("mpirun") or "mpirun", "-n", str(ranks), *mpijoin]
        if ranks
        else mpijoin
    )


def launch(
    job: Path,
    output: Path,
    ranks: int,
    cores: Sequence[int],
    settings: Sequence[str] = (),
    extra: Mapping[str, str] = {},
    sample: bool = False,
    line: Callable[..., list[str]] | None = None,
) -> Launched:
    """Runs a job into the folder `output`, which is replaced.

    ranks: 0 means local, without mpirun · extra: further variables of the environment · line: makes the command line
    instead of `command`, of the same arguments.
    """
    shutil.rmtree(output, ignore_errors=True)
    options = [part for setting in (f"output.path={json.dumps(str(output))}", *settings) for part in ("--set", setting)]
    started = datetime.now()
    with subprocess.Popen(
        (line or command)(ranks, "run", str(job), *options), env=environment(extra), preexec_fn=pin(cores),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:
        sampler = MemorySampler(process.pid) if sample else None
        try:
            text, _ = process.communicate(timeout=TIMEOUT_S)
        except BaseException:
            process.kill()  # The ranks of mpirun die with it.
            raise
    wall_s = (datetime.now() - started).total_seconds()
    if process.returncode:
        raise SystemExit(f"{' '.join(process.args)} ended with {process.returncode}:\n{text}")
    summary = json.loads((output / "summary.json").read_text())
    return Launched(summary, wall_s, _first_epoch_s(output, started), sampler.stop() if sampler else 0)


def _first_epoch_s(output: Path, started: datetime) -> float:
    """Returns the seconds until the first slave has joined its first epoch.

    The first line of a rank's log is written when its clock starts; the end of its first epoch is counted from there.
    """
    found = []
    for metrics in (output / "metrics").glob("rank-*.parquet"):
        table = pq.read_table(metrics, columns=["role", "end_us"])
        if table.num_rows and table["role"][0].as_py() == "slave":
            log = output / "logs" / f"{metrics.stem}.log"
            clock_start = datetime.strptime(log.read_text()[:23], "%Y-%m-%d %H:%M:%S,%f")
            found.append((clock_start - started).total_seconds() + table["end_us"][0].as_py() / 1e6)
    return min(found)


class MemorySampler:
    """Adds up the proportional set sizes of a command's Python processes every 50 ms, and keeps the greatest sum.

    programs: how the names of the processes begin that count.
    """

    def __init__(self, parent: int, programs: tuple[str, ...] = ("python",)):
        self._parent, self._programs = parent, programs
        self._most_bytes = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        self._done.set()
        self._thread.join()
        return self._most_bytes

    def _run(self) -> None:
        while not self._done.wait(SAMPLE_S):
            self._most_bytes = max(
                self._most_bytes, sum(pss_bytes(one, self._programs) for one in family(self._parent))
            )


def family(parent: int) -> list[int]:
    """Returns a process and all processes below it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (stat := _read(entry / "stat")):
            children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found = [parent]
    for process in found:  # The list grows while the loop walks over it.
        found += children.get(process, [])
    return found


def rank_of(process: int) -> int:
    """Returns the rank of a process of an MPI job, and -1 for other processes."""
    variables = _read(Path(f"/proc/{process}/environ")).split("\0")
    named = dict(variable.partition("=")[::2] for variable in variables)
    return next((int(named[name]) for name in RANK_VARIABLES if name in named), -1)


def pss_bytes(process: int, programs: tuple[str, ...]) -> int:
    """Returns the proportional set size of a process in bytes.

    It is 0 for processes of other programs (mpirun and its helpers), and for those that are gone.
    """
    if not _read(Path(f"/proc/{process}/comm")).startswith(programs):
        return 0
    lines = _read(Path(f"/proc/{process}/smaps_rollup")).splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
