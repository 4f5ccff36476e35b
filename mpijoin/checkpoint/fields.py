"""Checks the fields of a manifest before anybody relies on them: a file on a disk may hold anything."""

from __future__ import annotations

import re
from typing import Any, Callable, Collection, Mapping, Sequence

from mpijoin.checkpoint import totals
from mpijoin.checkpoint.identity import KEPT
from mpijoin.config.queries import QUERY
from mpijoin.records import Counts, PartInfo, QueryCounts, Span

STATE = re.compile(r"rank-\d{1,9}-\d{5,9}\.state")
RESULT = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_-]*/)?rank-\d{1,9}-\d{5,9}\.parquet")
# For each field, the function that makes its value of what was found, or raises ValueError.
Checks = Mapping[str, Callable[[Any], Any]]

HEX = re.compile(r"[0-9a-f]{16}")
SECTIONS = {"streams", QUERY, *KEPT}
INT64 = range(-(1 << 63), 1 << 63)
COUNT = range(1 << 63)


def whole(value: Any, allowed: range = COUNT) -> int:
    """Raises ValueError, as all functions here do, which says what was found and what is wanted."""
    if type(value) is not int or value not in allowed:
        raise ValueError(f"got {value!r}, wanted a whole number from {allowed.start} to {allowed.stop - 1}")
    return value


def number(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < 1e12:
        raise ValueError(f"got {value!r}, wanted a number from 0 on")
    return float(value)


def text(value: Any, pattern: re.Pattern) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError(f"got {value!r}, wanted a text like {pattern.pattern}")
    return value


def items(value: Any, length: int | None = None) -> list:
    if not isinstance(value, list) or length not in (None, len(value)):
        raise ValueError(f"got {type(value).__name__}, wanted a list" + (f" of {length}" if length else ""))
    return value


def entries(value: Any, names: Collection[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"got {type(value).__name__}, wanted an object")
    if wrong := set(names) ^ set(value):
        raise ValueError(f"{', '.join(sorted(wrong))}: " + ("is missing" if wrong & set(names) else "is not known"))
    return value


def spans(value: Any, least: int = 1) -> tuple[Span, ...]:
    found = tuple(
        Span(text(file, STATE), whole(at), whole(octets))
        for file, at, octets in (items(one, 3) for one in items(value))
    )
    if len(found) < least:
        raise ValueError("got no span, wanted at least one")
    return found


def parts(value: Any, pattern: re.Pattern) -> tuple[PartInfo, ...]:
    listed = (items(one, 4) for one in items(value))
    found = tuple(
        PartInfo(text(name, pattern), whole(rows), whole(octets), text(sum_, HEX))
        for name, rows, octets, sum_ in listed
    )
    return unique(found, [part.name for part in found])


def unique(found: tuple, names: Sequence) -> tuple:
    if len(set(names)) < len(names):
        raise ValueError("got one twice")
    return found


def identity(value: Any) -> dict[str, Any]:
    sections = entries(value, SECTIONS)
    streams = sections["streams"]
    for section in (*sections.values(), *(streams.values() if isinstance(streams, dict) else ())):
        if not isinstance(section, dict):
            raise ValueError(f"got {section!r}, wanted the fields of a section")
    if not streams:
        raise ValueError("got no stream, wanted at least one")
    return sections


def stream_names(value: Any) -> list[str]:
    """The streams that a manifest names, whatever else is in it; none if it names no job."""
    if not isinstance(value, dict) or "identity" not in value:
        return []
    try:
        return list(identity(value["identity"])["streams"])
    except ValueError as error:
        raise ValueError(f"identity: {error}") from error


def late(names: Sequence[str]) -> re.Pattern:
    """The pattern of the names that part files of these streams' late rows have."""
    return re.compile(rf"({'|'.join(map(re.escape, names))})(-p\d{{1,9}})?-\d{{5,9}}\.parquet")


def before(value: Any, streams: int) -> Counts:
    """Reads what `totals.plain_of` has written."""
    usual = totals.plain_of(Counts.nothing(streams))
    for name, one in entries(value, usual.keys()).items():
        if isinstance(usual[name], int):
            whole(one)
        elif isinstance(usual[name], tuple) and name != "queries":
            for count in items(one, streams):
                whole(count)
    text(value["certificate"], HEX)
    for query in items(value["queries"]):
        own = entries(query, QueryCounts._fields)
        text(own["certificate"], HEX)
        for count in (own["results"], own["written"]):
            whole(count)
    entries(value["delays"], usual["delays"].keys())
    try:
        return totals.total([totals.counts_of(value)])
    except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"delays or queries: {error!r}") from error


def each(value: Any, checks: Checks, of: Any) -> dict[str, Any]:
    """Checks the fields of an object one by one; they must be those of the NamedTuple `of`. The ValueError names the
    field."""
    checked = {}
    for name, one in entries(value, of._fields).items():
        try:
            checked[name] = checks[name](one)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    return checked
