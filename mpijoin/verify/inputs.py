"""Loads the input streams into DuckDB: one row per input row, with its time, key, payload and whether it joins."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Iterator, Sequence

import numpy as np
import pyarrow as pa

from mpijoin.conditions.tree import names_in
from mpijoin.config.job import COUNT, Aggregate, FileSource, Job, StreamJob, SyntheticSource
from mpijoin.config.load import load_job, read_job
from mpijoin.data.files import CSV, IPC, decoding, expand_files, file_format, stream_schema
from mpijoin.data.schema import UNIT_NS, Column
from mpijoin.errors import InputError
from mpijoin.verify.values import canonical, decoded, number, sql_type, stored_type

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

JOINS, LATE, NULL_TIME, NULL_KEY, KEYLESS = 0, 1, 2, 3, 4  # what becomes of a row: the column `fate`
# KEYLESS: a null key, in a stream whose rows without partner are results.
FILE_STRIDE = 1 << 40  # row = file index * 2^40 + position
BATCH_ROWS = 1 << 16
CSV_BLOCK_BYTES = 1 << 27  # longer than any record
INSERT_ROWS = 1 << 19  # one statement per half a million rows: its cost vanishes and memory stays small
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class Stream:
    """One input stream as verify reads it.

    `index` counts the job's streams; `fields` maps the columns read to their types; `time_ns` nanoseconds of one unit
    of the time column.
    """

    index: int
    job: StreamJob
    files: tuple[str, ...]  # () for a synthetic stream
    fields: dict[str, pa.DataType]
    time_ns: int
    measured: tuple[str, ...] = ()  # columns of floats that an aggregate reads

    @property
    def name(self) -> str:
        return self.job.name

    @property
    def table(self) -> str:
        """The name of its DuckDB table."""
        return f"stream_{self.index}"

    @property
    def payload(self) -> tuple[str, ...]:
        """The payload columns read, in the job's order."""
        if self.job.columns is not None:
            return tuple(name for name in self.job.columns if name in self.fields)
        return tuple(name for name in self.fields if name != self.job.time and name not in self.job.key)

    def column(self, name: str) -> str:
        """The name of an input column's values in the DuckDB table."""
        return f"c{list(self.fields).index(name)}"

    def number(self, name: str) -> str:
        """The name of a column's values as numbers there: floats stand beside their bits."""
        return f"v{self.measured.index(name)}" if name in self.measured else self.column(name)


def load_run_job(run_path: str | os.PathLike, command: str) -> Job:
    """Reads the job of a run. Raises JobError if it cannot be read, and InputError if rows came from a Python program.
    command: what needs them again."""
    path = Path(run_path) / "job.toml"
    job, _ = read_job(path, ())
    gone = [one.name for one in job.streams if isinstance(one.source, FileSource) and not one.source.path]
    if gone:
        raise InputError(
            f"{run_path}: the rows of {', '.join(gone)} came from a Python program, and are not there any more:"
            f" {command} reads the streams again, and needs files or synthetic ones"
        )
    return load_job(path)


@dataclass(frozen=True)
class Clock:
    """The common unit of all streams, in whose ticks everything else is given. window: None is unbounded."""

    tick_ns: int
    window: tuple[int | None, ...]
    lateness: tuple[int, ...]


def describe_stream(index: int, job: StreamJob, each: Sequence[Job]) -> Stream:
    """Find the files of a stream and the columns that results show or are made of. InputError: gone or unreadable.

    each: the jobs of all queries, or the one job.
    """
    read = {one.column for asked in each for one in asked.aggregate.columns if one.column is not None}
    texts = [text for asked in each for text in (asked.join.where, *(one.text for one in asked.join.reduce))]
    named = {one for text in texts for one in names_in(text)}
    read |= {column for owner, column in named if owner == job.name and column != "time"}
    if isinstance(job.source, SyntheticSource):
        fields = {"ts": pa.timestamp("ns"), "key": pa.int64()}
        if job.source.payload_bytes and _is_shown(f"{job.name}_payload", each):
            fields["payload"] = pa.binary(job.source.payload_bytes)
        return Stream(index, job, (), fields, 1)
    if not isinstance(job.source, FileSource):
        raise InputError(f"the {job.name} stream was a table in memory: there is no input left to verify against")
    files = tuple(expand_files(job.source.path))
    found = stream_schema(files, job.types)
    keys_and_time = {job.time, *job.key}
    payload = job.columns if job.columns is not None else [name for name in found.names if name not in keys_and_time]
    wanted = keys_and_time | read | {name for name in payload if _is_shown(f"{job.name}_{name}", each)}
    fields = {field.name: field.type for field in found if field.name in wanted}
    lost = sorted(wanted - fields.keys())
    if lost:
        raise InputError(f"{files[0]} has no column {', '.join(lost)}: the input has changed since the run")
    kind = fields[job.time]
    unit = kind.unit if pa.types.is_timestamp(kind) else job.time_unit
    if unit is None:
        raise InputError(f"{files[0]}: column {job.time} is {kind} now: the input has changed since the run")
    measured = tuple(name for name in fields if name in read and pa.types.is_floating(decoded(fields[name])))
    return Stream(index, job, files, fields, UNIT_NS[unit], measured)


def _is_shown(result_column: str, each: Sequence[Job]) -> bool:
    outputs = (one.output for one in each if one.output.results != COUNT)
    return any(output.columns is None or result_column in output.columns for output in outputs)


def common_clock(streams: tuple[Stream, ...], aggregate: Aggregate, durations: Sequence[int] = ()) -> Clock:
    """The coarsest unit in which all time columns, windows and latenesses are whole numbers."""
    windows = [stream.job.window_ns for stream in streams]
    latenesses = [stream.job.lateness_ns for stream in streams]
    bounded = [window for window in windows if window is not None]
    own = [*durations, aggregate.emit_ns, aggregate.history.span_ns if aggregate.history else None]
    spans_ns = [stream.time_ns for stream in streams] + bounded + latenesses + [ns for ns in own if ns is not None]
    tick_ns = max(unit_ns for unit_ns in UNIT_NS.values() if all(span_ns % unit_ns == 0 for span_ns in spans_ns))
    waits = tuple(None if window is None else window // tick_ns for window in windows)
    return Clock(tick_ns, waits, tuple(span // tick_ns for span in latenesses))


def load_stream(database: DuckDBPyConnection, job: Job, stream: Stream, clock: Clock) -> None:
    """Fill the stream's table with all its rows, in the columns of `input_rows`."""
    make_table(database, stream)
    insert(database, stream.table, input_rows(job, stream, clock))


def make_table(database: DuckDBPyConnection, stream: Stream) -> None:
    """Make the stream's table, with the columns of `input_rows` and no row."""
    head = "row BIGINT, time BIGINT, until BIGINT, fate TINYINT, mark BIGINT"
    columns = "".join(f", {stream.column(name)} {sql_type(stored_type(kind))}" for name, kind in stream.fields.items())
    columns += "".join(f", {stream.number(name)} DOUBLE" for name in stream.measured)
    database.execute(f"CREATE TABLE {stream.table} ({head}{columns})")


def insert(database: DuckDBPyConnection, table: str, batches: Iterator[pa.RecordBatch]) -> None:
    """Append batches to a table of the same columns, in bounded pieces and one transaction."""
    database.execute("BEGIN")
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(one.num_rows for one in waiting) >= INSERT_ROWS:
            _insert_now(database, table, waiting)
            waiting = []
    if waiting:
        _insert_now(database, table, waiting)
    database.execute("COMMIT")


def _insert_now(database: DuckDBPyConnection, table: str, batches: list[pa.RecordBatch]) -> None:
    database.register("incoming", pa.Table.from_batches(batches))
    database.execute(f"INSERT INTO {table} SELECT * FROM incoming")
    database.unregister("incoming")


def input_rows(job: Job, stream: Stream, clock: Clock, only: int | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of a stream in bounded pieces: row, time (ticks), until (the last time for which it waits for partners),
    fate, mark (watermark in ticks, or null), the columns c0 …, and the numbers v0 …

    only: the number of the one file to read; None: all of them.
    """
    kinds = {name: stored_type(kind) for name, kind in stream.fields.items()}
    for index, batches in enumerate(_each_file(job, stream)):
        if only not in (None, index):
            continue
        marker = _Marker(clock.lateness[stream.index], stream.index in job.alone)
        position = index * FILE_STRIDE
        for batch in batches:
            row = np.arange(position, position + batch.num_rows)
            position += batch.num_rows
            time, no_time = _ticks(batch[stream.job.time], stream.time_ns // clock.tick_ns, stream)
            no_key = np.zeros(batch.num_rows, bool)
            for name in stream.job.key:
                no_key |= np.asarray(batch[name].is_null())
            fate, mark = marker.judge(time, no_time, no_key)
            head = [row, pa.array(time, mask=no_time), _until(time, clock.window[stream.index]), fate, mark]
            columns = [canonical(batch[name], kind) for name, kind in kinds.items()]
            columns += [number(batch[name]) for name in stream.measured]
            names = ["row", "time", "until", "fate", "mark", *map(stream.column, kinds)]
            names += map(stream.number, stream.measured)
            yield pa.RecordBatch.from_arrays([pa.array(array) for array in head] + columns, names)


def _ticks(column: pa.Array, scale: int, stream: Stream) -> tuple[np.ndarray, np.ndarray]:
    """Times in ticks (0 where null) and the mask of nulls. InputError: a time that the common unit cannot hold."""
    no_time = np.asarray(column.is_null())
    time = np.asarray(column.cast(pa.int64()).fill_null(0))
    if scale > 1 and len(time) and max(abs(int(time.min())), abs(int(time.max()))) > INT64_MAX // scale:
        raise InputError(
            f"the {stream.name} stream holds a time that overflows the common unit: the input has changed since the run"
        )
    return time * scale, no_time


class _Marker:
    """The late rule of one file: a row's watermark is the largest time of the rows before it, less the lateness."""

    def __init__(self, lateness: int, keeps_keyless: bool):
        self._lateness, self._keeps_keyless = lateness, keeps_keyless
        self._highest = INT64_MIN

    def judge(self, time: np.ndarray, no_time: np.ndarray, no_key: np.ndarray) -> tuple[np.ndarray, pa.Array]:
        """The fate of each row and its watermark. The watermark is null as long as the lowest possible time is the
        largest, since no time lies below that."""
        running = np.maximum.accumulate(np.concatenate([[self._highest], np.where(no_time, INT64_MIN, time)]))
        before, self._highest = running[:-1], int(running[-1])
        mark = np.maximum(before, INT64_MIN + self._lateness) - self._lateness
        late = ~no_time & (time < mark)
        keyless = np.where(no_time | (not self._keeps_keyless), NULL_KEY, KEYLESS)
        fate = np.where(no_key, keyless, np.where(no_time, NULL_TIME, np.where(late, LATE, JOINS)))
        return fate.astype(np.int8), pa.array(mark, mask=before == INT64_MIN)


def _until(time: np.ndarray, window: int | None) -> np.ndarray:
    """The last time for which rows wait for partners, at most the end of time."""
    if window is None:
        return np.full_like(time, INT64_MAX)
    return np.minimum(time, INT64_MAX - window) + window


def _each_file(job: Job, stream: Stream) -> Iterator[Iterator[pa.RecordBatch]]:
    if not stream.files:
        yield _synthetic_batches(job, stream.index)
    for path in stream.files:
        yield _file_batches(path, stream)


def _file_batches(path: str, stream: Stream) -> Iterator[pa.RecordBatch]:
    """The needed columns of one file in bounded pieces, in the types of the stream's first file."""
    read = {IPC: _ipc_batches, CSV: _csv_batches}.get(file_format(path), _parquet_batches)
    wanted = pa.schema(list(stream.fields.items()))
    with decoding(path):
        for batch in read(path, wanted):
            for field in wanted:
                if field.name not in batch.schema.names:
                    raise InputError(f"{path} has no column {field.name}: the input has changed")
                if decoded(batch.schema.field(field.name).type) != decoded(field.type):
                    raise InputError(
                        f"{path}: column {field.name} is {batch.schema.field(field.name).type}, wanted {field.type}"
                    )
            yield batch.select(wanted.names)


def _parquet_batches(path: str, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(BATCH_ROWS, columns=wanted.names)


def _ipc_batches(path: str, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Reads as a run does: not mapped, since a file that is cut short under a map takes the process with it."""
    from mpijoin.sources.blocks import BlockLimit
    from mpijoin.sources.files import open_file

    reader = open_file(path, [Column(field.name, field.type) for field in wanted], BlockLimit(BATCH_ROWS))
    try:
        yield from reader.blocks()
    finally:
        reader.close()


def _csv_batches(path: str, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    from pyarrow import csv

    reading, parsing = csv.ReadOptions(block_size=CSV_BLOCK_BYTES), csv.ParseOptions(newlines_in_values=True)
    options = csv.ConvertOptions(column_types=wanted, include_columns=wanted.names)
    with csv.open_csv(path, reading, parsing, options) as reader:
        yield from reader


def _synthetic_batches(job: Job, side: int) -> Iterator[pa.RecordBatch]:
    """Makes a synthetic stream once more. The generator is the engine's own: what it makes, late rows included, is the
    input."""
    from mpijoin.config.check import resolve
    from mpijoin.sources import stream_parts
    from mpijoin.sources.blocks import BlockLimit
    from mpijoin.sources.late import late_columns
    from mpijoin.sources.ranges import ALL_ROWS

    (part,) = stream_parts(job, side)
    reader = part.open(late_columns(resolve(job).streams[side]), BlockLimit(BATCH_ROWS), ALL_ROWS)
    yield from reader.blocks()
    reader.close()


def inputs_newer_than(streams: tuple[Stream, ...], path: str) -> list[str]:
    """Input files that were changed after the file at `path` was."""
    since = os.stat(path).st_mtime
    return [file for stream in streams for file in stream.files if os.stat(file).st_mtime > since]
