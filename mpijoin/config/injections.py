"""The kinds of values in [inject]: what happens to which rank, for the whole run or by a schedule."""

from __future__ import annotations

from typing import Any, Callable, Mapping, TypeVar

from mpijoin.config.inject import Delay, Pressure, Slowdown
from mpijoin.config.kinds import DURATION, INTEGER, NUMBER, SIZE, BadEntries, Kind, read_entries
from mpijoin.config.units import is_integer, show

Made = TypeVar("Made")

SCHEDULE = {"from": ("start_ns", DURATION), "to": ("end_ns", DURATION)}


def _is_rank(name: Any) -> bool:
    return str(name).isascii() and str(name).isdecimal()


def _per_rank(value: Any, kind: Kind, wanted: str, collect: Callable[[dict[int, Any]], Made]) -> Made:
    """Returns what `collect` makes of a table of rank = value."""
    if not isinstance(value, dict):
        raise ValueError(f"got {show(value)}, wanted {wanted}")

    def read(entry: tuple[Any, Any]) -> tuple[int, Any]:
        rank, own = entry
        if not _is_rank(rank):
            raise ValueError(f"got {show(rank)} = {show(own)}, wanted {wanted}")
        return int(rank), _value(kind, own, f"{rank} = {show(own)}", wanted)

    return _sound(*read_entries(value.items(), read), lambda pairs: collect(dict(pairs)))


def _sound(entries: list[Any], problems: list[str], collect: Callable[[list[Any]], Made]) -> Made:
    if problems:
        raise BadEntries(problems, collect(entries))
    return collect(entries)


def _value(kind: Kind, value: Any, got: str, wanted: str) -> Any:
    try:
        return kind.parse(value)
    except ValueError as error:
        raise ValueError(f"got {got}, wanted {wanted}") from error


def _scheduled(make: Callable, name: str, attribute: str, kind: Kind, example: str) -> Kind:
    """Reads a list of tables with rank, `name`, from and to; or a table of rank = value, for the whole run."""
    fields = {"rank": ("rank", INTEGER), name: (attribute, kind), **SCHEDULE}
    table = f"a table of rank = {name}, such as {{2 = {example}}}"
    wanted = f'{table}, or a list of tables such as {{rank = 2, {name} = {example}, from = "20 s", to = "40 s"}}'

    def parse(value: Any) -> tuple:
        if isinstance(value, list):
            return _sound(*read_entries(value, parse_one), tuple)
        return _per_rank(value, kind, wanted, lambda ranks: tuple(make(rank, own) for rank, own in ranks.items()))

    def parse_one(one: Any) -> Any:
        if not isinstance(one, dict):
            raise ValueError(f"got {show(one)}, wanted {wanted}")
        is_whole = {"rank", name} <= set(one) <= set(fields) and is_integer(one["rank"])
        shape = [] if is_whole else [f"got {show(one)}, wanted {wanted}"]
        values, problems = read_entries(
            ((key, own) for key, own in one.items() if key in fields and key != "rank"), parse_value
        )
        if shape or problems:
            raise BadEntries(shape + problems)
        return make(rank=one["rank"], **dict(values))

    def parse_value(entry: tuple[str, Any]) -> tuple[str, Any]:
        key, own = entry
        attribute, form = fields[key]
        return attribute, _value(form, own, f"{key} = {show(own)}", wanted)

    def write_one(one: Any) -> str:
        values = [(key, form, getattr(one, field)) for key, (field, form) in fields.items()]
        written = [f"{key} = {form.write(own)}" for key, form, own in values if own is not None]
        return "{" + ", ".join(written) + "}"

    def write(every: tuple) -> str:
        always = all(one == make(one.rank, getattr(one, attribute)) for one in every)
        if always and len({one.rank for one in every}) == len(every):
            return _write_table({one.rank: kind.write(getattr(one, attribute)) for one in every})
        return "[" + ", ".join(map(write_one, every)) + "]"

    return Kind(parse, write, f"table of rank = {name}, or list of tables")


def _write_table(values: Mapping[int, Any]) -> str:
    return "{" + ", ".join(f"{rank} = {value}" for rank, value in values.items()) + "}"


SLOW = _scheduled(Slowdown, "share", "share", NUMBER, "0.5")
DELAY = _scheduled(Delay, "by", "by_ns", DURATION, '"50 ms"')
PRESSURE = _scheduled(Pressure, "limit", "limit_bytes", SIZE, '"64 MB"')


def _parse_epochs(value: Any) -> dict[int, int]:
    wanted = "a table of rank = epoch, such as {2 = 5}, or one of both, such as {rank = 2, epoch = 5}"
    if isinstance(value, dict) and set(value) == {"rank", "epoch"}:
        value = {value["rank"]: value["epoch"]}
    return _per_rank(value, INTEGER, wanted, dict)


EPOCHS = Kind(_parse_epochs, _write_table, "table of rank = epoch")
