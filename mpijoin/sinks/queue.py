"""Results that wait in memory until another thread of this process takes them."""

from __future__ import annotations

from math import inf
from queue import SimpleQueue
from threading import Lock

import pyarrow as pa

from mpijoin.sinks.collector import WithoutParts

# So many bytes of results may wait for their reader. More come only from what was on its way to the collector by then:
# what each slave may have sent ahead (slave/runtime.py), and what the collector holds of later epochs.
QUEUE_BYTES_MAX = 32 << 20


class ResultQueue(WithoutParts):
    """A writer that puts record batches into a queue. `write` and `is_full` are for the thread of the collector, and
    the other methods for any thread. Each batch is taken once, whoever takes it.

    Nothing here waits but `take`. A collector that waited would be taken for lost by the other ranks.
    """

    def __init__(self, octets_max: float = QUEUE_BYTES_MAX):
        self._octets_max = octets_max
        self._batches: SimpleQueue[pa.RecordBatch | None] = SimpleQueue()
        self._written_bytes = 0  # Only the writing thread changes it.
        self._taken_bytes, self._taking = 0, Lock()

    @property
    def waiting_bytes(self) -> int:
        """The bytes of results that nobody has taken yet."""
        return self._written_bytes - self._taken_bytes

    @property
    def is_full(self) -> bool:
        return self.waiting_bytes > self._octets_max

    def write(self, table: pa.Table) -> None:
        for batch in table.to_batches():
            if batch.num_rows:
                self._written_bytes += batch.nbytes
                self._batches.put(batch)

    def take(self) -> pa.RecordBatch | None:
        """Waits for the next batch, and returns it. None stands for the end, behind which there is nothing."""
        batch = self._batches.get()
        if batch is None:
            self._batches.put(None)  # for others that wait
            return None
        with self._taking:
            self._taken_bytes += batch.nbytes
        return batch

    def end(self) -> None:
        """Nothing more comes, because the run has ended in one way or another."""
        self._batches.put(None)

    def keep_all(self) -> None:
        """From now on it is never full."""
        self._octets_max = inf

    def abandon(self) -> None:
        """Keeps what waits. It was found before the run failed, and the reader gets the error behind it."""
