"""The passes over all rows once they are read. They count good rows, find the types of columns that nobody named, and
tell of the rows that the filter leaves the first and last times and whether microseconds hold them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mpijoin.pipeline.prepare.clean import BAD, STATE, SUB, TWICE, US, Clean, is_good, is_infinite
from mpijoin.pipeline.prepare.kept import KEPT, marked
from mpijoin.pipeline.prepare.options import Wanted
from mpijoin.pipeline.prepare.pieces import Pieces, pieces_of
from mpijoin.pipeline.prepare.read import BLOCK, FILE_ID, HEADER, ROW, col
from mpijoin.pipeline.prepare.times import beyond_ns

FLOAT = r"^-?(0|[1-9]\d{0,14})(\.\d+)?([eE][+-]?\d{1,3})?$"
BOOLS = ("true", "false", "True", "False", "TRUE", "FALSE")
INT_MAX = 10**18 - 1
NEARLY = 0.5  # of the values fit: then those that do not are worth a word


@dataclass(frozen=True)
class Scan:
    """What is in the rows. rows: read · good, bad, twice: of them · headers: lines that name the columns of CSV ·
    types: found for untyped text · misfits: (type, values that do not fit it) of texts that are nearly all of a
    type."""

    pieces: Pieces
    rows: int
    good: int
    twice: int
    headers: int
    types: dict[str, str]
    misfits: dict[str, tuple[str, int]]

    @property
    def bad(self) -> int:
        return self.rows - self.good


@dataclass(frozen=True)
class Standing:
    """The good rows that the filter leaves. in_ns: the output counts nanoseconds, else microseconds · tops: the newest
    time of each piece by its key, in that unit · finer: rows whose time is no whole microsecond · first_finer: (piece's
    key, ROW) of one · beyond: rows put aside, by piece, since nanoseconds, which finer ones need, do not reach them;
    they count nowhere else."""

    rows: int
    tops: dict[int, int]
    in_ns: bool
    finer: int
    first_finer: tuple[int, int] | None
    beyond: dict[int, int]

    @property
    def unit_ns(self) -> int:
        """How many nanoseconds the unit of the output's time has."""
        return 1 if self.in_ns else 1000


def shapes(text: Column) -> dict[str, Column]:
    """For each type, what every value must look like for a column to be of it. Leading zeros mean a code and not a
    number, and so do more digits than a float holds."""
    whole = text.cast("bigint")
    is_int = ((whole.cast("string") == text) | (text == "-0")) & whole.between(-INT_MAX, INT_MAX)
    is_float = text.rlike(FLOAT) & ~is_infinite(text.cast("double"))
    return {
        "int": F.coalesce(is_int, F.lit(False)),
        "float": F.when(F.coalesce(is_int, F.lit(False)), True).otherwise(is_float),
        "bool": text.isin(*BOOLS),
    }


def scan(clean: Clean, wanted: Wanted, ids: Mapping[int, str]) -> tuple[Scan, Standing, DataFrame]:
    """What is in the rows, what the filter leaves of them, and `kept.marked` rows.

    It takes one pass where all types are known, else two. ids: path by FILE_ID. Raises JobError if Spark does not
    understand the filter.
    """
    if not clean.untyped:
        rows = marked(clean, {}, wanted)
        by_piece = _by_piece(rows, _counts(()) | _left())
        return _found(by_piece, (), wanted, ids), _standing(by_piece, clean.is_ns), rows
    found = _found(_by_piece(clean.frame, _counts(clean.untyped)), clean.untyped, wanted, ids)
    rows = marked(clean, found.types, wanted)
    return found, _standing(_by_piece(rows, _left()), clean.is_ns), rows


def _by_piece(rows: DataFrame, figures: Mapping[str, Column]) -> list[dict[str, Any]]:
    """The figures of each piece, with its file_id, block and key."""
    by_piece = rows.groupBy(col(FILE_ID).alias("file_id"), col(BLOCK).alias("block"))
    told = by_piece.agg(*[column.alias(name) for name, column in figures.items()])
    return [row.asDict() for row in told.withColumn("key", F.xxhash64("file_id", "block")).collect()]


def _counts(untyped: Sequence[str]) -> dict[str, Column]:
    figures = {
        "lines": F.count(F.lit(1)),
        "first_row": F.min(ROW),
        "good": _count(is_good()),
        "twice": _count(col(STATE) == TWICE),
        "bad": _count(col(STATE) == BAD),
        "headers": _count(col(STATE) == HEADER),
    }
    for i, name in enumerate(untyped):
        figures[f"given{i}"] = _count(is_good() & col(name).isNotNull())
        figures |= {f"{kind}{i}": _count(is_good() & fits) for kind, fits in shapes(col(name)).items()}
    return figures


def _left() -> dict[str, Column]:
    """What is told of the rows that the filter leaves."""
    is_kept, finer, beyond = col(KEPT), col(SUB) != 0, beyond_ns(col(US), col(SUB))
    return {
        "left": _count(is_kept),
        "top": F.max(F.when(is_kept, col(US))),
        "top_ns": F.max(F.when(is_kept & ~beyond, col(US) * 1000 + col(SUB))),
        "finer": _count(is_kept & finer),
        "first_finer": F.min(F.when(is_kept & finer, col(ROW))),
        "beyond": _count(is_kept & beyond),
    }


def _found(by_piece: list[dict[str, Any]], untyped: Sequence[str], wanted: Wanted, ids: Mapping[int, str]) -> Scan:
    def total(name: str) -> int:
        return sum(one[name] for one in by_piece)

    types, misfits = {}, {}
    for i, name in enumerate(untyped):
        fitting = {kind: total(f"{kind}{i}") for kind in ("int", "float", "bool")}
        types[name], misfit = _type(fitting, total(f"given{i}"), name in wanted.keys)
        if misfit is not None:
            misfits[name] = misfit
    pieces, good = pieces_of(ids, by_piece), total("good")
    return Scan(pieces, good + total("bad"), good, total("twice"), total("headers"), types, misfits)


def _count(condition: Column) -> Column:
    return F.count(F.when(condition, 1))


def _type(fitting: dict[str, int], given: int, is_key: bool) -> tuple[str, tuple[str, int] | None]:
    """The first type that fits all values, and what spoilt a better one. Keys are no floats, which the engine would
    refuse. A column without any value is a string."""
    kinds = [kind for kind in fitting if not (is_key and kind == "float")]
    found = next((kind for kind in kinds if given and fitting[kind] == given), "string")
    better = max(kinds[: kinds.index(found)] if found in kinds else kinds, key=fitting.__getitem__, default=None)
    if better is None or fitting[better] <= NEARLY * given:
        return found, None
    return found, (better, given - fitting[better])


def _standing(by_piece: list[dict[str, Any]], is_ns: bool) -> Standing:
    """is_ns: the output counts nanoseconds whatever the rows hold."""
    pieces = [piece for piece in by_piece if piece["left"]]
    in_ns = is_ns or any(piece["finer"] for piece in pieces)
    top = "top_ns" if in_ns else "top"
    tops = {piece["key"]: piece[top] for piece in pieces if piece[top] is not None}
    beyond = {piece["key"]: piece["beyond"] for piece in pieces if in_ns and piece["beyond"]}
    first_finer = min(((piece["key"], piece["first_finer"]) for piece in pieces if piece["finer"]), default=None)
    rows_left = sum(piece["left"] for piece in pieces) - sum(beyond.values())
    return Standing(rows_left, tops, in_ns, sum(piece["finer"] for piece in pieces), first_finer, beyond)
