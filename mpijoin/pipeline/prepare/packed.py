"""Raw files that may be packed, read as the bytes that were packed."""

from __future__ import annotations

import bz2
import gzip
import os
import zlib
from typing import IO, Callable, Iterator, Sequence, TypeAlias

from mpijoin.data.files import first_line
from mpijoin.errors import InputError

Unpacking: TypeAlias = gzip.GzipFile | bz2.BZ2File
PACKED: dict[str, Callable[[str], Unpacking]] = {".gz": gzip.GzipFile, ".bz2": bz2.BZ2File}
CHUNK = 1 << 20


def is_packed(path: str) -> bool:
    return _suffix(path) in PACKED


def unpacked(path: str) -> IO[bytes] | Unpacking:
    """The file, opened; of a packed one, what is in it."""
    return PACKED[_suffix(path)](path) if is_packed(path) else open(path, "rb")


def _suffix(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def chunks(path: str) -> Iterator[bytes]:
    """All of the file, unpacked. Raises InputError where it cannot be read, or does not unpack to its end."""
    try:
        with unpacked(path) as file:
            while chunk := file.read(CHUNK):
                yield chunk
    except (OSError, EOFError, zlib.error) as error:
        wrong = "unpacked" if is_packed(path) else "read"
        raise InputError(f"{path}: cannot be {wrong}: {first_line(error)}") from error


def check_archives(paths: Sequence[str]) -> None:
    """Raises InputError that names the first packed file that does not unpack to its end. Spark says only that there
    is one."""
    for path in filter(is_packed, paths):
        for _ in chunks(path):
            pass
