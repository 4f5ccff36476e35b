"""Epoch records into metrics/rank-N.parquet."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mpijoin.data.arrow import array_of, text_array
from mpijoin.metrics.file import TableFile, part_name
from mpijoin.metrics.record import FIELDS, ROLES, ROWS_HELD, Recorder

SCHEMA = pa.schema([pa.field(name, pa.string() if name == "role" else pa.int64(), nullable=False) for name in FIELDS])


class MetricsFile:
    """The metrics of one rank: `add` rows, `close` once.

    Memory is bounded: every `rows_held` rows become a row group. OutputError as in `TableFile`.
    """

    def __init__(self, folder: str | os.PathLike, rank: int, rows_held: int = ROWS_HELD, part: int = 0):
        self._file = TableFile(Path(folder) / part_name(f"rank-{rank}", part), SCHEMA)
        self._recorder = Recorder(lambda columns: self._file.append(_as_table(columns)), rows_held)

    @property
    def path(self) -> Path:
        return self._file.path

    def add(self, **row: Any) -> None:
        """Append one record: the fields of EpochRecord."""
        self._recorder.add(**row)

    def close(self) -> None:
        """Write what is held and finish the file; a rank without rows leaves an empty table."""
        self._recorder.close()
        if not self._file.is_there:
            self._file.append(_as_table({name: np.zeros(0, np.int64) for name in FIELDS}))
        self._file.close()


def _as_table(columns: dict[str, np.ndarray]) -> pa.Table:
    """Columns of the recorder as a table of SCHEMA, roles as words."""
    roles = text_array([ROLES[role] for role in columns["role"]])
    return pa.table([roles if name == "role" else array_of(columns[name]) for name in FIELDS], schema=SCHEMA)
