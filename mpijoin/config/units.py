"""Durations and sizes as people write them ("20 s", "1.5 MB"), turned into whole nanoseconds and bytes, exactly."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from typing import Any, Mapping, Sequence, TypeGuard

DURATION_NS = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "min": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
}
SIZE_BYTES = {
    "B": 1,
    "KB": 10**3,
    "KiB": 2**10,
    "MB": 10**6,
    "MiB": 2**20,
    "GB": 10**9,
    "GiB": 2**30,
}
INT64_MAX = 2**63 - 1
# What a job may call the types of columns; Arrow calls them so, too.
COLUMN_TYPES = (
    *("string", "binary", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float", "double", "date32", "time32[s]", "time32[ms]", "time64[us]", "time64[ns]"),
    *(f"timestamp[{unit}{zone}]" for unit in ("s", "ms", "us", "ns") for zone in ("", ", tz=UTC")),
)

# Thirty digits hold every int64 with room for decimals; more is a slip, not a number.
_QUANTITY = re.compile(r"(-?[0-9]{1,30}(?:\.[0-9]{1,30})?)\s*([A-Za-z]+)")


def duration_ns(value: Any) -> int:
    """Nanoseconds of a duration with its unit: ns us ms s min h d. A plain 0 needs no unit.

    Raises ValueError, saying what was got and wanted, for anything else, negative, finer than 1 ns or beyond int64.

    >>> duration_ns("1.5 s")
    1500000000
    """
    wanted = 'a duration such as "20 s" (units: ' + " ".join(DURATION_NS) + ")"
    if is_integer(value) and value == 0:
        return 0
    return _whole(value, DURATION_NS, wanted, "ns")


def size_bytes(value: Any) -> int:
    """Bytes of a size with its unit: B KB MB GB (powers of 1000), KiB MiB GiB (powers of 1024). An integer is bytes.

    Raises ValueError, saying what was got and wanted, for anything else, negative, no whole byte or beyond int64.

    >>> size_bytes("1.5 MB")
    1500000
    """
    wanted = 'a size such as "64 MiB" (units: ' + " ".join(SIZE_BYTES) + ")"
    return _whole(f"{value} B" if is_integer(value) else value, SIZE_BYTES, wanted, "B")


def is_integer(value: Any) -> TypeGuard[int]:
    """True for int, but not for bool, which Python counts as one."""
    return isinstance(value, int) and not isinstance(value, bool)


def _whole(value: Any, units: Mapping[str, int], wanted: str, smallest: str) -> int:
    match = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or match[2] not in units:
        raise ValueError(f"got {show(value)}, wanted {wanted}")
    exact = Fraction(match[1]) * units[match[2]]
    if match[1].startswith("-"):
        raise ValueError(f"got {show(value)}, wanted {wanted}, not negative")
    if exact.denominator != 1:
        raise ValueError(f"got {show(value)}, wanted a whole number of {smallest}")
    if exact > INT64_MAX:
        raise ValueError(f"got {show(value)}, wanted at most {INT64_MAX} {smallest}")
    return int(exact)


def show(value: Any) -> str:
    """A value as a message quotes it: strings in double quotes, true and false as in TOML, long ones cut.

    What a terminal cannot show, such as a zero byte, is escaped.

    >>> show("20 s"), show(True), show(3)
    ('"20 s"', 'true', '3')
    """
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    if isinstance(value, str):
        text = f'"{value}"' if value.isprintable() else json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."


def listed(words: Sequence[str]) -> str:
    """As a sentence lists them.

    >>> listed(["1", "2"]), listed(["1", "2", "3"])
    ('1 and 2', '1, 2 and 3')
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def plural(count: int, word: str) -> str:
    """A count and its noun, as people write them.

    >>> plural(1, "file"), plural(1000, "file")
    ('1 file', '1,000 files')
    """
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def rounded_duration(count: int, unit: str) -> str:
    """A span of so many `unit` as a duration of a job file, rounded up to two digits.

    >>> rounded_duration(199_843_155, "ns"), rounded_duration(0, "us"), rounded_duration(90_000, "ms")
    ('200 ms', '0 s', '90 s')
    """
    if count <= 0:
        return "0 s"
    units = [(DURATION_NS[name], name) for name in ("ns", "us", "ms", "s", "min", "h")]
    span_ns = count * DURATION_NS[unit]
    size_ns, name = max(
        one for one in units if one[0] <= span_ns and (one[0] < DURATION_NS["min"] or span_ns >= 10 * one[0])
    )
    step = 10 ** max(0, len(str(span_ns // size_ns)) - 2)
    if span_ns < 10 * size_ns and name != "ns":  # one digit before the point: one behind it
        tenths = -(-10 * span_ns // size_ns)
        return f"{tenths / 10:g} {name}"
    return f"{-(-span_ns // (size_ns * step)) * step} {name}"


def format_duration(ns: int) -> str:
    """The shortest exact way to write a duration.

    >>> format_duration(600_000_000_000), format_duration(0)
    ('10 min', '0 s')
    """
    return _largest_whole(ns, DURATION_NS) if ns else "0 s"


def format_size(size: int) -> str:
    """The shortest exact way to write a size.

    >>> format_size(64 << 20), format_size(1_500_000)
    ('64 MiB', '1500 KB')
    """
    return _largest_whole(size, SIZE_BYTES) if size else "0 B"


def _largest_whole(amount: int, units: Mapping[str, int]) -> str:
    unit = max((name for name, per in units.items() if amount % per == 0), key=units.__getitem__)
    return f"{amount // units[unit]} {unit}"
