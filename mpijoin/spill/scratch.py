"""A rank's folder for what it spills, on a disk of its node. It is gone when the rank is.

    ROOT/mpijoin-1000@node17,rank-2-x8f3k2lq/     mode 0700, and locked (flock) as long as the rank lives

A process that is killed removes nothing, but the kernel releases its locks. So whoever opens scratch below the same
root tries to lock every folder there that is of the same user and node. Those that it can lock belong to nobody any
more, and it removes them. A rank may be killed between making its folder and locking it, or another that looks round
may remove the folder in that moment. Hence a lock only counts if the folder still has its name once the lock is held;
if not, the rank makes another folder.

The lock is on the folder itself. The kernel of this node holds it, also where the folder lies on a network file system
that knows no locks; that is why folders of other nodes, which have other names, are left alone. systemd-tmpfiles, too,
leaves folders alone that are locked.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Iterator, Mapping

from mpijoin.disk import lies_in_memory
from mpijoin.errors import ScratchError
from mpijoin.named import NamedTuple
from mpijoin.refusals import Raised, writing

VARIABLES = ("SLURM_TMPDIR", "TMPDIR")
ON_DISK = Path("/var/tmp")  # by the rules of Linux's file system it outlives a boot, so it is hardly ever in memory


class Root(NamedTuple):
    """Below which folder ranks make theirs, and why there."""

    path: Path
    why: str


class Scratch:
    """A folder of this rank's own, which exists and is locked until `close`. folder: its path · root: what it lies in,
    and why · removed: how many folders of dead runs were removed before."""

    def __init__(self, folder: Path, root: Root, lock: int, removed: int):
        """lock: the open folder, whose lock is held."""
        self.folder, self.root, self.removed = folder, root, removed
        self._lock = lock

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def told(self) -> str:
        """Says for the log which folder was taken and why."""
        removed = f"; removed what {self.removed} dead runs had left there" if self.removed else ""
        return f"scratch is {self.folder} ({self.root.why}){removed}"

    def refused(self, wanted_bytes: int = 0) -> Raised:
        """Makes a ScratchError from what `writing` and `reading` say. wanted_bytes: that were to be written."""
        return partial(_refusal, self.root.path, wanted_bytes)

    def close(self) -> None:
        """Removes the folder with all that is in it. Never raises; a second call does nothing."""
        if self._lock < 0:
            return
        lock, self._lock = self._lock, -1
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(lock)


def open_scratch(setting: str | None, name: str, environ: Mapping[str, str] = os.environ) -> Scratch:
    """Makes a folder for this rank, and removes those of dead runs beside it.

    setting: `[memory] path`, a folder, which is made if it is missing; None: "auto" · name: of the rank, for people who
    look at the disk. Raises ScratchError if the file system refuses.
    """
    root = choose_root(setting, environ)
    with writing(root.path, partial(_refusal, root.path, 0)):
        root.path.mkdir(parents=True, exist_ok=True)
        removed = remove_leftovers(root.path)
        while True:
            folder = Path(tempfile.mkdtemp(prefix=f"{_mark()}{name}-", dir=root.path))
            if (lock := _locked(folder)) is not None:
                return Scratch(folder, root, lock, removed)


def remove_leftovers(root: Path) -> int:
    """Removes the folders below `root` that dead runs of this user left on this node, and returns how many there were.
    Never raises: what cannot be removed stays."""
    removed = 0
    for folder in _marked(root):
        with suppress(OSError):
            if (lock := _locked(folder)) is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)
                removed += not folder.exists()
    return removed


def choose_root(setting: str | None, environ: Mapping[str, str] = os.environ) -> Root:
    """Says where `[memory] path` leads on this node."""
    if setting is not None:
        return _judged(Root(Path(setting).absolute(), "[memory] path"))
    named = ((Path(environ[name]), name) for name in VARIABLES if environ.get(name))
    fallback = Path(tempfile.gettempdir()), "the system's temporary folder"
    path, why = next(((path, why) for path, why in named if _is_usable(path)), fallback)
    if _is_usable(path) and lies_in_memory(path) and _is_usable(ON_DISK) and not lies_in_memory(ON_DISK):
        return Root(ON_DISK, f"because {path}, {why}, lies in memory")
    return _judged(Root(path.absolute(), why))


def _judged(root: Root) -> Root:
    """Adds a warning if the folder lies in memory, and nothing is gained by spilling to it."""
    if os.path.isdir(root.path) and lies_in_memory(root.path):
        return root._replace(why=f"{root.why}; it LIES IN MEMORY: set [memory] path to a folder on a disk")
    return root


def _is_usable(folder: Path) -> bool:
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def _mark() -> str:
    """What the names of this user's folders on this node begin with. No host's name has a comma."""
    return f"mpijoin-{os.geteuid()}@{socket.gethostname()},"


def _marked(root: Path) -> Iterator[Path]:
    mark = _mark()
    with suppress(OSError):
        yield from (root / name for name in os.listdir(root) if name.startswith(mark))


def _locked(folder: Path) -> int | None:
    """The open folder with its lock; None if it is another's, or gone. Raises OSError if the file system refuses."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    is_ours = False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = os.fstat(handle)
        is_ours = found.st_uid == os.geteuid() and os.path.samestat(found, os.lstat(folder))
    except (BlockingIOError, FileNotFoundError):
        return None
    finally:
        if not is_ours:
            os.close(handle)
    return handle if is_ours else None


def _refusal(root: Path, wanted_bytes: int, text: str) -> ScratchError:
    wanted = f"{wanted_bytes:,} bytes were to be written, " if wanted_bytes else ""
    try:
        free = f"{shutil.disk_usage(root).free:,} bytes are free in {root}"
    except OSError:
        free = f"{root} is not there any more"
    return ScratchError(
        f"{text}: {wanted}{free}: choose another folder with [memory] path, or raise [memory] limit, so that less is"
        " spilled"
    )
