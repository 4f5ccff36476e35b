"""The columns of the results: their names, where each comes from, and its type."""

from __future__ import annotations

import pyarrow as pa

from mpijoin.conditions.calls import parse_call
from mpijoin.conditions.kinds import kinds_of_schema, type_of
from mpijoin.config.job import Function, Job
from mpijoin.data.schema import UNIT_NS, Column, JoinSchema, StreamSchema
from mpijoin.data.types import decoded
from mpijoin.named import NamedTuple

KEY, TIME, ROW, PAYLOAD, ANSWER = "key", "time", "row", "payload", "answer"


class ResultColumn(NamedTuple):
    """One result column. `place` counts within `keys` (kind "key"), `payload` (kind "payload") or the columns of the
    aggregate, or of what is worked out of partners (kind "answer"); else it is 0."""

    name: str
    stream: int  # its index in the job; keys are the first stream's, since all agree on them
    kind: str  # "key", "time", "row", "payload" or "answer"
    place: int


def all_columns(job: Job, schema: JoinSchema) -> list[ResultColumn]:
    """Every column that results of this job could have, in order; names may clash."""
    columns = _key_columns(schema.streams[0].keys)
    shown = schema.streams[: job.join.shown] if len(schema.streams) == 2 else schema.streams
    for kind in (TIME, ROW):
        columns += [ResultColumn(f"{stream.name}_{kind}", side, kind, 0) for side, stream in enumerate(shown)]
    for side, stream in enumerate(shown):
        columns += [
            ResultColumn(f"{stream.name}_{column.name}", side, PAYLOAD, index)
            for index, column in enumerate(stream.payload)
        ]
    answers = [one.result for one in job.aggregate.columns] + [one.result for one in job.join.reduce]
    columns += [ResultColumn(name, 0, ANSWER, index) for index, name in enumerate(answers)]
    return columns


def _key_columns(keys: tuple[Column, ...]) -> list[ResultColumn]:
    if len(keys) == 1:
        return [ResultColumn("key", 0, KEY, 0)]
    return [ResultColumn(f"key_{column.name}", 0, KEY, index) for index, column in enumerate(keys)]


def result_columns(job: Job, schema: JoinSchema) -> list[ResultColumn]:
    """The columns that this job's results have, in the order the user asked for; none when it only counts.

    `[output] columns` must name columns of `all_columns(job, schema)`, which `resolve` sees to.
    """
    if job.output.results == "count":
        return []
    columns = all_columns(job, schema)
    if job.output.columns is None:
        return columns
    by_name = {column.name: column for column in columns}
    return [by_name[name] for name in job.output.columns]


def result_schema(job: Job, schema: JoinSchema) -> pa.Schema:
    """Names and types of the results: keys, times and payload in the source's own types (keys: the first stream's),
    rows int64.

    Dictionaries are given back as their values. Rows and times are never null, unless rows without partner of the other
    stream are results: saying so saves the writer a fifth of its time.
    """
    def has_nulls(column: ResultColumn) -> bool:
        return column.kind not in (TIME, ROW) or 1 - column.stream in job.join.alone

    return pa.schema([
        pa.field(column.name, _type(column, job, schema), nullable=has_nulls(column))
        for column in result_columns(job, schema)
    ])


def _type(column: ResultColumn, job: Job, schema: JoinSchema) -> pa.DataType:
    if column.kind == ANSWER and job.join.reduce:
        return call_type(job.join.reduce[column.place].text, schema)
    if column.kind == ANSWER:
        return answer_type(job.aggregate.columns[column.place], schema.streams[0])
    if column.kind == KEY:
        return decoded(schema.streams[0].keys[column.place].type)
    if column.kind == ROW:
        return pa.int64()
    stream = schema.streams[column.stream]
    return stream.time.type if column.kind == TIME else decoded(stream.payload[column.place].type)


def call_type(text: str, schema: JoinSchema) -> pa.DataType:
    """The type of a function over the partners of a row, which has been checked."""
    call = parse_call(text, [stream.name for stream in schema.streams], kinds_of_schema(schema))
    return type_of(call.answer, UNIT_NS[schema.unit])


def answer_type(function: Function, stream: StreamSchema) -> pa.DataType:
    """The type of a column of an aggregate over this stream, which has its column.

    >>> answer_type(Function("n", "count"), StreamSchema("a", Column("ts", pa.int64()), 1, (), False, ()))
    DataType(int64)
    """
    if function.name == "count":
        return pa.int64()
    kind = next(decoded(column.type) for column in stream.payload if column.name == function.column)
    if function.name in ("min", "max"):
        return kind
    return pa.float64() if function.name == "mean" or pa.types.is_floating(kind) else pa.int64()
