"""The file that records the checkpoints and restarts of a run. The report marks them in its figures."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa

from mpijoin.data.arrow import array_of, text_array
from mpijoin.metrics.file import TableFile, part_name

NUMBERS = ("checkpoint", "begun_us", "ended_us", "bytes")
SCHEMA = pa.schema(
    [pa.field(name, pa.int64(), nullable=False) for name in NUMBERS]
    + [pa.field("outcome", pa.string(), nullable=False)]
)
ROWS_HELD = 1024
OUTCOMES = ("whole", "failed", "stopped", "resumed")


class CheckpointsFile:
    """Writes metrics/checkpoints.parquet: call `add` for each row and `close` once at the end.

    A run without checkpoints leaves no file. Moments are in us since the clock of the run started. `outcome` is "whole"
    for a complete checkpoint, "failed" for an incomplete one, "stopped" for the one at which the run ended, and
    "resumed" for the one from which the run went on at that moment. OutputError is raised as in `TableFile`.
    """

    def __init__(self, folder: str | os.PathLike, part: int = 0):
        self._file = TableFile(Path(folder) / part_name("checkpoints", part), SCHEMA)
        self._rows: list[tuple[int, int, int, int, str]] = []

    def add(self, checkpoint: int, begun_s: float, ended_s: float, octets: int, outcome: str) -> None:
        self._rows.append((checkpoint, int(1e6 * begun_s), int(1e6 * ended_s), octets, outcome))
        if len(self._rows) == ROWS_HELD:
            self._flush()

    def close(self) -> None:
        if self._rows:
            self._flush()
        self._file.close()

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        *numbers, outcomes = zip(*rows)
        columns = [array_of(np.array(column, np.int64)) for column in numbers]
        self._file.append(pa.table([*columns, text_array(list(outcomes))], schema=SCHEMA))
