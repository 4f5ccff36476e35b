"""This is `mpijoin run`. The way in which this process was started decides whether the ranks are MPI processes or
threads of this process."""

from __future__ import annotations

import gc
import os
from functools import partial
from typing import TYPE_CHECKING, Sequence

from mpijoin.errors import LaunchError
from mpijoin.limits import allow_open_files, check_address_space
from mpijoin.machine import keep_freed_memory, share_heap
from mpijoin.named import NamedTuple
from mpijoin.signals import SignalFlag
from mpijoin.transport.guard import launched_by_mpi, launched_rank, launched_size

if TYPE_CHECKING:
    from mpijoin.launch.roles import RunSetup


class Options(NamedTuple):
    """What the command line says about a run, beside the run's job."""

    # The number of slaves of a local run. None stands for one per core, but at most four.
    ranks: int | None = None
    # Whether the user allows more slaves than make sense.
    oversubscribe: bool = False
    overwrite: bool = False
    resume: bool = False
    debug: bool = False
    # A quiet run prints neither progress nor summary, but only what is wrong.
    quiet: bool = False

    @property
    def how(self) -> tuple[bool, bool]:
        return self.overwrite, self.resume


def main_run(job_path: str, overrides: Sequence[str], options: Options) -> int:
    """Runs the job and returns the exit code. Rank 0 prints what happened. An error that is found before the run
    begins is raised."""
    signals = SignalFlag()
    # Signals are caught first, because it takes a while to load the engine.
    signals.install()
    keep_freed_memory()
    share_heap()
    allow_open_files()
    check_address_space()
    # Modules that are loaded stay loaded. Looking for garbage among them would take a tenth of the start. ready.py has
    # the collection turned on again.
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
        # Every process meets this error, but only one of them prints it.
        if launched_rank(os.environ):
            return error.exit_code
        raise
    finally:
        signals.restore()


def _run_under_mpi(job_path: str, overrides: Sequence[str], options: Options, signals: SignalFlag) -> int:
    from mpijoin.launch.processes import load_role, run_mpi

    load_role(launched_rank(os.environ))

    def make_setup(size: int) -> RunSetup:
        from mpijoin.launch.setup import setup_of

        return setup_of(job_path, overrides, lambda job: size, *options.how)

    return run_mpi(make_setup, signals, options.debug, options.quiet)


def _run_here(job_path: str, overrides: Sequence[str], options: Options, signals: SignalFlag) -> int:
    from mpijoin.launch.embedded import local_slaves, run_local
    from mpijoin.launch.setup import setup_of
    from mpijoin.launch.sizes import size_for
    from mpijoin.progress import Progress

    slaves = local_slaves(options.ranks, options.oversubscribe, "--ranks")
    signals.check()
    setup = setup_of(job_path, overrides, partial(size_for, slaves=slaves), *options.how)
    return run_local(setup, signals, Progress(quiet=options.quiet), options.debug).exit_code
