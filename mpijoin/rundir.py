"""The run directory: what lies where, and that nothing in it looks whole before it is.

```
job.toml                 the job as resolved; its first line marks the folder as made by mpijoin
results/.open/*.parquet  parts while the run goes on      -> results/*.parquet at the commit
results/.open/QUERY/     the same of each query, if the job has some
late/.open/*.parquet     parts of late files while the run goes on, at the commit the late files -> late/*.parquet
metrics/ logs/           readable at any time
summary.json             written last, by a successful run only; failed.json otherwise, never both
```
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any, Collection, Sequence

from mpijoin.disk import make_folder, new_file, sync_path, write_all, write_whole
from mpijoin.errors import InputError, OutputError
from mpijoin.named import NamedTuple
from mpijoin.refusals import reading, writing
from mpijoin.run_files import (
    RUN_FOLDERS,
    RUN_MARK,
    files_in,
    folders_in,
    is_run,
    late_files,
    make_room,
    some,
)


class RunDirectory(NamedTuple):
    """Paths of one run directory. Any rank may make one with `RunDirectory(Path(path))`; only rank 0 calls `create`."""

    path: Path

    @classmethod
    def create(
        cls, path: str | os.PathLike, job_text: str, overwrite: bool = False, inputs: Sequence[str] = ()
    ) -> RunDirectory:
        """Make the folders and write job.toml.

        inputs: files that the job reads: with `overwrite` they must not lie among what would be removed.
        JobError (exit 2): what `room_faults` says. OutputError (exit 3): the file system refuses.
        """
        run = cls(Path(path))
        with writing(run.path):
            make_room(run.path, overwrite, inputs)
            run.path.mkdir(parents=True, exist_ok=True)
            # job.toml first: a run killed in the next line still leaves a folder that --overwrite accepts.
            with new_file(run.path / "job.toml") as file:
                write_all(file, memoryview((RUN_MARK + job_text).encode()))
            for name in RUN_FOLDERS:
                make_folder(run.path / name)
        return run

    @property
    def job(self) -> Path:
        return self.path / "job.toml"

    @property
    def results(self) -> Path:
        return self.path / "results"

    @property
    def open_results(self) -> Path:
        """Where sinks write their parts until the commit."""
        return self.results / ".open"

    @property
    def late(self) -> Path:
        return self.path / "late"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics"

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints lie, unless the job wants them elsewhere."""
        return self.path / "checkpoint"

    @property
    def is_run(self) -> bool:
        return is_run(self.path)

    @property
    def is_finished(self) -> bool:
        return (self.path / "summary.json").exists()

    def make_query_folders(self, queries: Sequence[str]) -> None:
        """Makes the folders in which the parts of queries lie until the commit. Raises OutputError."""
        with writing(self.path):
            for name in queries:
                make_folder(self.open_results / name)

    def sync(self) -> None:
        """Flushes the folders' names to disk, before a checkpoint counts on what is in them. Raises OSError."""
        for folder in (self.results, self.late, self.path, self.path.parent):
            sync_path(folder)

    def reopen(self, job_text: str) -> None:
        """Prepares the directory of a run that was stopped or killed for one that goes on. Raises OutputError if the
        file system refuses."""
        with writing(self.path):
            for name in RUN_FOLDERS:
                make_folder(self.path / name)
            (self.path / "failed.json").unlink(missing_ok=True)
            write_whole(self.path / "job.toml", RUN_MARK + job_text)
            (self.open_results / "manifest.json").unlink(missing_ok=True)
            self._withdraw()

    def keep_only(self, results: Collection[str], late: Collection[str], part: int) -> None:
        """Removes what was written after the checkpoint of number `part`: results and late rows that are in no list,
        and metrics that begin with it or later. Raises OutputError if the file system refuses, or a file of the lists
        is missing."""
        with writing(self.path):
            for folder, kept in ((self.open_results, set(results)), (self.open_late_parts, set(late))):
                found = files_in(folder)
                if missing := kept - found:
                    raise OutputError(
                        f"{folder}: {some(sorted(missing))} is missing, which the run has written before"
                    )
                for name in found - kept:
                    (folder / name).unlink()
            for item in self.metrics.iterdir():
                if item.name.endswith(".open") or part_of(item.name) >= part:
                    item.unlink()

    def clean(self) -> None:
        """Removes, after the summary, what was only kept for a run that might have to go on from here. Never raises."""
        shutil.rmtree(self.open_late_parts, ignore_errors=True)

    @property
    def open_late_parts(self) -> Path:
        """Where sources write parts of late files until the commit."""
        return self.late / ".open"

    def open_late(self, stream: str) -> Path:
        """The late file of a stream, made of its parts for the commit."""
        return self.open_late_parts / f"{stream}.parquet"

    def log(self, rank: int) -> Path:
        return self.path / "logs" / f"rank-{rank}.log"

    def commit(self, files: Sequence[str], late: Sequence[str] = ()) -> None:
        """Turn the parts named in `files` (names in results/.open) and all late files into results.

        late: names in late/.open of the parts that the late files have been made of, which stay until `clean`. The
        manifest is on disk before anything gets its name, so that an interrupted commit can be told from a finished
        one. OutputError: a part is missing or unknown, or the file system refuses.
        """
        with writing(self.path):
            _expect(self.open_results, set(files), besides={"manifest.json"})
            own_late = _expect(self.open_late_parts, set(late), besides=late_files(self.path))
            manifest = self.open_results / "manifest.json"
            _write_json(manifest, {"results": sorted(files), "late": own_late})
            _move_all(self.open_late_parts, self.late, own_late)
            _move_all(self.open_results, self.results, sorted(files))
            manifest.unlink()
            for folder in (*folders_in(self.open_results), self.open_results):
                folder.rmdir()

    def sync_results(self, files: Sequence[str]) -> None:
        """Flushes committed results to disk, since parts of them may be in memory only. Raises OutputError."""
        with writing(self.path):
            for name in files:
                sync_path(self.results / name)

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write summary.json, the last act of a run that succeeds. OutputError: refused, or marked as failed."""
        with writing(self.path):
            if (self.path / "failed.json").exists():
                raise OutputError(f"{self.path}: failed.json is there already, so summary.json is not written")
            _write_json(self.path / "summary.json", summary)

    def write_failed(self, failure: dict[str, Any]) -> bool:
        """Withdraw what was committed and write failed.json; False if the file system refuses.

        Never raises for that: the error being recorded matters more than the record.
        """
        try:
            (self.path / "summary.json").unlink(missing_ok=True)
            self._withdraw()
            _write_json(self.path / "failed.json", failure)
        except OSError:
            return False
        return True

    def _withdraw(self) -> None:
        for folder in (self.results, self.late):
            names = [name for name in files_in(folder) if name.endswith(".parquet")]
            if names:
                make_folder(folder / ".open")
                _move_all(folder, folder / ".open", names)
            for query in folders_in(folder):
                query.rmdir()


def read_summary(path: str | os.PathLike) -> dict[str, Any]:
    """Reads summary.json of a run directory. Raises InputError if there is no run, or one that failed or has not
    finished, or if the text is damaged."""
    folder = Path(path)
    failure = read_failure(folder)
    if failure is not None:
        raise InputError(f"{folder} holds a failed run: {failure.get('reason', 'no reason recorded')}")
    if not (folder / "summary.json").exists():
        raise InputError(f"{folder} holds no summary.json: the run is still going on or was killed")
    return _read_json(folder / "summary.json")


def refuse_simulated(path: str | os.PathLike, wanted: str) -> None:
    """Raises InputError if the run that has finished in this folder was simulated. wanted: what needs a real one."""
    summary = Path(path) / "summary.json"
    if summary.exists() and _read_json(summary).get("simulated"):
        raise InputError(f"{path} holds a simulated run, which has no rows: {wanted} needs one of mpijoin run")


def read_failure(path: str | os.PathLike) -> dict[str, Any] | None:
    """Reads failed.json of a run directory, None if there is none. Raises InputError if there is no run, or the text is
    damaged."""
    folder = Path(path)
    if not (folder / "job.toml").is_file():
        raise InputError(f"{folder} is no run directory: it holds no job.toml")
    if not is_run(folder):
        raise InputError(f"{folder} is no run directory: its job.toml is not of a run")
    return _read_json(folder / "failed.json") if (folder / "failed.json").exists() else None


def _expect(folder: Path, parts: set[str], besides: set[str]) -> list[str]:
    """Returns those of `besides` that are in the folder, sorted. Raises OutputError if a part of `parts` is missing, or
    a file is there that is in neither."""
    found = files_in(folder)
    missing, unknown = parts - found, found - parts - besides
    if missing or unknown:
        wrong = [f"{name} is missing" for name in missing] + [f"{name} is in no list" for name in unknown]
        raise OutputError(f"{folder}: {some(sorted(wrong))}")
    return sorted(found & besides)


def part_of(name: str) -> int:
    """After which checkpoint a file of metrics begins.

    >>> part_of("rank-2.parquet"), part_of("rank-2-00007.parquet")
    (0, 7)
    """
    last = name.partition(".")[0].rpartition("-")[2]
    return int(last) if len(last) >= 5 and last.isdecimal() else 0


def _move_all(source: Path, target: Path, names: Sequence[str]) -> None:
    folders = dict.fromkeys((target / name).parent for name in names)
    for folder in folders:
        make_folder(folder)
    for name in names:
        os.rename(source / name, target / name)
    for folder in (*folders, target):
        sync_path(folder)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    write_whole(path, json.dumps(value, indent=2, default=_plain) + "\n")


def _plain(value: Any) -> Any:
    """Turns numpy scalars and paths into values that JSON knows."""
    return value.item() if hasattr(value, "item") else str(value)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        with reading(path):
            value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise InputError(f"{path}: cannot be read: found {type(value).__name__}, wanted an object")
    return value
