"""Compiled functions, and the folder that keeps their machine code between runs.

A kernel is a Python function that Numba compiles once for each state of the package, each processor and the kinds of
its arguments. The result is kept as machine code behind a C function, which every later process calls. The import of
Numba takes as long as the join of a million rows, so Numba is loaded only where something must be compiled.

The code of each state of the package lies in its own folder, whose name is a hash of all sources, the compiler and the
processor. So it can be kept even where the package itself cannot be written. Whoever can write to this folder can make
this user run anything. Others can guess the names of these folders, and some lie where everybody may create files. So a
folder is used only if it belongs to this user, and nobody else can change it.
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
# Folders of other states of the package are removed when they are older than this.
UNUSED_DAYS = 30

# One thread at a time compiles or loads.
_readying = threading.Lock()


class KernelPart:
    """A function that only kernels call. If Python calls it, the Python function runs."""

    def __init__(self, function: Callable, compiled_from: str = ""):
        """If `compiled_from` names a module, Numba compiles the function of the same name in that module instead."""
        self.py_func, self._compiled_from = function, compiled_from
        self.__name__, self.__doc__, self.__module__ = function.__name__, function.__doc__, function.__module__
        self.__wrapped__ = function

    def __call__(self, *arguments: Any) -> Any:
        return self.py_func(*arguments)

    def bound(self, *first: Any) -> Callable:
        """Returns the function with its first arguments given."""
        return partial(self, *first)

    @cached_property
    def dispatcher(self) -> Any:
        """The function as Numba calls it."""
        from mpijoin.compiling import dispatcher_of

        if self._compiled_from:
            return dispatcher_of(getattr(import_module(self._compiled_from), self.__name__))
        return dispatcher_of(self.py_func)

    @property
    def _numba_type_(self) -> Any:
        """The type that Numba asks of any object that it does not know."""
        return self.dispatcher._numba_type_


class Kernel(KernelPart):
    """A function that Python calls as machine code, without the interpreter's lock. It neither raises nor allocates."""

    def __init__(self, function: Callable):
        super().__init__(function)
        self._entries: dict[tuple[Any, ...], Callable] = {}
        self._addresses: dict[tuple[Any, ...], int] = {}

    def __call__(self, *arguments: Any) -> Any:
        """Calls the kernel. The arguments may be numbers, arrays, and tuples of these. Raises TypeError for others, and
        for a kernel that raises or allocates."""
        kinds: list[Any] = []
        words: list[Any] = []
        _take_apart(arguments, kinds, words)
        return self.entry(arguments, tuple(kinds))(words)

    def entry(self, arguments: Sequence[Any], found: tuple[Any, ...]) -> Callable:
        """Returns the code for such arguments. It is loaded when they come for the first time."""
        return self._entries.get(found) or self.ready(arguments, found)

    def address(self, *arguments: Any) -> int:
        """Returns the address of the C function `void(int64 *words, int64 *out)` for such arguments, which other
        kernels may call. The word of an array is the address of its Python object, and that of an integer is itself."""
        kinds: list[Any] = []
        _take_apart(arguments, kinds, [])
        self.entry(arguments, tuple(kinds))
        return self._addresses[tuple(kinds)]

    def bound(self, *first: Any) -> Bound:
        """Returns the kernel with its first arguments given."""
        return Bound(self, first)

    def ready(self, arguments: Sequence[Any], found: tuple[Any, ...]) -> Callable:
        """Loads the code for such arguments. If it is not there, it is compiled first."""
        with _readying:
            if found not in self._entries:
                kinds = [_kind_of(value) for value in arguments]
                digest = hashlib.sha256(repr(kinds).encode()).hexdigest()[:12]
                name = f"{self.__module__}.{self.__name__}.{digest}".replace(".", "_")
                path = cache_folder() / f"{name}.o"
                code = _read(path) or self._compile(name, kinds, path)
                from mpijoin.linking import address_of

                returned, octets = code
                self._addresses[found] = address_of(name, octets)
                self._entries[found] = _entry(self._addresses[found], _formats(kinds), returned)
        return self._entries[found]

    def _compile(self, name: str, kinds: Sequence[Any], path: Path) -> tuple[str, bytes]:
        from mpijoin.compiling import compile_entry

        returned, octets = compile_entry(name, self.dispatcher, kinds)
        _write(path, returned, octets)
        return returned, octets


class Bound:
    """A kernel whose first arguments are examined once, and not at each call. For a table of many arrays, this would
    take longer than all the rest of a call.

    The contents of these arrays, their place in memory and their sizes may change. Their kinds (type, dimensions, and
    whether they are writeable, aligned and without gaps) may not change. That needs a new binding.
    """

    def __init__(self, kernel: Kernel, first: tuple[Any, ...]):
        # The arrays are kept alive here, because the words hold only their addresses.
        self._kernel, self._first = kernel, first
        self._kinds: list[Any] = []
        self._words: list[Any] = []
        _take_apart(first, self._kinds, self._words)
        # The key is the kinds of the further arguments alone.
        self._entries: dict[tuple[Any, ...], Callable] = {}

    def __call__(self, *further: Any) -> Any:
        """Calls the kernel. `further` are its other arguments, as those of `Kernel`."""
        kinds: list[Any] = []
        words = self._words.copy()
        _take_apart(further, kinds, words)
        found = tuple(kinds)
        entry = self._entries.get(found)
        if entry is None:
            entry = self._entries[found] = self._kernel.entry((*self._first, *further), (*self._kinds, *found))
        return entry(words)


def kernel(function: Callable) -> KernelPart:
    """Makes a kernel of a function. If Numba is told not to compile, it stays the Python function."""
    return KernelPart(function) if os.environ.get("NUMBA_DISABLE_JIT", "0") != "0" else Kernel(function)


def part(function: Callable) -> KernelPart:
    """Makes a part of kernels of a function."""
    return KernelPart(function)


def instruction(module: str) -> Callable[[Callable], KernelPart]:
    """Makes a part of kernels of a function. The function of the same name in `module` says how Numba compiles it."""
    return lambda function: KernelPart(function, module)


def argument_words(values: Sequence[Any]) -> list[int]:
    """Returns the words that a kernel takes for such arguments, as of `Kernel.address`."""
    words: list[int] = []
    _take_apart(values, [], words)
    return words


def _take_apart(values: Sequence[Any], kinds: list[Any], words: list[Any]) -> None:
    """Appends to `kinds` what tells the kinds of these values from others, and to `words` the words that an entry takes
    for them."""
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
    """Returns what decides how a value is compiled. This is (type, dimensions, flags) for an array, (class, kinds …)
    for a tuple, and otherwise a type."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.ndim, value.flags.num & FLAGS
    if isinstance(value, tuple):
        return (type(value), *map(_kind_of, value))
    if isinstance(value, (bool, int, float, np.bool_, np.integer)):
        return np.dtype(type(value)).str
    raise TypeError(f"got {type(value).__name__}: kernels take numbers, arrays and tuples")


def _formats(kinds: Sequence[Any]) -> str:
    """Returns the `struct` format of an entry's words."""
    return "".join(map(_format, kinds))


def _format(kind: Any) -> str:
    if isinstance(kind, str):
        return {"f": "d", "u": "Q"}.get(kind[1], "q")
    return "Q" if isinstance(kind[0], str) else _formats(kind[1:])


def _entry(address: int, formats: str, returned: str) -> Callable:
    """Returns a function that calls the C function with the words of the arguments, and returns what it returns."""
    call = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p)(address)
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
    """Returns the format of what the code returns, and the code. Returns None if it is not there, or is damaged."""
    with suppress(OSError):
        checksum, _, kept = path.read_bytes().partition(b"\n")
        if checksum == _checksum(kept):
            returned, _, octets = kept.partition(b"\n")
            return returned.decode(), octets
    return None


def _write(path: Path, returned: str, octets: bytes) -> None:
    """Writes the code so that others find all of it or nothing. It does nothing where nothing can be written."""
    kept = b"\n".join([returned.encode(), octets])
    with suppress(OSError):
        new = path.with_suffix(f".{os.getpid()}")
        new.write_bytes(b"\n".join([_checksum(kept), kept]))
        new.replace(path)


def _checksum(octets: bytes) -> bytes:
    return hashlib.sha256(octets).hexdigest().encode()


@cache
def cache_folder() -> Path:
    """Returns the folder of this state of the package. If there is none that is kept, this process gets a folder for
    itself, where everything is compiled again."""
    return kept_folder() or _private_folder()


@cache
def kept_folder() -> Path | None:
    """Returns the folder that other processes of this user find, too. It lies in $NUMBA_CACHE_DIR or else in the user's
    cache, and otherwise in the temporary folder. Returns None if none of these is the user's own."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mpijoin"
    named = os.environ.get("NUMBA_CACHE_DIR")
    for base in (Path(named) if named else usual, Path(tempfile.gettempdir()) / f"mpijoin-{os.getuid()}"):
        folder = base / _fingerprint()
        with suppress(OSError):
            if _is_own(base) and _is_own(folder):
                os.utime(folder)
                _remove_unused(base, folder)
                return folder
    return None


def _is_own(folder: Path) -> bool:
    """Whether the folder belongs to this user, and nobody else can change or replace it. It is made if it is not there.
    """
    folder.mkdir(0o700, parents=True, exist_ok=True)
    own, above = os.lstat(folder), os.stat(folder.parent)
    if not stat.S_ISDIR(own.st_mode) or own.st_uid != os.getuid() or own.st_mode & OTHERS_WRITE:
        return False
    # In a folder with the sticky bit, such as /tmp, only the owner of a file can rename it.
    return not above.st_mode & OTHERS_WRITE or bool(above.st_mode & stat.S_ISVTX)


def _private_folder() -> Path:
    """Returns a folder for this process, which is removed when the process ends. Where nothing can be written, it is a
    path that nobody can make."""
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
    """Returns a hash that changes with everything that makes compiled code useless: the sources, the compiler and the
    processor."""
    facts = (sorted(_sources(os.path.dirname(__file__))), [_installed(name) for name in COMPILERS], processor())
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _installed(package: str) -> list[tuple[str, int]]:
    """Returns the names and times of the folders that say what is installed. A name contains the version. Nothing is
    imported for this."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return []
    entries = (entry for entry in os.scandir(Path(spec.origin).parents[1]) if entry.name.startswith(package))
    return sorted((entry.name, entry.stat().st_mtime_ns) for entry in entries)


def _sources(root: str) -> Iterator[tuple[str, int, int]]:
    """Yields the path, the time of the last change in ns, and the size of each source of the package."""
    # This runs at each start of each rank, and takes a third of the time that pathlib would take.
    for folder, _, names in os.walk(root):
        for path in (os.path.join(folder, name) for name in names if name.endswith(".py")):
            status = os.stat(path)
            yield path, status.st_mtime_ns, status.st_size
