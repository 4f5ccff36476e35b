"""What the file system refuses, as an error that names the file and the reason."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import Callable, Iterator

from mpijoin.errors import InputError, MpijoinError, OutputError
from mpijoin.limits import too_many_files

Raised = Callable[[str], MpijoinError]


@contextmanager
def writing(path: str | os.PathLike[str], raised: Raised = OutputError) -> Iterator[None]:
    """Turns an OSError in the block into "FILE: cannot be written: REASON".

    path: the file or folder to name where the system itself names none · raised: makes the error from its text.
    """
    with _told(path, "written", raised):
        yield


@contextmanager
def reading(path: str | os.PathLike[str], raised: Raised = InputError) -> Iterator[None]:
    """Turns an OSError in the block into "FILE: cannot be read: REASON"; parameters as for `writing`."""
    with _told(path, "read", raised):
        yield


@contextmanager
def _told(path: str | os.PathLike[str], done: str, raised: Raised) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        name = os.fspath(path) if error.filename is None else error.filename
        raise raised(f"{name}: cannot be {done}: {reason(error)}") from error


def reason(error: OSError) -> str:
    """Why the system refused, in its own words.

    Arrow puts a long sentence around these words ("Failed to open local file ..."), which is left out.
    """
    said = error.strerror or str(error)
    system = os.strerror(error.errno) if error.errno is not None else said
    return too_many_files(error) or (system if system in said else said)
