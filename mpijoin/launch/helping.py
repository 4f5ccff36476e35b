"""Processes that compile beside a run whose ranks are threads, while it starts for the first time.

Numba compiles in one thread of a process at a time, and takes most of a first start. Ranks that are processes share the
work by themselves (sharing.py).

    python -m mpijoin.launch.helping NUMBER USE     NUMBER: of the helper · USE: a 0 or 1 for each entry of `Use`
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import DEVNULL
from typing import Iterator

from mpijoin.compiled import kept_folder
from mpijoin.launch.sharing import prepare
from mpijoin.launch.use import Use
from mpijoin.launch.warmup import sets_of
from mpijoin.machine import core_count


@contextmanager
def helpers(use: Use) -> Iterator[int]:
    """While the block runs, helpers compile kernels of slaves: as many as there are sets to compile and cores, less the
    one of each that is this process's. Gives their number. Where a helper cannot be started or fails, or what it
    compiles could not be kept, this process compiles by itself."""
    missing = sum(not one.is_compiled for one in sets_of("slave", use)) if kept_folder() else 0
    root = str(Path(__file__).parents[2])
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])}
    words = "".join(str(int(one)) for one in use)
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(min(core_count(), missing) - 1):
            # With -P, no file of the folder where the run was started is taken for a module.
            line = [sys.executable, "-P", "-m", __name__, str(number), words]
            with suppress(OSError):
                started.append(subprocess.Popen(line, env=environ, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL))
        yield len(started)
    finally:
        for process in started:
            process.terminate()
            process.wait()


def main() -> None:
    number, words = sys.argv[1:]
    sets = sets_of("slave", Use(*(word == "1" for word in words)))
    first = int(number) % len(sets)
    prepare(sets[first:] + sets[:first])


if __name__ == "__main__":
    main()
