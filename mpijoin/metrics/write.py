"""The file metrics/rank-N.parquet, to which a rank writes its epoch records."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mpijoin.data.arrow import array_of, text_array
from mpijoin.metrics.file import TableFile, part_name
from mpijoin.metrics.record import ROLES, ROWS_HELD, Recorder, columns_of


def schema_of(streams: Sequence[str]) -> pa.Schema:
    """Returns the schema of the metrics of a job whose streams have these names."""
    kinds = ((name, pa.string() if name == "role" else pa.int64()) for name in columns_of(streams))
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in kinds])


def warm_up() -> None:
    """Writes a first Parquet file. Nothing is compiled, but the first file of a process takes 12 ms, which is more than
    any later one takes."""
    pq.ParquetWriter(pa.BufferOutputStream(), schema_of(["left", "right"])).close()


class MetricsFile:
    """Writes the metrics of one rank: call `add` for each row and `close` once.

    The memory it uses is bounded, because every `rows_held` rows become a row group. OutputError is raised as in
    `TableFile`.
    """

    def __init__(
        self, folder: str | os.PathLike, rank: int, streams: Sequence[str], part: int = 0, rows_held: int = ROWS_HELD
    ):
        """streams: their names · part: the checkpoint after which the file begins, or 0 if it begins with the run."""
        self._schema = schema_of(streams)
        self._file = TableFile(Path(folder) / part_name(f"rank-{rank}", part), self._schema)
        self._recorder = Recorder(self._append, streams, rows_held)

    @property
    def path(self) -> Path:
        return self._file.path

    def add(self, **row: Any) -> None:
        """Appends one record, given by the fields of EpochRecord."""
        self._recorder.add(**row)

    def close(self) -> None:
        """Writes what is held and finishes the file. A rank without rows leaves an empty table."""
        self._recorder.close()
        if not self._file.is_there:
            self._append({name: np.zeros(0, np.int64) for name in self._schema.names})
        self._file.close()

    def _append(self, columns: dict[str, np.ndarray]) -> None:
        """Appends the columns of the recorder to the file, with the roles as words."""
        roles = text_array([ROLES[role] for role in columns["role"]])
        arrays = [roles if name == "role" else array_of(columns[name]) for name in self._schema.names]
        self._file.append(pa.table(arrays, schema=self._schema))
