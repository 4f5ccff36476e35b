"""The file that records the moves of partition groups: what each one cost, and whether it brought the gain expected."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mpijoin.data.arrow import fixed_array, text_array
from mpijoin.metrics.file import TableFile, part_name

NUMBERS = (
    "move", "period", "group", "supplier", "consumer", "bytes", "blocks", "begun_us", "frozen_us", "delivered_us",
    "closed_us",
    "transfer_us",
)  # fmt: skip
WORDS = ("kind", "outcome")
SCHEMA = pa.schema(
    [pa.field(name, pa.int64(), nullable=False) for name in NUMBERS]
    + [pa.field(name, pa.string(), nullable=False) for name in WORDS]
    + [pa.field(name, pa.float64()) for name in ("gain_predicted", "gain_realised")]
)
ROWS_HELD = 1024


class MovesFile:
    """Writes metrics/moves.parquet: call `add` for each row and `close` once. A run without moves leaves no file.

    A row has the fields of SCHEMA. `kind` is one of `config.moves.MOVES` or PARTS. Moments are in us since the clock of
    the run started. The group's input was held from `frozen_us` to `delivered_us`. Gains are shares of the supplier's
    time, and `gain_realised` is null if no later epoch shows it. OutputError is raised as in `TableFile`.
    """

    def __init__(self, folder: str | os.PathLike, part: int = 0):
        self._file = TableFile(Path(folder) / part_name("moves", part), SCHEMA)
        self._rows: list[dict[str, Any]] = []

    def add(self, row: dict[str, Any]) -> None:
        self._rows.append(row)
        if len(self._rows) == ROWS_HELD:
            self._flush()

    def close(self) -> None:
        if self._rows:
            self._flush()
        self._file.close()

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        columns = {field.name: [row[field.name] for row in rows] for field in SCHEMA}
        self._file.append(pa.table([_column(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA))


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind):
        return text_array(values)
    nulls = np.array([value is None for value in values])
    return fixed_array(kind, np.array([value or 0 for value in values], kind.to_pandas_dtype()), nulls)
