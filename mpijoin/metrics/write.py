"""Epoch records into metrics/rank-N.parquet."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mpijoin.errors import OutputError
from mpijoin.metrics.record import FIELDS, ROLES, ROWS_HELD, Recorder

SCHEMA = pa.schema([pa.field(name, pa.string() if name == "role" else pa.int64(), nullable=False) for name in FIELDS])


class MetricsFile:
    """The metrics of one rank: `add` rows, `close` once. The file has its name only when it is whole.

    The folder must exist. Memory is bounded: every `rows_held` rows become a row group. OutputError: the file system
    refuses; the file is then given up, later rows are dropped and `close` does nothing.
    """

    def __init__(self, folder: str | os.PathLike, rank: int, rows_held: int = ROWS_HELD):
        self.path = Path(folder) / f"rank-{rank}.parquet"
        self._open_path = self.path.with_name(self.path.name + ".open")
        self._writer: pq.ParquetWriter | None = None
        self._failed = False
        self._recorder = Recorder(self._write, rows_held)

    def add(self, **row: Any) -> None:
        """Append one record: the fields of EpochRecord."""
        self._recorder.add(**row)

    def close(self) -> None:
        """Write what is held, finish the file and give it its name; a rank without rows leaves an empty table."""
        self._recorder.close()
        if self._writer is None and not self._failed and not self.path.exists():
            self._write({name: np.zeros(0, np.int64) for name in FIELDS})
        if self._writer is not None:
            self._guard(self._finish)

    def _write(self, columns: dict[str, np.ndarray]) -> None:
        if not self._failed:
            self._guard(lambda: self._append(_as_table(columns)))

    def _append(self, table: pa.Table) -> None:
        if self._writer is None:
            self._writer = pq.ParquetWriter(pa.OSFile(str(self._open_path), "wb"), SCHEMA, compression="snappy")
        self._writer.write_table(table)

    def _finish(self) -> None:
        self._writer.close()
        self._writer.where.close()
        self._writer = None
        os.replace(self._open_path, self.path)

    def _guard(self, act: Any) -> None:
        try:
            act()
        except OSError as error:
            self._give_up()
            raise OutputError(
                f"{self.path}: cannot be written: {os.strerror(error.errno) if error.errno else error}"
            ) from error

    def _give_up(self) -> None:
        self._failed = True
        if self._writer is not None:
            with suppress(OSError):
                self._writer.close()
            self._writer.is_open = False  # else its destructor tries once more and prints the same error
            self._writer = None
        with suppress(OSError):
            self._open_path.unlink()


def _as_table(columns: dict[str, np.ndarray]) -> pa.Table:
    """Columns of the recorder as a table of SCHEMA, roles as words."""
    roles = pa.array(ROLES).take(pa.array(columns["role"]))
    return pa.table([roles if name == "role" else pa.array(columns[name]) for name in FIELDS], schema=SCHEMA)
