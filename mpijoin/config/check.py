"""Whether a job can run: its values, and its inputs' columns and types; every fault at once.

Reads the schemas of the inputs (footers, headers, a CSV file's first block), never their rows.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from typing import Iterator, Sequence

import pyarrow as pa

from mpijoin.config.fields import STREAM_FIELDS, SYNTHETIC_FIELDS
from mpijoin.config.job import FileSource, Job, StreamJob, SyntheticSource
from mpijoin.config.load import read_job
from mpijoin.config.rules import SYNTHETIC_KEY, SYNTHETIC_PAYLOAD, SYNTHETIC_TIME, Fault, job_faults
from mpijoin.config.units import show
from mpijoin.data.files import CSV, expand_files, file_format, file_schema
from mpijoin.data.results import all_columns
from mpijoin.data.schema import UNIT_NS, Column, JoinSchema, StreamSchema
from mpijoin.data.types import WORD_KINDS, decoded, is_payload, key_advice, key_kind
from mpijoin.errors import InputError, JobError

# Without sound values of these there are no columns to look for.
SHAPING_FIELDS = {"path", "time", "key", "payload_bytes"}


def load_and_resolve(path: str | os.PathLike, overrides: Sequence[str] = ()) -> tuple[Job, JoinSchema]:
    """The job in a file, and what `resolve` makes of it; JobError lists the faults of its text, values and inputs."""
    job, faults = read_job(path, overrides)
    return job, resolve(job, faults)


def resolve(job: Job, known: Sequence[Fault] | None = None) -> JoinSchema:
    """The columns of both streams, as the engine will hold them; payload only as far as the results need it.

    known: the faults of the job's own values, found here if not given. Raises JobError with them and with every fault of
    the inputs' schemas.
    """
    value_faults = job_faults(job) if known is None else known
    involved = {field for one in value_faults for field in one.fields}
    faults = [one.text for one in value_faults]
    streams = [None if _is_unclear(stream, involved) else _stream_schema(stream, faults) for stream in job.streams]
    projected = [schema and _project(job, schema) for schema in streams]
    for stream, schema in zip(job.streams, projected):
        if schema is not None:
            faults += _type_faults(stream, schema)
            faults += _file_faults(stream, schema)
    if None not in streams:
        faults += _key_pair_faults(*streams)
        faults += _zone_faults(*streams)
        faults += _output_faults(job, JoinSchema(*streams, "ns"))
    if faults:
        raise JobError(faults)
    return _common_unit(job, *projected)


def _is_unclear(stream: StreamJob, involved: set[str]) -> bool:
    """Whether faults leave open which columns the stream should have; a field of unknown name may be any of them."""
    own = {field.partition(".")[2] for field in involved if field.startswith(f"{stream.name}.")}
    return bool(own & SHAPING_FIELDS or own - {field.name for field in STREAM_FIELDS + SYNTHETIC_FIELDS})


def _stream_schema(stream: StreamJob, faults: list[str]) -> StreamSchema | None:
    """The stream's columns with all its payload and scale 1; None, with faults added, when columns are missing."""
    try:
        schema = _source_schema(stream)
    except InputError as error:
        faults.append(f"[{stream.name}] path: {error}")
        return None
    found = len(faults)
    payload = stream.columns if stream.columns is not None else _other_names(stream, schema)
    for field, names in (("time", (stream.time,)), ("key", stream.key), ("columns", payload)):
        faults += (_missing(stream, field, name, schema) for name in dict.fromkeys(names) if name not in schema.names)
    for name, times in Counter(schema.names).items():
        if times > 1 and name in (stream.time, *stream.key, *payload):
            faults.append(f"[{stream.name}] path: the input has {times} columns named {show(name)}, wanted one")
    if len(faults) > found:
        return None
    time, *others = (Column(name, schema.field(name).type) for name in (stream.time, *stream.key, *payload))
    keys, payload = tuple(others[: len(stream.key)]), tuple(others[len(stream.key) :])
    hashed = len(keys) > 1 or key_kind(keys[0].type) not in WORD_KINDS
    return StreamSchema(stream.name, time, 1, keys, hashed, payload)


def _source_schema(stream: StreamJob) -> pa.Schema:
    source = stream.source
    if isinstance(source, FileSource):
        return file_schema(expand_files(source.path)[0])
    if isinstance(source, SyntheticSource):
        return synthetic_schema(source)
    return source.table.schema


def synthetic_schema(source: SyntheticSource) -> pa.Schema:
    """ts timestamp[ns], key int64, and payload if there is any."""
    fields = [(SYNTHETIC_TIME, pa.timestamp("ns")), (SYNTHETIC_KEY, pa.int64())]
    payload = [(SYNTHETIC_PAYLOAD, pa.binary(source.payload_bytes))] if source.payload_bytes > 0 else []
    return pa.schema(fields + payload)


def _other_names(stream: StreamJob, schema: pa.Schema) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys(schema.names) if name not in (stream.time, *stream.key))


def _missing(stream: StreamJob, field: str, name: str, schema: pa.Schema) -> str:
    return f"[{stream.name}] {field}: no column {show(name)}, the input has {', '.join(schema.names)}"


def _type_faults(stream: StreamJob, schema: StreamSchema) -> Iterator[str]:
    yield from _time_faults(stream, schema.time)
    for column in schema.keys:
        if key_kind(column.type) is None:
            where = f"[{stream.name}] key: column {show(column.name)}"
            yield f"{where} is {column.type}, which cannot be a key: {key_advice(column.type)}"
    for column in schema.payload:
        if not is_payload(column.type):
            yield (
                f"[{stream.name}] columns: {show(column.name)} is {column.type}, wanted fixed width, string or binary; "
                f"name the columns to keep, as in columns = [...], or cast it"
            )


def _time_faults(stream: StreamJob, time: Column) -> Iterator[str]:
    where = f"[{stream.name}] time: column {show(time.name)}"
    if pa.types.is_timestamp(time.type):
        if stream.time_unit not in (None, time.type.unit):
            yield f"[{stream.name}] time_unit: got {show(stream.time_unit)}, but {show(time.name)} is {time.type}"
    elif not pa.types.is_integer(time.type):
        yield f"{where} is {time.type}, wanted a timestamp or an integer with time_unit"
    elif stream.time_unit is None:
        yield f'{where} is {time.type}, wanted also time_unit = "s", "ms", "us" or "ns"'


def _key_pair_faults(left: StreamSchema, right: StreamSchema) -> Iterator[str]:
    for pair in zip(left.keys, right.keys):
        kinds = [key_kind(column.type) for column in pair]
        if None not in kinds and not _comparable(pair, kinds):
            sides = " and ".join(f"{show(column.name)} is {column.type}" for column in pair)
            yield f"[left] key, [right] key: {sides}, wanted one type; cast one of them first"


def _comparable(pair: tuple[Column, Column], kinds: list[str]) -> bool:
    if kinds[0] != kinds[1]:
        return False
    if kinds[0] != "timestamp":
        return True
    left, right = (decoded(column.type) for column in pair)
    return left.unit == right.unit and (left.tz is None) == (right.tz is None)


def _zone_faults(left: StreamSchema, right: StreamSchema) -> Iterator[str]:
    types = [stream.time.type for stream in (left, right)]
    if all(map(pa.types.is_timestamp, types)) and (types[0].tz is None) != (types[1].tz is None):
        yield f"[left] time, [right] time: got {types[0]} and {types[1]}, wanted both with a time zone or both without"


def _output_faults(job: Job, schema: JoinSchema) -> Iterator[str]:
    if job.output.results == "count":
        return
    times = Counter(column.name for column in all_columns(schema))
    for name in times if job.output.columns is None else job.output.columns:
        if name not in times:
            yield f"[output] columns: no column {show(name)}, results have {', '.join(times)}"
        elif times[name] > 1:
            called = f"{times[name]} columns would be called {show(name)}"
            yield f"[output] columns: {called}, rename the input's or leave it out"


def _project(job: Job, schema: StreamSchema) -> StreamSchema:
    """The stream with only the payload that results need: what is not kept is neither read nor sent."""
    if job.output.results == "count":
        return replace(schema, payload=())
    if job.output.columns is None:
        return schema
    wanted = job.output.columns
    return replace(schema, payload=tuple(c for c in schema.payload if f"{schema.name}_{c.name}" in wanted))


def _file_faults(stream: StreamJob, schema: StreamSchema) -> Iterator[str]:
    """Columns that later files of the stream lack or hold in another type than the first."""
    if not isinstance(stream.source, FileSource):
        return
    needed = (schema.time, *schema.keys, *schema.payload)
    for path in expand_files(stream.source.path)[1:]:
        try:
            found = file_schema(path)
        except InputError as error:
            yield f"[{stream.name}] path: {error}"
            continue
        for column in needed:
            yield from _column_faults(f"[{stream.name}] path: {path}", column, found, file_format(path) == CSV)


def _column_faults(where: str, column: Column, found: pa.Schema, is_csv: bool) -> Iterator[str]:
    if found.names.count(column.name) != 1:
        count = found.names.count(column.name) or "no"
        yield f"{where}: got {count} column {show(column.name)}, the first file has one"
    # A CSV file has no types of its own: the reader asks of each what the first one suggests.
    elif not is_csv and found.field(column.name).type != column.type:
        yield f"{where}: column {show(column.name)} is {found.field(column.name).type}, in the first file {column.type}"


def _common_unit(job: Job, left: StreamSchema, right: StreamSchema) -> JoinSchema:
    """The coarsest unit in which both time columns, windows and latenesses are whole; streams scaled to it."""
    own = [_time_unit(stream, schema) for stream, schema in zip(job.streams, (left, right))]
    durations = [ns for stream in job.streams for ns in (stream.window_ns, stream.lateness_ns)]
    exact = [UNIT_NS[unit] for unit in own] + durations
    unit = next(unit for unit in UNIT_NS if all(ns % UNIT_NS[unit] == 0 for ns in exact))
    scaled = [replace(s, scale=UNIT_NS[each] // UNIT_NS[unit]) for s, each in zip((left, right), own)]
    return JoinSchema(*scaled, unit)


def _time_unit(stream: StreamJob, schema: StreamSchema) -> str:
    return schema.time.type.unit if pa.types.is_timestamp(schema.time.type) else stream.time_unit
