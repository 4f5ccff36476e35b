"""Reads files as blocks of rows: Parquet, Arrow IPC and CSV, only the columns asked for, a bounded piece at a time."""

from __future__ import annotations

import os
from collections import deque
from itertools import islice
from typing import Collection, Iterable, Iterator, Protocol, Sequence

import pyarrow as pa
import pyarrow.parquet

from mpijoin.data.files import CSV, PARQUET, file_format, open_ipc
from mpijoin.data.ipc_messages import HollowBatch, Messages
from mpijoin.data.schema import Column
from mpijoin.errors import InputError
from mpijoin.sources.blocks import BlockLimit, Steps, pieces
from mpijoin.sources.inputs import InputFile
from mpijoin.sources.watched import Watched

# Without a buffer, or with pre-buffering, the reader loads whole column chunks: one giant row group is the whole file.
PARQUET_BUFFER_BYTES = 1 << 18
IPC_MAGIC_BYTES = 8  # with padding


class Reader(Protocol):
    """One opened file. It gives its rows from row `skip_rows` on (0: the first), in order, in blocks within a limit."""

    def blocks(self) -> Iterator[pa.RecordBatch]:
        """Gives blocks that have the asked columns among theirs; none if there are no such rows. Raises InputError
        naming the file."""

    def fraction(self) -> float:
        """The share of the file that has been read so far, the skipped rows included, 0 to 1."""

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


def rows_after(batches: Iterable[pa.RecordBatch], skip_rows: int) -> Iterator[pa.RecordBatch]:
    """Gives what the batches hold after their first `skip_rows` rows, as views."""
    for batch in batches:
        if skip_rows < batch.num_rows:
            yield batch.slice(skip_rows)
        skip_rows = max(0, skip_rows - batch.num_rows)


class ParquetReader:
    """Decodes page by page, so that its memory depends neither on the size of row groups nor on how wide rows are. How
    much memory a row takes is estimated from the footer, which does not count dictionaries, and from the rows before.
    Whole row groups are skipped without decoding them."""

    def __init__(self, watched: Watched, path: str, columns: Sequence[Column], limit: BlockLimit, skip_rows: int):
        self._watched, self._names, self._limit = watched, [column.name for column in columns], limit
        self._steps = Steps(limit, columns)
        self._skip_rows = skip_rows
        self._file = pa.parquet.ParquetFile(path, buffer_size=PARQUET_BUFFER_BYTES, pre_buffer=False)
        watched.wanted = self._file.metadata.num_rows
        try:
            check_columns(path, self._file.schema_arrow, columns)
        except InputError:
            self._file.close()
            raise

    def blocks(self) -> Iterator[pa.RecordBatch]:
        groups, drop_rows = self._groups_after(self._skip_rows)
        for batch in rows_after(self._decoded(groups), drop_rows):
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
            self._steps.decoded(batch)
            # to set it takes as long as to wait for the interpreter
            if (wanted := self._steps.next_rows(row_bytes)) != rows:
                rows = wanted
                self._file.reader.set_batch_size(rows)
            yield batch

    def _row_bytes(self, groups: Sequence[int]) -> int:
        """Bytes of a row, the larger of the first two of these groups, as the footer knows them: dictionaries and
        encodings make them fewer."""
        found = [0]
        for group in islice(groups, 2):
            metadata = self._file.metadata.row_group(group)
            columns = (metadata.column(index) for index in range(metadata.num_columns))
            octets = sum(one.total_uncompressed_size for one in columns if one.path_in_schema in self._names)
            found.append(octets // max(1, metadata.num_rows))
        return max(found)

    def _groups_after(self, rows: int) -> tuple[Sequence[int], int]:
        """Returns the row groups from the one that holds row number `rows` on, and how many rows come before it in that
        group."""
        metadata = self._file.metadata
        groups = range(metadata.num_row_groups)
        while groups and metadata.row_group(groups[0]).num_rows <= rows:
            rows -= metadata.row_group(groups[0]).num_rows
            groups = groups[1:]
        return groups, rows

    def fraction(self) -> float:
        return min(1.0, self._watched.rows / max(1, self._watched.wanted))

    def close(self) -> None:
        self._file.close()


class IpcReader:
    """Reads only the rows of one block at a time from a batch, however large that is, unless the batch is compressed.

    The file layout is a stream between a magic and a footer, and is read as a stream: through the footer the library
    would load whole batches as soon as columns are chosen. The footer still tells whether the file is whole; a stream
    says so at its end.
    """

    def __init__(self, watched: Watched, path: str, columns: Sequence[Column], limit: BlockLimit, skip_rows: int):
        self._watched, self._path, self._limit, self._skip_rows = watched, path, limit, skip_rows
        self._steps = Steps(limit, columns)
        self._size_bytes = max(1, os.path.getsize(path))
        with pa.OSFile(path) as file, open_ipc(file) as reader:
            schema, is_file = reader.schema, isinstance(reader, pa.RecordBatchFileReader)
            self._batches = reader.num_record_batches if is_file else None
        check_columns(path, schema, columns)
        included = sorted(schema.get_field_index(column.name) for column in columns)
        options = pa.ipc.IpcReadOptions(included_fields=included, use_threads=False)
        self._messages = Messages(path, IPC_MAGIC_BYTES if is_file else 0)
        self._reader = pa.ipc.open_stream(pa.PythonFile(self._messages, mode="r"), options=options)

    def blocks(self) -> Iterator[pa.RecordBatch]:
        skip_rows = self._skip_rows
        try:
            for batch in islice(self._reader, self._batches):
                yield from self._pieces(batch, skip_rows)
                skip_rows = max(0, skip_rows - batch.num_rows)
        finally:
            self._watched.wanted = self._messages.rows
        found = self._messages.batches
        if self._batches is not None and found != self._batches:
            raise InputError(
                f"{self._path}: got {found} record batches, wanted the {self._batches} that its footer names"
            )

    def _pieces(self, batch: pa.RecordBatch, start: int) -> Iterator[pa.RecordBatch]:
        if not self._messages.hollow:
            yield from pieces(batch.slice(start), self._limit)
            return
        hollow = HollowBatch(batch, self._messages)
        while start < batch.num_rows:
            block = hollow.read(start, min(self._steps.next_rows(0), batch.num_rows - start))
            self._steps.decoded(block)
            start += block.num_rows
            yield from pieces(block, self._limit)

    def fraction(self) -> float:
        return min(1.0, self._messages.tell() / self._size_bytes)

    def close(self) -> None:
        self._messages.close()


class TextReader:
    """A CSV file. Its skipped rows are read, too."""

    def __init__(self, path: str, columns: Sequence[Column], typed: Collection[str], limit: BlockLimit, skip_rows: int):
        from mpijoin.sources.csv_reader import CsvReader

        self._limit, self._skip_rows = limit, skip_rows
        self._file = CsvReader(path, columns, typed)

    def blocks(self) -> Iterator[pa.RecordBatch]:
        for batch in rows_after(self._file.batches(), self._skip_rows):
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
        skip_rows: int,
        file: InputFile | None,
        typed: Collection[str],
    ):
        self._watched = Watched(path, file)
        self._watched.rows = skip_rows
        with self._watched.reading():
            form = file_format(path)
            if form == CSV:
                self._reader: Reader = TextReader(path, columns, typed, limit, skip_rows)
            else:
                make = ParquetReader if form == PARQUET else IpcReader
                self._reader = make(self._watched, path, columns, limit, skip_rows)

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
    skip_rows: int = 0,
    file: InputFile | None = None,
    typed: Collection[str] = (),
) -> Reader:
    """Opens a reader of these columns of one file. file: the file as it was when the run began, None: as it is now ·
    typed: columns of a CSV file whose type the job gives; those of the others are what the first rows suggest.

    Raises InputError if it cannot be read or has other columns, and ChangedInputError if it has changed since.
    """
    return FileReader(path, columns, limit or BlockLimit(), skip_rows, file, typed)
