"""Where a run comes from: the version, command, hosts and batch job that made it, and the command that goes on with
it."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import time
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
    """What `summary.json`, `failed.json` and the report say of a run's origin.

    hosts: of the ranks that have met · size: how many ranks there are · library: which MPI carries the messages ·
    started_s: when the run began, in seconds since 1970 · command: the arguments of this process, its program first.
    """
    by_host: dict[str, list[int]] = {}
    for rank, host in sorted(hosts.items()):
        by_host.setdefault(host, []).append(rank)
    slurm = {name.removeprefix("SLURM_").lower(): environ[name] for name in SLURM_VARIABLES if environ.get(name)}
    return {
        "version": __version__,
        "command": shlex.join(typed(command, size, environ)),
        "folder": os.getcwd(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(started_s)),
        "hosts": by_host,
        "mpi": library or None,
        "python": platform.python_version(),
        "slurm": slurm or None,
    }


SLURM_VARIABLES = ("SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_RESTART_COUNT")


def typed(command: Sequence[str], size: int, environ: Mapping[str, str]) -> list[str]:
    """A command line as a user would type it: by the names of programs, and with the launcher that started `size`
    ranks.

    >>> typed(["/opt/bin/mpijoin", "run", "job.toml"], 5, {"PMI_SIZE": "5", "HYDI_CONTROL_FD": "7"})
    ['mpirun', '-n', '5', 'mpijoin', 'run', 'job.toml']
    """
    program, *arguments = command
    if Path(program).name == "__main__.py":
        own = ["python", "-m", "mpijoin"]
    elif Path(program).suffix == ".py":
        own = ["python", program]
    else:  # in an interpreter the program is "" or "-c"
        own = [Path(program).name if program not in ("", "-c") else "python"]
    return [*launcher(size, environ), *own, *arguments]


def launcher(size: int, environ: Mapping[str, str]) -> list[str]:
    """What stands before `mpijoin` where a launcher started the ranks; nothing where they are threads of one process.

    >>> launcher(4, {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "PMI_SIZE": "4"})
    ['srun', '-n', '4']
    """
    if environ.get("SLURM_STEP_NUM_TASKS") == str(size) and "HYDI_CONTROL_FD" not in environ:
        return ["srun", "-n", str(size)]
    if "PMI_SIZE" in environ or "OMPI_COMM_WORLD_SIZE" in environ:
        return ["mpirun", "-n", str(size)]
    return []


def resume_command(command: Sequence[str], size: int, environ: Mapping[str, str]) -> str:
    """The command that goes on with a run, whatever folder it is typed in; "" where `mpijoin run` did not start the
    run."""
    if "run" not in command:
        return ""
    kept = [one for one in command if one not in NOT_FOR_RESUMING]
    start = kept.index("run") + 1
    after_run = [str(Path(one).absolute()) if Path(one).is_file() else one for one in kept[start:]]
    if batch := environ.get(LAUNCHER_VARIABLE):
        return f"{batch} {shlex.join([*after_run, '--resume'])}"
    return shlex.join([*typed([*kept[:start], *after_run], size, environ), "--resume"])


def own_command() -> list[str]:
    """The arguments of this process, its program first."""
    return list(sys.argv) or [""]
