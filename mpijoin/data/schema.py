"""What a stream's tuples consist of, resolved once from the job and the files' own schemas.

Inside the engine a tuple is `(key, time, row, record, blob)`:

- key    int64: the key itself (one integer, date, boolean or timestamp column) or, when `hashed`, its 64-bit hash
- time   int64 in the join's common `unit`
- row    int64: file index * 2**40 + position in the file
- record `record_words` int64 words: everything of fixed size (key columns when hashed, payload, lengths, null bits)
- blob   bytes of variable-size values, key columns first; absent when no stored column has variable size
"""

from __future__ import annotations

import pyarrow as pa

from mpijoin.named import NamedTuple


class Column(NamedTuple):
    """One column as the user knows it: `type` is the source's own, which results are given back in."""

    name: str
    type: pa.DataType


class StreamSchema(NamedTuple):
    """One stream's columns.

    scale: join time units per unit of the time column (>= 1) · null_keys: whether records say which key columns are
    null. They do where rows with a null key are results and the key has several columns (so it is hashed); a null in a
    key of one column is told by the row number (KEYLESS).
    """

    name: str
    time: Column
    scale: int
    keys: tuple[Column, ...]
    hashed: bool
    payload: tuple[Column, ...]
    null_keys: bool = False

    @property
    def stored(self) -> tuple[Column, ...]:
        """Columns whose values travel with the tuple: the key's own bytes only where `key` is but a hash."""
        return (self.keys if self.hashed else ()) + self.payload


class JoinSchema(NamedTuple):
    """All streams, in the job's order; `unit` ("s", "ms", "us" or "ns") is that of all times, windows and lateness
    inside."""

    streams: tuple[StreamSchema, ...]
    unit: str

    def ticks(self, duration_ns: int | None) -> int:
        """A duration in the common unit; None, the window that is unbounded, is FOREVER.

        >>> JoinSchema((), "us").ticks(20_000_000_000), JoinSchema((), "us").ticks(None) == FOREVER
        (20000000, True)
        """
        return FOREVER if duration_ns is None else duration_ns // UNIT_NS[self.unit]


FOREVER = (1 << 63) - 1  # ticks of a window that is unbounded
UNIT_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
