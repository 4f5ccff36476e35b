"""The pieces in which the files were read, and the number that a row or line of a piece has in its file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Sequence
from urllib.parse import unquote

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mpijoin.pipeline.prepare.read import BLOCK, FILE_ID, ROW, col

KEY = "__key"  # bigint, of a piece
ROW_BITS = 33  # of a row's number in what one task reads; Spark puts the task's number above them


@dataclass(frozen=True)
class Piece:
    """A part of a file that was read in one go. key: as `key()` makes it · file: index into the paths · block: byte at
    which it begins · lines: in it, also those that are no rows · first_row: ROW of the first · bad: rows in it that
    cannot be used."""

    key: int
    file: int
    block: int
    lines: int
    first_row: int
    bad: int


@dataclass(frozen=True)
class Pieces:
    """All pieces. paths: of all files, sorted · all: the pieces in order of path and place."""

    paths: tuple[str, ...]
    all: tuple[Piece, ...]

    def lines_before(self) -> list[int]:
        """For each piece, how many lines of its file come before it."""
        before, last, count = [], None, 0
        for piece in self.all:
            count = count if piece.file == last else 0
            before.append(count)
            last, count = piece.file, count + piece.lines
        return before

    def line(self, key: int, row: int) -> tuple[str, int]:
        """The path and the number of the line, from 1, of a row that is given by its piece and ROW."""
        for piece, before in zip(self.all, self.lines_before()):
            if piece.key == key:
                return self.paths[piece.file], before + row - piece.first_row + 1
        raise KeyError(key)

    def bad_paths(self, also: Iterable[int] = ()) -> list[str]:
        """The files with bad rows, and those with a piece whose key is in `also`."""
        keys = set(also)
        return [
            self.paths[file] for file in sorted({piece.file for piece in self.all if piece.bad or piece.key in keys})
        ]

    def size(self, largest: int) -> int:
        """The number of bytes by which files were cut. largest: of the files, in bytes."""
        return min((piece.block for piece in self.all if piece.block), default=largest + 1)


def key() -> Column:
    return F.xxhash64(FILE_ID, BLOCK)


def place(number: Column) -> Column:
    """bigint: the place of a row among all, in the order of paths and places in files. number: of the piece among
    all."""
    return F.shiftleft(number.cast("bigint"), ROW_BITS).bitwiseOR(col(ROW).bitwiseAND(2**ROW_BITS - 1))


def ids_of(spark: Any, frame: DataFrame) -> dict[int, str]:
    """FILE_ID -> path, for all files that a frame reads. The frame must not be a cached one."""
    uris = spark.createDataFrame(pd.DataFrame({"uri": frame.inputFiles()}), "uri string")
    return {row["id"]: path_of(row["uri"]) for row in uris.select("uri", F.xxhash64("uri").alias("id")).collect()}


def path_of(uri: str) -> str:
    return unquote(uri).removeprefix("file://")


def pieces_of(ids: Mapping[int, str], found: Sequence[Mapping[str, Any]]) -> Pieces:
    """The pieces in order. found: file_id, block, key, lines, first_row and bad of each piece."""
    paths = sorted(ids.values())
    index = {path: number for number, path in enumerate(paths)}
    pieces = [
        Piece(one["key"], index[ids[one["file_id"]]], one["block"], one["lines"], one["first_row"], one["bad"])
        for one in found
    ]
    return Pieces(tuple(paths), tuple(sorted(pieces, key=lambda piece: (piece.file, piece.block))))


def table(spark: Any, pieces: Pieces, **columns: Sequence[int]) -> DataFrame:
    """A table of KEY and these bigint columns, with one value for each piece. It is so small that a join with it leaves
    rows where they are."""
    keys = pd.Series([piece.key for piece in pieces.all], dtype="int64")
    values = {name: pd.Series(column, dtype="int64") for name, column in columns.items()}
    kinds = ", ".join(f"{name} bigint" for name in (KEY, *columns))
    return F.broadcast(spark.createDataFrame(pd.DataFrame({KEY: keys} | values), kinds))
