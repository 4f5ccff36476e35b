"""The kind of value that `table` of a stream is: what a Python program hands over instead of a path."""

from __future__ import annotations

import re
from typing import Any
from weakref import WeakKeyDictionary

from mpijoin.config.kinds import Kind
from mpijoin.config.units import show

PANDAS_INDEX = re.compile(r"__index_level_\d+__")
# What readers gave. They give it once, and may be the table of two streams or of two runs.
_READ: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
WANTED = "wanted a pyarrow.Table, a RecordBatch, or a frame that Arrow can read, such as one of pandas or polars"


def _parse(value: Any) -> Any:
    import pyarrow as pa  # late, so that reading a job file does not load it

    if isinstance(value, pa.Table):
        return value
    if isinstance(value, pa.RecordBatch):
        return pa.Table.from_batches([value])
    if isinstance(value, pa.RecordBatchReader):
        return _read(value)
    if isinstance(value, (str, int, float, list, tuple, dict)) or value is None:
        raise ValueError(f"got {show(value)}, {WANTED}")
    try:
        found = pa.table(value)
    except (pa.ArrowException, TypeError, ValueError, NotImplementedError) as error:
        got, why = (
            f"{type(value).__module__}.{type(value).__qualname__}",
            "; ".join(map(str, error.args)).splitlines()[0],
        )
        raise ValueError(f"got a {got}, which Arrow cannot read ({why}), {WANTED}") from error
    # An index of pandas that has no name is no column of the user's.
    return found.select([at for at, name in enumerate(found.column_names) if not PANDAS_INDEX.fullmatch(name)])


def _read(reader: Any) -> Any:
    # Read as what it is, it raises whatever stops its source, also Ctrl-C. A stream in C would only tell of it.
    if reader not in _READ:
        try:
            _READ[reader] = reader.read_all()
        except ValueError as error:
            raise ValueError(f"reading it failed: {error}") from error
    return _READ[reader]


TABLE = Kind(_parse, repr, "Arrow table or data frame, in Python only")
