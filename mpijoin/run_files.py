"""Which files a run makes, and whether a folder has room for a run.

A folder has room if it is empty, or if all that is in it was made by an earlier run that may be replaced.
"""

from __future__ import annotations

import os
import tomllib
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Iterator, Sequence

from mpijoin.config.job import SHORT_STREAMS
from mpijoin.errors import JobError
from mpijoin.lock import LOCKS

# A folder is overwritten only if its job.toml starts with this: a user's own job.toml never does.
RUN_MARK = "# mpijoin run directory: the job as resolved\n"

# Everything a run makes, as patterns of paths below the run directory; any other file is foreign.
RUN_FILES = (
    "job.toml",
    "summary.json",
    "failed.json",
    "*.json.new",
    "job.toml.new",
    "results/*-[0-9][0-9][0-9][0-9][0-9].parquet",
    "results/*/*-[0-9][0-9][0-9][0-9][0-9].parquet",
    "results/.open/*-[0-9][0-9][0-9][0-9][0-9].parquet",
    "results/.open/*/*-[0-9][0-9][0-9][0-9][0-9].parquet",
    "results/.open/manifest.json",
    "results/.open/manifest.json.new",
    "late/.open/*-[0-9][0-9][0-9][0-9][0-9].parquet",
    "checkpoint/[0-9][0-9][0-9][0-9][0-9].json",
    "checkpoint/[0-9][0-9][0-9][0-9][0-9].json.new",
    "checkpoint/rank-[0-9]*-[0-9][0-9][0-9][0-9][0-9].state",
    "checkpoint/rank-[0-9]*-[0-9][0-9][0-9][0-9][0-9].state.new",
    "metrics/*.parquet",
    "metrics/*.parquet.open",
    "logs/rank-*.log",
    "report/report.html",
    "report/*.png",
    "report/*.csv",
    LOCKS,
    f"checkpoint/{LOCKS}",
)
RESULT_FOLDERS = ("results", "results/.open")  # in which each query has a folder of its name
LATE_FOLDERS = ("late", "late/.open")  # in which each stream has a file of its name
RUN_FOLDERS = ("results", "results/.open", "late", "late/.open", "metrics", "logs")
MADE_FOLDERS = (*RUN_FOLDERS, "checkpoint", "report")  # with what only some runs have, and `mpijoin report`
NAMED_MAX = 5  # a message names this many files and counts the rest


def room_faults(path: Path, overwrite: bool = False, inputs: Sequence[str] = ()) -> list[str]:
    """Says what keeps a run from beginning in this folder, as sentences about [output] path. It only looks.

    inputs: as in `RunDirectory.create`. Raises OSError if the file system cannot even be asked.
    """
    where = f"[output] path: {path}"
    if blocked := blocking_file(path):
        what = "it" if blocked == path else blocked
        return [f"{where} cannot be a folder, {what} is {kind_of(blocked)}: wanted a folder that is new or empty"]
    there = next(one for one in (path, *path.parents) if one.is_dir())
    if not os.access(there, os.W_OK | os.X_OK):
        return [f"{where} cannot be written: this user may make no files in {there}"]
    files = [name for name in _walk(path, path) if not _is_lock(name)] if path.is_dir() else []
    if not files:
        return []
    if not overwrite:
        return [
            f"{where} is not empty: choose another, or go on with the run in it (--resume) or replace it (--overwrite)"
        ]
    late = {f"{folder}/{name}" for folder in LATE_FOLDERS for name in late_files(path)}
    foreign = [name for name in files if name not in late and not _made_by_run(name)]
    if not is_run(path) and "job.toml" not in foreign:
        foreign.append("job.toml" if "job.toml" in files else "(no job.toml of a run)")
    if foreign:
        return [f"{where} is not removed by --overwrite, it holds what no run made: {some(sorted(foreign))}"]
    folder = path.resolve()
    inside = [name for name in inputs if folder in Path(name).resolve().parents]
    return [f"{where} is not removed by --overwrite, the job reads from it: {some(inside)}"] if inside else []


def blocking_file(path: Path) -> Path | None:
    """The path, or the part of it that exists, if that is no folder. None: there is a folder, or one can be made."""
    there = next((one for one in (path, *path.parents) if os.path.lexists(one)), path)
    return None if there.is_dir() or not os.path.lexists(there) else there


def kind_of(path: Path) -> str:
    """What is there instead of a folder, in words."""
    return "a file" if path.exists() else "a link to nothing"


def make_room(path: Path, overwrite: bool, inputs: Sequence[str]) -> None:
    """Empties the folder of what a run has left in it. Raises JobError with `room_faults`."""
    faults = room_faults(path, overwrite, inputs)
    if faults:
        raise JobError(faults)
    if not path.is_dir():
        return
    for name in sorted(_walk(path, path), key=lambda name: name == "job.toml"):
        if not _is_lock(name):
            (path / name).unlink()  # job.toml last: what an interrupted removal leaves is still known as a run
    queries = [item.relative_to(path).as_posix() for one in RESULT_FOLDERS for item in folders_in(path / one)]
    for name in sorted((*MADE_FOLDERS, *queries), reverse=True):
        with suppress(OSError):
            (path / name).rmdir()


def _walk(folder: Path, root: Path) -> Iterator[str]:
    """Paths below `root` of everything in `folder` but the folders that runs make; links are not followed."""
    for item in sorted(folder.iterdir()):
        name = item.relative_to(root).as_posix()
        is_made = name in MADE_FOLDERS or name.rpartition("/")[0] in RESULT_FOLDERS
        if item.is_dir() and not item.is_symlink() and is_made:
            yield from _walk(item, root)
        else:
            yield name


def _is_lock(name: str) -> bool:
    return fnmatch(name.rpartition("/")[2], LOCKS) and name.rpartition("/")[0] in ("", "checkpoint")


def _made_by_run(name: str) -> bool:
    # fnmatch's * crosses slashes, so the depth must agree as well.
    return any(name.count("/") == pattern.count("/") and fnmatch(name, pattern) for pattern in RUN_FILES)


def late_files(path: Path) -> set[str]:
    """The names that the late files of the run in this folder have, after the streams of its job; empty if there is no
    run."""
    if not is_run(path):
        return set()
    try:
        job = tomllib.loads((path / "job.toml").read_text(encoding="utf-8"))
    except ValueError:  # no TOML, or not even text
        return set()
    streams = job.get("streams", {name: job[name] for name in SHORT_STREAMS if name in job})
    return {f"{stream}.parquet" for stream in streams}


def is_run(path: Path) -> bool:
    job = path / "job.toml"
    return job.is_file() and job.read_bytes().startswith(RUN_MARK.encode())


def some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def folders_in(folder: Path) -> list[Path]:
    """The folders of queries in one for results. Late files and others have none."""
    return [item for item in folder.iterdir() if item.is_dir() and item.name != ".open"] if folder.is_dir() else []


def files_in(folder: Path) -> set[str]:
    """Names in a folder of results or late files, those in the folders of queries as "QUERY/NAME"."""
    return {
        item.relative_to(folder).as_posix()
        for each in (folder, *folders_in(folder))
        for item in each.iterdir()
        if not item.is_dir()
    }
