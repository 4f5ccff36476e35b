"""Finds the one row that is asked about."""

from __future__ import annotations

import os
from typing import Any, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from mpijoin.config.job import Job
from mpijoin.config.units import listed, plural, show
from mpijoin.errors import JobError
from mpijoin.named import NamedTuple
from mpijoin.verify.inputs import FILE_STRIDE, Clock, Stream, input_rows
from mpijoin.verify.values import canonical, decoded, stored_type

NAMED_MAX = 5  # a message names this many rows or files and counts the rest


class Asked(NamedTuple):
    """Which row is meant, as the user says it: by its number, or by its key and its time. query: which query is meant,
    if the job has several."""

    stream: str | None
    row: str | None = None
    keys: tuple[str, ...] = ()
    time: str | None = None
    query: str | None = None


class InputRow(NamedTuple):
    """A row of an input. row: its number · time, until, mark: in ticks, as in the columns of `input_rows`, None where
    they are null · fate: what becomes of it · values: canonical, of the columns that were read, by name · batch: the
    row as `input_rows` gives it."""

    stream: Stream
    row: int
    time: int | None
    until: int
    fate: int
    mark: int | None
    values: dict[str, Any]
    batch: pa.RecordBatch


def stream_of(asked: Asked, streams: Sequence[Stream]) -> Stream:
    """The stream that is meant. Raises JobError if the job has none of that name, or several and none is named."""
    if asked.stream is None and len(streams) == 1:
        return streams[0]
    for stream in streams:
        if stream.name == asked.stream:
            return stream
    got = "is missing" if asked.stream is None else f"got {show(asked.stream)}"
    raise JobError([f"--stream: {got}, wanted {' or '.join(show(stream.name) for stream in streams)}"])


def find_row(job: Job, stream: Stream, clock: Clock, asked: Asked) -> InputRow:
    """Reads the row from the inputs. Raises JobError if there is no such row, or more than one."""
    if asked.row is None:
        return _row_of_key(job, stream, clock, asked)
    number = row_number(asked.row, stream)
    index, position = divmod(number, FILE_STRIDE)
    if index >= max(1, len(stream.files)):
        files = plural(len(stream.files), "file")
        raise JobError(
            [f"--row: {stream.name} has no row {asked.row}: its file would be number {index} of {files}, from 0"]
        )
    end = index * FILE_STRIDE
    for batch in input_rows(job, stream, clock, index):
        if number < end + batch.num_rows:
            return _input_row(stream, batch, number - end)
        end += batch.num_rows
    rows = end - index * FILE_STRIDE
    where = stream.files[index] if stream.files else stream.name
    raise JobError([f"--row: there is no row {asked.row}: {where} has {plural(rows, 'row')}, got position {position}"])


def row_number(text: str, stream: Stream) -> int:
    """The number that --row means: itself, or FILE:POSITION. Raises JobError if it is neither, or the file is not one
    of the stream's, or not one alone."""
    file, _, last = text.rpartition(":")
    if not (last.isascii() and last.isdecimal()):
        raise JobError([f"--row: got {show(text)}, wanted the row's number from 0, or FILE:POSITION"])
    if not file:
        return int(last)
    if int(last) >= FILE_STRIDE:
        raise JobError([f"--row: got position {last}, which no file has"])
    return _file_number(file, stream) * FILE_STRIDE + int(last)


def _file_number(name: str, stream: Stream) -> int:
    """The file whose path ends in this one; a path that is whole counts more than one that is only an end."""
    wanted = os.path.normpath(name)
    whole = [index for index, path in enumerate(stream.files) if os.path.normpath(path) == wanted]
    found = whole or [index for index, path in enumerate(stream.files) if path.endswith(os.sep + wanted)]
    if len(found) == 1:
        return found[0]
    paths = [stream.files[index] for index in found] or list(stream.files)
    few = ", ".join(paths[:NAMED_MAX]) + (f" and {len(paths) - NAMED_MAX} more" if len(paths) > NAMED_MAX else "")
    what = f"which {plural(len(found), 'file')} of {stream.name} could be" if found else f"{stream.name} reads others"
    raise JobError([f"--row: got file {show(name)}, {what}: {few or 'none, since it is synthetic'}"])


def _row_of_key(job: Job, stream: Stream, clock: Clock, asked: Asked) -> InputRow:
    names = stream.job.key
    if len(asked.keys) != len(names):
        raise JobError(
            [f"--key: got {plural(len(asked.keys), 'value')}, wanted one each for {listed(list(names))}, in this order"]
        )
    assert asked.time is not None
    wanted = {name: read_value("--key", text, stream.fields[name]) for name, text in zip(names, asked.keys)}
    wanted[stream.job.time] = read_value("--time", asked.time, stream.fields[stream.job.time])
    found: list[InputRow] = []
    of_key = 0
    for batch in input_rows(job, stream, clock):
        with_key = rows_like(batch, {stream.column(name): wanted[name] for name in names})
        of_key += with_key.num_rows
        rows = rows_like(with_key, {stream.column(stream.job.time): wanted[stream.job.time]})
        found += [_input_row(stream, rows, index) for index in range(rows.num_rows)]
    if len(found) == 1:
        return found[0]
    if not found:
        others = f"but {plural(of_key, 'row')} of this key with other times" if of_key else "nor one of this key"
        raise JobError([f"--key, --time: {stream.name} has no such row, {others}"])
    rows = [str(one.row) for one in found[:NAMED_MAX]] + ["..."] * (len(found) > NAMED_MAX)
    many = f"{plural(len(found), 'row')} of {stream.name} are like this"
    raise JobError([f"--key, --time: {many}: choose one by --row: {', '.join(rows)}"])


def rows_like(batch: pa.RecordBatch, wanted: dict[str, Any]) -> pa.RecordBatch:
    """The rows of a batch that have these canonical values, none of them null, in these columns."""
    for name, value in wanted.items():
        if not batch.num_rows:
            break
        column = batch[name]
        batch = batch.filter(pc.equal(column, pa.scalar(value, column.type)))
    return batch


def read_value(option: str, text: str, kind: pa.DataType) -> Any:
    """What the user has typed as a canonical value of a column of this type. Raises JobError if it is none."""
    plain = decoded(kind)
    try:
        array = _array_of(text, plain)
        value = canonical(array, stored_type(kind))[0].as_py()
    except (ValueError, OverflowError, pa.ArrowException) as error:
        raise JobError([f"{option}: got {show(text)}, wanted a value of type {plain}"]) from error
    return value


def _array_of(text: str, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        if text.lstrip("-").isdecimal():
            return pa.array([int(text)], pa.int64()).cast(pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            # A time without a zone means UTC, which is how Arrow shows and stores it.
            with_zone = _cast(text, kind)
            return with_zone if with_zone is not None else pa.array([text]).cast(pa.timestamp(kind.unit)).cast(kind)
    if pa.types.is_integer(kind):
        return pa.array([int(text)], kind)
    if pa.types.is_fixed_size_binary(kind):
        return pa.array([text.encode()], kind)
    return pa.array([text]).cast(kind)


def _cast(text: str, kind: pa.DataType) -> pa.Array | None:
    try:
        return pa.array([text]).cast(kind)
    except pa.ArrowException:
        return None


def _input_row(stream: Stream, batch: pa.RecordBatch, index: int) -> InputRow:
    own = batch.slice(index, 1)
    told = own.to_pylist()[0]
    values = {name: told[stream.column(name)] for name in stream.fields}
    return InputRow(stream, told["row"], told["time"], told["until"], told["fate"], told["mark"], values, own)
