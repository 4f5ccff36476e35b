"""Moves of partition groups: what each cost, and whether it did what was hoped for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mpijoin.errors import OutputError

NUMBERS = (
    "move", "period", "group", "supplier", "consumer", "bytes", "blocks", "begun_us", "frozen_us", "delivered_us", "closed_us",
    "transfer_us",
)  # fmt: skip
SCHEMA = pa.schema(
    [pa.field(name, pa.int64(), nullable=False) for name in NUMBERS]
    + [pa.field("outcome", pa.string(), nullable=False)]
    + [pa.field(name, pa.float64()) for name in ("gain_predicted", "gain_realised")]
)
ROWS_HELD = 1024


class MovesFile:
    """metrics/moves.parquet: `add` rows, `close` once. The file has its name only when it is whole.

    A row has the fields of SCHEMA: moments in us since the clock of the run started (`frozen` to `delivered`: the group's input
    was held), gains in shares of the supplier's time; `gain_realised` is null where no later epoch tells it. OutputError: the
    file system refuses.
    """

    def __init__(self, folder: str | os.PathLike):
        self._path = Path(folder) / "moves.parquet"
        self._open_path = self._path.with_name(self._path.name + ".open")
        self._rows: list[dict[str, Any]] = []
        self._writer: pq.ParquetWriter | None = None

    def add(self, row: dict[str, Any]) -> None:
        self._rows.append(row)
        if len(self._rows) == ROWS_HELD:
            self._guard(self._flush)

    def close(self) -> None:
        """A run without moves leaves no file."""
        if self._rows or self._writer:
            self._guard(self._finish)

    def _flush(self) -> None:
        if self._writer is None:
            self._writer = pq.ParquetWriter(str(self._open_path), SCHEMA, compression="snappy")
        self._writer.write_table(pa.Table.from_pylist(self._rows, SCHEMA))
        self._rows = []

    def _finish(self) -> None:
        self._flush()
        self._writer.close()
        self._writer = None
        os.replace(self._open_path, self._path)

    def _guard(self, act: Any) -> None:
        try:
            act()
        except OSError as error:
            raise OutputError(f"{self._path}: cannot be written: {error}") from error
