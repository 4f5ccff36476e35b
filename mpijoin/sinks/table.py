"""Results as Arrow tables: the columns that the job asks for, gathered from the blocks in the sources' own types."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from mpijoin.config.job import Job
from mpijoin.data import results as columns
from mpijoin.data.arrow import array_of
from mpijoin.data.record import RecordLayout
from mpijoin.data.schema import JoinSchema
from mpijoin.join.gather import gather_blobs, gather_words
from mpijoin.join.state import ADDRESS, KEY, ROW, SIZE, TIME
from mpijoin.join.window_join import WindowJoin
from mpijoin.operators.base import Results
from mpijoin.partitioning.keys import key_values


class TableBuilder:
    """Turns results (slot ids) into tables of `schema`."""

    def __init__(self, job: Job, schema: JoinSchema, operator: WindowJoin):
        self.schema = nullable_fields(columns.result_schema(job, schema))
        self._columns = columns.result_columns(job, schema)
        self._streams = schema.streams
        self._layouts = [RecordLayout(stream) for stream in schema.streams]
        self._operator = operator

    def table(self, results: Results) -> pa.Table:
        stored: dict[int, list[pa.Array]] = {}  # a stream's stored columns, unpacked at most once
        arrays = [self._array(column, results, stored) for column in self._columns]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _array(self, column: columns.ResultColumn, results: Results, stored: dict[int, list[pa.Array]]) -> pa.Array:
        side = column.stream or 0  # keys are equal on both sides: the left's are given
        stream, slots = self._streams[side], results[side]
        if column.kind == columns.ROW:
            return array_of(self._words(slots, ROW, 1)[:, 0])
        if column.kind == columns.TIME:
            return time_array(stream.time.type, self._words(slots, TIME, 1)[:, 0] // stream.scale)
        if column.kind == columns.KEY and not stream.hashed:
            return key_values(stream, self._words(slots, KEY, 1)[:, 0])
        if side not in stored:
            stored[side] = self._stored(side, slots)
        keys = len(stream.keys) if stream.hashed else 0
        return stored[side][column.index + (keys if column.kind == columns.PAYLOAD else 0)]

    def _words(self, slots: np.ndarray, first: int, width: int) -> np.ndarray:
        out = np.empty((len(slots), width), np.int64)
        gather_words(self._operator.state.words, slots, first, out)
        return out

    def _stored(self, side: int, slots: np.ndarray) -> list[pa.Array]:
        layout = self._layouts[side]
        if not layout.has_blob:
            return layout.unpack(self._words(slots, ADDRESS, layout.record_words), np.empty(0, np.int64), np.empty(0, np.uint8))
        record = self._words(slots, SIZE + 1, layout.record_words)
        size = self._words(slots, SIZE, 1)[:, 0]
        starts = np.cumsum(size) - size
        blob = np.empty(int(size.sum()), np.uint8)
        gather_blobs(self._operator.state, slots, starts, blob)
        return layout.unpack(record, size, blob)


def time_array(kind: pa.DataType, values: np.ndarray) -> pa.Array:
    """int64[n] times as a column of the source's own type (an integer or a timestamp)."""
    if pa.types.is_timestamp(kind):
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])
    return array_of(values.astype(kind.to_pandas_dtype()))


def nullable_fields(schema: pa.Schema) -> pa.Schema:
    """Rows and times are never null: saying so saves the writer a fifth of its time."""
    never = {"left_row", "right_row", "left_time", "right_time"}
    return pa.schema([field.with_nullable(field.name not in never) for field in schema])
