"""Compiled functions, and where their machine code is kept between runs.

Numba's own cache looks at the file of a function only, not at those of the functions it calls: after an update it may
go on running old code. So the code of each state of the package lies in a folder of its own, named by a hash of all its
sources, the compiler and the processor; and it may lie where the package itself cannot be written.

Numba unpickles what it finds there, so who can write there can have this user run anything. Such folders have names
that others can guess, some in folders where everybody may create: they are used only if they are this user's, and no
one else's to change.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Callable, Iterator

import llvmlite.binding
import numba
from numba.core.caching import FunctionCache
from numba.core.runtime import _nrt_python

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
UNUSED_DAYS = 30  # folders of other states of the package are removed when they are older


def compiled(**options: Any) -> Callable[[Callable], Callable]:
    """`numba.njit` with our cache folder, without the interpreter's lock. options: further ones of njit."""

    def decorate(function: Callable) -> Callable:
        before = numba.config.CACHE_DIR
        # read while a function is decorated; other users of Numba keep theirs
        numba.config.CACHE_DIR = str(cache_folder())
        try:
            dispatcher = numba.njit(nogil=True, **options)(function)
            dispatcher._cache = KernelCache(function)
            return dispatcher
        finally:
            numba.config.CACHE_DIR = before

    return decorate


class KernelCache(FunctionCache):
    """Numba's cache, but machine code is loaded without the definitions of all that Numba can compile.

    They are 80 modules, 14 MB and 0.3 s of every rank. Machine code needs no more of Numba than the addresses of its
    memory management; what must be compiled after all still fetches the rest.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        _name_memory_management()
        return self._load_overload(sig, target_context)


@cache
def _name_memory_management() -> None:
    """Tells the linker what `rtsys.initialize` tells it, without the 20 ms in which that compiles what only compiling
    needs."""
    for name, address in _nrt_python.c_helpers.items():
        llvmlite.binding.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


@cache
def cache_folder() -> Path:
    """The folder of this state of the package: in $NUMBA_CACHE_DIR, else in the user's cache, else in the temporary
    folder; if none of these is the user's own, one of this process alone, in which everything is compiled anew."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mpijoin"
    named = os.environ.get("NUMBA_CACHE_DIR")
    for base in (Path(named) if named else usual, Path(tempfile.gettempdir()) / f"mpijoin-{os.getuid()}"):
        folder = base / _fingerprint()
        with suppress(OSError):
            if _is_own(base) and _is_own(folder):
                os.utime(folder)
                _remove_unused(base, folder)
                return folder
    return _private_folder()


def _is_own(folder: Path) -> bool:
    """Whether the folder, which is made where it is not there, is this user's, and nobody else can change or replace
    it."""
    folder.mkdir(0o700, parents=True, exist_ok=True)
    own, above = os.lstat(folder), os.stat(folder.parent)
    if not stat.S_ISDIR(own.st_mode) or own.st_uid != os.getuid() or own.st_mode & OTHERS_WRITE:
        return False
    # sticky: only owners rename, as in /tmp
    return not above.st_mode & OTHERS_WRITE or bool(above.st_mode & stat.S_ISVTX)


def _private_folder() -> Path:
    """Of this process, until it ends. Where nothing can be written, one that nobody can make."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="mpijoin-"))
    except OSError:
        return Path(os.devnull) / _fingerprint()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _remove_unused(base: Path, own: Path) -> None:
    oldest = time.time() - UNUSED_DAYS * 86400
    for folder in base.iterdir():
        if folder != own and len(folder.name) == len(own.name) and folder.stat().st_mtime < oldest:
            shutil.rmtree(folder, ignore_errors=True)


def _fingerprint() -> str:
    """Changes with anything that makes compiled code useless: the sources, the compiler, the processor."""
    facts = (
        sorted(_sources(os.path.dirname(__file__))),
        numba.__version__,
        llvmlite.__version__,
        llvmlite.binding.get_host_cpu_name(),
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _sources(root: str) -> Iterator[tuple[str, int, int]]:
    """Path, time of the last change in ns, and size of each source of the package."""
    # not pathlib: at each start of each rank, and this takes a third of its time
    for folder, _, names in os.walk(root):
        for path in (os.path.join(folder, name) for name in names if name.endswith(".py")):
            status = os.stat(path)
            yield path, status.st_mtime_ns, status.st_size
