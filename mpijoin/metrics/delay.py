"""Production delays of a paced run.

They are kept in a histogram whose size and error are bounded, and are written to metrics/delay-N.parquet.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterable

import numpy as np
import pyarrow as pa

from mpijoin.data.arrow import array_of
from mpijoin.metrics.buckets import BUCKETS, LANES, STARTS_US
from mpijoin.metrics.file import TableFile, part_name
from mpijoin.records import Delays

ROWS_HELD = 1 << 14

COLUMNS = ("rank", "epoch", "end_us", "bucket_us", "count")
SCHEMA = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in COLUMNS])


class DelayHistogram:
    """A histogram of delays in us. The number of delays, their sum and the longest one are exact.

    >>> delays = DelayHistogram()
    >>> delays.add(np.array([1000, 3000]), np.array([3, 1]))
    >>> delays.count, delays.figures_s()["mean"], delays.figures_s()["max"]
    (4, 0.0015, 0.003)
    """

    def __init__(self) -> None:
        self._lanes = np.zeros((LANES, BUCKETS), np.int64)
        self.count = self.sum_us = self.max_us = 0

    @property
    def counts(self) -> np.ndarray:
        """How many delays lie in each bucket, int64[BUCKETS]."""
        return self._lanes.sum(axis=0)

    def add(self, delays_us: np.ndarray, counts: np.ndarray) -> None:
        """Adds counts[i] results with the delay delays_us[i], for each i. Both are int64[n] and at least 0."""
        # The import stands here because a program that only reads histograms needs no kernels.
        from mpijoin.metrics.delay_kernels import BLOCK, count_delays

        count, sum_us, max_us = count_delays(delays_us, counts, self._lanes, np.empty(BLOCK, np.int64))
        self.count += count
        self.sum_us += sum_us
        self.max_us = max(self.max_us, max_us)

    def merge(self, other: DelayHistogram) -> None:
        self._lanes += other._lanes
        self.count += other.count
        self.sum_us += other.sum_us
        self.max_us = max(self.max_us, other.max_us)

    def quantile_us(self, share: float) -> int:
        """Returns the delay that this share of the results does not exceed, or 0 if there are no results."""
        if self.count == 0:
            return 0
        counts = self.counts
        upto = np.cumsum(counts)
        wanted = max(1.0, share * self.count)
        bucket = int(np.searchsorted(upto, wanted))
        inside = (wanted - (upto[bucket] - counts[bucket])) / counts[bucket]
        low, high = STARTS_US[bucket], STARTS_US[bucket + 1] - 1
        return min(self.max_us, int(low + inside * (high - low)))

    def figures_s(self) -> dict[str, float] | None:
        """Returns the mean, the quantiles and the maximum in seconds, or None if there are no results."""
        if self.count == 0:
            return None
        quantiles = {
            name: self.quantile_us(share) / 1e6 for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
        }
        return {"mean": self.sum_us / self.count / 1e6, **quantiles, "max": self.max_us / 1e6}

    def compact(self) -> Delays:
        """Returns the histogram as a record that fits into a message."""
        counts = self.counts
        filled = np.flatnonzero(counts)
        return Delays(tuple(filled.tolist()), tuple(counts[filled].tolist()), self.count, self.sum_us, self.max_us)

    @classmethod
    def of(cls, compacts: Iterable[Delays]) -> DelayHistogram:
        """Returns one histogram that holds the delays of all these records."""
        whole = cls()
        for compact in compacts:
            part = cls()
            part._lanes[0, list(compact.buckets)] = compact.counts
            part.count, part.sum_us, part.max_us = compact.results, compact.sum_us, compact.max_us
            whole.merge(part)
        return whole


class DelaysFile:
    """Writes metrics/delay-N.parquet, with one row for each filled bucket of each record in metrics/rank-N.parquet.

    The memory it uses is bounded. OutputError is raised as in `TableFile`.
    """

    def __init__(self, folder: str | os.PathLike, rank: int, part: int = 0):
        self._file = TableFile(Path(folder) / part_name(f"delay-{rank}", part), SCHEMA)
        self._rank = rank
        self._held: list[np.ndarray] = []
        self._rows = 0

    def add(self, epoch: int, end_us: int, delays: DelayHistogram) -> None:
        """epoch, end_us: as in the record to which the delays belong (metrics/record.py)."""
        counts = delays.counts
        filled = np.flatnonzero(counts)
        same = np.ones(len(filled), np.int64)
        columns = [same * self._rank, same * epoch, same * end_us, STARTS_US[filled], counts[filled]]
        self._held.append(np.stack(columns))
        self._rows += len(filled)
        if self._rows >= ROWS_HELD:
            self._flush()

    def close(self) -> None:
        if self._rows:
            self._flush()
        self._file.close()

    def _flush(self) -> None:
        columns = np.concatenate(self._held, axis=1)
        self._held, self._rows = [], 0
        self._file.append(pa.table([array_of(column) for column in columns], schema=SCHEMA))
