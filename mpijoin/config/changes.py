"""The kind of value that `changes` of a synthetic stream is: tables that say which values hold from when."""

from __future__ import annotations

from typing import Any

from mpijoin.config.job import Change
from mpijoin.config.kinds import DURATION, INTEGER, NUMBER, BadEntries, Kind, read_entries
from mpijoin.config.units import show

FIELDS = {
    "from": ("start_ns", DURATION),
    "rate": ("rate", NUMBER),
    "bias": ("bias", NUMBER),
    "exponent": ("exponent", NUMBER),
    "permute": ("permute", INTEGER),
}
WANTED = (
    'wanted a list of tables such as {from = "60 s", rate = 3000}, with one or more of rate, bias, exponent and permute'
)


def _parse(value: Any) -> tuple[Change, ...]:
    if not isinstance(value, list):
        raise ValueError(f"got {show(value)}, {WANTED}")
    changes, problems = read_entries(value, _parse_one)
    if problems:
        raise BadEntries(problems, tuple(changes))
    return tuple(changes)


def _parse_one(one: Any) -> Change:
    if not isinstance(one, dict):
        raise ValueError(f"got {show(one)}, {WANTED}")
    is_whole = "from" in one and len(one) > 1 and set(one) <= set(FIELDS)
    shape = [] if is_whole else [f"got {show(one)}, {WANTED}"]
    values, problems = read_entries(((name, own) for name, own in one.items() if name in FIELDS), _parse_value)
    if shape or problems:
        raise BadEntries(shape + problems)
    return Change(**dict(values))


def _parse_value(entry: tuple[str, Any]) -> tuple[str, Any]:
    name, own = entry
    attribute, kind = FIELDS[name]
    try:
        return attribute, kind.parse(own)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _write(changes: tuple[Change, ...]) -> str:
    return "[" + ", ".join(map(_write_one, changes)) + "]"


def _write_one(change: Change) -> str:
    values = [(name, kind, getattr(change, attribute)) for name, (attribute, kind) in FIELDS.items()]
    return "{" + ", ".join(f"{name} = {kind.write(own)}" for name, kind, own in values if own is not None) + "}"


CHANGES = Kind(_parse, _write, "list of tables")
