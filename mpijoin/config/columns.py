"""Which columns a stream's input has for each field of the job, and what is wrong with each.

Every column is looked up by itself. If nothing can be said about one, because its field could not be read or the input
lacks it, the others are checked all the same.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Collection, Iterator, Mapping

import pyarrow as pa
from pyarrow import types

from mpijoin.conditions.tree import names_in
from mpijoin.config.fields import PAYLOAD_BYTES_MAX
from mpijoin.config.job import COUNT, FileSource, Job, StreamJob, SyntheticSource
from mpijoin.config.queries import section_of_query
from mpijoin.config.rules import SYNTHETIC_KEY, SYNTHETIC_PAYLOAD, SYNTHETIC_TIME
from mpijoin.config.units import COLUMN_TYPES, show
from mpijoin.data.files import CSV, expand_files, file_format, file_schema, joint_schema
from mpijoin.data.schema import Column, StreamSchema
from mpijoin.data.types import WORD_KINDS, is_payload, key_advice, key_kind
from mpijoin.errors import InputError
from mpijoin.named import NamedTuple


@dataclass(frozen=True)
class Input:
    """What could be read of a stream's input. `files` are (path, schema or why there is none), in the order of the
    stream.

    A table or a synthetic stream counts as one file.
    """

    files: tuple[tuple[str, pa.Schema | InputError], ...]

    @property
    def first(self) -> int | None:
        """The file that says what the columns are: the first that can be read."""
        return next((at for at, (_, found) in enumerate(self.files) if isinstance(found, pa.Schema)), None)

    @property
    def is_csv(self) -> bool:
        path = "" if self.first is None else self.files[self.first][0]
        return bool(path) and file_format(path) == CSV

    @cached_property
    def schema(self) -> pa.Schema | None:
        """The schema of the first file. In CSV files, a column without values there has its type from the next file
        with a value."""
        if not self.is_csv:
            return None if self.first is None else self.files[self.first][1]
        return joint_schema([found for _, found in self.files if isinstance(found, pa.Schema)])


class StreamColumns(NamedTuple):
    """A stream's columns: their names, as far as job and input say them, and for each name its column, if there is one.

    time, keys, payload: the names. None means that nothing says them: the field could not be read, or it means all
    columns of an input that could not be read. kept: the payload that results need; no other is read or sent. found:
    name -> Column.
    """

    stream: StreamJob
    input: Input
    time: str | None
    keys: tuple[str, ...] | None
    payload: tuple[str, ...] | None
    kept: tuple[str, ...] | None
    found: dict[str, Column]

    @property
    def needed(self) -> list[Column]:
        """The columns that are read, as far as they exist."""
        return self.columns(tuple(dict.fromkeys((*self.time_names, *(self.keys or ()), *(self.kept or ())))))

    def columns(self, names: tuple[str, ...] | None) -> list[Column]:
        """The columns of these names, as far as they exist."""
        return [self.found[name] for name in names or () if name in self.found]

    @property
    def time_names(self) -> tuple[str, ...]:
        """The name of the time column, if something says it."""
        return () if self.time is None else (self.time,)

    @property
    def time_column(self) -> Column | None:
        return next(iter(self.columns(self.time_names)), None)

    def resolved(self, keeps_keyless: bool) -> StreamSchema:
        """The stream as the engine knows it, with scale 1; every column must have been found. keeps_keyless: whether
        results show rows with a null key."""
        time, keys = self.time_column, tuple(self.columns(self.keys))
        assert time is not None
        hashed = len(keys) > 1 or key_kind(keys[0].type) not in WORD_KINDS
        null_keys = keeps_keyless and len(keys) > 1
        return StreamSchema(self.stream.name, time, 1, keys, hashed, tuple(self.columns(self.kept)), null_keys)


def find_columns(job: Job, stream: StreamJob, unread: Collection[str]) -> StreamColumns:
    """Finds the stream's columns.

    unread: fields ("left.key") that are at their defaults because what the job says of them could not be read.
    """

    def read(field: str) -> bool:
        return f"{stream.section}.{field}" not in unread

    data = read_input(stream) if read("path") else Input(())
    schema = data.schema
    time = stream.time if read("time") else None
    keys = stream.key if read("key") else None
    told = read("columns") and read("payload_bytes")
    payload = stream.columns if told else None
    if payload is None and schema is not None and told:
        payload = tuple(name for name in dict.fromkeys(schema.names) if name not in (time, *(keys or ())))
    names = {time, *(keys or ()), *(payload or ())}
    found = {} if schema is None else _columns_once(schema, names)
    if data.is_csv:
        found = {name: column for name, column in found.items() if read("types") and _is_told(stream, column)}
    return StreamColumns(stream, data, time, keys, payload, _kept(job, stream, payload, unread), found)


def _columns_once(schema: pa.Schema, names: Collection[str | None]) -> dict[str, Column]:
    """The columns of these names that the schema has exactly once."""
    counted = Counter(schema.names)
    return {
        field.name: Column(field.name, field.type)
        for field in schema
        if field.name in names and counted[field.name] == 1
    }


def _is_told(stream: StreamJob, column: Column) -> bool:
    """Whether the job, or the first rows of a CSV file, say which type the column has."""
    given = stream.types.get(column.name)
    return (
        given in COLUMN_TYPES if given is not None else not (types.is_null(column.type) or types.is_binary(column.type))
    )


def _kept(
    job: Job, stream: StreamJob, payload: tuple[str, ...] | None, unread: Collection[str]
) -> tuple[str, ...] | None:
    if payload is None:
        return () if job.counts_only else None
    shown: set[str] = set()
    read = {one.column for one in job.aggregate.columns}
    for section, one in zip([section_of_query(name) for name in job.names] or ["output"], job.each):
        if one.output.results != COUNT:
            if one.output.columns is None or f"{section}.columns" in unread:
                return payload
            shown.update(one.output.columns)
        texts = [one.join.where, *(function.text for function in one.join.reduce)]
        read |= {column for text in texts for owner, column in names_in(text) if owner == stream.name}
    return tuple(name for name in payload if name in read or f"{stream.name}_{name}" in shown)


def read_input(stream: StreamJob) -> Input:
    """Returns the columns of every file of the stream. It never raises for a file: an error stands in the place of its
    schema."""
    source = stream.source
    if isinstance(source, SyntheticSource):
        return Input((("", synthetic_schema(source)),))
    if not isinstance(source, FileSource):
        return Input((("", source.table.schema),))
    if not source.path:
        return Input(())
    try:
        paths = expand_files(source.path)
    except InputError as error:
        return Input(((source.path, error),))
    return Input(tuple((path, _schema_or_error(path, stream.types)) for path in paths))


def _schema_or_error(path: str, given: Mapping[str, str]) -> pa.Schema | InputError:
    try:
        return file_schema(path, given)
    except InputError as error:
        return error


def synthetic_schema(source: SyntheticSource) -> pa.Schema:
    """ts timestamp[ns], key int64, and payload if there is any."""
    fields = [(SYNTHETIC_TIME, pa.timestamp("ns")), (SYNTHETIC_KEY, pa.int64())]
    width = min(source.payload_bytes, PAYLOAD_BYTES_MAX)  # more is a fault of its own, and Arrow may have no such type
    payload = [(SYNTHETIC_PAYLOAD, pa.binary(width))] if width > 0 else []
    return pa.schema(fields + payload)


def column_faults(columns: StreamColumns, unread: Collection[str]) -> Iterator[str]:
    """Everything that is wrong with one stream's input and columns."""
    yield from _missing_faults(columns)
    yield from _time_faults(columns, f"{columns.stream.section}.time_unit" not in unread)
    yield from _type_faults(columns)
    if columns.input.is_csv:
        if f"{columns.stream.section}.types" not in unread:
            yield from _csv_faults(columns, columns.input.schema)
    elif columns.stream.types and columns.input.first is not None and isinstance(columns.stream.source, FileSource):
        form = file_format(columns.input.files[columns.input.first][0])
        yield f"[{columns.stream.section}] types: is for CSV files; the input is {form}, which has types of its own"
    yield from _file_faults(columns)


def _csv_faults(columns: StreamColumns, schema: pa.Schema) -> Iterator[str]:
    """Faults of columns that are needed, but whose type neither the job nor the first rows say."""
    section, given = columns.stream.section, columns.stream.types
    wanted = {"time": columns.time_names, "key": columns.keys or (), "columns": columns.kept or ()}
    for field, name in ((field, name) for field, names in wanted.items() for name in names):
        if name in given or schema.names.count(name) != 1:
            continue
        if types.is_null(schema.field(name).type):
            advice = f'say what it is, such as types = {{{name} = "{"int64" if field == "time" else "string"}"}}'
            yield f"[{section}] {field}: column {show(name)} has no value in the first rows of any file; {advice}"
        for path, found in columns.input.files:
            if (
                isinstance(found, pa.Schema)
                and found.names.count(name) == 1
                and types.is_binary(found.field(name).type)
            ):
                from mpijoin.data.csv_text import utf8_problem

                yield f"[{section}] path: {path}: {utf8_problem(path, name)}"


def _missing_faults(columns: StreamColumns) -> Iterator[str]:
    """Faults of names that the input does not have, or has more than once."""
    schema, name = columns.input.schema, columns.stream.section
    if schema is None:
        return
    counted = Counter(schema.names)
    asked = {"time": columns.time_names, "key": columns.keys, "columns": columns.payload}
    asked["types"] = tuple(columns.stream.types)
    for field, names in asked.items():
        for each in dict.fromkeys(names or ()):
            if not counted[each]:
                yield f"[{name}] {field}: no column {show(each)}, the input has {', '.join(schema.names)}"
    for each in dict.fromkeys(one for names in asked.values() for one in names or ()):
        if counted[each] > 1:
            yield f"[{name}] path: the input has {counted[each]} columns named {show(each)}, wanted one"


def _time_faults(columns: StreamColumns, has_unit: bool) -> Iterator[str]:
    """has_unit: whether what the job says of time_unit could be read."""
    time, unit, name = columns.time_column, columns.stream.time_unit, columns.stream.section
    if time is None:
        return
    where = f"[{name}] time: column {show(time.name)}"
    if pa.types.is_timestamp(time.type):
        if has_unit and unit not in (None, time.type.unit):
            yield f"[{name}] time_unit: got {show(unit)}, but {show(time.name)} is {time.type}"
    elif not pa.types.is_integer(time.type):
        yield f"{where} is {time.type}, wanted a timestamp or an integer with time_unit"
    elif has_unit and unit is None:
        yield f'{where} is {time.type}, wanted also time_unit = "s", "ms", "us" or "ns"'


def _type_faults(columns: StreamColumns) -> Iterator[str]:
    name = columns.stream.section
    for column in columns.columns(columns.keys):
        if column.name != columns.time and key_kind(column.type) is None:
            where = f"[{name}] key: column {show(column.name)}"
            yield f"{where} is {column.type}, which cannot be a key: {key_advice(column.type)}"
    for column in columns.columns(columns.kept):
        if not is_payload(column.type):
            yield (
                f"[{name}] columns: {show(column.name)} is {column.type}, wanted fixed width above 0, string or "
                f"binary; name the columns to keep, as in columns = [...], or cast it"
            )


def _file_faults(columns: StreamColumns) -> Iterator[str]:
    """Faults of files that cannot be read, and of columns that later files lack or have in another type than the
    first."""
    files, first = columns.input.files, columns.input.first
    called = "the first file" if not first else os.path.basename(files[first][0])
    for at, (path, found) in enumerate(files):
        where = f"[{columns.stream.section}] path: {path}"
        if isinstance(found, InputError):
            yield f"[{columns.stream.section}] path: {found}"
        elif at != first:
            for column in columns.needed:
                yield from _difference(where, column, found, called, file_format(path) == CSV)


def _difference(where: str, column: Column, found: pa.Schema, first: str, is_csv: bool) -> Iterator[str]:
    if found.names.count(column.name) != 1:
        count = found.names.count(column.name) or "no"
        yield f"{where}: got {count} column {show(column.name)}, {first} has one"
    elif is_csv and not _reads_as(found.field(column.name).type, column.type):
        told = f"has values that are {found.field(column.name).type}, in {first} {column.type}"
        yield (
            f'{where}: column {show(column.name)} {told}; say what it is, such as types = {{{column.name} = "string"}}'
        )
    elif not is_csv and found.field(column.name).type != column.type:
        yield f"{where}: column {show(column.name)} is {found.field(column.name).type}, in {first} {column.type}"


def _reads_as(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a column that looks like the type `found` in one CSV file may be read as the type that the first file
    suggests, since CSV files have no types of their own. Text is no number, and a number with decimals is no whole
    number; everything else may fit."""
    if types.is_integer(wanted) or types.is_floating(wanted):
        return not types.is_string(found) and (types.is_floating(wanted) or not types.is_floating(found))
    return True
