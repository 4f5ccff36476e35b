"""Files that are whole or not there: written under another name, flushed to disk, renamed; and files that know what was written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Callable

import numpy as np
import xxhash

PIECE_BYTES = 4 << 20  # read at once to check a file; between two pieces the caller may look at the network


class HashedFile:
    """A file that is written from front to end, as pyarrow wants one. octets: how many it has · checksum: of all of them."""

    def __init__(self, path: Path):
        """Raises OSError, as all methods do, with the name of the file."""
        self._path = path
        self._file = open(path, "wb", buffering=0)
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
        while len(rest):
            rest = rest[self._file.write(rest) :]
        return len(data)

    def tell(self) -> int:
        return self.octets

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        self._file.close()


def checksum_of(path: Path, between: Callable[[], None] = lambda: None) -> str:
    """As `HashedFile.checksum`, of a file as it lies there. between: called after each piece that was read. OSError."""
    found, piece = xxhash.xxh3_64(), np.empty(PIECE_BYTES, np.uint8)
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(piece):
            found.update(piece[:count])
            between()
    return found.hexdigest()


def sync_path(path: Path) -> None:
    """Has a file's bytes, or a folder's entries, on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
