"""Streams of a few tuples, which pass through every kernel of a use."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from mpijoin.data.arrow import array_of, text_array
from mpijoin.data.schema import Column, StreamSchema
from mpijoin.launch.use import Use


def tiny_stream(name: str, use: Use) -> StreamSchema:
    """Returns a stream whose tuples pass through every kernel of this use."""
    time = Column("ts", pa.int64())
    if not use.text:
        return StreamSchema(name, time, 1, (Column("key", pa.int64()),), False, ())
    return StreamSchema(name, time, 1, (Column("key", pa.string()),), True, (Column("text", pa.string()),))


def tiny_table(use: Use) -> pa.Table:
    times = array_of(np.array([1, 2, 2, 0]))
    if not use.text:
        return pa.table({"ts": times, "key": times})
    return pa.table({"ts": times, "key": text_array(["a", "b", "b", "a"]), "text": text_array(["x", None, "y", "z"])})
