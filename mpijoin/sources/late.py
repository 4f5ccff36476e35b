"""Late tuples: what is told of them, and the file that keeps them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from mpijoin.data.arrow import one_array
from mpijoin.data.schema import Column, StreamSchema
from mpijoin.data.types import decoded
from mpijoin.errors import OutputError
from mpijoin.sources.base import TIME_MIN

LATE, NULL_TIME = "late", "null_time"
TOLD = ("row", "watermark", "reason")


def late_columns(schema: StreamSchema) -> tuple[Column, ...]:
    """The stream's columns that a late tuple is kept with: all that are read of it."""
    return (schema.time, *schema.keys, *schema.payload)


def late_schema(schema: StreamSchema) -> pa.Schema:
    """Columns of the late file: the stream's own, `row`, `watermark` (the time column's type) and `reason`.

    A stream's column that has one of these three names gets underscores behind it.
    """
    names = list(TOLD)
    fields = []
    for column in late_columns(schema):
        name = column.name
        while name in names:
            name += "_"
        names.append(name)
        fields.append(pa.field(name, decoded(column.type)))
    told = [pa.field("row", pa.int64()), pa.field("watermark", schema.time.type), pa.field("reason", pa.string())]
    return pa.schema(fields + told)


def late_table(
    schema: StreamSchema, columns: list[pa.Array], row: np.ndarray, running_max: np.ndarray, lateness: int
) -> pa.Table:
    """Late tuples as the late file has them.

    columns: `late_columns` of these tuples · row, running_max: int64[n], the latter before each tuple, TIME_MIN where
    there was none · lateness in the join's unit.
    """
    target = late_schema(schema)
    null_time = one_array(columns[0]).is_null()
    reason = np.where(null_time.to_numpy(zero_copy_only=False), NULL_TIME, LATE)
    arrays = [one_array(column).cast(field.type) for column, field in zip(columns, target)]
    told = [pa.array(row), watermarks(schema, running_max, lateness), pa.array(reason, pa.string())]
    return pa.Table.from_arrays([*arrays, *told], schema=target)


def watermarks(schema: StreamSchema, running_max: np.ndarray, lateness: int) -> pa.Array:
    """Running maximum less lateness in the time column's type, null where running_max (int64[n]) is TIME_MIN.

    Rounded up to the column's unit, so that exactly the times below it are late, and saturating at its range.
    """
    kind = schema.time.type
    # The sum cannot overflow, the difference might.
    lowest = running_max < TIME_MIN + lateness
    mark = np.where(lowest, TIME_MIN, running_max - np.where(lowest, 0, lateness))
    mark = -(-np.maximum(mark, TIME_MIN + 1) // schema.scale)
    if pa.types.is_integer(kind):
        limits = np.iinfo(kind.to_pandas_dtype())
        mark = np.clip(mark, max(limits.min, TIME_MIN), min(limits.max, -(TIME_MIN + 1)))
    return pa.array(mark, pa.int64(), mask=running_max == TIME_MIN).cast(kind)


class LateWriter:
    """Writes one stream's late file; the file is there, with its columns, even if no tuple is late."""

    def __init__(self, path: str, schema: StreamSchema):
        self._path = path
        self._writer = None
        try:
            self._writer = pa.parquet.ParquetWriter(path, late_schema(schema))
        except OSError as error:
            raise OutputError(f"{path}: cannot be written: {error}") from error

    def write(self, table: pa.Table) -> None:
        """Appends what a source hands to its late sink. Raises OutputError."""
        try:
            self._writer.write_table(table)
        except OSError as error:
            raise OutputError(f"{self._path}: cannot be written: {error}") from error

    def close(self) -> None:
        """Ends the file. Raises OutputError; a second call does nothing."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        try:
            writer.close()
        except OSError as error:
            raise OutputError(f"{self._path}: cannot be written: {error}") from error
