"""`mpijoin.run(job)` runs the same engine from Python, on threads of this process. It takes and returns Arrow tables.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet

from mpijoin.config.check import resolve
from mpijoin.config.faults import Fault
from mpijoin.config.job import COUNT, Job
from mpijoin.config.load import read_job
from mpijoin.config.rules import job_faults
from mpijoin.config.units import show
from mpijoin.errors import EXIT_SIGINT, AlreadyDone, JobError, MpijoinError, OutputError
from mpijoin.launch.embedded import local_slaves, run_local
from mpijoin.launch.roles import RunSetup, merged_schemas
from mpijoin.launch.setup import launch_faults, prepare
from mpijoin.launch.sizes import size_for
from mpijoin.launch.summary import RunOutcome
from mpijoin.rundir import read_summary
from mpijoin.signals import SignalFlag
from mpijoin.sinks.collector import WithoutParts, Writers
from mpijoin.sources.late import late_schema


@dataclass(frozen=True)
class Run:
    """A finished run. `summary` is that of summary.json. `path` is the run directory, or None if the results stayed in
    memory."""

    summary: Mapping[str, Any]
    path: Path | None
    # These are the names of the streams.
    _streams: Sequence[str]
    # The names of the queries, and of those that were only counted.
    _queries: Sequence[str] = ()
    _counted: Sequence[str] = ()
    # It says why there is no table of the results, and is "" if there is one.
    _lacks_table: str = ""
    # The results of each query; those of a job that has none are named "".
    _tables: Mapping[str, pa.Table] | None = None
    _late: Mapping[str, pa.Table] | None = None

    @property
    def results(self) -> int:
        """The number of results."""
        return self.summary["results"]

    def table(self, query: str = "") -> pa.Table:
        """Returns all results as one Arrow table. They are read from the run directory if they lie there.

        query: which one's results, if the job has several. Raises JobError if it has no such query, and OutputError if
        the results were only counted, or if they went to the reader of a live run.
        """
        if query not in (self._queries or [""]):
            raise JobError([f"table: got query {show(query)}, wanted {_listed(self._queries) or 'none'}"])
        if self._lacks_table or query in self._counted:
            counted = f'query {show(query)} counted its results (results = "count")'
            raise OutputError(f"{self._lacks_table or counted}: there is no table of them")
        return self._kept_or_read(self._tables and self._tables[query], f"results/{query}" if query else "results")

    def late(self, stream: str) -> pa.Table:
        """Returns the late rows of the stream of this name as an Arrow table. It has the columns that the job uses, and
        row, watermark and reason.

        Raises JobError if the job has no such stream.
        """
        if stream not in self._streams:
            raise JobError([f"late: got {show(stream)}, wanted {_listed(self._streams)}"])
        return self._kept_or_read(None if self._late is None else self._late[stream], f"late/{stream}.parquet")

    def _kept_or_read(self, kept: pa.Table | None, name: str) -> pa.Table:
        if kept is not None:
            return kept
        # A table that is not kept in memory lies in the run directory.
        assert self.path is not None
        return pa.parquet.read_table(self.path / name)


def _listed(names: Sequence[str]) -> str:
    return " or ".join(map(show, names))


class TableWriter(WithoutParts):
    """A writer that keeps tables of one schema in memory."""

    # All of it stays in memory, as the caller wants it.
    is_full = False

    def __init__(self, schema: pa.Schema):
        self._schema = schema
        self._tables: list[pa.Table] = []

    def write(self, table: pa.Table) -> None:
        self._tables.append(table)

    def abandon(self) -> None:
        self._tables.clear()

    def table(self) -> pa.Table:
        return pa.concat_tables([self._schema.empty_table(), *self._tables])


@dataclass(frozen=True)
class Prepared:
    """A job that is checked and may begin. `setup` is None if the run that was to go on is done already. `late` has a
    writer for each stream if the late rows stay in memory."""

    job: Job
    setup: RunSetup | None
    late: Mapping[str, TableWriter]

    @property
    def is_in_memory(self) -> bool:
        """Whether the results stay in this process."""
        return not self.job.output.path and self.job.output.results == "collect"

    def table_writers(self) -> dict[str, TableWriter]:
        """Returns a writer for each query that keeps its results."""
        assert self.setup
        return dict(zip(self.job.names or ("",), map(TableWriter, merged_schemas(self.setup))))

    def finished(
        self, summary: Mapping[str, Any], tables: Mapping[str, pa.Table] | None = None, lacks_table: str = ""
    ) -> Run:
        """Returns what the caller gets of the run, which has ended well. The tables are those of the results of each
        query, if they stayed in memory, or else `lacks_table` says where they went."""
        if self.job.output.results == COUNT:
            lacks_table = 'the job counted its results ([output] results = "count")'
        counted = [name for name, one in zip(self.job.names, self.job.each) if one.output.results == COUNT]
        path = Path(self.job.output.path) if self.job.output.path else None
        late = {name: kept.table() for name, kept in self.late.items()} or None
        streams = [stream.name for stream in self.job.streams]
        return Run(summary, path, streams, self.job.names, counted, lacks_table, tables, late)


class Silent:
    """A progress display that shows nothing."""

    def update(self, make_view: Any) -> None:
        pass

    def note(self, line: str) -> None:
        pass

    def close(self, final_line: str = "", is_bad: bool = False) -> None:
        pass


def run(
    job: Job | Mapping[str, Any] | str | os.PathLike,
    overrides: Sequence[str] = (),
    slaves: int | None = None,
    overwrite: bool = False,
    resume: bool = False,
    oversubscribe: bool = False,
    debug: bool = False,
) -> Run:
    """Runs a job on `slaves` local slaves (default: min(cores, 4)), and returns when it is done.

    `job` is a `Job`, the path of a job file, or a dictionary of the same sections: {"streams": {"picks": {...}, ...}}
    or {"left": {...}, "right": {...}}. A stream may have `table = ...` instead of a path. This is a pyarrow.Table or
    RecordBatch, or a frame of pandas, polars or anything else that Arrow can read. Without an output path the results
    and the late rows stay in memory: `run(job).table()`, `run(job).late("picks")`. A job with several queries
    has a table of each: `run(job).table("near")`. Each of the `overrides` is a string "section.field=value", as for
    --set. `overwrite` replaces what an earlier run wrote to the output path. `resume`
    continues from the newest checkpoint there, or begins if there is none. `oversubscribe` allows more than four slaves
    per core. `debug` writes the traceback of an error to standard error.

    Raises JobError, InputError and the other errors of mpijoin.errors. After Ctrl-C it raises KeyboardInterrupt, once
    the run has ended (and is saved in a checkpoint, if the job says so). Otherwise nothing is written to the terminal.

    >>> left = pa.table({"ts": [10, 20], "key": ["a", "b"]})
    >>> right = pa.table({"ts": [11, 99], "key": ["a", "b"]})
    >>> stream = {"time": "ts", "time_unit": "s", "key": "key", "window": "5 s"}
    >>> done = run({"left": {"table": left, **stream}, "right": {"table": right, **stream}}, slaves=1)
    >>> done.table().select(["key", "left_time", "right_time"]).to_pylist()
    [{'key': 'a', 'left_time': 10, 'right_time': 11}]
    """
    prepared = prepared_of(job, overrides, slaves, overwrite, resume, oversubscribe)
    setup = prepared.setup
    if setup is None:
        return prepared.finished(read_summary(prepared.job.output.path))
    kept = prepared.table_writers() if prepared.is_in_memory else {}
    summary = _join(setup, Writers(list(kept.values())) if kept else None, debug)
    return prepared.finished(summary, {name: writer.table() for name, writer in kept.items()} or None)


def prepared_of(
    job: Any, overrides: Sequence[str], slaves: int | None, overwrite: bool, resume: bool, oversubscribe: bool
) -> Prepared:
    """Checks the job, and opens its folders. The arguments and errors are those of `run`. The caller must run the setup
    or release it."""
    job, faults = _read(job, overrides)
    if not job.output.path and job.output.results != "count":
        job = job._replace(output=job.output._replace(results="collect"))
    size = size_for(job, local_slaves(slaves, oversubscribe, "slaves"))
    if overwrite and resume:
        told = "overwrite, resume: got both, wanted one: to begin anew, or to go on with what is there"
        faults.append(Fault((), told))
    schema = resolve(job, [*faults, *launch_faults(job, size, overwrite, resume)])
    try:
        setup = prepare(job, schema, size, overwrite, resume)
    except AlreadyDone:
        return Prepared(job, None, {})
    late = {} if job.output.path else {stream.name: TableWriter(late_schema(stream)) for stream in schema.streams}
    return Prepared(job, setup._replace(late=tuple(late.values())), late)


def _read(job: Any, overrides: Sequence[str]) -> tuple[Job, list[Fault]]:
    """Returns the job and the faults of its values. Raises JobError if there is no job at all."""
    if isinstance(overrides, str):
        raise JobError([f'overrides: got {show(overrides)}, wanted a list of strings, such as ["left.window=5 s"]'])
    if isinstance(job, Job):
        return job, job_faults(job) + (
            [Fault((), "overrides: a Job has its values already: wanted none")] if overrides else []
        )
    if not isinstance(job, (str, os.PathLike, Mapping)):
        raise JobError([f"job: got {show(job)}, wanted a Job, the path of a job file, or a dictionary of its sections"])
    return read_job(job, overrides)


def _join(setup: RunSetup, writers: Writers | None, debug: bool) -> Mapping[str, Any]:
    """Runs the job while signals are caught. Returns the summary, or raises the error that ended the run."""
    signals = SignalFlag()
    signals.install()
    try:
        outcome = run_local(setup, signals, Silent(), debug, writers)
    finally:
        setup.release()
        signals.restore()
    error = error_of(outcome, debug)
    if error is None:
        return outcome.summary
    if outcome.exit_code == EXIT_SIGINT or signals.asked == signal.SIGINT:
        raise KeyboardInterrupt(str(error)) from error
    raise error


def error_of(outcome: RunOutcome, debug: bool) -> MpijoinError | None:
    """Returns the error that ended the run, or None after a good run. `debug` writes its traceback to standard error.
    """
    if outcome.error is None and not outcome.exit_code:
        return None
    if debug:
        print(outcome.reason, file=sys.stderr)
    return outcome.error if isinstance(outcome.error, MpijoinError) else MpijoinError(outcome.reason)
