"""Reads files as blocks of rows: Parquet, Arrow IPC and CSV, only the columns asked for, a bounded piece at a time."""

from __future__ import annotations

import os
from collections import deque
from itertools import islice
from typing import Collection, Iterator, Protocol, Sequence

import pyarrow as pa
import pyarrow.parquet

from mpijoin.data.encrypted import refuse_encrypted
from mpijoin.data.files import CSV, PARQUET, file_format, open_ipc
from mpijoin.data.ipc_footer import read_footer
from mpijoin.data.ipc_messages import HollowBatch, Messages
from mpijoin.data.schema import Column
from mpijoin.errors import InputError
from mpijoin.sources.blocks import BlockLimit, Steps, pieces
from mpijoin.sources.inputs import InputFile
from mpijoin.sources.ranges import ALL_ROWS, Ranges, RowRange, rows_in
from mpijoin.sources.watched import Watched

# Without a buffer, or with pre-buffering, the reader loads whole column chunks: one giant row group is the whole file.
PARQUET_BUFFER_BYTES = 1 << 18


class Reader(Protocol):
    """One opened file. It gives the rows of its ranges, in order, in blocks within a limit."""

    def blocks(self) -> Iterator[pa.RecordBatch]:
        """Gives blocks that have the asked columns among theirs; none if there are no such rows. Raises InputError
        naming the file."""

    def fraction(self) -> float:
        """The share of the file that has been read so far, 0 to 1. Rows before the first range count as read."""

    def close(self) -> None:
        """Lets go of the file."""


def check_columns(path: str, found: pa.Schema, wanted: Sequence[Column]) -> None:
    """Raises InputError unless the file has each wanted column once and of the wanted type."""
    for column in wanted:
        count = found.names.count(column.name)
        if count != 1:
            has = ", ".join(found.names)
            raise InputError(f"{path}: got {count or 'no'} column {column.name!r}, wanted one; the file has {has}")
        kind = found.field(column.name).type
        if kind != column.type:
            raise InputError(
                f"{path}: column {column.name!r} is {kind}, wanted {column.type} as resolved for the stream"
            )


class ParquetReader:
    """Decodes page by page, so that its memory depends neither on the size of row groups nor on how wide rows are. How
    much memory a row takes is estimated from the footer, which does not count dictionaries, and from the rows before.
    Whole row groups are skipped without decoding them."""

    def __init__(self, watched: Watched, path: str, columns: Sequence[Column], limit: BlockLimit, ranges: Ranges):
        self._watched, self._names, self._limit = watched, [column.name for column in columns], limit
        self._steps = Steps(limit, columns)
        self._ranges = ranges
        self._file = pa.parquet.ParquetFile(path, buffer_size=PARQUET_BUFFER_BYTES, pre_buffer=False)
        paths = (self._file.schema.column(index).path for index in range(len(self._file.schema)))
        self._read = [index for index, path in enumerate(paths) if path in self._names]
        watched.wanted = self._file.metadata.num_rows if ranges.last is None else ranges.last
        try:
            check_columns(path, self._file.schema_arrow, columns)
            refuse_encrypted(path, self._file, self._names)
        except InputError:
            self._file.close()
            raise

    def blocks(self) -> Iterator[pa.RecordBatch]:
        groups, inner = self._groups_of(self._ranges)
        for batch in rows_in(self._decoded(groups), inner):
            yield from pieces(batch, self._limit)

    def _decoded(self, groups: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Gives all rows of these row groups, as many at a time as the steps allow."""
        coming = deque(groups)
        left = self._file.metadata.row_group(coming[0]).num_rows if coming else 0  # of the first of the groups to come
        row_bytes = self._row_bytes(coming)
        rows = self._steps.next_rows(row_bytes)
        for batch in self._file.iter_batches(rows, row_groups=list(groups), columns=self._names, use_threads=False):
            left -= batch.num_rows
            while left <= 0 and len(coming) > 1:
                coming.popleft()
                left += self._file.metadata.row_group(coming[0]).num_rows
                row_bytes = self._row_bytes(coming)
            # "a.b" also names what is called b in a struct that is called a.
            asked = batch if batch.num_columns == len(self._names) else batch.select(self._names)
            self._steps.decoded(asked)
            # to set it takes as long as to wait for the interpreter
            if (wanted := self._steps.next_rows(row_bytes)) != rows:
                rows = wanted
                self._file.reader.set_batch_size(rows)
            yield asked

    def _row_bytes(self, groups: Sequence[int]) -> int:
        """Bytes of a row, the larger of the first two of these groups, as the footer knows them: dictionaries and
        encodings make them fewer."""
        found = [0]
        for group in islice(groups, 2):
            metadata = self._file.metadata.row_group(group)
            # To ask for an encrypted column would end the process.
            octets = sum(metadata.column(index).total_uncompressed_size for index in self._read)
            found.append(octets // max(1, metadata.num_rows))
        return max(found)

    def _groups_of(self, ranges: Ranges) -> tuple[Sequence[int], Ranges]:
        """Returns the row groups that hold some of these rows, and the rows as they count in those groups alone."""
        metadata = self._file.metadata
        groups: list[int] = []
        inner: list[RowRange] = []
        first = kept = 0
        for group in range(metadata.num_row_groups):
            rows = metadata.row_group(group).num_rows
            found = [RowRange(kept + low, kept + high) for low, high in ranges.within(first, rows)]
            if found:
                groups.append(group)
                inner += found
                kept += rows
            first += rows
        return groups, Ranges(inner)

    def fraction(self) -> float:
        return self._watched.fraction()

    def close(self) -> None:
        self._file.close()


class IpcReader:
    """Reads only the rows of one block at a time from a batch, however large that is, unless the batch is compressed.

    A file with a footer is read as a stream, too, of the messages that the footer names: the library itself would load
    whole batches as soon as columns are chosen. The footer also tells whether the file is whole; a stream says so at
    its end.
    """

    def __init__(self, watched: Watched, path: str, columns: Sequence[Column], limit: BlockLimit, ranges: Ranges):
        self._watched, self._path, self._limit, self._ranges = watched, path, limit, ranges
        self._steps = Steps(limit, columns)
        self._size_bytes = max(1, os.path.getsize(path))
        with pa.OSFile(path) as file, open_ipc(file) as reader:
            schema, is_file = reader.schema, isinstance(reader, pa.RecordBatchFileReader)
            self._batches = reader.num_record_batches if is_file else None
        check_columns(path, schema, columns)
        included = sorted(schema.get_field_index(column.name) for column in columns)
        options = pa.ipc.IpcReadOptions(included_fields=included, use_threads=False)
        self._messages = Messages(path, read_footer(path) if is_file else None)
        self._reader = pa.ipc.open_stream(pa.PythonFile(self._messages, mode="r"), options=options)

    def blocks(self) -> Iterator[pa.RecordBatch]:
        first, last = 0, self._ranges.last
        try:
            for batch in islice(self._reader, self._batches):
                for low, high in self._ranges.within(first, batch.num_rows):
                    yield from self._pieces(batch, low, high)
                first += batch.num_rows
                if last is not None and first >= last:
                    return
        finally:
            self._watched.wanted = self._messages.rows if last is None else last
        found = self._messages.batches
        if self._batches is not None and found != self._batches:
            raise InputError(
                f"{self._path}: got {found} record batches, wanted the {self._batches} that its footer names"
            )

    def _pieces(self, batch: pa.RecordBatch, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        if not self._messages.hollow:
            yield from pieces(batch.slice(start, stop - start), self._limit)
            return
        hollow = HollowBatch(batch, self._messages)
        while start < stop:
            block = hollow.read(start, min(self._steps.next_rows(0), stop - start))
            self._steps.decoded(block)
            start += block.num_rows
            yield from pieces(block, self._limit)

    def fraction(self) -> float:
        return min(1.0, self._messages.tell() / self._size_bytes)

    def close(self) -> None:
        self._messages.close()


class TextReader:
    """A CSV file. Its skipped rows are read, too."""

    def __init__(self, path: str, columns: Sequence[Column], typed: Collection[str], limit: BlockLimit, ranges: Ranges):
        from mpijoin.sources.csv_reader import CsvReader

        self._limit, self._ranges = limit, ranges
        self._file = CsvReader(path, columns, typed)

    def blocks(self) -> Iterator[pa.RecordBatch]:
        for batch in rows_in(self._file.batches(), self._ranges):
            yield from pieces(batch, self._limit)

    def fraction(self) -> float:
        return self._file.fraction()

    def close(self) -> None:
        self._file.close()


class FileReader:
    """A `Reader` of one file, which must stay what it was when the run began."""

    def __init__(
        self,
        path: str,
        columns: Sequence[Column],
        limit: BlockLimit,
        ranges: Ranges,
        file: InputFile | None,
        typed: Collection[str],
    ):
        self._watched = Watched(path, file, ranges.skipped, ranges.first)
        with self._watched.reading():
            form = file_format(path)
            if form == CSV:
                self._reader: Reader = TextReader(path, columns, typed, limit, ranges)
            else:
                make = ParquetReader if form == PARQUET else IpcReader
                self._reader = make(self._watched, path, columns, limit, ranges)

    def blocks(self) -> Iterator[pa.RecordBatch]:
        with self._watched.reading():
            for block in self._reader.blocks():
                self._watched.rows += block.num_rows
                yield block
            self._watched.check_end()

    def fraction(self) -> float:
        return self._reader.fraction()

    def close(self) -> None:
        self._reader.close()


def open_file(
    path: str,
    columns: Sequence[Column],
    limit: BlockLimit | None = None,
    rows: Sequence[RowRange] = ALL_ROWS,
    file: InputFile | None = None,
    typed: Collection[str] = (),
) -> Reader:
    """Opens a reader of these columns of one file. rows: the ranges to read, in ascending order · file: the file as it
    was when the run began, None: as it is now · typed: columns of a CSV file whose type the job gives; those of the
    others are what the first rows suggest.

    Raises InputError if it cannot be read or has other columns, and ChangedInputError if it has changed since.
    """
    return FileReader(path, columns, limit or BlockLimit(), Ranges(rows), file, typed)
