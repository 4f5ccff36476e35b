"""Says whether a job can run, by its values and by its inputs' columns and types. Every fault is told at once.

It reads the schemas of the inputs (footers, headers, a CSV file's first block), never their rows.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Callable, Collection, Iterator, Sequence

import pyarrow as pa

from mpijoin.conditions.calls import parse_call
from mpijoin.conditions.kinds import Columns, kinds_of, kinds_of_schema, types_of
from mpijoin.conditions.tree import ConditionError, Kinds, durations_of, parse, parsed_text
from mpijoin.config.columns import StreamColumns, column_faults, find_columns
from mpijoin.config.faults import Fault
from mpijoin.config.job import COUNT, Job, Join, StreamJob
from mpijoin.config.load import read_job
from mpijoin.config.queries import section_of_query
from mpijoin.config.rules import job_faults
from mpijoin.config.units import listed, show
from mpijoin.data.results import all_columns
from mpijoin.data.schema import UNIT_NS, Column, JoinSchema, StreamSchema
from mpijoin.data.types import decoded, is_number, key_kind
from mpijoin.errors import JobError


def load_and_resolve(
    path: str | os.PathLike, overrides: Sequence[str] = (), further: Callable[[Job], Sequence[Fault]] = lambda job: ()
) -> tuple[Job, JoinSchema]:
    """Returns the job in a file, and what `resolve` makes of it. JobError lists the faults of its text, values and
    inputs.

    further: finds other faults of the job, such as those of the place where it is to run.
    """
    job, faults = read_job(path, overrides)
    return job, resolve(job, [*faults, *further(job)])


def resolve(job: Job, known: Sequence[Fault] | None = None) -> JoinSchema:
    """Returns the columns of all streams as the engine will hold them, with only as much payload as the results need.

    known: the faults of the job's own values, which are found here if not given. Raises JobError with them and with
    every fault of the inputs' schemas.
    """
    value_faults = job_faults(job) if known is None else known
    unread = {field for one in value_faults if one.unread for field in one.fields}
    faults = [one.text for one in value_faults]
    streams = [find_columns(job, stream, unread) for stream in job.streams]
    for stream in streams:
        faults += column_faults(stream, unread)
    faults += _key_type_faults(streams)
    faults += _zone_faults(streams)
    faults += _outer_key_faults(job, streams)
    faults += _where_faults(job, streams)
    faults += _aggregate_faults(job, streams, unread)
    faults += _output_faults(job, streams, unread)
    if faults:
        raise JobError(faults)
    return _common_unit(job, [stream.resolved(index in job.alone) for index, stream in enumerate(streams)])


def _key_type_faults(streams: Sequence[StreamColumns]) -> Iterator[str]:
    """The faults of key columns that must match each other. Where one stream has more of them than another, or a wrong
    one, nobody can say which columns those are."""
    sound = [(stream, stream.keys) for stream in streams if stream.keys is not None and _are_sound(stream, stream.keys)]
    for count in dict.fromkeys(len(keys) for _, keys in sound):
        alike = [(stream, keys) for stream, keys in sound if len(keys) == count]
        for at in range(count):
            yield from _unlike_faults([(stream, keys[at]) for stream, keys in alike])


def _outer_key_faults(job: Job, streams: Sequence[StreamColumns]) -> Iterator[str]:
    """The key columns of results have the types of the first stream's. Where they show keys of the second, these must
    be the same."""
    if 1 not in job.alone or len(streams) != 2:
        return
    which = show(next(one.join.type for one in job.each if 1 in one.join.alone))
    for names in zip(*(stream.keys or () for stream in streams)):
        found = [stream.found.get(name) for stream, name in zip(streams, names)]
        known = [column for column in found if column is not None and key_kind(column.type) is not None]
        if len({decoded(column.type) for column in known}) == 2 and len({_compared_as(one) for one in known}) == 1:
            left, right = (f"{show(column.name)} is {column.type}" for column in known)
            where = ", ".join(f"[{stream.stream.section}] key" for stream in streams)
            yield (
                f"{where}: {left} and {right}, wanted one type with type = {which} of a join, whose results "
                "show the keys of both in one column: cast one of them"
            )


def _where_faults(job: Job, streams: Sequence[StreamColumns]) -> Iterator[str]:
    """What is wrong with the condition, and with what is worked out of partners, as far as the columns are known."""
    if not any(one.join.where or one.join.reduce for one in job.each) or len(streams) != 2:
        return
    sections = [section_of_query(name) for name in job.names] or ["join"]
    if any(
        one.payload is None or one.keys is None or not _are_there(one, (*one.payload, *one.keys)) for one in streams
    ):
        # Columns that are missing are told of elsewhere. A text that is no condition is wrong whatever the columns are.
        for section, one in zip(sections, job.each):
            yield from _text_faults(section, one.join.where)
        return
    columns = [
        Columns(
            types_of(one.columns(one.payload)),
            types_of(one.columns(one.keys)),
            one.time_column.type if one.time_column else pa.int64(),
        )
        for one in streams
    ]
    names, kinds = [one.name for one in job.streams], kinds_of(columns)
    for section, one in zip(sections, job.each):
        yield from _expression_faults(section, one.join, names, kinds)


def _text_faults(section: str, where: str) -> Iterator[str]:
    try:
        if where:
            parsed_text(where, "condition")
    except ConditionError as error:
        yield f"[{section}] where: {show(where)}: {error}"


def _expression_faults(section: str, join: Join, names: Sequence[str], kinds: Kinds) -> Iterator[str]:
    try:
        if join.where:
            parse(join.where, names, kinds)
    except ConditionError as error:
        yield f"[{section}] where: {show(join.where)}: {error}"
    for one in join.reduce:
        try:
            parse_call(one.text, names, kinds)
        except ConditionError as error:
            yield f"[{section}] reduce: {one.result} = {show(one.text)}: {error}"


def _are_there(stream: StreamColumns, names: tuple[str, ...]) -> bool:
    return all(name in stream.found for name in names)


def _are_sound(stream: StreamColumns, keys: tuple[str, ...]) -> bool:
    return len({*keys, stream.stream.time}) == len(keys) + 1


def _unlike_faults(keys: Sequence[tuple[StreamColumns, str]]) -> Iterator[str]:
    """The faults of columns that must be equal for rows to join, as far as they are known and can be keys."""
    known = [(stream, stream.found[name]) for stream, name in keys if name in stream.found]
    known = [(stream, column) for stream, column in known if key_kind(column.type) is not None]
    if len({_compared_as(column) for _, column in known}) < 2:
        return
    where = ", ".join(f"[{stream.stream.section}] key" for stream, _ in known)
    sides = listed([f"{show(column.name)} is {column.type}" for _, column in known])
    untold = [column.name for stream, column in known if stream.input.is_csv and column.name not in stream.stream.types]
    hint = f', or say what a column of a CSV file is, such as types = {{{untold[0]} = "string"}}' if untold else ""
    which = "one of them" if len(known) == 2 else "the others"
    yield f"{where}: {sides}, wanted one type; cast {which} first{hint}"


def _compared_as(column: Column) -> tuple:
    """A value that is equal for types whose values can be compared."""
    kind, own = key_kind(column.type), decoded(column.type)
    return (kind, own.unit, own.tz is None) if kind == "timestamp" else (kind,)


def _zone_faults(streams: Sequence[StreamColumns]) -> Iterator[str]:
    known = [(stream.stream.section, stream.time_column.type) for stream in streams if stream.time_column is not None]
    known = [(section, kind) for section, kind in known if pa.types.is_timestamp(kind)]
    if len({kind.tz is None for _, kind in known}) > 1:
        where = ", ".join(f"[{section}] time" for section, _ in known)
        both = "both" if len(known) == 2 else "all"
        got = listed([str(kind) for _, kind in known])
        yield f"{where}: got {got}, wanted {both} with a time zone or {both} without"


def _output_faults(job: Job, streams: Sequence[StreamColumns], unread: Collection[str]) -> Iterator[str]:
    """Looks at names only: which columns results have depends on what columns are called, not on their types."""
    for section, one in zip([section_of_query(name) for name in job.names] or ["output"], job.each):
        if one.output.results != COUNT and f"{section}.columns" not in unread and streams:
            yield from _result_column_faults(one, section, streams)


def _result_column_faults(job: Job, section: str, streams: Sequence[StreamColumns]) -> Iterator[str]:
    times = Counter(column.name for column in all_columns(job, JoinSchema(tuple(map(_by_name, streams)), "ns")))
    open_ended = [f"{one.stream.name}_" for one in streams if one.payload is None]
    open_ended += ["key"] if streams[0].keys is None else []
    for name in times if job.output.columns is None else job.output.columns:
        if name not in times and not name.startswith(tuple(open_ended)):
            yield f"[{section}] columns: no column {show(name)}, results have {', '.join(times)}"
        elif times[name] > 1:
            called = f"{times[name]} columns would be called {show(name)}"
            yield f"[{section}] columns: {called}, rename the input's or leave it out"


def _aggregate_faults(job: Job, streams: Sequence[StreamColumns], unread: Collection[str]) -> Iterator[str]:
    """The faults of the columns that an aggregate reads, as far as they are known."""
    if len(streams) != 1 or streams[0].payload is None or "aggregate.columns" in unread:
        return
    stream, payload = streams[0], streams[0].payload
    for one in job.aggregate.columns:
        where = f"[aggregate] columns: {one.result} = {show(one.text)}"
        if one.column is not None and one.column not in payload:
            told = ", ".join(payload) or "none"
            yield f"{where}: no column {show(one.column)}, [{stream.stream.section}] columns are {told}"
        elif one.column is not None and one.name != "count":
            for column in stream.columns((one.column,)):
                if not is_number(column.type):
                    wanted = "wanted integers, float or double; cast it"
                    yield f"{where}: column {show(one.column)} is {column.type}, {wanted}"


def _by_name(stream: StreamColumns) -> StreamSchema:
    """The stream's columns, without types."""
    names = (stream.keys, stream.payload)
    keys, payload = (tuple(Column(name, pa.null()) for name in dict.fromkeys(some or ())) for some in names)
    return StreamSchema(stream.stream.name, Column(stream.stream.time, pa.null()), 1, keys, False, payload)


def _common_unit(job: Job, streams: Sequence[StreamSchema]) -> JoinSchema:
    """Finds the coarsest unit in which all time columns, windows and latenesses are whole, and scales the streams to
    it."""
    own = [_time_unit(stream, schema) for stream, schema in zip(job.streams, streams)]
    spans = [ns for stream in job.streams for ns in (stream.window_ns, stream.lateness_ns)]
    spans += [window_ns for query in job.queries for window_ns in query.windows.values()]
    spans += _durations(job, streams)
    spans += [job.aggregate.emit_ns, job.aggregate.history.span_ns if job.aggregate.history else None]
    durations = [ns for ns in spans if ns is not None]
    exact = [UNIT_NS[unit] for unit in own] + durations
    unit = next(unit for unit in UNIT_NS if all(ns % UNIT_NS[unit] == 0 for ns in exact))
    scaled = (stream._replace(scale=UNIT_NS[each] // UNIT_NS[unit]) for stream, each in zip(streams, own))
    return JoinSchema(tuple(scaled), unit)


def _durations(job: Job, streams: Sequence[StreamSchema]) -> list[int]:
    """Those in the condition and in functions, which have no faults."""
    names, kinds = [stream.name for stream in streams], kinds_of_schema(JoinSchema(tuple(streams), "ns"))
    joins = [one.join for one in job.each]
    nodes = [parse(join.where, names, kinds) for join in joins if join.where]
    calls = [parse_call(one.text, names, kinds) for join in joins for one in join.reduce]
    nodes += [node for call in calls for node in call.nodes]
    return [ns for node in nodes for ns in durations_of(node)]


def _time_unit(stream: StreamJob, schema: StreamSchema) -> str:
    return stream.time_unit or str(schema.time.type.unit)  # where both say it, they agree
