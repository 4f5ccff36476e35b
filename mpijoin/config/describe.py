"""What `mpijoin check` says of a job without faults."""

from __future__ import annotations

from typing import Iterable, Iterator

from mpijoin.config.job import (
    ALL,
    ANTI,
    AUTO,
    FULL,
    INNER,
    LEFT,
    MAX,
    MWAY,
    NO_POLICY,
    RIGHT,
    SEMI,
    UNBOUNDED,
    FileSource,
    Job,
    Join,
    Query,
    StreamJob,
    SyntheticSource,
)
from mpijoin.config.units import format_duration, listed, plural
from mpijoin.data.files import count_rows, expand_files, file_format
from mpijoin.data.results import result_columns
from mpijoin.data.schema import Column, JoinSchema


def describe(job: Job, schema: JoinSchema, memory: Iterable[str] = ()) -> str:
    """Describes the job in a few lines: its streams, with their rows where footers tell them, key, unit, partitions and
    result columns.

    memory: lines on its memory, which depend on the node
    """
    width = max(7, *(len(stream.name) for stream in job.streams))
    times = listed([_columns((stream.time,)) for stream in schema.streams])
    lines = [
        *(f"{stream.name:<{width}} {_stream_text(stream)}" for stream in job.streams),
        f"key     {' = '.join(_columns(stream.keys) for stream in schema.streams)}",
        f"time    {times}, joined in {schema.unit}",
        f"cluster {job.cluster.partitions} partitions, policy {job.balance.policy}{_declustering(job)}",
        *_sharing(job),
        *([] if job.queries else _asked(job)),
        *memory,
        *_pace(job),
        *_checkpoints(job),
        *_injections(job),
        *(line for query, one in zip(job.queries, job.each) for line in _query(query, one, schema)),
        *([] if job.queries else [_output(job, schema)]),
        "ok",
    ]
    return "\n".join(lines)


def _asked(job: Job) -> Iterator[str]:
    """What a join without other queries beside it finds."""
    yield from _type(job)
    if job.join.where:
        yield f"where   {job.join.where}"


def _output(job: Job, schema: JoinSchema) -> str:
    names = [column.name for column in result_columns(job, schema)]
    return f"output  {job.output.results}{': ' if names else ''}{', '.join(names)}"


def _query(query: Query, job: Job, schema: JoinSchema) -> Iterator[str]:
    """What a query finds and writes. job: that asks this one alone."""
    yield f"query   {query.name}"
    if query.windows:
        windows = (f"{name} {UNBOUNDED if ns is None else format_duration(ns)}" for name, ns in query.windows.items())
        yield f"  window  {', '.join(windows)}"
    for line in (*_asked(job), _output(job, schema)):
        yield f"  {line}"


def _declustering(job: Job) -> str:
    least = job.cluster.slaves_min
    return (
        f", {least} slaves or more as the load asks for"
        if least is not None and job.balance.policy != NO_POLICY
        else ""
    )


def _sharing(job: Job) -> Iterator[str]:
    """Whether a partition with a frequent key can be too much for one slave."""
    if job.balance.policy == "balance":
        own = "a partition that alone is too much for a slave is shared by several"
        yield f"sharing {f'none: {job.kept_whole}' if job.kept_whole else own}"


def _type(job: Job) -> Iterator[str]:
    """What the results are, unless they are the pairs."""
    if job.join.plan != MWAY:
        own = "each slave follows the plan that is cheapest for its rows"
        yield f"plan    {job.join.plan}: {own if job.join.plan == AUTO else 'a tree of binary joins'}"
    if job.join._replace(plan=MWAY) == Join(where=job.join.where):
        return
    first, second = (stream.name for stream in job.streams)
    if job.join.reduce:
        functions = ", ".join(f"{one.result} = {one.text}" for one in job.join.reduce)
        rest = f" that has partners in {second}" if job.join.type == INNER else ""
        yield f"join    {job.join.type}: each row of {first}{rest}, with {functions}"
        return
    if job.join.match != ALL:
        rest = "" if job.join.type == INNER else f", or alone if there is none in {second}"
        yield f"join    {job.join.type}, {job.join.match}: each row of {first} with its {job.join.match} partner{rest}"
        return
    told = {
        SEMI: f"each row of {first} that has a partner in {second}, once",
        ANTI: f"each row of {first} that has no partner in {second} when its window is over",
        LEFT: f"the pairs, and each row of {first} that has no partner when its window is over",
        RIGHT: f"the pairs, and each row of {second} that has no partner when its window is over",
        FULL: "the pairs, and each row that has no partner when its window is over",
    }
    yield f"join    {job.join.type}: {told[job.join.type]}"


def _pace(job: Job) -> Iterator[str]:
    if job.run.speed == MAX:
        return
    epoch_ns = job.cluster.distribution_epoch_ns
    share = f"as short as communication stays under {job.tuning.communication:.0%}"
    epoch = share if epoch_ns is None else format_duration(epoch_ns)
    yield f"pace    {job.run.speed:g} s of event time per second, distribution epochs {epoch}"


def _checkpoints(job: Job) -> Iterator[str]:
    wanted = job.checkpoint
    when = [f"every {format_duration(wanted.every_ns)}"] if wanted.every_ns is not None else []
    when += [f"every {wanted.epochs} reorganization epochs"] if wanted.epochs is not None else []
    when += [f"{format_duration(wanted.margin_ns)} before the walltime ends"] if wanted.margin_ns is not None else []
    if when:
        yield f"saves   {', '.join(when)}; and at {', '.join(wanted.stops_at)}, which then stops the run"


def _injections(job: Job) -> Iterator[str]:
    inject = job.inject
    ranks = {name: sorted({one.rank for one in getattr(inject, name)}) for name in ("slow", "delay", "memory")}
    ranks |= {name: sorted(getattr(inject, name)) for name in ("fail", "kill")}
    faults = [f"{name} {', '.join(map(str, numbers))}" for name, numbers in ranks.items() if numbers]
    if inject.hash_bits != 64:
        faults.append(f"hash_bits {inject.hash_bits}")
    if faults:
        yield f"inject  on purpose: {'; '.join(faults)}"


def _stream_text(stream: StreamJob) -> str:
    window = UNBOUNDED if stream.window_ns is None else format_duration(stream.window_ns)
    return f"{_source(stream)}; window {window}, lateness {format_duration(stream.lateness_ns)}"


def _source(stream: StreamJob) -> str:
    source = stream.source
    if isinstance(source, SyntheticSource):
        laws = f"{source.arrivals} arrivals, {source.keys} keys"
        end = f"{source.tuples:,} rows" if source.duration_ns is None else format_duration(source.duration_ns)
        return f"synthetic, {end}; {laws}"
    if not isinstance(source, FileSource):
        return f"table, {plural(source.table.num_rows, 'row')}"
    files = expand_files(source.path)
    rows = count_rows(files)
    counted = plural(len(files), f"{file_format(files[0])} file")
    return f"{source.path}: {counted}" + (f", {plural(rows, 'row')}" if rows is not None else "")


def _columns(columns: tuple[Column, ...]) -> str:
    return ", ".join(f"{column.name} ({column.type})" for column in columns)
