"""The origin of a run: the version, command, hosts and batch job that made it, and the command that continues it."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Mapping, Sequence

from mpijoin import __version__

# A batch script that starts `mpijoin run` itself sets this to what a user types instead of mpirun.
LAUNCHER_VARIABLE = "MPIJOIN_LAUNCHER"
NOT_FOR_RESUMING = ("--overwrite", "--resume")


def provenance(
    hosts: Mapping[int, str],
    size: int,
    library: str,
    started_s: float,
    command: Sequence[str],
    environ: Mapping[str, str],
) -> dict[str, Any]:
    """Returns what `summary.json`, `failed.json` and the report say about the origin of a run.

    `hosts` maps each rank that has met the others to its host, and `size` is the number of ranks. `library` names the
    MPI library that carries the messages. The run began at `started_s`, in seconds since 1970. `command` holds the
    arguments of this process, its program first.
    """
    by_host: dict[str, list[int]] = {}
    for rank, host in sorted(hosts.items()):
        by_host.setdefault(host, []).append(rank)
    slurm = {name.removeprefix("SLURM_").lower(): environ[name] for name in SLURM_VARIABLES if environ.get(name)}
    return {
        "version": __version__,
        "command": shlex.join(typed(command, size, environ)),
        "folder": _folder(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(started_s)),
        "hosts": by_host,
        "mpi": library or None,
        "python": platform.python_version(),
        "slurm": slurm or None,
    }


def _folder() -> str:
    """Returns the folder where the run was started, or "" if it is gone or may not be looked at."""
    with suppress(OSError):
        return os.getcwd()
    return ""


SLURM_VARIABLES = ("SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_RESTART_COUNT")


def typed(command: Sequence[str], size: int, environ: Mapping[str, str]) -> list[str]:
    """Returns a command line as a user would type it, with the plain names of the programs and with the launcher that
    started `size` ranks.

    >>> typed(["/opt/bin/mpijoin", "run", "job.toml"], 5, {"PMI_SIZE": "5", "HYDI_CONTROL_FD": "7"})
    ['mpirun', '-n', '5', 'mpijoin', 'run', 'job.toml']
    """
    program, *arguments = command
    if Path(program).name == "__main__.py":
        own = ["python", "-m", "mpijoin"]
    elif Path(program).suffix == ".py":
        own = ["python", program]
    else:
        # In an interpreter the program is "" or "-c".
        own = [Path(program).name if program not in ("", "-c") else "python"]
    return [*launcher(size, environ), *own, *arguments]


def launcher(size: int, environ: Mapping[str, str]) -> list[str]:
    """Returns what a user types before `mpijoin` to start the ranks with a launcher. It is empty where the ranks are
    threads of one process.

    >>> launcher(4, {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "PMI_SIZE": "4"})
    ['srun', '-n', '4']
    """
    if environ.get("SLURM_STEP_NUM_TASKS") == str(size) and "HYDI_CONTROL_FD" not in environ:
        return ["srun", "-n", str(size)]
    if "PMI_SIZE" in environ or "OMPI_COMM_WORLD_SIZE" in environ:
        return ["mpirun", "-n", str(size)]
    return []


def resume_command(command: Sequence[str], size: int, environ: Mapping[str, str]) -> str:
    """Returns the command that continues a run. It works in every folder. Returns "" if the run was not started by
    `mpijoin run`."""
    if "run" not in command:
        return ""
    kept = [one for one in command if one not in NOT_FOR_RESUMING]
    start = kept.index("run") + 1
    after_run = [str(Path(one).absolute()) if Path(one).is_file() else one for one in kept[start:]]
    if batch := environ.get(LAUNCHER_VARIABLE):
        return f"{batch} {shlex.join([*after_run, '--resume'])}"
    return shlex.join([*typed([*kept[:start], *after_run], size, environ), "--resume"])


def own_command() -> list[str]:
    """Returns the arguments of this process, its program first."""
    return list(sys.argv) or [""]
