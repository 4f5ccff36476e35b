"""`mpijoin run`: how this process was started decides whether the ranks are MPI processes or threads of this one."""

from __future__ import annotations

import gc
import os
from typing import Sequence

from mpijoin.errors import LaunchError
from mpijoin.machine import keep_freed_memory
from mpijoin.signals import SignalFlag
from mpijoin.transport.guard import launched_by_mpi, launched_rank


def main_run(job_path: str, overrides: Sequence[str], ranks: int | None, overwrite: bool, resume: bool, debug: bool) -> int:
    """Runs the job; returns the exit code, having said on rank 0 what happened. Raises what is wrong before it begins."""
    signals = SignalFlag()
    signals.install()  # first: to load the engine takes a while
    keep_freed_memory()
    gc.disable()  # what is loaded stays: looking for garbage in it costs a tenth of the start; life.py turns it on again
    if not launched_by_mpi(os.environ):
        return _run_here(job_path, overrides, ranks, overwrite, resume, debug, signals)
    try:
        return _run_under_mpi(job_path, overrides, overwrite, resume, debug, signals)
    except LaunchError as error:
        if launched_rank(os.environ):
            return error.exit_code  # every process meets it; one says so
        raise


def _run_under_mpi(
    job_path: str, overrides: Sequence[str], overwrite: bool, resume: bool, debug: bool, signals: SignalFlag
) -> int:
    # Loaded before MPI starts: its first steps wait spinning for the other ranks.
    from mpijoin.config.check import load_and_resolve
    from mpijoin.launch.plan import prepare
    from mpijoin.launch.processes import run_mpi

    return run_mpi(lambda size: prepare(*load_and_resolve(job_path, overrides), size, overwrite, resume), signals, debug)


def _run_here(
    job_path: str,
    overrides: Sequence[str],
    ranks: int | None,
    overwrite: bool,
    resume: bool,
    debug: bool,
    signals: SignalFlag,
) -> int:
    from mpijoin.config.check import load_and_resolve
    from mpijoin.launch.embedded import local_size, run_local
    from mpijoin.launch.plan import prepare
    from mpijoin.progress import Progress

    job, schema = load_and_resolve(job_path, overrides)
    signals.check()
    plan = prepare(job, schema, local_size(job, ranks), overwrite, resume)
    return run_local(plan, signals, Progress(), debug).exit_code
