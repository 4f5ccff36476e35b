"""One pass over all rows: how many are good, what the others suffer from, nulls, first and last time, types of plain text."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from mpijoin.errors import InputError
from mpijoin.pipeline.prepare.clean import KINDS, REASON, SUB, TWICE, US, Clean
from mpijoin.pipeline.prepare.options import Wanted
from mpijoin.pipeline.prepare.read import col, source_path
from mpijoin.pipeline.prepare.times import NS_MAX_US, NS_MIN_US

# What every value must look like for the column to be of the type. Leading zeros mean a code, not a number; so do more digits
# than a float holds.
SHAPES = {
    "int": r"^-?(0|[1-9]\d{0,17})$",
    "float": r"^-?(0|[1-9]\d{0,14})(\.\d+)?([eE][+-]?\d{1,3})?$",
    "bool": r"^([tT]rue|[fF]alse|TRUE|FALSE)$",
}


@dataclass(frozen=True)
class Scan:
    """rejected: kind -> rows, a row may suffer from several · nulls: of good rows by column · types: found for untyped text ·
    first_us, last_us: None without a good row · finer: rows whose time is no whole microsecond · example: a reason."""

    rows: int
    good: int
    rejected: dict[str, int]
    nulls: dict[str, int]
    types: dict[str, str]
    first_us: int | None
    last_us: int | None
    finer: int
    twice: int
    example: str | None

    def in_ns(self, clean: Clean) -> bool:
        """Whether the output counts nanoseconds: the source does, or microseconds would lose something."""
        return clean.is_ns or self.finer > 0


def scan(clean: Clean, wanted: Wanted) -> Scan:
    """Raises InputError where times are too fine and too far at once."""
    values = [name for name in clean.names if name != wanted.time]
    found = iter(clean.frame.agg(*[one.alias(f"c{i}") for i, one in enumerate(_figures(clean, values, wanted))]).first())
    rows, good, first_us, last_us, finer, twice, example = (next(found) for _ in range(7))
    rejected = {kind: int(next(found)) for kind in clean.kinds}
    nulls = {name: int(next(found)) for name in values}
    types = {name: _type([int(next(found)) for _ in SHAPES], good - nulls[name], name in wanted.keys) for name in clean.untyped}
    result = Scan(rows, int(good), rejected, nulls, types, first_us, last_us, int(finer), int(twice), example)
    _check_span(result, clean, wanted)
    return result


def _figures(clean: Clean, values: list[str], wanted: Wanted) -> list[Column]:
    good = col(REASON).isNull()
    example = F.concat_ws(": ", source_path(), col(REASON))
    counts = [
        F.count(F.lit(1)),
        _count(good),
        F.min(F.when(good, col(US))),
        F.max(F.when(good, col(US))),
        _count(good & (col(SUB) != 0)),
        _count(good & col(TWICE)),
        F.min(F.when(~good, example)),
    ]
    counts += [_count(F.array_contains(KINDS, kind)) for kind in clean.kinds]
    counts += [_count(good & col(name).isNull()) for name in values]
    return counts + [_count(good & col(name).rlike(shape)) for name in clean.untyped for shape in SHAPES.values()]


def _count(condition: Column) -> Column:
    return F.count(F.when(condition, 1))


def _type(fitting: list[int], given: int, is_key: bool) -> str:
    """The first that fits all; keys are no floats, which the engine would refuse. No value at all tells nothing."""
    for kind, count in zip(SHAPES, fitting):
        if given and count == given and not (is_key and kind == "float"):
            return kind
    return "string"


def _check_span(found: Scan, clean: Clean, wanted: Wanted) -> None:
    if not found.finer or clean.is_ns:  # nanoseconds that the source counted, fit
        return
    if found.first_us < NS_MIN_US or found.last_us > NS_MAX_US:
        raise InputError(
            f"--time: {wanted.time} has times finer than 1 us, which only nanoseconds since 1970 hold, and others outside 1677 to "
            "2262, which those do not: wanted one or the other"
        )
