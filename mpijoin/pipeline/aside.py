"""Commands write into a folder inside that of their output until everything is there. Nobody takes that folder for a
result."""

from __future__ import annotations

import re
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Sequence

from mpijoin.errors import JobError
from mpijoin.refusals import writing

OPEN = ".open"


def is_empty(folder: Path) -> bool:
    """Whether there is no such folder, or nothing in it but the `.open` that a killed call has left."""
    return not folder.exists() or (folder.is_dir() and all(path.name == OPEN for path in folder.iterdir()))


def strangers(folder: Path, name: str) -> list[Path]:
    """The first item of a folder that is not called as the regular expression `name` says, or what is there instead of
    a folder."""
    items = sorted(folder.iterdir()) if folder.is_dir() else [folder] if folder.exists() else []
    return [item for item in items if not re.fullmatch(name, item.name)][:1]


def refuse_to_replace(folder: Path, found: Sequence[Path]) -> None:
    """Raises JobError if there is something in the output folder that would be replaced and is not of a call of
    ours."""
    if found:
        advice = "which no earlier call made: move it away, or choose another folder"
        raise JobError([f"-o {folder}: --overwrite does not remove {path}, {advice}" for path in found])


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
