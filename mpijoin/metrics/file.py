"""A Parquet file that grows row group by row group. It gets its name only when it is whole."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from mpijoin.disk import HashedFile
from mpijoin.errors import OutputError
from mpijoin.refusals import writing


def part_name(name: str, part: int) -> str:
    """Returns the file name of one part of a table that checkpoints cut into parts.

    part: the number of the checkpoint after which the part begins, or 0 if it begins with the run.

    >>> part_name("rank-2", 0), part_name("rank-2", 7)
    ('rank-2.parquet', 'rank-2-00007.parquet')
    """
    return f"{name}-{part:05d}.parquet" if part else f"{name}.parquet"


class TableFile:
    """Writes a Parquet file: call `append` for each table of `schema` and `close` once. The folder must exist.

    OutputError is raised if the file system refuses to write. The file is then given up: later tables are dropped and
    `close` does nothing.
    """

    def __init__(self, path: str | os.PathLike, schema: pa.Schema):
        self.path = Path(path)
        self._schema = schema
        self._open_path = self.path.with_name(self.path.name + ".open")
        self._writer: Any = None  # This becomes a pq.ParquetWriter with the first table.
        self._failed = False

    def append(self, table: pa.Table) -> None:
        if not self._failed:
            with self._writing():
                self._write(table)

    def close(self) -> None:
        """Finishes the file and gives it its name. Does nothing if no table was appended."""
        if self._writer is not None:
            with self._writing():
                self._finish()

    @property
    def is_there(self) -> bool:
        """Whether anything was written, or writing was given up."""
        return self._writer is not None or self._failed or self.path.exists()

    def _write(self, table: pa.Table) -> None:
        if self._writer is None:
            self._writer = pq.ParquetWriter(HashedFile(self._open_path), self._schema, compression="snappy")
        self._writer.write_table(table)

    def _finish(self) -> None:
        self._writer.close()
        self._writer.where.close()
        self._writer = None
        os.replace(self._open_path, self.path)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with writing(self.path):
                yield
        except OutputError:
            self._give_up()
            raise

    def _give_up(self) -> None:
        self._failed = True
        if self._writer is not None:
            with suppress(OSError):
                self._writer.close()
            self._writer.where.close()
            # Otherwise the destructor would try once more and print the same error.
            self._writer.is_open = False
            self._writer = None
        with suppress(OSError):
            self._open_path.unlink()
