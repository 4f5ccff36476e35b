"""A run directory as the report reads it: the job, the outcome, and the metrics as columns."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mpijoin.config.job import MAX, Job
from mpijoin.config.load import read_job
from mpijoin.data.files import decoding
from mpijoin.errors import EXIT_CHECKPOINTED, InputError
from mpijoin.metrics.moves import SCHEMA as MOVES
from mpijoin.metrics.record import columns_of
from mpijoin.rundir import read_failure, read_summary

DONE, STOPPED, FAILED, UNFINISHED = "done", "stopped", "failed", "unfinished"

Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class RunData:
    """One run.

    summary: the summary of a run that is done, else empty · reason: why there is none · go_on: the command that goes on
    with a run that ended early, or "" · origin: the provenance of the run, empty if it is not known · epochs: the
    columns of EpochRecord of all ranks, in order of rank and time · delays, moves, checkpoints: the columns of
    delay-N.parquet, moves.parquet and checkpoints.parquet.
    """

    name: str
    path: Path
    job: Job
    job_text: str
    state: str
    summary: dict[str, Any]
    reason: str
    go_on: str
    origin: dict[str, Any]
    epochs: Columns
    delays: Columns
    moves: Columns
    checkpoints: Columns

    @property
    def streams(self) -> list[str]:
        """The names of the streams, in the job's order."""
        return [stream.name for stream in self.job.streams]

    @property
    def paced(self) -> bool:
        return self.job.run.speed != MAX

    @property
    def is_simulated(self) -> bool:
        """Whether it is known to be simulated."""
        return bool(self.summary.get("simulated"))

    @property
    def slaves(self) -> list[int]:
        """The ranks of the slaves that left metrics."""
        return sorted(set(self.epochs["rank"][self.epochs["role"] == "slave"].tolist()))

    @property
    def producers(self) -> list[int]:
        """The ranks of the producers that left metrics, the master's first."""
        return sorted(set(self.epochs["rank"][np.isin(self.epochs["role"], ("master", "producer"))].tolist()))

    def of_rank(self, rank: int) -> Columns:
        """Returns the epoch records of one rank."""
        own = self.epochs["rank"] == rank
        return {name: column[own] for name, column in self.epochs.items()}

    def of_role(self, role: str) -> Columns:
        """Returns the epoch records of the ranks with this role, rank after rank."""
        own = self.epochs["role"] == role
        return {name: column[own] for name, column in self.epochs.items()}


def load_runs(paths: Sequence[str | os.PathLike]) -> list[RunData]:
    """Reads the runs in these folders, in this order, and gives each a name of its own. Raises as `load_run`."""
    folders = [Path(path) for path in paths]
    places = [folder.resolve() for folder in folders]
    twice = sorted({str(folder) for folder, place in zip(folders, places) if places.count(place) > 1})
    if twice:
        raise InputError(f"{', '.join(twice)}: given more than once")
    return [load_run(folder, name) for folder, name in zip(folders, distinct_names(folders))]


def load_run(folder: Path, name: str) -> RunData:
    """Reads a run.

    Raises InputError if the folder holds no run, if its metrics cannot be read, or if a finished run has no metrics.
    """
    end = _end_of(folder)
    text = (folder / "job.toml").read_text(encoding="utf-8")
    # A table that came from Python is not in the job file. This is no fault here.
    job, _ = read_job(folder / "job.toml", ())
    metrics = folder / "metrics"
    epochs = _epochs(metrics, [stream.name for stream in job.streams])
    if end["state"] == DONE and len(epochs["rank"]) == 0:
        reason = "; all of the run was its warm-up ([run] warmup)" if job.run.warmup_ns else ""
        raise InputError(
            f"{metrics}: found no rows in rank-*.parquet, wanted those of a run: there is nothing to draw{reason}"
        )
    tables: dict[str, Any] = {name: _table(metrics, f"{pattern}*") for name, pattern in TABLES.items()}
    if tables["moves"]:
        _check(tables["moves"], MOVES.names, metrics)
    return RunData(name=name, path=folder, job=job, job_text=text, epochs=epochs, **end, **tables)


TABLES = {"delays": "delay-", "moves": "moves", "checkpoints": "checkpoints"}


def distinct_names(folders: Sequence[Path]) -> list[str]:
    """Returns names made of the last parts of each path, with as few parts as tell all of them apart.

    >>> distinct_names([Path("a/run"), Path("b/run")])
    ['a/run', 'b/run']
    """
    resolved = [folder.resolve() for folder in folders]
    longest = max(len(folder.parts) for folder in resolved)
    for length in range(1, longest + 1):
        names = ["/".join(folder.parts[-length:]) for folder in resolved]
        if len(set(names)) == len(names):
            break
    return names


def _end_of(folder: Path) -> dict[str, Any]:
    """Returns how the run ended: the fields state, summary, reason, go_on and origin of a RunData."""
    failure = read_failure(folder)
    if failure is not None:
        state = STOPPED if failure.get("exit_code") == EXIT_CHECKPOINTED else FAILED
        reason, go_on = str(failure.get("reason", "no reason recorded")), failure.get("go_on", "")
        return {
            "state": state,
            "summary": {},
            "reason": reason,
            "go_on": go_on,
            "origin": failure.get("provenance") or {},
        }
    if not (folder / "summary.json").exists():
        reason = "it holds no summary.json: the run is still going on or was killed"
        return {"state": UNFINISHED, "summary": {}, "reason": reason, "go_on": "", "origin": {}}
    summary = read_summary(folder)
    if "results" not in summary:
        raise InputError(f"{folder / 'summary.json'}: is damaged: it does not count the results")
    return {"state": DONE, "summary": summary, "reason": "", "go_on": "", "origin": summary.get("provenance") or {}}


def _epochs(metrics: Path, streams: Sequence[str]) -> Columns:
    wanted = columns_of(streams)
    columns = _table(metrics, "rank-*")
    if not columns:
        return {name: np.zeros(0, str if name == "role" else np.int64) for name in wanted}
    _check(columns, wanted, metrics)
    columns["role"] = columns["role"].astype(str)
    order = np.lexsort((columns["end_us"], columns["rank"]))
    return {name: columns[name][order] for name in wanted}


def _check(columns: Columns, wanted: Sequence[str], metrics: Path) -> None:
    missing = [name for name in wanted if name not in columns]
    if missing:
        raise InputError(f"{metrics}: found no column {', '.join(missing)}: another version of mpijoin made this run")


def _read(file: Path) -> pa.Table:
    with decoding(str(file)):
        return pq.read_table(file)


def _table(metrics: Path, pattern: str) -> Columns:
    """Returns the rows of all files of that name as columns, or nothing if there are no such files."""
    tables = [_read(file) for file in sorted(metrics.glob(f"{pattern}.parquet"))]
    if not tables:
        return {}
    whole = pa.concat_tables(tables)
    return {name: whole[name].to_numpy(zero_copy_only=False) for name in whole.column_names}
