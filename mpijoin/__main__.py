"""One process of the command `mpijoin`, which `python -m mpijoin` calls too, from its start to its end."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn

# Nothing here multiplies matrices. Left alone, NumPy's library for that starts a thread for each core as it is loaded,
# and each looks for work for 0.1 s of its core before it sleeps: in every rank, while the others start.
WITHOUT_THREADS = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def process() -> NoReturn:
    """Runs the command line and ends the process with its exit code.

    When `main` returns, files, sockets and MPI are closed. To take interpreter and compiled kernels apart after that
    takes 25 ms, and cannot be done at all while a rank of a failed run is still compiling in a thread. So the process
    just ends. Not under a launcher: MPICH's kills the ranks that are still taking leave when one of them is gone in no
    time.
    """
    for name, count in WITHOUT_THREADS.items():
        os.environ.setdefault(name, count)
    # Until the command line can say that it was stopped, Ctrl-C just ends the process. Python would show where it was.
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from mpijoin.cli import main
    from mpijoin.transport.guard import launched_by_mpi

    signal.signal(signal.SIGINT, handler)
    exit_code = main()
    if launched_by_mpi(os.environ):
        sys.exit(exit_code)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, or nobody reads it any more
            stream.flush()
    os._exit(exit_code)


if __name__ == "__main__":
    process()
