"""Files as blocks of rows: Parquet, Arrow IPC and CSV, only the columns asked for, a bounded piece at a time."""

from __future__ import annotations

import mmap
import os
from contextlib import contextmanager
from typing import Iterable, Iterator, Protocol, Sequence

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from mpijoin.data.files import CSV, IPC, PARQUET, file_format, first_line, open_ipc
from mpijoin.data.schema import Column
from mpijoin.errors import InputError
from mpijoin.sources.base import BLOCK_ROWS

# Without a buffer, or with pre-buffering, the reader loads whole column chunks: one giant row group is the whole file.
PARQUET_BUFFER_BYTES = 1 << 18
CSV_BLOCK_BYTES = 1 << 20
IPC_RELEASE_BLOCKS = 16
IPC_MAGIC_BYTES = 8  # with padding


class Reader(Protocol):
    """One opened file: its rows from row `skip_rows` on (0: the first), in order, in blocks of at most `block_rows`."""

    def blocks(self) -> Iterator[pa.RecordBatch]:
        """Blocks that have the asked columns among theirs; none if there are no such rows. Raises InputError naming the
        file."""

    def fraction(self) -> float:
        """Share of the file read so far, the skipped rows included, 0 to 1."""

    def close(self) -> None:
        """Lets go of the file."""


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Turns the library's errors into one InputError that names the file."""
    try:
        yield
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as {file_format(path)}: {first_line(error)}") from error


def check_columns(path: str, found: pa.Schema, wanted: Sequence[Column]) -> None:
    """Raises InputError unless the file has each wanted column once and of the wanted type."""
    for column in wanted:
        count = found.names.count(column.name)
        if count != 1:
            has = ", ".join(found.names)
            raise InputError(f"{path}: got {count or 'no'} column {column.name!r}, wanted one; the file has {has}")
        kind = found.field(column.name).type
        if kind != column.type:
            raise InputError(f"{path}: column {column.name!r} is {kind}, wanted {column.type} as resolved for the stream")


def slices(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """Consecutive views of at most `rows` rows."""
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def rows_after(batches: Iterable[pa.RecordBatch], skip_rows: int) -> Iterator[pa.RecordBatch]:
    """What the batches hold behind their first `skip_rows` rows, as views."""
    for batch in batches:
        if skip_rows < batch.num_rows:
            yield batch.slice(skip_rows)
        skip_rows = max(0, skip_rows - batch.num_rows)


class ParquetReader:
    """Decodes page by page: memory does not depend on the size of row groups. Skips whole row groups undecoded."""

    def __init__(self, path: str, columns: Sequence[Column], block_rows: int, skip_rows: int):
        self._path, self._names, self._block_rows = path, [column.name for column in columns], block_rows
        self._rows = self._skip_rows = skip_rows
        with naming(path):
            self._file = pa.parquet.ParquetFile(path, buffer_size=PARQUET_BUFFER_BYTES, pre_buffer=False)
            try:
                check_columns(path, self._file.schema_arrow, columns)
            except InputError:
                self._file.close()
                raise

    def blocks(self) -> Iterator[pa.RecordBatch]:
        with naming(self._path):
            groups, drop_rows = self._groups_after(self._skip_rows)
            batches = self._file.iter_batches(self._block_rows, row_groups=groups, columns=self._names, use_threads=False)
            for batch in rows_after(batches, drop_rows):
                self._rows += batch.num_rows
                yield batch

    def _groups_after(self, rows: int) -> tuple[Sequence[int], int]:
        """The row groups from that of row number `rows` on, and how many rows come before it in the first of them."""
        metadata = self._file.metadata
        groups = range(metadata.num_row_groups)
        while groups and metadata.row_group(groups[0]).num_rows <= rows:
            rows -= metadata.row_group(groups[0]).num_rows
            groups = groups[1:]
        return groups, rows

    def fraction(self) -> float:
        return min(1.0, self._rows / max(1, self._file.metadata.num_rows))

    def close(self) -> None:
        self._file.close()


class IpcReader:
    """Maps the file, so that even one giant batch is paged in bit by bit, and gives the pages back as it goes on.

    The file layout is a stream between a magic and a footer, and is read as one: by its footer the library would load
    whole batches as soon as columns are chosen. The footer still tells whether the file is whole. Batches that are not
    compressed are skipped without a look at their values.
    """

    def __init__(self, path: str, columns: Sequence[Column], block_rows: int, skip_rows: int):
        self._path, self._block_rows, self._skip_rows = path, block_rows, skip_rows
        self._at_bytes = 0
        with naming(path):
            with pa.OSFile(path) as file, open_ipc(file) as reader:
                schema, is_file = reader.schema, isinstance(reader, pa.RecordBatchFileReader)
                self._batches = reader.num_record_batches if is_file else None
            check_columns(path, schema, columns)
            with open(path, "rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._file = pa.BufferReader(pa.py_buffer(self._map))
            self._file.seek(IPC_MAGIC_BYTES if is_file else 0)
            included = sorted(schema.get_field_index(column.name) for column in columns)
            options = pa.ipc.IpcReadOptions(included_fields=included, use_threads=False)
            self._reader = pa.ipc.open_stream(self._file, options=options)

    def blocks(self) -> Iterator[pa.RecordBatch]:
        for batch in rows_after(self._whole(), self._skip_rows):
            yield from self._pieces(batch)

    def _whole(self) -> Iterator[pa.RecordBatch]:
        """The batches as they lie in the file."""
        count = 0
        with naming(self._path):
            for count, batch in enumerate(self._reader, 1):
                self._at_bytes = self._file.tell()
                yield batch
        if self._batches is not None and count != self._batches:
            raise InputError(f"{self._path}: got {count} record batches, wanted the {self._batches} that its footer names")

    def _pieces(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for number, block in enumerate(slices(batch, self._block_rows)):
            yield block
            if number % IPC_RELEASE_BLOCKS == 0:
                # Pages still needed come back from the page cache; the others no longer count as ours.
                self._map.madvise(mmap.MADV_DONTNEED)

    def fraction(self) -> float:
        return self._at_bytes / len(self._map)

    def close(self) -> None:
        self._file.close()


class CsvReader:
    """Every column is asked for by type, so that no block can be inferred to be something else. Skipped rows are read."""

    def __init__(self, path: str, columns: Sequence[Column], block_rows: int, skip_rows: int):
        self._path, self._block_rows, self._skip_rows = path, block_rows, skip_rows
        self._at_bytes = 0
        with naming(path):
            self._size_bytes = max(1, os.path.getsize(path))
            self._reader = pa.csv.open_csv(
                path,
                read_options=pa.csv.ReadOptions(use_threads=False, block_size=CSV_BLOCK_BYTES),
                convert_options=pa.csv.ConvertOptions(
                    column_types={column.name: column.type for column in columns},
                    include_columns=[column.name for column in columns],
                ),
            )

    def blocks(self) -> Iterator[pa.RecordBatch]:
        for batch in rows_after(self._parsed(), self._skip_rows):
            yield from slices(batch, self._block_rows)

    def _parsed(self) -> Iterator[pa.RecordBatch]:
        with naming(self._path):
            for batch in self._reader:
                self._at_bytes += CSV_BLOCK_BYTES
                yield batch

    def fraction(self) -> float:
        return min(1.0, self._at_bytes / self._size_bytes)

    def close(self) -> None:
        self._reader.close()


READERS = {PARQUET: ParquetReader, IPC: IpcReader, CSV: CsvReader}


def open_file(path: str, columns: Sequence[Column], block_rows: int = BLOCK_ROWS, skip_rows: int = 0) -> Reader:
    """A reader of these columns of one file. Raises InputError when it cannot be read or has other columns."""
    return READERS[file_format(path)](path, columns, block_rows, skip_rows)
