"""Rows, times and spans as people read them."""

from __future__ import annotations

import os
from typing import Any

from mpijoin.config.units import DURATION_NS
from mpijoin.verify.inputs import FILE_STRIDE, Stream
from mpijoin.verify.values import stored_type, words

MINUTES_FROM_NS = 2 * DURATION_NS["min"]  # shorter spans are given in seconds


def place(stream: Stream, row: int) -> str:
    """The file of a row, by as much of its path as tells it apart, and the position in it; "" of a synthetic stream."""
    if not stream.files:
        return ""
    index, position = divmod(row, FILE_STRIDE)
    path = stream.files[index]
    parts = path.split(os.sep)
    ends = (os.sep.join(parts[-length:]) for length in range(1, len(parts) + 1))
    short = next((end for end in ends if sum(one.endswith(os.sep + end) for one in stream.files) == 1), path)
    return f"{short}:{position}"


def value_words(stream: Stream, name: str, value: Any) -> str:
    """A canonical value of one of the stream's columns."""
    return words(value, stored_type(stream.fields[name]))


def span_words(ns: int) -> str:
    """A span of time, exactly.

    >>> span_words(7_040_000_000), span_words(1_500), span_words(0), span_words(93_784_500_000_000)
    ('7.04 s', '1.5 us', '0 s', '1 d 2 h 3 min 4.5 s')
    """
    if ns < 0:
        return f"-{span_words(-ns)}"
    if ns < MINUTES_FROM_NS:
        unit = next((unit for unit in ("s", "ms", "us") if ns >= DURATION_NS[unit]), "ns")
        return _of_unit(ns, unit) if ns else "0 s"
    told = []
    for unit in ("d", "h", "min"):
        whole, ns = divmod(ns, DURATION_NS[unit])
        told += [f"{whole} {unit}"] if whole else []
    return " ".join([*told, _of_unit(ns, "s")] if ns else told)


def _of_unit(ns: int, unit: str) -> str:
    whole, rest = divmod(ns, DURATION_NS[unit])
    digits = str(rest).zfill(len(str(DURATION_NS[unit])) - 1).rstrip("0") if rest else ""
    return f"{whole}.{digits} {unit}" if digits else f"{whole} {unit}"


def distance_words(ns: int) -> str:
    """A span with its sign, which says whether what is meant comes later or earlier.

    >>> distance_words(500_000_000), distance_words(-1_000)
    ('+500 ms', '-1 us')
    """
    return f"+{span_words(ns)}" if ns >= 0 else span_words(ns)
