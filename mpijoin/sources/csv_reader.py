"""CSV files are read in pieces of whole records, each parsed on its own. So lines may be long, and values may contain
line ends.

Two things that the library would accept are refused with file and line: a quote that is never closed, which takes all
that follows for one value, and a number with leading zeros, which is probably a name and as a number would equal
others.
"""

from __future__ import annotations

import os
import re
from typing import Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyarrow import csv, types

from mpijoin.data.csv_records import ALL, first_padded, may_be_padded, split
from mpijoin.data.csv_text import GZIP, PARSING, RECODE, RECORD_BYTES_MAX, TOO_LONG, not_utf8, open_text
from mpijoin.data.files import first_line
from mpijoin.data.schema import Column
from mpijoin.errors import InputError

PIECE_BYTES = 1 << 20
LEAD = b"\n\n"
UNCLOSED = "the quote that opens here is never closed; one inside of a value is written twice"
# The library's words for a value that does not fit, and for a row of the wrong length.
_UNFIT = re.compile(r"In CSV column #(\d+): Row #(\d+): CSV conversion error to [^:]+: (.*)")
_UNEVEN = re.compile(r"CSV parse error: Row #(\d+): Expected (\d+) columns, got (\d+)")


class CsvReader:
    """Reads columns of one file, each as the type that is asked for. Skipped rows are read, too."""

    def __init__(self, path: str, columns: Sequence[Column], typed: Collection[str]):
        """typed: columns whose type the job gives. Those of the others are only what the first rows suggest."""
        self._path, self._columns, self._typed = path, {column.name: column for column in columns}, typed
        self._size_bytes = max(1, os.path.getsize(path))
        self._file = pa.OSFile(path)
        self._text = pa.CompressedInputStream(self._file, "gzip") if path.lower().endswith(GZIP) else self._file
        # What is held of the text: from `_at` to `_end`, and in front of it two line ends.
        self._held, self._at, self._end = bytearray(LEAD + b"\0" * 2 * PIECE_BYTES), len(LEAD), len(LEAD)
        self._begun, self._piece_bytes = 0, 0  # where in the text the piece at hand begins, and how long it is
        try:
            self._names = self._header()
        except BaseException:
            self.close()
            raise
        whole = {name for name, column in self._columns.items() if name not in typed and types.is_integer(column.type)}
        self._guessed = np.array([name in whole for name in self._names])  # taken for whole numbers, bool[columns]

    def _header(self) -> list[str]:
        """The names of the columns. Raises InputError unless each asked column is there once."""
        header = self._next_piece(records=1)
        if not bytes(header).strip():
            raise pa.ArrowInvalid("Empty CSV file")
        with csv.open_csv(
            pa.BufferReader(bytes(header) + b"\n"), csv.ReadOptions(use_threads=False), PARSING
        ) as reader:
            names = reader.schema.names
        for name in self._columns:
            if names.count(name) != 1:
                has = ", ".join(names)
                raise InputError(
                    f"{self._path}: got {names.count(name) or 'no'} column {name!r}, wanted one; the file has {has}"
                )
        return names

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows of the file. Raises InputError, and what pyarrow raises."""
        kinds = {name: column.type for name, column in self._columns.items()}
        while piece := self._next_piece():
            table = self._parsed(piece, kinds)
            if self._guessed.any() and self._may_be_padded(piece):
                self._check_padded(piece)
            yield from table.to_batches()

    def _next_piece(self, records: int = ALL) -> memoryview:
        """Returns the next whole records, or a number of them, in memory that the next call uses again; empty at the
        end.

        Raises InputError where quotes are wrong.
        """
        self._drop_piece()
        while True:
            found = split(self._held, records, self._at, self._end)
            if found.behind >= 0:
                raise self._error(
                    found.behind,
                    "got text behind a closing quote, wanted a comma; a quote inside of a value is written twice",
                )
            if found.end:
                self._piece_bytes = found.end
                break
            held = self._end - self._at
            if held > RECORD_BYTES_MAX:
                raise self._error(max(0, found.open_quote), TOO_LONG)
            if not self._read_on():
                if found.open_quote >= 0:
                    raise self._error(found.open_quote, UNCLOSED)
                self._piece_bytes = held
                break
        return memoryview(self._held)[self._at : self._at + self._piece_bytes]

    def _drop_piece(self) -> None:
        self._begun, self._at, self._piece_bytes = self._begun + self._piece_bytes, self._at + self._piece_bytes, 0

    def _read_on(self) -> bool:
        """Reads more of the text; returns False at its end."""
        rest = self._held[self._at : self._end]
        if len(LEAD) + 2 * len(rest) > len(self._held):  # pieces may still be looked at: another one, not a larger one
            self._held = bytearray(LEAD + b"\0" * 4 * len(rest))
        self._at, self._end = len(LEAD), len(LEAD) + len(rest)
        self._held[self._at : self._end] = rest
        more = self._text.readinto(memoryview(self._held)[self._end : self._end + max(PIECE_BYTES, len(rest))])
        self._end += more
        return more > 0

    def _may_be_padded(self, piece: memoryview) -> bool:
        before = self._at - len(LEAD)
        self._held[before : self._at] = LEAD  # of what comes before, all has been read
        return may_be_padded(memoryview(self._held)[before : self._at + len(piece)])

    def _parsed(self, piece: memoryview, kinds: dict[str, pa.DataType]) -> pa.Table:
        reading = csv.ReadOptions(use_threads=False, block_size=len(piece) + 1, column_names=self._names)
        asked = csv.ConvertOptions(column_types=kinds, include_columns=list(kinds))
        while True:
            try:
                return csv.read_csv(pa.BufferReader(piece), reading, PARSING, asked)
            except pa.ArrowCancelled:
                # At a signal the library gives up, and then sends it to whoever has asked for it. That may be a run
                # that goes on until there is a checkpoint.
                continue
            except pa.ArrowInvalid as error:
                raise self._explained(error, piece) from error

    def _check_padded(self, piece: memoryview) -> None:
        """Raises InputError if a column that was taken for whole numbers has one with leading zeros."""
        row, column = first_padded(piece, self._guessed)
        if row < 0:
            return
        name = self._names[column]
        value = self._parsed(piece, {name: pa.string()})[name][row].as_py()
        got = f"got {value!r}, which as a number would lose its zeros"
        raise self._in_record(
            piece, row, f'column {name!r}: {got}; {_advice(name)}, or "{self._columns[name].type}" if it is one'
        )

    def _explained(self, error: pa.ArrowInvalid, piece: memoryview) -> Exception:
        """Adds the line and the column's name to the library's error, where they can be told."""
        text = first_line(error)
        if uneven := _UNEVEN.search(text):
            row, wanted, got = map(int, uneven.groups())
            return self._in_record(piece, row - 1, f"got {got} values, wanted {wanted} as in the header")
        unfit = _UNFIT.search(text)
        if unfit is None:
            return error
        name, row = self._names[int(unfit[1])], int(unfit[2]) - 1
        if "UTF8" in unfit[3]:
            return self._in_record(piece, row, f"column {name!r}: {self._not_utf8(piece, name, row)}; {RECODE}")
        why = "as the job says" if name in self._typed else f"as the first rows suggest; {_advice(name)}"
        return self._in_record(piece, row, f"column {name!r}: {unfit[3]}, wanted {self._columns[name].type} {why}")

    def _not_utf8(self, piece: memoryview, name: str, row: int) -> str:
        return not_utf8(self._parsed(piece, {name: pa.binary()})[name][row].as_py())

    def _in_record(self, piece: memoryview, record: int, problem: str) -> InputError:
        """record: its number in the piece."""
        text = bytes(piece)
        before = split(text, record).end if record else 0
        blank = len(text) - before - len(text[before:].lstrip(b"\r\n"))
        return self._error(before + blank, problem)

    def _error(self, place: int, problem: str) -> InputError:
        """place: in the current piece. Lines are counted only here, from the beginning of the file, since only an error
        is worth that work."""
        left, text, ends = self._begun + place, b"", 0
        with open_text(self._path) as file:
            while left > 0 and (text := file.read(min(left, PIECE_BYTES))):
                left -= len(text)
                ends += text.count(b"\n")
        return InputError(f"{self._path}: line {ends + 1}: {problem}")

    def fraction(self) -> float:
        return min(1.0, self._file.tell() / self._size_bytes)

    def close(self) -> None:
        self._text.close()
        self._file.close()


def _advice(name: str) -> str:
    return f"say in the stream's section what it is, such as types = {{{name} = \"string\"}}"
