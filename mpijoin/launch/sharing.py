"""The work of a first start, shared among all processes of a machine that need the same kernels.

A set of kernels is compiled by one process, which has its lock meanwhile. The others compile other sets, and load from
the cache what is there. Otherwise, all ranks of a first run would compile the same code at once.
"""

from __future__ import annotations

import fcntl
import threading
import time
from collections import deque
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Callable, Sequence

from mpijoin.compiled import cache_folder, kept_folder
from mpijoin.named import NamedTuple

# One process never compiles longer than this, even on a busy machine.
LOCK_S = 120.0
LOCK_STEP_S = 0.05

# Threads of one process would compile one after the other anyway. The one that has this lock leaves the other sets to
# other processes.
_compiling = threading.Lock()


class KernelSet(NamedTuple):
    """What is compiled by one process. name: tells it from all others · prepare: compiles its kernels, or loads them.
    """

    name: str
    prepare: Callable[[], None]

    @property
    def stamp(self) -> Path:
        """The file that says that the set is compiled."""
        return cache_folder() / f"{self.name}.done"

    @property
    def is_compiled(self) -> bool:
        return self.stamp.exists()


def prepare(sets: Sequence[KernelSet]) -> float:
    """Prepares all sets, and first those that no other process is compiling. Returns the seconds that this took.

    Where the folder of stamps and locks cannot be written, processes compile side by side, which is slower but not
    wrong.
    """
    start = time.perf_counter()
    left, passed, deadline_s = deque(sets), 0, time.monotonic() + LOCK_S
    while left:
        if _prepared(left[0], must=time.monotonic() >= deadline_s):
            left.popleft()
            passed, deadline_s = 0, time.monotonic() + LOCK_S
            continue
        left.rotate(-1)
        passed += 1
        if passed >= len(left):  # Others have all of them.
            time.sleep(LOCK_STEP_S)
    return time.perf_counter() - start


def help_out(sets: Sequence[KernelSet]) -> None:
    """Compiles those of the sets that nobody has compiled and nobody is compiling, for other processes."""
    for one in sets:
        if kept_folder() and not one.is_compiled:
            _prepared(one, must=False)


def _prepared(one: KernelSet, must: bool) -> bool:
    """Prepares a set, unless another process is at it and this one need not wait any longer. Returns whether it did."""
    with ExitStack() as held:
        if not one.is_compiled:
            held.enter_context(_compiling)
            if not (one.is_compiled or _locked(one.stamp.with_suffix(".lock"), held) or must):
                return False
        one.prepare()
        with suppress(OSError):
            one.stamp.touch()
    return True


def _locked(path: Path, held: ExitStack) -> bool:
    """Takes the lock for as long as `held` is open. Returns whether that was possible, or there can be no locks."""
    try:
        file: IO[str] = held.enter_context(open(path, "w"))
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
