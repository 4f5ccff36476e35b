"""Writes result tables into Parquet part files of bounded size."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mpijoin.data.arrow import fixed_values, one_array, stored_as_parquet
from mpijoin.disk import HashedFile, checksum_of, sync_path
from mpijoin.errors import InputError, OutputError
from mpijoin.records import PartInfo
from mpijoin.refusals import reading, writing

# 2^15 to 2^19 rows were equally fast on two int64 columns; 2^17 keeps a group's buffers near the cache.
ROW_GROUP_ROWS = 1 << 17
ROW_GROUP_BYTES = 16 << 20  # bounds what a writer holds when rows are wide
SAMPLE_ROWS = 4096
# the writer looks at a page's size after so many rows only: fewer where rows are wide
PAGE_BYTES, PAGE_ROWS = 1 << 20, 1 << 10
PACKED_MAX = 0.75
MINIBLOCK = 32


class PartWriter:
    """Writes tables of one schema as `prefix-00000.parquet`, `prefix-00001.parquet` … in `folder`.

    A new part begins once `part_bytes` are written, so a part is at most a row group larger. Numbers go on after the
    parts that lie there. A table that is kept is not copied: the caller must not change its buffers. If nothing is
    written, there is no file. After an OutputError the broken part is gone, further writes raise the same error, and
    `close` is safe.
    """

    # Writing takes as long as the disk needs, and then there is room again.
    is_full = False

    def __init__(
        self,
        folder: str | os.PathLike,
        prefix: str,
        schema: pa.Schema,
        part_bytes: int,
        row_group_rows: int = ROW_GROUP_ROWS,
    ):
        self.folder = Path(folder)
        self.prefix = prefix
        self.schema = schema
        self.part_bytes = part_bytes
        self.row_group_rows = row_group_rows
        self.rows = 0  # rows handed to `write`, waiting ones included
        self._first = next_number(self.folder, prefix)
        self._synced = 0  # of the parts
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0
        self._parts: list[PartInfo] = []
        self._part: _OpenPart | None = None
        self._error: OutputError | None = None

    @property
    def held_bytes(self) -> int:
        """Bytes of tables not yet in a row group."""
        return self._waiting_bytes

    def write(self, table: pa.Table, keep: bool = True) -> None:
        """Append a table of the writer's schema. OutputError: the file system refuses, naming file and reason.

        keep: it may wait for others to fill a row group; else it is written at once, and its buffers may change
        afterwards.
        """
        if self._error is not None:
            raise self._error
        if not table.num_rows:
            return
        self.rows += table.num_rows
        self._waiting.append(table)
        self._waiting_rows += table.num_rows
        self._waiting_bytes += table.nbytes
        if not keep or self._waiting_rows >= self.row_group_rows or self._waiting_bytes >= ROW_GROUP_BYTES:
            self._write_groups()

    def cut(self) -> list[PartInfo]:
        """Write what waits and return all parts, oldest first; after an error, those that were closed before it.

        What is written afterwards goes to further parts. OutputError: as `write`, the first time.
        """
        if self._error is None and self._waiting:
            self._write_groups()
        if self._error is None and self._part is not None:
            self._finish_part(self._part)
        return list(self._parts)

    def close(self) -> list[PartInfo]:
        """The last cut."""
        return self.cut()

    def sync(self) -> None:
        """Flushes all closed parts to disk; may be called in another thread. OutputError: not all of them are there."""
        waiting = self._parts[self._synced :]
        with writing(self.folder):
            for part in waiting:
                sync_path(self.folder / part.name)
            for folder in {(self.folder / part.name).parent for part in waiting}:
                sync_path(folder)  # their names, too
        self._synced += len(waiting)

    def abandon(self) -> None:
        """Drop waiting tables and the open part; for a run that fails elsewhere."""
        self._waiting.clear()
        if self._part is not None:
            self._part.discard()
            self._part = None

    def _write_groups(self) -> None:
        """Write the waiting tables in equal row groups, each less than twice the limits, so that no small rest is left
        over."""
        table = pa.concat_tables(self._waiting)
        groups = max(1, self._waiting_rows // self.row_group_rows, self._waiting_bytes // ROW_GROUP_BYTES)
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
        rows_per_group = -(-table.num_rows // groups)
        for start in range(0, table.num_rows, rows_per_group):
            self._write_group(table.slice(start, rows_per_group))

    def _write_group(self, group: pa.Table) -> None:
        path = self.folder / part_name(self.prefix, self._first + len(self._parts))
        with self._writing(path):
            part = self._part = self._part or _OpenPart(path, group)
            part.write(group)
        if part.bytes >= self.part_bytes:
            self._finish_part(part)

    def _finish_part(self, part: _OpenPart) -> None:
        with self._writing(part.path):
            closed = part.finish()
        self._parts.append(closed._replace(name=part.path.relative_to(self.folder).as_posix()))
        self._part = None

    @contextmanager
    def _writing(self, path: Path) -> Iterator[None]:
        try:
            with writing(path):
                yield
        except OutputError as error:
            # The broken part goes at once: its space may be what the other ranks' logs and failed.json need.
            self._error = error
            self.abandon()
            with suppress(OSError):
                path.unlink()  # a part that failed while it was being opened
            raise


def part_prefix(rank: int, query: str = "") -> str:
    """How the names of a rank's parts begin; those of a query lie in a folder of its name.

    >>> part_prefix(2), part_prefix(2, "near")
    ('rank-2', 'near/rank-2')
    """
    return f"{query}/rank-{rank}" if query else f"rank-{rank}"


def part_name(prefix: str, number: int) -> str:
    return f"{prefix}-{number:05d}.parquet"


def size_fault(folder: Path, part: PartInfo) -> str:
    """Says in what a part's size differs from when it was closed; "" if it does not."""
    path = folder / part.name
    found = f"{path.stat().st_size} bytes" if path.is_file() else "no such file"
    return (
        ""
        if found == f"{part.bytes} bytes"
        else f"{path}: got {found}, wanted the {part.bytes} bytes that were written there"
    )


def content_fault(folder: Path, part: PartInfo, between: Callable[[], None] = lambda: None) -> str:
    """Says the same of all its bytes, which it reads. between: is called now and then."""
    path = folder / part.name
    try:
        with reading(path):
            found = checksum_of(path, between)
    except InputError as error:
        return str(error)
    return (
        ""
        if found == part.checksum
        else f"{path}: got checksum {found}, wanted {part.checksum}: its bytes are others now"
    )


def next_number(folder: Path, prefix: str) -> int:
    """The number of the first part that is not in the folder yet: a run that goes on keeps those from before."""
    there = (path for path in folder.glob(f"{prefix}-[0-9]*.parquet") if path.is_file())
    return max((int(path.stem.rpartition("-")[2]) for path in there), default=-1) + 1


class _OpenPart:
    """One part file that is being written. sample: rows that tell how its columns are best encoded."""

    def __init__(self, path: Path, sample: pa.Table):
        self.path = path
        self.rows = 0
        few = sample.slice(0, SAMPLE_ROWS)
        options = encoding_options(few)
        options["write_batch_size"] = max(1, min(PAGE_ROWS, PAGE_BYTES * few.num_rows // max(1, few.nbytes)))
        self._sink = HashedFile(path)
        try:
            self._writer = pq.ParquetWriter(self._sink, sample.schema, write_statistics=False, **options)
        except BaseException:
            self._sink.close()
            raise

    @property
    def bytes(self) -> int:
        return self._sink.octets

    def write(self, group: pa.Table) -> None:
        with stored_as_parquet(group):
            self._writer.write_table(group, row_group_size=group.num_rows)
        self.rows += group.num_rows

    def finish(self) -> PartInfo:
        self._writer.close()
        self._sink.close()
        return PartInfo(self.path.name, self.rows, self.bytes, self._sink.checksum)

    def discard(self) -> None:
        """Close without regard to errors and remove the file."""
        with suppress(OSError):
            self._writer.close()
        self._writer.is_open = False  # else its destructor tries to close it again and prints the same error
        with suppress(OSError):
            self._sink.close()
        with suppress(OSError):
            self.path.unlink()


def encoding_options(sample: pa.Table) -> dict:
    """Options of ParquetWriter, by column type and a few rows, chosen by measured speed on one core.

    Integers and times: delta packing, 80 to 110 M values/s and mostly a quarter of the bytes, so no codec on top; plain
    (200 M/s) where it saves less than PACKED_MAX: on numbers that look random it does 50 M/s and saves nothing.
    Strings: dictionary, which gives up by itself where values do not repeat. Floats: plain, since a dictionary of them
    costs four fifths of the speed. Snappy for these two: every Parquet reader knows it.
    """
    integers = {field.name for field in sample.schema if _is_integer_like(field.type)}
    options = {
        "compression": {field.name: "none" if field.name in integers else "snappy" for field in sample.schema},
        "use_dictionary": [field.name for field in sample.schema if _is_variable_size(field.type)],
    }
    packed = [name for name in sorted(integers) if packed_share(fixed_values(one_array(sample[name]))) <= PACKED_MAX]
    if packed:
        options["column_encoding"] = dict.fromkeys(packed, "DELTA_BINARY_PACKED")
    return options


def packed_share(values: np.ndarray) -> float:
    """The bytes of delta packing divided by those of plain encoding, for numbers as items of their width. 32
    differences are stored with as many bits as the largest of them takes above the smallest."""
    width = max(4, values.itemsize)  # Parquet knows no narrower integers
    steps = np.diff(values.view(f"i{values.itemsize}").astype(np.int64))  # wraps, as the encoding does
    blocks = steps[: len(steps) // MINIBLOCK * MINIBLOCK].reshape(-1, MINIBLOCK)
    if not len(blocks):
        return 0.0
    spans = blocks.max(axis=1).astype(np.uint64) - blocks.min(axis=1).astype(np.uint64)
    return float(np.log2(spans + 1.0).mean()) / (8 * width)


def _is_integer_like(kind: pa.DataType) -> bool:
    # Stored by Parquet as INT32 or INT64, the two physical types that delta packing knows.
    return pa.types.is_integer(kind) or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind))


def _is_variable_size(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    binary = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    return any(test(kind) for test in tests + binary)
