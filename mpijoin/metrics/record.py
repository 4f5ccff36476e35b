"""Records of what one rank did in one distribution epoch. They are kept column by column."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import numpy as np

from mpijoin.named import NamedTuple

ROWS_HELD = 4096  # With about 45 columns of 8 bytes this takes 1.5 MB in each rank.


class EpochRecord(NamedTuple):
    """One row of metrics/rank-N.parquet.

    Times are in us. Times and counts belong to this epoch alone, and states are those at its end.
    wall_us = cpu_us + comm_us + idle_us + what other processes took, but a producer's cpu_us includes its threads that
    decode at the same time. `window_bytes`, `blocks` and `groups` measure the join state that is held. `buffer_bytes`
    is what waits to be joined at a slave, or to be sent at the master.

    An epoch in which a slave spills or cleans up has further records, which cut it into parts. Times and counts then
    belong to the part that ends with the record.
    """

    rank: int
    role: str  # "master", "slave" or "collector"
    epoch: int
    end_us: int = 0  # This is counted from the start of the run's clock.
    wall_us: int = 0
    cpu_us: int = 0
    comm_us: int = 0
    idle_us: int = 0
    # A slave's messages waited so long for their turns (producer/exchange.py), and so long if the slave had come for
    # each as late as it was served the last time (WSJ, section VI-B).
    turn_us: int = 0
    turn_offset_us: int = 0
    tuples: tuple[int, ...] = ()  # There is one count, and one column `tuples_<name>`, for each stream.
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
    active: int = 0  # The master records how many slaves have groups.
    lag_us: int = 0  # The master of a paced run records how long after its time the epoch was sent.
    # A slave records what was left in its stream buffer when the next epoch's message came (WSJ, section IV-C).
    occupancy_bytes: int = 0
    # A slave of a paced run records the production delays: the number of results, and the sum, the quantiles and the
    # maximum of their delays.
    delay_count: int = 0
    delay_sum_us: int = 0
    delay_p50_us: int = 0
    delay_p95_us: int = 0
    delay_p99_us: int = 0
    delay_max_us: int = 0
    # What a slave holds in memory, and how much it may. The other fields are those of `records.SpillFigures`.
    memory_bytes: int = 0
    memory_limit_bytes: int = 0
    spills: int = 0
    spill_us: int = 0
    write_us: int = 0
    spilled_bytes: int = 0
    read_back_bytes: int = 0
    disk_bytes: int = 0
    cleanup_us: int = 0
    cleanup_results: int = 0
    owed_groups: int = 0
    owed_bytes: int = 0
    owed_generations: int = 0
    owed_results: int = 0


PER_STREAM = "tuples"
FIELDS = frozenset(EpochRecord._fields)
REQUIRED = FIELDS.difference(EpochRecord._field_defaults)
ROLES = ("master", "slave", "collector", "producer")

# A flush takes the columns of the rows that are held. Each is int64[n], and `role` is an index into ROLES.
Flush = Callable[[dict[str, np.ndarray]], None]


def columns_of(streams: Sequence[str]) -> tuple[str, ...]:
    """Returns the names of the columns of a job's metrics. streams: the names of its streams.

    >>> columns_of(["p", "s"])[8:11]
    ('tuples_p', 'tuples_s', 'results')
    """
    own = tuple(f"{PER_STREAM}_{name}" for name in streams)
    named = (own if field == PER_STREAM else (field,) for field in EpochRecord._fields)
    return tuple(name for names in named for name in names)


class Recorder:
    """Appends epoch records to columns of a fixed length, and hands these to `flush` when they are full.

    >>> recorder = Recorder(lambda columns: print(columns["results"]), ["left", "right"], rows_held=2)
    >>> for epoch in range(3):
    ...     recorder.add(rank=1, role="slave", epoch=epoch, results=10 * epoch)
    [ 0 10]
    >>> recorder.close()
    [20]
    """

    def __init__(self, flush: Flush, streams: Sequence[str], rows_held: int = ROWS_HELD):
        """streams: the names of the job's streams; the field `tuples` has one count for each of them."""
        self._flush = flush
        self._columns = {name: np.zeros(rows_held, np.int64) for name in columns_of(streams)}
        self._streams = [self._columns[f"{PER_STREAM}_{name}"] for name in streams]
        self._rows_held = rows_held
        self._rows = 0

    def add(self, **row: Any) -> None:
        """Appends one record. The fields are those of EpochRecord, and absent ones are 0.

        Raises TypeError if fields are unknown or missing, and ValueError if the role is unknown.
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
        """Hands over what is held. A second call finds nothing more."""
        if self._rows:
            self._hand_over()

    def _hand_over(self) -> None:
        columns = {name: column[: self._rows].copy() for name, column in self._columns.items()}
        for column in self._columns.values():
            column[:] = 0  # The next rows may leave fields out.
        self._rows = 0
        self._flush(columns)
