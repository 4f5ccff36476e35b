"""Passes over all rows, once they are read: how many are good, the types of columns that nobody named, and of the rows
that the filter leaves, first and last times and whether microseconds hold them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mpijoin.pipeline.prepare.clean import BAD, FILE_ID, STATE, SUB, TWICE, US, Clean, is_good, is_infinite
from mpijoin.pipeline.prepare.options import Wanted
from mpijoin.pipeline.prepare.pieces import Pieces, key, pieces_of
from mpijoin.pipeline.prepare.read import BLOCK, HEADER, ROW, col
from mpijoin.pipeline.prepare.times import beyond_ns

FLOAT = r"^-?(0|[1-9]\d{0,14})(\.\d+)?([eE][+-]?\d{1,3})?$"
BOOLS = ("true", "false", "True", "False", "TRUE", "FALSE")
INT_MAX = 10**18 - 1
NEARLY = 0.5  # of the values fit: then those that do not are worth a word


@dataclass(frozen=True)
class Scan:
    """rows: read · good, bad, twice: of them · headers: lines that name the columns of CSV · types: found for untyped
    text · misfits: (type, values that do not fit it) of texts that are nearly all of a type."""

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
    """The good rows that the filter leaves. in_ns: the output counts nanoseconds · tops: newest (US, SUB) of each piece
    by its key · finer: rows whose time is no whole microsecond · first_finer: (piece's key, ROW) of one · beyond: rows
    put aside, by piece, since nanoseconds, which finer ones need, do not reach them; they count nowhere else."""

    rows: int
    tops: dict[int, tuple[int, int]]
    in_ns: bool
    finer: int
    first_finer: tuple[int, int] | None
    beyond: dict[int, int]


def shapes(text: Column) -> dict[str, Column]:
    """What every value must look like for a column to be of the type. Leading zeros mean a code, not a number; so do
    more digits than a float holds."""
    whole = text.cast("bigint")
    is_int = ((whole.cast("string") == text) | (text == "-0")) & whole.between(-INT_MAX, INT_MAX)
    is_float = text.rlike(FLOAT) & ~is_infinite(text.cast("double"))
    return {
        "int": F.coalesce(is_int, F.lit(False)),
        "float": F.when(F.coalesce(is_int, F.lit(False)), True).otherwise(is_float),
        "bool": text.isin(*BOOLS),
    }


def scan(clean: Clean, wanted: Wanted, ids: Mapping[int, str]) -> Scan:
    """ids: path by FILE_ID."""
    figures = {
        "key": key(),
        "lines": F.count(F.lit(1)),
        "first_row": F.min(ROW),
        "good": _count(is_good()),
        "twice": _count(col(STATE) == TWICE),
        "bad": _count(col(STATE) == BAD),
        "headers": _count(col(STATE) == HEADER),
    }
    for i, name in enumerate(clean.untyped):
        figures[f"given{i}"] = _count(is_good() & col(name).isNotNull())
        figures |= {f"{kind}{i}": _count(is_good() & fits) for kind, fits in shapes(col(name)).items()}
    by_piece = clean.frame.groupBy(col(FILE_ID).alias("file_id"), col(BLOCK).alias("block"))
    named = [column.alias(name) for name, column in figures.items() if name != "key"]
    keyed = F.xxhash64("file_id", "block").alias("key")
    found = [row.asDict() for row in by_piece.agg(*named).withColumn("key", keyed).collect()]
    total = {name: sum(one[name] for one in found) for name in figures if name not in ("key", "first_row")}
    pieces = pieces_of(ids, found)
    types, misfits = {}, {}
    for i, name in enumerate(clean.untyped):
        fitting = {kind: total[f"{kind}{i}"] for kind in ("int", "float", "bool")}
        types[name], misfits[name] = _type(fitting, total[f"given{i}"], name in wanted.keys)
    few = {name: misfit for name, misfit in misfits.items() if misfit is not None}
    return Scan(pieces, total["good"] + total["bad"], total["good"], total["twice"], total["headers"], types, few)


def _count(condition: Column) -> Column:
    return F.count(F.when(condition, 1))


def _type(fitting: dict[str, int], given: int, is_key: bool) -> tuple[str, tuple[str, int] | None]:
    """The first that fits all, and what spoilt a better one; keys are no floats, which the engine would refuse. No
    value at all tells nothing."""
    kinds = [kind for kind in fitting if not (is_key and kind == "float")]
    found = next((kind for kind in kinds if given and fitting[kind] == given), "string")
    better = max(kinds[: kinds.index(found)] if found in kinds else kinds, key=fitting.__getitem__, default=None)
    nearly = better is not None and fitting[better] > NEARLY * given
    return found, (better, given - fitting[better]) if nearly else None


def standing(rows: DataFrame, is_ns: bool) -> Standing:
    """rows: US, SUB and place of the good ones that the filter leaves · is_ns: the output counts nanoseconds anyway."""
    finer = col(SUB) != 0
    figures = {
        "rows": F.count(F.lit(1)),
        "top": F.max(US),
        "top_ns": F.max(F.when(~beyond_ns(col(US), col(SUB)), col(US) * 1000 + col(SUB))),
        "finer": _count(finer),
        "first_finer": F.min(F.when(finer, col(ROW))),
        "beyond": _count(beyond_ns(col(US), col(SUB))),
    }
    found = rows.groupBy(FILE_ID, BLOCK).agg(*[column.alias(name) for name, column in figures.items()])
    pieces = found.withColumn("key", key()).collect()
    in_ns = is_ns or any(piece["finer"] for piece in pieces)
    tops = {piece["key"]: (piece["top"], 0) for piece in pieces}
    if in_ns:
        tops = {piece["key"]: divmod(piece["top_ns"], 1000) for piece in pieces if piece["top_ns"] is not None}
    beyond = {piece["key"]: piece["beyond"] for piece in pieces if in_ns and piece["beyond"]}
    first_finer = min(((piece["key"], piece["first_finer"]) for piece in pieces if piece["finer"]), default=None)
    rows_left = sum(piece["rows"] for piece in pieces) - sum(beyond.values())
    return Standing(rows_left, tops, in_ns, sum(piece["finer"] for piece in pieces), first_finer, beyond)
