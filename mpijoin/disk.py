"""Files that are whole or not there: they are written under another name, flushed to disk and renamed. And files that
know what was written to them."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from typing import Callable

import numpy as np
import xxhash

ASIDE = ".new"  # ends the name of a file that is being written
PIECE_BYTES = 4 << 20  # read at once to check a file; between two pieces the caller may look at the network


def new_file(path: Path) -> io.FileIO:
    """Opens a new file to write, in place of whatever has the name: a link is removed, not followed. Raises OSError."""
    try:
        return _created(path)
    except FileExistsError:
        os.unlink(path)
        return _created(path)


def _created(path: Path) -> io.FileIO:
    return open(path, "xb", buffering=0)  # O_EXCL follows no link


def make_folder(path: Path) -> None:
    """Makes the folder if it is not there yet. Raises OSError if something else has the name; a link does not count as
    a folder."""
    try:
        path.mkdir()
    except FileExistsError:
        if path.is_symlink() or not path.is_dir():
            raise NotADirectoryError(
                errno.ENOTDIR, "is a link or a file, wanted a folder: remove it", str(path)
            ) from None


def write_whole(path: Path, text: str) -> None:
    """Writes under another name first, flushes to disk, then renames: a reader finds the whole text or none. Raises
    OSError."""
    aside = path.with_name(path.name + ASIDE)
    with new_file(aside) as file:
        write_all(file, memoryview(text.encode()))
        os.fsync(file.fileno())
    os.replace(aside, path)
    sync_path(path.parent)


def write_all(file: io.FileIO, data: memoryview) -> None:
    """Writes everything, in as many pieces as the system takes at once."""
    while len(data):
        data = data[file.write(data) :]


def read_all(file: io.FileIO, data: memoryview) -> int:
    """Reads from the file's position on until `data` is full or the file ends. Returns the bytes read."""
    done = 0
    while done < len(data) and (count := file.readinto(data[done:])):
        done += count
    return done


def lies_in_memory(folder: Path) -> bool:
    """Whether the files of a folder take memory instead of a disk. Raises OSError if it is not there."""
    device = os.stat(folder).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, system = line.partition(" - ")
        if mount.split(" ")[2] == number:
            return system.split(" ")[0] in ("tmpfs", "ramfs")
    return False  # some file systems give each of their parts a number that is listed nowhere


class HashedFile:
    """A file that is written from front to end, as pyarrow wants one. octets: bytes so far · checksum: of all of
    them."""

    def __init__(self, path: Path):
        """Raises OSError, as all methods do, with the name of the file."""
        self._path = path
        self._file = new_file(path)
        self._hash = xxhash.xxh3_64()
        self.octets = 0

    @property
    def closed(self) -> bool:
        return self._file.closed

    @property
    def checksum(self) -> str:
        """16 hex digits."""
        return self._hash.hexdigest()

    def write(self, data: bytes) -> int:
        rest = memoryview(data).cast("B")
        self._hash.update(rest)
        self.octets += len(rest)
        write_all(self._file, rest)
        return len(data)

    def tell(self) -> int:
        return self.octets

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        self._file.close()


def checksum_of(path: Path, between: Callable[[], None] = lambda: None) -> str:
    """Computes `HashedFile.checksum` of a file as it lies there. between: is called after each piece. Raises
    OSError."""
    found, piece = xxhash.xxh3_64(), np.empty(PIECE_BYTES, np.uint8)
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(piece):
            found.update(piece[:count])
            between()
    return found.hexdigest()


def sync_path(path: Path) -> None:
    """Flushes a file's bytes, or a folder's entries, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
