"""The columns of the results: their names, where each comes from, and its type."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from mpijoin.config.job import Job
from mpijoin.data.schema import Column, JoinSchema
from mpijoin.data.types import decoded

KEY, TIME, ROW, PAYLOAD = "key", "time", "row", "payload"


class ResultColumn(NamedTuple):
    """One result column. `place` counts within `keys` (kind "key") or `payload` (kind "payload"); else it is 0."""

    name: str
    stream: int  # its index in the job; keys are the first stream's, since all agree on them
    kind: str  # "key", "time", "row" or "payload"
    place: int


def all_columns(schema: JoinSchema) -> list[ResultColumn]:
    """Every column that results of this join could have, in order; names may clash."""
    columns = _key_columns(schema.streams[0].keys)
    for kind in (TIME, ROW):
        columns += [ResultColumn(f"{stream.name}_{kind}", side, kind, 0) for side, stream in enumerate(schema.streams)]
    for side, stream in enumerate(schema.streams):
        columns += [
            ResultColumn(f"{stream.name}_{column.name}", side, PAYLOAD, index)
            for index, column in enumerate(stream.payload)
        ]
    return columns


def _key_columns(keys: tuple[Column, ...]) -> list[ResultColumn]:
    if len(keys) == 1:
        return [ResultColumn("key", 0, KEY, 0)]
    return [ResultColumn(f"key_{column.name}", 0, KEY, index) for index, column in enumerate(keys)]


def result_columns(job: Job, schema: JoinSchema) -> list[ResultColumn]:
    """The columns that this job's results have, in the order the user asked for; none when it only counts.

    `[output] columns` must name columns of `all_columns(schema)`, which `resolve` sees to.
    """
    if job.output.results == "count":
        return []
    columns = all_columns(schema)
    if job.output.columns is None:
        return columns
    by_name = {column.name: column for column in columns}
    return [by_name[name] for name in job.output.columns]


def result_schema(job: Job, schema: JoinSchema) -> pa.Schema:
    """Names and types of the results: keys, times and payload in the source's own types (keys: the first stream's),
    rows int64.

    Dictionaries are given back as their values. Rows and times are never null: saying so saves the writer a fifth of
    its time.
    """
    return pa.schema([
        pa.field(column.name, _type(column, schema), nullable=column.kind not in (TIME, ROW))
        for column in result_columns(job, schema)
    ])


def _type(column: ResultColumn, schema: JoinSchema) -> pa.DataType:
    if column.kind == KEY:
        return decoded(schema.streams[0].keys[column.place].type)
    if column.kind == ROW:
        return pa.int64()
    stream = schema.streams[column.stream]
    return stream.time.type if column.kind == TIME else decoded(stream.payload[column.place].type)
