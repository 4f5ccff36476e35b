"""The kind of value that `changes` of a synthetic stream is: tables of what holds from when."""

from __future__ import annotations

from typing import Any

from mpijoin.config.job import Change
from mpijoin.config.kinds import DURATION, INTEGER, NUMBER, Kind
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
    return tuple(map(_parse_one, value))


def _parse_one(one: Any) -> Change:
    if not isinstance(one, dict) or "from" not in one or len(one) < 2 or not set(one) <= set(FIELDS):
        raise ValueError(f"got {show(one)}, {WANTED}")
    values = {}
    for name, own in one.items():
        attribute, kind = FIELDS[name]
        try:
            values[attribute] = kind.parse(own)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    return Change(**values)


def _write(changes: tuple[Change, ...]) -> str:
    return "[" + ", ".join(map(_write_one, changes)) + "]"


def _write_one(change: Change) -> str:
    values = [(name, kind, getattr(change, attribute)) for name, (attribute, kind) in FIELDS.items()]
    return "{" + ", ".join(f"{name} = {kind.write(own)}" for name, kind, own in values if own is not None) + "}"


CHANGES = Kind(_parse, _write, "list of tables")
