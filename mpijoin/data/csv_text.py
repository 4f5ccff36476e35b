"""CSV files as text: how they are opened, what their columns are called, and which types their first rows suggest."""

from __future__ import annotations

from typing import Mapping

import numpy as np
import pyarrow as pa
from pyarrow import csv, types

from mpijoin.data.arrow import byte_values
from mpijoin.errors import InputError

GZIP = ".gz"
SAMPLE_BYTES = 1 << 20  # that types are inferred from
RECORD_BYTES_MAX = 64 << 20  # of a line, or of several where a quoted value spans them
TOO_LONG = (
    f"a record of more than {RECORD_BYTES_MAX >> 20} MiB begins here: is a quote not closed? A quote inside of a value"
    " is written twice"
)
PARSING = csv.ParseOptions(newlines_in_values=True)
_STRADDLES = "straddling object"  # the library's words for a record that is longer than a block
_SIGNS = (ord("+"), ord("-"))
_BLANK, _ZERO, _NINE = (ord(sign) for sign in " 09")


def open_text(path: str) -> pa.NativeFile:
    """Opens the text, decompressed if need be; closing it closes the file."""
    return pa.input_stream(path, compression="gzip" if path.lower().endswith(GZIP) else None)


def csv_schema(path: str, given: Mapping[str, pa.DataType]) -> pa.Schema:
    """Returns names, and types as the first rows suggest them or as `given`; null where these rows have no value.

    Numbers with leading zeros are probably names: if they are whole, the column is taken for strings. Text that is not
    UTF-8 is binary. Raises ArrowException, OSError, and InputError where the header is not UTF-8.
    """
    schema = _sample(path, csv.ConvertOptions(column_types=dict(given))).schema
    whole = [field.name for field in schema if types.is_integer(field.type) and field.name not in given]
    if not whole:
        return schema
    asked = csv.ConvertOptions(column_types=dict.fromkeys(whole, pa.string()), include_columns=whole)
    texts = _sample(path, asked)
    named = {name for name, values in zip(texts.schema.names, texts.columns) if first_padded(values) is not None}
    return pa.schema([field.with_type(pa.string()) if field.name in named else field for field in schema])


def _sample(path: str, asked: csv.ConvertOptions) -> pa.RecordBatch:
    """Returns the first rows, about SAMPLE_BYTES of them; no rows if there are none."""
    with open_text(path) as file:
        text = file.read(SAMPLE_BYTES)
    _check_header(path, text)
    block_bytes = SAMPLE_BYTES
    while True:
        # A file that ends within the sample may lack its last line end.
        file = open_text(path) if len(text) == SAMPLE_BYTES else pa.BufferReader(text + b"\n" if text else b"")
        reading = csv.ReadOptions(use_threads=False, block_size=block_bytes)
        try:
            with file, csv.open_csv(file, reading, PARSING, asked) as reader:
                return next(reader, None) or pa.record_batch(
                    [pa.nulls(0, kind) for kind in reader.schema.types], schema=reader.schema
                )
        except pa.ArrowInvalid as error:
            if _STRADDLES not in str(error):
                raise
            if block_bytes >= RECORD_BYTES_MAX:
                raise InputError(f"{path}: {TOO_LONG}") from error
            block_bytes *= 8


def _check_header(path: str, text: bytes) -> None:
    """Raises InputError unless the first line is UTF-8."""
    header = text.lstrip(b"\r\n").partition(b"\n")[0]
    try:
        header.decode()
    except UnicodeDecodeError as error:
        line = 1 + text[: text.index(header)].count(b"\n")
        raise InputError(f"{path}: line {line}: {not_utf8(header)} in the header; {RECODE}") from error


RECODE = "wanted UTF-8: convert the file, as with iconv -f latin1 -t utf-8"


def not_utf8(text: bytes) -> str:
    """What is wrong with a text that is not UTF-8.

    >>> not_utf8(b"Forl\\xec")
    "got the byte 0xec behind 'Forl'"
    """
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return f"got the byte {text[error.start]:#x} behind {text[:error.start].decode()[-20:]!r}"
    return "got text"


def first_padded(texts: pa.Array) -> int | None:
    """Index of the first value of a string column that begins with a zero before another digit; None if none does.

    >>> first_padded(pa.array(["0", "70", "-1", "007"])), first_padded(pa.array(["0.5", ""]))
    (3, None)
    """
    offsets, data = byte_values(texts)
    data = np.append(data, np.zeros(2, np.uint8))  # so that one may look behind the last value
    at, end = offsets[:-1].copy(), offsets[1:]
    while (blank := (data[at] == _BLANK) & (at < end)).any():
        at += blank
    at += np.isin(data[at], _SIGNS) & (at < end)
    follows = data[np.minimum(at + 1, len(data) - 1)]
    padded = (at + 1 < end) & (data[at] == _ZERO) & (follows >= _ZERO) & (follows <= _NINE)
    return int(np.argmax(padded)) if padded.any() else None


def utf8_problem(path: str, name: str) -> str:
    """Says where in the first rows a column is not UTF-8, and how; its type was found to be binary."""
    from mpijoin.data.csv_records import split  # late: it loads the compiler, which a sound file does not need

    found = _sample(path, csv.ConvertOptions(column_types={name: pa.binary()}, include_columns=[name]))
    rows = (row for row, value in enumerate(found.column(0).to_pylist()) if not _is_utf8(value))
    row = next(rows, 0)
    with open_text(path) as file:
        text = file.read(SAMPLE_BYTES)
    ends = split(text, row + 1).end  # of the header and the rows before
    line = 1 + text[: len(text) - len(text[ends:].lstrip(b"\r\n"))].count(b"\n")
    return f"line {line}: column {name!r}: {not_utf8(found.column(0)[row].as_py())}; {RECODE}"


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
