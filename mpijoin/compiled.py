"""Compiled functions, and where their machine code is kept between runs.

A kernel is a Python function that Numba compiles once for each state of the package, processor and kinds of arguments.
What comes out is kept as machine code behind a C function, which every later process calls. Numba itself, whose import
takes as long as the join of a million rows, is loaded only where something must be compiled.

The code of each state of the package lies in a folder of its own, named by a hash of all its sources, the compiler and
the processor; and it may lie where the package itself cannot be written. Whoever can write there can have this user run
anything. Such folders have names that others can guess, some in folders where everybody may create: they are used only
if they are this user's, and no one else's to change.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import shutil
import stat
import struct
import tempfile
import threading
import time
from contextlib import suppress
from functools import cache, cached_property, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Callable, Iterator, Sequence

import numpy as np

from mpijoin.flags import FLAGS
from mpijoin.machine import processor

COMPILERS = ("numba", "llvmlite")
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
UNUSED_DAYS = 30  # folders of other states of the package are removed when they are older

_readying = threading.Lock()  # one thread at a time compiles or loads


class KernelPart:
    """A function that only kernels call. Python that calls it gets the Python function."""

    def __init__(self, function: Callable, compiled_from: str = ""):
        """compiled_from: a module whose function of the same name is what Numba compiles."""
        self.py_func, self._compiled_from = function, compiled_from
        self.__name__, self.__doc__, self.__module__ = function.__name__, function.__doc__, function.__module__
        self.__wrapped__ = function

    def __call__(self, *arguments: Any) -> Any:
        return self.py_func(*arguments)

    def bound(self, *first: Any) -> Callable:
        """The function with its first arguments given."""
        return partial(self, *first)

    @cached_property
    def dispatcher(self) -> Any:
        """As Numba calls it."""
        from mpijoin.compiling import dispatcher_of

        if self._compiled_from:
            return dispatcher_of(getattr(import_module(self._compiled_from), self.__name__))
        return dispatcher_of(self.py_func)

    @property
    def _numba_type_(self) -> Any:
        """What Numba asks any object that it does not know."""
        return self.dispatcher._numba_type_


class Kernel(KernelPart):
    """A function that Python calls as machine code, without the interpreter's lock. It neither raises nor allocates."""

    def __init__(self, function: Callable):
        super().__init__(function)
        self._entries: dict[tuple[Any, ...], Callable] = {}

    def __call__(self, *arguments: Any) -> Any:
        """arguments: numbers, arrays, and tuples of these; TypeError: others, and a kernel that raises or allocates."""
        kinds: list[Any] = []
        words: list[Any] = []
        _take_apart(arguments, kinds, words)
        return self.entry(arguments, tuple(kinds))(words)

    def entry(self, arguments: Sequence[Any], found: tuple[Any, ...]) -> Callable:
        """The code for such arguments, which is loaded when they come for the first time."""
        return self._entries.get(found) or self.ready(arguments, found)

    def bound(self, *first: Any) -> Bound:
        """The kernel with its first arguments given."""
        return Bound(self, first)

    def ready(self, arguments: Sequence[Any], found: tuple[Any, ...]) -> Callable:
        """Loads the code for such arguments, and compiles it before where it is not there."""
        with _readying:
            if found not in self._entries:
                kinds = [_kind_of(value) for value in arguments]
                digest = hashlib.sha256(repr(kinds).encode()).hexdigest()[:12]
                name = f"{self.__module__}.{self.__name__}.{digest}".replace(".", "_")
                path = cache_folder() / f"{name}.o"
                code = _read(path) or self._compile(name, kinds, path)
                self._entries[found] = _entry(name, _formats(kinds), *code)
        return self._entries[found]

    def _compile(self, name: str, kinds: Sequence[Any], path: Path) -> tuple[str, bytes]:
        from mpijoin.compiling import compile_entry

        returned, octets = compile_entry(name, self.dispatcher, kinds)
        _write(path, returned, octets)
        return returned, octets


class Bound:
    """A kernel with first arguments that are looked at once and not at each call, which for a table of many arrays
    takes longer than all the rest.

    What is in these arrays, where it lies and how much it is may change. Of what kind they are (type, dimensions,
    whether they are writeable, aligned and without gaps) may not: that needs a new binding.
    """

    def __init__(self, kernel: Kernel, first: tuple[Any, ...]):
        self._kernel, self._first = kernel, first  # kept: of the arrays themselves the words are only addresses
        self._kinds: list[Any] = []
        self._words: list[Any] = []
        _take_apart(first, self._kinds, self._words)
        self._entries: dict[tuple[Any, ...], Callable] = {}  # by the kinds of the further arguments alone

    def __call__(self, *further: Any) -> Any:
        """further: the other arguments, as of `Kernel`."""
        kinds: list[Any] = []
        words = self._words.copy()
        _take_apart(further, kinds, words)
        found = tuple(kinds)
        entry = self._entries.get(found)
        if entry is None:
            entry = self._entries[found] = self._kernel.entry((*self._first, *further), (*self._kinds, *found))
        return entry(words)


def kernel(function: Callable) -> KernelPart:
    """Makes a kernel of a function; where Numba is told not to compile, it stays the Python function."""
    return KernelPart(function) if os.environ.get("NUMBA_DISABLE_JIT", "0") != "0" else Kernel(function)


def part(function: Callable) -> KernelPart:
    """Makes a part of kernels of a function."""
    return KernelPart(function)


def instruction(module: str) -> Callable[[Callable], KernelPart]:
    """Makes a part of kernels of a function whose namesake in `module` says how Numba compiles it."""
    return lambda function: KernelPart(function, module)


def _take_apart(values: Sequence[Any], kinds: list[Any], words: list[Any]) -> None:
    """Adds what tells these values' kinds from others, and the words that an entry takes for them."""
    for value in values:
        if isinstance(value, np.ndarray):
            kinds.append((value.dtype, value.ndim, value.flags.num & FLAGS))
            words.append(id(value))
            continue
        kinds.append(type(value))
        if isinstance(value, tuple):
            kinds.append(len(value))
            _take_apart(value, kinds, words)
        else:
            words.append(value)


def _kind_of(value: Any) -> Any:
    """What decides how a value is compiled: (type, dimensions, flags) of an array, (class, kinds …) of a tuple, else a
    type."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.ndim, value.flags.num & FLAGS
    if isinstance(value, tuple):
        return (type(value), *map(_kind_of, value))
    if isinstance(value, (bool, int, float, np.bool_, np.integer)):
        return np.dtype(type(value)).str
    raise TypeError(f"got {type(value).__name__}: kernels take numbers, arrays and tuples")


def _formats(kinds: Sequence[Any]) -> str:
    """`struct` format of an entry's words."""
    return "".join(map(_format, kinds))


def _format(kind: Any) -> str:
    if isinstance(kind, str):
        return {"f": "d", "u": "Q"}.get(kind[1], "q")
    return "Q" if isinstance(kind[0], str) else _formats(kind[1:])


def _entry(name: str, formats: str, returned: str, octets: bytes) -> Callable:
    """Calls the C function with an argument's words; gives back what it returns."""
    from mpijoin.linking import address_of

    call = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p)(address_of(name, octets))
    pack, answer = struct.Struct(f"={formats}").pack, struct.Struct("=" + returned.strip("()"))
    room, unpack, is_single = ctypes.c_char * answer.size, answer.unpack_from, "(" not in returned

    def enter(words: list[Any]) -> Any:
        out = room()
        call(pack(*words), out)
        found = unpack(out)
        return found[0] if is_single else found

    def enter_without_answer(words: list[Any]) -> None:
        call(pack(*words), None)

    return enter if returned else enter_without_answer


def _read(path: Path) -> tuple[str, bytes] | None:
    """What the code returns, and the code; None: it is not there, or is damaged."""
    with suppress(OSError):
        checksum, _, kept = path.read_bytes().partition(b"\n")
        if checksum == _checksum(kept):
            returned, _, octets = kept.partition(b"\n")
            return returned.decode(), octets
    return None


def _write(path: Path, returned: str, octets: bytes) -> None:
    """So that others find all or nothing; not at all where nothing can be written."""
    kept = b"\n".join([returned.encode(), octets])
    with suppress(OSError):
        new = path.with_suffix(f".{os.getpid()}")
        new.write_bytes(b"\n".join([_checksum(kept), kept]))
        new.replace(path)


def _checksum(octets: bytes) -> bytes:
    return hashlib.sha256(octets).hexdigest().encode()


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
    # Sticky: only owners rename, as in /tmp.
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
    facts = (sorted(_sources(os.path.dirname(__file__))), [_installed(name) for name in COMPILERS], processor())
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _installed(package: str) -> list[tuple[str, int]]:
    """Name, which has the version, and time of the folders that say what is installed. Nothing is imported for it."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return []
    entries = (entry for entry in os.scandir(Path(spec.origin).parents[1]) if entry.name.startswith(package))
    return sorted((entry.name, entry.stat().st_mtime_ns) for entry in entries)


def _sources(root: str) -> Iterator[tuple[str, int, int]]:
    """Path, time of the last change in ns, and size of each source of the package."""
    # not pathlib: at each start of each rank, and this takes a third of its time
    for folder, _, names in os.walk(root):
        for path in (os.path.join(folder, name) for name in names if name.endswith(".py")):
            status = os.stat(path)
            yield path, status.st_mtime_ns, status.st_size
