"""Commands write into a folder inside that of their output until everything is there. Nobody takes that folder for a
result."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

from mpijoin.refusals import writing

OPEN = ".open"


def is_empty(folder: Path) -> bool:
    """Whether there is no such folder, or nothing in it but the `.open` that a killed call has left."""
    return not folder.exists() or (folder.is_dir() and all(path.name == OPEN for path in folder.iterdir()))


@contextmanager
def written_aside(folder: Path) -> Iterator[Path]:
    """Gives folder/.open, new and empty. It is gone at the end, and so is the folder if it is new and nothing was moved
    into it.

    Processes that write into it must end before this does. Raises OutputError if it cannot be written.
    """
    existed, new = folder.exists(), folder / OPEN
    try:
        with writing(folder):
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir(parents=True)
            yield new
    finally:
        shutil.rmtree(new, ignore_errors=True)
        if not existed and folder.exists() and not any(folder.iterdir()):
            folder.rmdir()
