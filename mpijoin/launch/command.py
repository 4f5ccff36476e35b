"""`mpijoin run`: how this process was started decides whether the ranks are MPI processes or threads of this one."""

from __future__ import annotations

import gc
import os
from functools import partial
from typing import NamedTuple, Sequence

from mpijoin.errors import LaunchError
from mpijoin.limits import allow_open_files, check_address_space
from mpijoin.machine import keep_freed_memory
from mpijoin.signals import SignalFlag
from mpijoin.transport.guard import launched_by_mpi, launched_rank, launched_size


class Options(NamedTuple):
    """What the command line says of a run, beside its job."""

    ranks: int | None = None  # slaves of a local run; None: as many as there are cores, up to four
    oversubscribe: bool = False  # more of them than make sense
    overwrite: bool = False
    resume: bool = False
    debug: bool = False
    quiet: bool = False  # no progress, no summary: only what is wrong

    @property
    def how(self) -> tuple[bool, bool]:
        return self.overwrite, self.resume


def main_run(job_path: str, overrides: Sequence[str], options: Options) -> int:
    """Runs the job; returns the exit code, having said on rank 0 what happened. Raises what is wrong before it
    begins."""
    signals = SignalFlag()
    signals.install()  # first: to load the engine takes a while
    keep_freed_memory()
    allow_open_files()
    check_address_space()
    # what is loaded stays: looking for garbage in it costs a tenth of the start; life.py turns it on again
    gc.disable()
    try:
        if not launched_by_mpi(os.environ):
            return _run_here(job_path, overrides, options, signals)
        if options.ranks is not None:
            size = launched_size(os.environ)
            raise LaunchError(
                f"--ranks {options.ranks}: the launcher has started {size} ranks already: leave --ranks out"
            )
        return _run_under_mpi(job_path, overrides, options, signals)
    except LaunchError as error:
        if launched_rank(os.environ):
            return error.exit_code  # every process meets it; one says so
        raise
    finally:
        signals.restore()


def _run_under_mpi(job_path: str, overrides: Sequence[str], options: Options, signals: SignalFlag) -> int:
    # Loaded before MPI starts: its first steps wait spinning for the other ranks.
    from mpijoin.launch.processes import run_mpi
    from mpijoin.launch.setup import RunSetup, setup_of

    def make_setup(size: int) -> RunSetup:
        return setup_of(job_path, overrides, lambda job: size, *options.how)

    return run_mpi(make_setup, signals, options.debug, options.quiet)


def _run_here(job_path: str, overrides: Sequence[str], options: Options, signals: SignalFlag) -> int:
    from mpijoin.launch.embedded import local_size, local_slaves, run_local
    from mpijoin.launch.setup import setup_of
    from mpijoin.progress import Progress

    slaves = local_slaves(options.ranks, options.oversubscribe, "--ranks")
    signals.check()
    setup = setup_of(job_path, overrides, partial(local_size, slaves=slaves), *options.how)
    return run_local(setup, signals, Progress(quiet=options.quiet), options.debug).exit_code
