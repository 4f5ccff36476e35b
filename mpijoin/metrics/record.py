"""What one rank did in one distribution epoch, recorded column by column."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Any, Callable, Sequence

import numpy as np

ROWS_HELD = 4096  # at about 30 columns of 8 bytes: 1 MB a rank


@dataclass(frozen=True)
class EpochRecord:
    """One row of metrics/rank-N.parquet. Times in us of this epoch alone; states as they are when it ends.

    wall_us = cpu_us + comm_us + idle_us + what other processes took. `window_bytes`, `blocks` and `groups` are join
    state held, `buffer_bytes` what waits to be joined (slave) or sent (master). Counts are of this epoch.
    """

    rank: int
    role: str  # "master", "slave" or "collector"
    epoch: int
    end_us: int = 0  # since the clock of the run started
    wall_us: int = 0
    cpu_us: int = 0
    comm_us: int = 0
    idle_us: int = 0
    tuples: tuple[int, ...] = ()  # per stream: columns `tuples_<name>`
    results: int = 0
    comparisons: int = 0
    window_bytes: int = 0
    blocks: int = 0
    groups: int = 0
    buffer_bytes: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    splits: int = 0
    merges: int = 0
    expired: int = 0
    late: int = 0
    null_key: int = 0
    active: int = 0  # master: slaves that have groups
    lag_us: int = 0  # master of a paced run: how long after its time the epoch was sent
    occupancy_bytes: int = 0  # slave: left in the stream buffer when the next epoch's message came (WSJ, section IV-C)
    delay_count: int = 0  # production delays of a paced run: of how many results, their sum, quantiles and maximum
    delay_sum_us: int = 0
    delay_p50_us: int = 0
    delay_p95_us: int = 0
    delay_p99_us: int = 0
    delay_max_us: int = 0


PER_STREAM = "tuples"
FIELDS = frozenset(field.name for field in fields(EpochRecord))
REQUIRED = frozenset(field.name for field in fields(EpochRecord) if field.default is MISSING)
ROLES = ("master", "slave", "collector")

# A flush takes the columns of the rows held: int64[n] each, `role` as int64 index into ROLES.
Flush = Callable[[dict[str, np.ndarray]], None]


def columns_of(streams: Sequence[str]) -> tuple[str, ...]:
    """The columns of a job's metrics. streams: their names.

    >>> columns_of(["p", "s"])[8:11]
    ('tuples_p', 'tuples_s', 'results')
    """
    own = tuple(f"{PER_STREAM}_{name}" for name in streams)
    named = (own if field.name == PER_STREAM else (field.name,) for field in fields(EpochRecord))
    return tuple(name for names in named for name in names)


class Recorder:
    """Appends epoch records to fixed columns and hands them to `flush` when they are full.

    >>> recorder = Recorder(lambda columns: print(columns["results"]), ["left", "right"], rows_held=2)
    >>> for epoch in range(3):
    ...     recorder.add(rank=1, role="slave", epoch=epoch, results=10 * epoch)
    [ 0 10]
    >>> recorder.close()
    [20]
    """

    def __init__(self, flush: Flush, streams: Sequence[str], rows_held: int = ROWS_HELD):
        """streams: the names of the job's, of which `tuples` has a count each."""
        self._flush = flush
        self._columns = {name: np.zeros(rows_held, np.int64) for name in columns_of(streams)}
        self._streams = [self._columns[f"{PER_STREAM}_{name}"] for name in streams]
        self._rows_held = rows_held
        self._rows = 0

    def add(self, **row: Any) -> None:
        """Append one record; fields as in EpochRecord, absent ones 0.

        TypeError: unknown or missing fields; ValueError: unknown role.
        """
        if not REQUIRED <= row.keys() <= FIELDS:
            wrong = sorted((REQUIRED - row.keys()) | (row.keys() - FIELDS))
            raise TypeError(f"an epoch record has wrong or missing fields: {', '.join(wrong)}")
        row["role"] = ROLES.index(row["role"])
        for column, count in zip(self._streams, row.pop(PER_STREAM, ())):
            column[self._rows] = count
        for name, value in row.items():
            self._columns[name][self._rows] = value
        self._rows += 1
        if self._rows == self._rows_held:
            self._hand_over()

    def close(self) -> None:
        """Hand over what is held; a second call finds nothing."""
        if self._rows:
            self._hand_over()

    def _hand_over(self) -> None:
        columns = {name: column[: self._rows].copy() for name, column in self._columns.items()}
        for column in self._columns.values():
            column[:] = 0  # the next rows may leave fields out
        self._rows = 0
        self._flush(columns)
