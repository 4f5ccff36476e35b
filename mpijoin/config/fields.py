"""The job file as a table: which fields each section has, how each is read, written, and bounded."""

from __future__ import annotations

import json
from typing import Any, Callable, NamedTuple

from mpijoin.config.job import AUTO, MAX, OFF, Balance, Cluster, Inject, Output, Run, Tuning
from mpijoin.config.units import INT64_MAX, duration_ns, format_duration, format_size
from mpijoin.config.units import is_integer, show, size_bytes


class Kind(NamedTuple):
    """A kind of value: `parse` takes it from TOML or raises ValueError("got ..., wanted ..."), `write` gives TOML."""

    parse: Callable[[Any], Any]
    write: Callable[[Any], str]
    none_has_word: bool = False  # whether None can be written, as "auto" or "all"


class Field(NamedTuple):
    """One field. `low` and `high` bound numbers, both ends allowed; `choices` lists the words there are."""

    name: str  # in the job file
    attribute: str  # in the dataclass
    kind: Kind
    low: int | None = None
    high: int | None = None
    choices: tuple[str, ...] = ()


def _parse_text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"got {show(value)}, wanted a non-empty string")
    return value


def _parse_integer(value: Any) -> int:
    if not is_integer(value):
        raise ValueError(f"got {show(value)}, wanted a whole number")
    return value


def _parse_number(value: Any) -> float:
    if not is_integer(value) and not isinstance(value, float):
        raise ValueError(f"got {show(value)}, wanted a number")
    return float(value)


def _parse_name_list(value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) and name for name in value):
        raise ValueError(f"got {show(value)}, wanted a list of column names")
    return tuple(value)


def _parse_key(value: Any) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) and value else _parse_name_list(value)
    if not names:
        raise ValueError("got an empty list, wanted at least one column name")
    return names


def _parse_speed(value: Any) -> float | str:
    if value == MAX:
        return MAX
    if is_integer(value) or isinstance(value, float):
        return float(value)
    raise ValueError(f'got {show(value)}, wanted "max"')


def _parse_slow(value: Any) -> dict[int, float]:
    wanted = "a table of rank = share, such as {2 = 0.5}"
    if not isinstance(value, dict):
        raise ValueError(f"got {show(value)}, wanted {wanted}")
    for rank, share in value.items():
        is_share = is_integer(share) or isinstance(share, float)
        if not str(rank).isdecimal() or not str(rank).isascii() or not is_share:
            raise ValueError(f"got {show(rank)} = {show(share)}, wanted {wanted}")
    return {int(rank): float(share) for rank, share in value.items()}


def _parse_fail(value: Any) -> dict[int, int]:
    wanted = "a table of rank = epoch, such as {2 = 5}"
    if not isinstance(value, dict):
        raise ValueError(f"got {show(value)}, wanted {wanted}")
    for rank, epoch in value.items():
        if not str(rank).isdecimal() or not str(rank).isascii() or not is_integer(epoch):
            raise ValueError(f"got {show(rank)} = {show(epoch)}, wanted {wanted}")
    return {int(rank): epoch for rank, epoch in value.items()}


def _write_list(names: tuple[str, ...]) -> str:
    return "[" + ", ".join(map(quote, names)) + "]"


def _write_slow(slow: Any) -> str:
    return "{" + ", ".join(f"{rank} = {float(share)!r}" for rank, share in sorted(slow.items())) + "}"


def _write_fail(fail: Any) -> str:
    return "{" + ", ".join(f"{rank} = {epoch}" for rank, epoch in sorted(fail.items())) + "}"


def quote(text: str) -> str:
    """A TOML basic string. JSON's escapes are a part of TOML's; DEL alone is legal in the one and not in the other."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _or_word(kind: Kind, words: dict[str, Any]) -> Kind:
    """`kind`, or one of `words`, each of which stands for a value of its own."""
    written = {value: quote(word) for word, value in words.items()}
    either = " or ".join(show(word) for word in words)

    def parse(value: Any) -> Any:
        if isinstance(value, str) and value in words:
            return words[value]
        try:
            return kind.parse(value)
        except ValueError as error:
            raise ValueError(f"{error}, or {either}") from error

    def write(value: Any) -> str:
        return written[value] if value in written else kind.write(value)

    return Kind(parse, write, none_has_word=None in written)


TEXT = Kind(_parse_text, quote)
INTEGER = Kind(_parse_integer, str)
NUMBER = Kind(_parse_number, lambda value: repr(float(value)))
DURATION = Kind(duration_ns, lambda ns: quote(format_duration(ns)))
SIZE = Kind(size_bytes, lambda size: quote(format_size(size)))
NAMES = Kind(_parse_name_list, _write_list)
KEY = Kind(_parse_key, lambda names: quote(names[0]) if len(names) == 1 else _write_list(names))
ALL_OR_NAMES = _or_word(NAMES, {"all": None})
SPEED = Kind(_parse_speed, lambda speed: quote(speed) if isinstance(speed, str) else repr(float(speed)))
SLOW = Kind(_parse_slow, _write_slow)
FAIL = Kind(_parse_fail, _write_fail)

TIME_UNITS = ("s", "ms", "us", "ns")
POLICIES = ("none",)

STREAM_FIELDS = (
    Field("time", "time", TEXT),
    Field("time_unit", "time_unit", TEXT, choices=TIME_UNITS),
    Field("key", "key", KEY),
    Field("window", "window_ns", DURATION, 0, INT64_MAX),
    Field("lateness", "lateness_ns", DURATION, 0, INT64_MAX),
    Field("columns", "columns", ALL_OR_NAMES),
)
SYNTHETIC_FIELDS = (
    Field("rate", "rate", NUMBER),
    Field("bias", "bias", NUMBER),
    # A key is (bits * domain) >> width, which must fit 64 bits.
    Field("domain", "domain", INTEGER, 1, 2**31),
    # Row numbers have 40 bits within one file.
    Field("tuples", "tuples", INTEGER, 0, 2**40),
    Field("duration", "duration_ns", DURATION, 0, INT64_MAX),
    Field("seed", "seed", INTEGER, 0, INT64_MAX),
    Field("payload_bytes", "payload_bytes", INTEGER, 0, 2**20),
)
SECTIONS = {
    "cluster": (
        Cluster,
        (
            Field("partitions", "partitions", INTEGER, 1, 65535),
            Field("distribution_epoch", "distribution_epoch_ns", _or_word(DURATION, {AUTO: None}), 1, INT64_MAX),
            Field("reorganization_epoch", "reorganization_epoch_ns", DURATION, 1, INT64_MAX),
            Field("subgroups", "subgroups", INTEGER, 1, 65535),
            Field("buffer", "buffer_bytes", SIZE, 64 << 10, INT64_MAX),
            Field("master_buffer", "master_buffer_bytes", SIZE, 64 << 10, INT64_MAX),
            Field("memory", "memory_bytes", _or_word(SIZE, {AUTO: None}), 64 << 10, INT64_MAX),
        ),
    ),
    "tuning": (
        Tuning,
        (
            Field("theta", "theta", _or_word(SIZE, {AUTO: AUTO, OFF: OFF}), 1, INT64_MAX),
            Field("block", "block_bytes", SIZE, 64, 16 << 20),
            Field("result_buffer", "result_buffer", INTEGER, 1, 2**24),
        ),
    ),
    "balance": (Balance, (Field("policy", "policy", TEXT, choices=POLICIES),)),
    "run": (
        Run,
        (
            Field("speed", "speed", SPEED),
            Field("seed", "seed", INTEGER, 0, INT64_MAX),
            Field("late", "late", TEXT, choices=("keep", "fail")),
        ),
    ),
    "output": (
        Output,
        (
            Field("path", "path", TEXT),
            Field("results", "results", TEXT, choices=("parquet", "collect", "count")),
            Field("columns", "columns", ALL_OR_NAMES),
            Field("part", "part_bytes", SIZE, 1, INT64_MAX),
        ),
    ),
    "inject": (
        Inject,
        (
            Field("slow", "slow", SLOW),
            Field("hash_bits", "hash_bits", INTEGER, 1, 64),
            Field("fail", "fail", FAIL),
        ),
    ),
}
