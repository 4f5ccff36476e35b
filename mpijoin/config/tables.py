"""The kind of value that `table` of a stream is: what a Python program hands over instead of a path."""

from __future__ import annotations

from typing import Any

from mpijoin.config.kinds import Kind
from mpijoin.config.units import show

WANTED = "wanted a pyarrow.Table, a RecordBatch, or a frame that Arrow can read, such as one of pandas or polars"


def _parse(value: Any) -> Any:
    import pyarrow as pa  # late, so that reading a job file does not load it

    if isinstance(value, pa.Table):
        return value
    if isinstance(value, pa.RecordBatch):
        return pa.Table.from_batches([value])
    if isinstance(value, (str, int, float, list, tuple, dict)) or value is None:
        raise ValueError(f"got {show(value)}, {WANTED}")
    try:
        return pa.table(value)
    except (pa.ArrowException, TypeError, ValueError, NotImplementedError) as error:
        got, why = (
            f"{type(value).__module__}.{type(value).__qualname__}",
            "; ".join(map(str, error.args)).splitlines()[0],
        )
        raise ValueError(f"got a {got}, which Arrow cannot read ({why}), {WANTED}") from error


TABLE = Kind(_parse, repr, "Arrow table or data frame, in Python only")
