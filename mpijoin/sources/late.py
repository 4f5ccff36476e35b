"""Late tuples: what is recorded about them, and the file that keeps them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from mpijoin.data.arrow import array_of, fixed_array, null_mask, one_array, stored_as_parquet, text_array
from mpijoin.data.schema import Column, StreamSchema
from mpijoin.data.types import decoded
from mpijoin.disk import HashedFile, sync_path
from mpijoin.errors import OutputError
from mpijoin.records import PartInfo
from mpijoin.refusals import writing
from mpijoin.sinks.parts import part_name, size_fault
from mpijoin.sources.base import TIME_MIN
from mpijoin.sources.files import PARQUET_BUFFER_BYTES

REASONS = ("late", "null_time")
TOLD = ("row", "watermark", "reason")


def late_columns(schema: StreamSchema) -> tuple[Column, ...]:
    """The stream's columns that are kept of a late tuple: all that are read."""
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
    """Makes the table that the late file has of late tuples.

    columns: `late_columns` of these tuples · row, running_max: int64[n], the latter before each tuple, TIME_MIN where
    there was none · lateness in the join's unit.
    """
    target = late_schema(schema)
    no_time = null_mask(one_array(columns[0]))
    reason = np.zeros(len(row), np.int64) if no_time is None else no_time.astype(np.int64)
    arrays = [one_array(column).cast(field.type) for column, field in zip(columns, target)]
    told = [array_of(row), watermarks(schema, running_max, lateness), text_array(REASONS).take(array_of(reason))]
    return pa.Table.from_arrays([*arrays, *told], schema=target)


def watermarks(schema: StreamSchema, running_max: np.ndarray, lateness: int) -> pa.Array:
    """The running maximum minus the lateness, in the time column's type; null where running_max (int64[n]) is TIME_MIN.

    It is rounded up to the column's unit, so that exactly the times below it are late, and stops at the ends of its
    range.
    """
    kind = schema.time.type
    # The sum cannot overflow, the difference might.
    lowest = running_max < TIME_MIN + lateness
    mark = np.where(lowest, TIME_MIN, running_max - np.where(lowest, 0, lateness))
    mark = -(-np.maximum(mark, TIME_MIN + 1) // schema.scale)
    if pa.types.is_integer(kind):
        limits = np.iinfo(kind.to_pandas_dtype())
        mark = np.clip(mark, max(limits.min, TIME_MIN), min(limits.max, -(TIME_MIN + 1)))
    none = running_max == TIME_MIN
    return fixed_array(pa.int64(), np.where(none, 0, mark), none).cast(kind)


class LateWriter:
    """Writes one stream's late tuples as parts `left-00000.parquet`, `left-00001.parquet` … in `folder`. Those of
    further producers are `left-p1-00000.parquet` …

    A part is opened when the first late tuple comes after the last part was closed; without late tuples there is no
    part. After an OutputError only `close` may follow.
    """

    def __init__(self, folder: Path, schema: StreamSchema, parts: Sequence[PartInfo] = (), producer: int | None = None):
        """parts: those that were closed by the run that goes on here; whatever it wrote after them is removed ·
        producer: which of several this is. None: there is no other; else all parts that are there stay.

        Raises OutputError when one of them is not there as it was closed.
        """
        self._folder, self._schema = folder, schema
        self._prefix = f"{schema.name}-p{producer}" if producer else schema.name
        self._parts, self._number = list(parts), len(parts)  # and that of the next part
        self._writer: pa.parquet.ParquetWriter | None = None
        self._file: HashedFile | None = None  # that it writes
        self._rows = 0  # in the open part
        with writing(folder):
            for part in parts:
                if fault := size_fault(folder, part):
                    raise OutputError(fault)
            if producer is not None:
                self._number = max(map(self._number_of, folder.glob(f"{self._prefix}-*.parquet")), default=-1) + 1
                return
            for path in folder.glob(f"{schema.name}-*.parquet"):
                if path.name not in {part.name for part in parts}:
                    path.unlink()
            self._number = max((self._number_of(folder / part.name) for part in parts), default=-1) + 1

    def _number_of(self, path: Path) -> int:
        """The number of a part, -1 if it is another producer's."""
        number = path.stem.removeprefix(f"{self._prefix}-")
        return int(number) if number.isdecimal() else -1

    @property
    def parts(self) -> list[PartInfo]:
        """All closed parts, oldest first."""
        return list(self._parts)

    def write(self, table: pa.Table) -> None:
        """Appends what a source hands to its late sink. Raises OutputError."""
        with writing(self._path), stored_as_parquet(table):
            if self._writer is None:
                self._file, self._rows = HashedFile(self._path), 0
                self._writer = pa.parquet.ParquetWriter(self._file, late_schema(self._schema))
            self._writer.write_table(table)
            self._rows += table.num_rows

    def cut(self) -> None:
        """Closes the open part, if there is one, and flushes it to disk. Raises OutputError."""
        (writer, file), self._writer = (self._writer, self._file), None
        if writer is None or file is None:
            return
        path = self._path
        with writing(path):
            with closing(file):
                writer.close()
            sync_path(path)
            sync_path(self._folder)  # its name, too
            self._parts.append(PartInfo(path.name, self._rows, file.octets, file.checksum))
            self._number += 1

    def close(self) -> None:
        """As `cut`; a second call does nothing."""
        self.cut()

    @property
    def _path(self) -> Path:
        """The path of the part that is open, or of the next one."""
        return self._folder / part_name(self._prefix, self._number)


def merge_late(paths: Sequence[Path], target: Path, schema: StreamSchema) -> None:
    """Writes the one late file of a stream from its parts, in order, and flushes it to disk. Without parts it has no
    rows.

    Memory is bounded by a row group of the parts. Raises OutputError.
    """
    with writing(target):
        # Parquet knows no seconds and no date64: what the parts are read back as is what the file can hold.
        kept = pa.parquet.read_schema(paths[0]) if paths else late_schema(schema)
        with closing(HashedFile(target)) as file, pa.parquet.ParquetWriter(file, kept) as writer:
            for path in paths:
                with pa.parquet.ParquetFile(path, buffer_size=PARQUET_BUFFER_BYTES, pre_buffer=False) as part:
                    for group in range(part.num_row_groups):
                        writer.write_table(part.read_row_group(group, use_threads=False))
        sync_path(target)
