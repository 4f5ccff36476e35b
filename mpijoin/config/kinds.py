"""Kinds of values in a job file: how each is taken from TOML and written as TOML."""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Iterable, Mapping, Sequence

from mpijoin.config.job import MAX, UNBOUNDED, Reduced
from mpijoin.config.units import duration_ns, format_duration, format_size, is_integer, show, size_bytes
from mpijoin.named import NamedTuple

REDUCED_WANTED = 'wanted a table of result column = function, such as {n = "count()", best = "max(right.price)"}'
TYPES_WANTED = 'wanted a table of column = type, such as {station = "string"}'


class Kind(NamedTuple):
    """A kind of value: `parse` takes it from TOML, or raises ValueError("got ..., wanted ...") or BadEntries, and
    `write` gives TOML."""

    parse: Callable[[Any], Any]
    write: Callable[[Any], str]
    called: str  # what users call it
    words: tuple[str, ...] = ()  # that may stand for it
    none_has_word: bool = False  # whether None can be written, as "auto" or "all"


class BadEntries(ValueError):
    """Entries of a list or a table that cannot be read. problems: a sentence about each, "got ..., wanted ..." ·
    sound: the value that the others make, None where they say nothing without those."""

    def __init__(self, problems: Sequence[str], sound: Any = None):
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)
        self.sound = sound


def read_entries(entries: Iterable[Any], read: Callable[[Any], Any]) -> tuple[list[Any], list[str]]:
    """What `read` makes of those entries that can be read, and what is wrong with each of the others.

    >>> read_entries(["20 s", "20", "x"], duration_ns)[0]
    [20000000000]
    """
    sound: list[Any] = []
    problems: list[str] = []
    for entry in entries:
        try:
            sound.append(read(entry))
        except BadEntries as error:
            problems += error.problems
        except ValueError as error:
            problems.append(str(error))
    return sound, problems


def read_table(value: Any, wanted: str, read: Callable[[Any], tuple[str, Any]]) -> dict[str, Any]:
    """What `read` makes of the entries of a table, by name. wanted: what a table of this kind is. ValueError: it
    is no table. BadEntries: some of its entries cannot be read."""
    if not isinstance(value, dict):
        raise ValueError(f"got {show(value)}, {wanted}")
    entries, problems = read_entries(value.items(), read)
    if problems:
        raise BadEntries(problems)
    return dict(entries)


def quote(text: str) -> str:
    """A TOML basic string. JSON's escapes are a part of TOML's; DEL alone is legal in the one and not in the other."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def or_word(kind: Kind, words: dict[str, Any]) -> Kind:
    """`kind`, or one of `words`, each of which stands for a value of its own."""
    written = {value: quote(word) for word, value in words.items()}
    either = " or ".join(show(word) for word in words)

    def parse(value: Any) -> Any:
        if isinstance(value, str) and value in words:
            return words[value]
        try:
            return kind.parse(value)
        except BadEntries:
            raise
        except ValueError as error:
            raise ValueError(f"{error}, or {either}") from error

    def write(value: Any) -> str:
        return written[value] if value in written else kind.write(value)

    return Kind(parse, write, kind.called, tuple(words), none_has_word=None in written)


def _parse_text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"got {show(value)}, wanted a non-empty string")
    return in_utf8(value)


def in_utf8(text: str) -> str:
    """The text. Raises ValueError where bytes that are no UTF-8 stand in it, as a shell may pass them on: no file of
    ours holds them."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"got {show(text)}, wanted a text in UTF-8") from error
    return text


def _parse_path(value: Any) -> str:
    path = _parse_text(os.fspath(value) if isinstance(value, os.PathLike) else value)
    if "\0" in path:
        raise ValueError(f"got {show(path)}, wanted a path, which has no zero byte in it")
    return path


def _parse_integer(value: Any) -> int:
    if not is_integer(value):
        raise ValueError(f"got {show(value)}, wanted a whole number")
    return value


def _parse_number(value: Any) -> float:
    if not is_integer(value) and not isinstance(value, float):
        raise ValueError(f"got {show(value)}, wanted a number")
    try:
        return float(value)
    except OverflowError as error:
        raise ValueError(f"got {show(value)}, wanted a number below 1.8e308") from error


def _parse_name_list(value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"got {show(value)}, wanted a list of column names")
    names, problems = read_entries(value, _parse_name)
    if problems:
        raise BadEntries(problems)
    return tuple(names)


def _parse_name(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"got {show(value)} in the list, wanted column names")
    return in_utf8(value)


def _parse_key(value: Any) -> tuple[str, ...]:
    names = _parse_name_list((value,) if isinstance(value, str) and value else value)
    if not names:
        raise ValueError("got an empty list, wanted at least one column name")
    return names


def _parse_types(value: Any) -> dict[str, str]:
    return read_table(value, TYPES_WANTED, _parse_type)


def _parse_type(entry: tuple[Any, Any]) -> tuple[str, str]:
    name, kind = entry
    if not isinstance(name, str) or not name or not isinstance(kind, str):
        raise ValueError(f"got {show(name)} = {show(kind)}, {TYPES_WANTED}")
    return in_utf8(name), in_utf8(kind)


def _write_types(types: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{quote(name)} = {quote(kind)}" for name, kind in types.items()) + "}"


def _parse_reduced(value: Any) -> tuple[Reduced, ...]:
    if not isinstance(value, dict):
        raise ValueError(f"got {show(value)}, {REDUCED_WANTED}")
    reduced, problems = read_entries(value.items(), _parse_function)
    if problems:
        raise BadEntries(problems, tuple(reduced))
    return tuple(reduced)


def _parse_function(entry: tuple[Any, Any]) -> Reduced:
    name, text = entry
    if not isinstance(name, str) or not name or not isinstance(text, str) or not text:
        raise ValueError(f"got {show(name)} = {show(text)}, {REDUCED_WANTED}")
    return Reduced(in_utf8(name), in_utf8(text))


def _write_reduced(reduced: tuple[Reduced, ...]) -> str:
    return "{" + ", ".join(f"{quote(one.result)} = {quote(one.text)}" for one in reduced) + "}"


def _write_list(names: tuple[str, ...]) -> str:
    return "[" + ", ".join(map(quote, names)) + "]"


TEXT = Kind(_parse_text, quote, "text")
PATH = Kind(_parse_path, quote, "path")
INTEGER = Kind(_parse_integer, str, "whole number")
NUMBER = Kind(_parse_number, lambda value: repr(float(value)), "number")
DURATION = Kind(duration_ns, lambda ns: quote(format_duration(ns)), "duration")
SIZE = Kind(size_bytes, lambda size: quote(format_size(size)), "size")
NAMES = Kind(_parse_name_list, _write_list, "list of names")
KEY = Kind(
    _parse_key, lambda names: quote(names[0]) if len(names) == 1 else _write_list(names), "column, or list of columns"
)
REDUCED = Kind(_parse_reduced, _write_reduced, "table of column = function")
TYPES = Kind(_parse_types, _write_types, "table of column = type")
ALL_OR_NAMES = or_word(NAMES, {"all": None})
WINDOW = or_word(DURATION, {UNBOUNDED: None})
SPEED = or_word(NUMBER, {MAX: MAX})
