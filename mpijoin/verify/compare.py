"""Compares a run's files and summary with the join of its inputs."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mpijoin.conditions.tree import durations_of
from mpijoin.config.job import COUNT, Job
from mpijoin.config.units import plural
from mpijoin.operators.base import CERTIFICATE_MASK
from mpijoin.rundir import read_summary, refuse_simulated
from mpijoin.verify.aggregates import add_answers, due_sql
from mpijoin.verify.combinations import Totals, condition_of, totals_of, typed_sql
from mpijoin.verify.inputs import (
    JOINS,
    KEYLESS,
    LATE,
    NULL_KEY,
    NULL_TIME,
    Clock,
    Stream,
    common_clock,
    describe_stream,
    inputs_newer_than,
    load_run_job,
    load_stream,
)
from mpijoin.verify.late import compare_late
from mpijoin.verify.reduced import add_reduced, calls_of, durations_in, reduced_columns, reduced_sql
from mpijoin.verify.report import Difference, Report
from mpijoin.verify.results import answer_columns, compare_results

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def compare_run(run_path: str, database: DuckDBPyConnection) -> Report:
    """Everything verify compares, in one report. Errors: see `mpijoin.verify.verify`."""
    summary = read_summary(run_path)
    refuse_simulated(run_path, "verify")
    job = load_run_job(run_path, "verify")
    streams = tuple(describe_stream(index, stream, job.each) for index, stream in enumerate(job.streams))
    clock = _load(database, job, streams)
    differences = _stream_differences(database, summary, streams)
    facts = list(_facts(database, job, streams))
    for stream in streams:
        differences += compare_late(database, run_path, stream, clock.tick_ns)
    every = []
    for name, one in zip(job.names, job.each):
        told = summary.get("queries", {}).get(name, {})
        totals, different = _compare_query(database, os.path.join(run_path, "results", name), one, told)
        differences += [replace(difference, what=f"query {name}: {difference.what}") for difference in different]
        facts.append(f"query {name}: {plural(totals.results, 'result')}, certificate {totals.certificate:016x}")
        every.append(totals)
    if not job.queries:
        totals, different = _compare_results(database, os.path.join(run_path, "results"), job, summary, streams, clock)
        differences += different
        every.append(totals)
    results = sum(totals.results for totals in every)
    certificate = sum(totals.certificate for totals in every) & CERTIFICATE_MASK
    if job.queries:
        differences += _total_differences(summary, Totals(results, certificate))
    job_path = os.path.join(run_path, "job.toml")
    notes = [f"{path} was changed after the run began" for path in inputs_newer_than(streams, job_path)]
    return Report(run_path, results, f"{certificate:016x}", tuple(facts), tuple(notes), tuple(differences))


def _load(database: DuckDBPyConnection, job: Job, streams: tuple[Stream, ...]) -> Clock:
    """Fills the tables of the streams, and returns the clock of their times."""
    each = [(condition_of(one, streams), calls_of(one, streams)) for one in job.each]
    durations = [ns for condition, _ in each if condition for ns in durations_of(condition)]
    durations += [ns for _, calls in each for ns in durations_in(calls)]
    clock = common_clock(streams, job.aggregate, durations)
    for stream in streams:
        load_stream(database, job, stream, clock)
    return clock


def _compare_query(
    database: DuckDBPyConnection, folder: str, job: Job, told: dict[str, Any]
) -> tuple[Totals, list[Difference]]:
    """Does what `_compare_results` does, with tables of its own: other rows and columns count for each query."""
    database.execute("CREATE SCHEMA query")
    database.execute("SET schema = 'query'")
    streams = tuple(describe_stream(index, stream, [job]) for index, stream in enumerate(job.streams))
    outcome = _compare_results(database, folder, job, told, streams, _load(database, job, streams))
    database.execute("SET schema = 'main'")
    database.execute("DROP SCHEMA query CASCADE")
    return outcome


def _compare_results(
    database: DuckDBPyConnection,
    folder: str,
    job: Job,
    told: dict[str, Any],
    streams: tuple[Stream, ...],
    clock: Clock,
) -> tuple[Totals, list[Difference]]:
    """Compares the results of one query with the inputs, which are loaded.

    folder: of its results · job: that asks it alone · told: what the summary says of it.
    """
    condition, calls = condition_of(job, streams), calls_of(job, streams)
    keeps_rows = job.output.results != COUNT
    if job.aggregate.is_on:
        add_answers(database, job, streams[0], clock.tick_ns)
        wanted, answers = due_sql(streams[0]), answer_columns(job, streams[0])
    elif calls:
        add_reduced(database, calls, condition, streams, clock)
        wanted, answers = reduced_sql(job, streams), reduced_columns(job, calls, streams, clock)
    else:
        wanted, answers = typed_sql(job.join, condition, streams, clock), []
    if keeps_rows:
        database.execute(f"CREATE TABLE expected AS {wanted}")
    totals = totals_of(database, streams, "expected" if keeps_rows else f"({wanted})")
    differences = _total_differences(told, totals)
    if keeps_rows:
        shown = streams[: job.join.shown] if len(streams) == 2 else streams
        differences += compare_results(database, folder, job, shown, answers)
    return totals, differences


def _fates(database: DuckDBPyConnection, stream: Stream) -> dict[str, int]:
    """Counts a stream's rows by what becomes of them, under the names of summary.json."""
    counts = dict(database.execute(f"SELECT fate, count(*) FROM {stream.table} GROUP BY fate").fetchall())
    joined, null_key = counts.get(JOINS, 0) + counts.get(KEYLESS, 0), counts.get(NULL_KEY, 0)
    return {
        "read": sum(counts.values()),
        "joined": joined,
        "late": counts.get(LATE, 0) + counts.get(NULL_TIME, 0),
        "null_key": null_key,
    }


def _facts(database: DuckDBPyConnection, job: Job, streams: tuple[Stream, ...]) -> tuple[str, ...]:
    counts = []
    for stream in streams:
        fates = _fates(database, stream)
        lost = f"{fates['late']:,} late, {fates['null_key']:,} with a null key"
        counts.append(f"{stream.name}: {plural(fates['read'], 'row')}, {lost}")
    compared = "count and certificate alone" if job.counts_only else "every row and column of the results"
    return (*counts, f"compared: {compared}, the counts of each stream, the late files")


def _stream_differences(
    database: DuckDBPyConnection, summary: dict[str, Any], streams: tuple[Stream, ...]
) -> list[Difference]:
    lines = []
    for stream in streams:
        told = summary.get("streams", {}).get(stream.name, {})
        for field, wanted in _fates(database, stream).items():
            if told.get(field) != wanted:
                lines.append(f"{stream.name}.{field}: got {told.get(field)}, wanted {wanted}")
    return [Difference("summary.json: counts of the streams", tuple(lines))] if lines else []


def _total_differences(summary: dict[str, Any], totals: Totals) -> list[Difference]:
    wanted = {"results": totals.results, "certificate": f"{totals.certificate:016x}"}
    lines = [
        f"{field}: got {summary.get(field)}, wanted {value}"
        for field, value in wanted.items()
        if summary.get(field) != value
    ]
    return [Difference("summary.json: the results", tuple(lines))] if lines else []
