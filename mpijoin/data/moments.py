"""Times as words, however far they are from what calendars know."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def timestamp_words(value: int, unit: str) -> str:
    """Returns the UTC time that a timestamp of this unit stands for.

    >>> timestamp_words(1_500, "ms"), timestamp_words(2**62, "s")
    ('1970-01-01 00:00:01.500', '4611686018427387904 s')
    """
    per_second = PER_SECOND[unit]
    try:
        whole = str(pa.scalar(value // per_second, pa.int64()).cast(pa.timestamp("s")))
    except (ValueError, OverflowError):
        return f"{value} {unit}"
    rest = str(value % per_second).zfill(len(str(per_second)) - 1)
    return f"{whole}.{rest}" if per_second > 1 else whole


def first_words(column: pa.ChunkedArray) -> str:
    """Returns the first value of a column of timestamps or integers in words. No zone has to be known for that."""
    first = column.slice(0, 1).combine_chunks()
    if first.null_count:
        return "null"
    if types.is_timestamp(first.type):
        return timestamp_words(first.view(pa.int64())[0].as_py(), first.type.unit)
    return str(first[0].as_py())
