"""`mpijoin.run(job)`: the same engine from Python, on threads of this process, Arrow tables in and out."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet

from mpijoin.config.check import resolve
from mpijoin.config.job import Job
from mpijoin.config.load import read_job
from mpijoin.config.rules import job_faults
from mpijoin.errors import AlreadyDone, MpijoinError, OutputError
from mpijoin.launch.embedded import local_size, local_slaves, run_local
from mpijoin.launch.plan import launch_faults, merged_schema, prepare
from mpijoin.rundir import read_summary
from mpijoin.signals import SignalFlag


@dataclass(frozen=True)
class Run:
    """A finished run. `summary`: as in summary.json · `path`: the run directory, None if the results stayed in memory."""

    summary: Mapping[str, Any]
    path: Path | None
    _table: pa.Table | None = None

    @property
    def results(self) -> int:
        """How many pairs there are."""
        return self.summary["results"]

    def table(self) -> pa.Table:
        """All results as one Arrow table (read from the run directory if they lie there); raises OutputError if the job
        only counted."""
        if self._table is not None:
            return self._table
        if self.path is None or not any((self.path / "results").glob("*.parquet")) and self.results:
            raise OutputError('the job counted its results ([output] results = "count"): there is no table of them')
        return pa.parquet.read_table(self.path / "results")


class TableWriter:
    """Keeps results in memory."""

    def __init__(self, schema: pa.Schema):
        self._schema = schema
        self._tables: list[pa.Table] = []

    def write(self, table: pa.Table) -> None:
        self._tables.append(table)

    def close(self) -> Sequence[Any]:
        return ()

    def abandon(self) -> None:
        self._tables.clear()

    def table(self) -> pa.Table:
        return pa.concat_tables([self._schema.empty_table(), *self._tables])


class Silent:
    """No progress display."""

    def update(self, make_view: Any) -> None:
        pass

    def note(self, line: str) -> None:
        pass

    def close(self, final_line: str = "") -> None:
        pass


def run(
    job: Job | Mapping[str, Any] | str | os.PathLike,
    overrides: Sequence[str] = (),
    slaves: int | None = None,
    overwrite: bool = False,
    resume: bool = False,
    oversubscribe: bool = False,
) -> Run:
    """Runs a job on `slaves` local slaves (default: min(cores, 4)) and returns when it is done.

    oversubscribe: allows more than four slaves per core · resume: goes on from the newest checkpoint in the output path, and begins where there is none.

    job: a `Job`, the path of a job file, or a dictionary of the same sections, whose [left] and [right] may have
    `table = <pyarrow.Table>` instead of a path. Without an output path the results stay in memory: `run(job).table()`.
    Raises JobError, InputError and the other errors of mpijoin.errors.

    >>> left = pa.table({"ts": [10, 20], "key": ["a", "b"]})
    >>> right = pa.table({"ts": [11, 99], "key": ["a", "b"]})
    >>> stream = {"time": "ts", "time_unit": "s", "key": "key", "window": "5 s"}
    >>> done = run({"left": {"table": left, **stream}, "right": {"table": right, **stream}}, slaves=1)
    >>> done.table().select(["key", "left_time", "right_time"]).to_pylist()
    [{'key': 'a', 'left_time': 10, 'right_time': 11}]
    """
    job, faults = (job, job_faults(job)) if isinstance(job, Job) else read_job(job, overrides)
    in_memory = not job.output.path and job.output.results != "count"
    if in_memory:
        job = replace(job, output=replace(job.output, results="collect"))
    size = local_size(job, local_slaves(slaves, oversubscribe, "slaves"))
    schema = resolve(job, [*faults, *launch_faults(job, size, overwrite, resume)])
    try:
        plan = prepare(job, schema, size, overwrite, resume)
    except AlreadyDone:
        return Run(read_summary(job.output.path), Path(job.output.path))
    writer = TableWriter(merged_schema(plan)) if in_memory else None
    signals = SignalFlag()
    signals.install()
    try:
        outcome = run_local(plan, signals, Silent(), writer=writer)
    finally:
        plan.release()
        signals.restore()
    if outcome.error is not None:
        raise outcome.error if isinstance(outcome.error, MpijoinError) else MpijoinError(outcome.reason)
    path = Path(job.output.path) if job.output.path else None
    return Run(outcome.summary, path, writer.table() if writer else None)
