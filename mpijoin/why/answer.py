"""All that is known of what became of one row."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpijoin.conditions.tree import durations_of, names_in
from mpijoin.config.job import COUNT, Job, Join, Output, StreamJob
from mpijoin.config.queries import only_query
from mpijoin.errors import InputError
from mpijoin.named import NamedTuple
from mpijoin.rundir import RunDirectory, read_failure, refuse_simulated
from mpijoin.verify import MEMORY_LIMIT
from mpijoin.verify.combinations import condition_of, holds_sql
from mpijoin.verify.inputs import (
    JOINS,
    LATE,
    NULL_TIME,
    Clock,
    Stream,
    common_clock,
    describe_stream,
    inputs_newer_than,
    insert,
    load_run_job,
    make_table,
)
from mpijoin.why.choose import Asked, InputRow, find_row, stream_of
from mpijoin.why.partners import Other, Results, other_stream, results_of
from mpijoin.why.read import Progress, progress_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


class Answer(NamedTuple):
    """What became of the row `own`. others: of each other stream, what it has of the key; none where the row has no key
    or no time · results: those that the row is in, or would be in if it had not been late · notes: what may keep this
    from being what the run did, as sentences."""

    job: Job
    clock: Clock
    own: InputRow
    progress: Progress
    others: tuple[Other, ...]
    results: Results
    notes: tuple[str, ...]


def why(run_path: str | os.PathLike, asked: Asked) -> Answer:
    """Finds the row in the inputs, and what it met. Raises JobError if there is no such row or more than one, and
    InputError if there is no run, the inputs cannot be read, or DuckDB is missing."""
    try:
        import duckdb
    except ImportError as error:
        raise InputError("why needs DuckDB: pip install 'mpijoin[verify]'") from error
    run = RunDirectory(Path(run_path))
    read_failure(run.path)  # It refuses what is no run.
    refuse_simulated(run.path, "why")
    whole = load_run_job(run.path, "why")
    job = only_query(whole, asked.query)
    streams = tuple(_described(index, stream, job) for index, stream in enumerate(job.streams))
    condition = condition_of(job, streams)
    clock = common_clock(streams, job.aggregate, durations_of(condition) if condition else ())
    holds = holds_sql(condition, streams, clock) if condition else "true"
    own = find_row(job, stream_of(asked, streams), clock, asked)
    progress = progress_of(run, whole, own.stream.index, own.row)
    with tempfile.TemporaryDirectory(prefix="mpijoin-why-") as folder:
        settings: dict[str, Any] = {"memory_limit": MEMORY_LIMIT, "temp_directory": folder}
        with duckdb.connect(":memory:", config=settings) as database:
            others, results = _met(database, job, clock, own, streams, holds)
    return Answer(job, clock, own, progress, others, results, tuple(_notes(run, own, progress, streams)))


def _described(index: int, stream: StreamJob, job: Job) -> Stream:
    """A stream of which only times, keys and what the condition asks for are read."""
    named = {column for owner, column in names_in(job.join.where) if owner == stream.name}
    asked = tuple(named - {stream.time, "time", *stream.key})
    only = Job(job.streams, Join(where=job.join.where), output=Output(results=COUNT))
    return describe_stream(index, stream._replace(columns=asked), [only])


def _met(
    database: DuckDBPyConnection, job: Job, clock: Clock, own: InputRow, streams: tuple[Stream, ...], holds: str
) -> tuple[tuple[Other, ...], Results]:
    if own.fate not in (JOINS, LATE):
        return (), Results(0, ())
    apart = [stream for stream in streams if stream.index != own.stream.index]
    make_table(database, own.stream)
    insert(database, own.stream.table, iter([own.batch]))
    others = tuple(other_stream(database, job, stream, clock, own, holds) for stream in apart)
    return others, results_of(database, own, apart)


def _notes(run: RunDirectory, own: InputRow, progress: Progress, streams: tuple[Stream, ...]) -> list[str]:
    notes = [f"{path} was changed after the run began" for path in inputs_newer_than(streams, str(run.job))]
    late = run.late / f"{own.stream.name}.parquet"
    if progress.state or not late.exists():
        return notes
    is_there = _holds(late, own.row)
    if is_there != (own.fate in (LATE, NULL_TIME)):
        has = "has this row" if is_there else "does not have this row"
        notes.append(f"late/{late.name} {has}: the input is not what it was in the run")
    return notes


def _holds(late: Path, row: int) -> bool:
    """Whether a late file has the row."""
    import pyarrow.parquet as pq

    return pq.read_table(late, columns=["row"], filters=[("row", "==", row)]).num_rows > 0
