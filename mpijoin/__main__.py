"""One process of the command `mpijoin`, which `python -m mpijoin` calls too, from its start to its end."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from typing import NoReturn

from mpijoin.cli import main


def process() -> NoReturn:
    """Runs the command line and ends the process with its exit code.

    When `main` returns, files, sockets and MPI are closed. To take interpreter and compiled kernels apart after that takes 25 ms,
    and cannot be done at all while a rank of a failed run is still compiling in a thread. So the process just ends.
    """
    exit_code = main()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, or nobody reads it any more
            stream.flush()
    os._exit(exit_code)


if __name__ == "__main__":
    process()
