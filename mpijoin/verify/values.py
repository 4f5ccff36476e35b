"""Turns Arrow values into a form that DuckDB compares exactly, and back into words."""

from __future__ import annotations

import io
import struct
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from mpijoin.data.moments import timestamp_words
from mpijoin.data.record import DAY_MS
from mpijoin.data.schema import UNIT_NS

_FLOAT_BITS = {16: (pa.int16(), "<h", "<e"), 32: (pa.int32(), "<i", "<f"), 64: (pa.int64(), "<q", "<d")}


def decoded(kind: pa.DataType) -> pa.DataType:
    """The type, or the value type of a dictionary: what results hold."""
    return kind.value_type if types.is_dictionary(kind) else kind


def stored_type(kind: pa.DataType) -> pa.DataType:
    """The type a column has once it went through Parquet, which knows no seconds: timestamp[s] comes back as [ms]."""
    file = io.BytesIO()
    pq.write_table(pa.schema([("x", decoded(kind))]).empty_table(), file)
    file.seek(0)
    return pq.read_schema(file).field(0).type


def canonical(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values of a column whose stored type is `kind` as int64, uint64, bool or binary; nulls stay null.

    Floats become their bits, so that every NaN and both zeros are told apart; dates milliseconds; strings bytes.
    """
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if types.is_date(array.type):
        return array.cast(pa.date64()).cast(pa.int64())
    if array.type != kind:
        array = array.cast(kind)
    if types.is_floating(kind):
        return array.view(_FLOAT_BITS[kind.bit_width][0]).cast(pa.int64())
    if types.is_uint64(kind) or types.is_boolean(kind):
        return array
    if types.is_temporal(kind):
        array = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    if types.is_integer(array.type):
        return array.cast(pa.int64())
    return array.cast(pa.string()).cast(pa.binary()) if types.is_decimal(kind) else array.cast(pa.binary())


def finer_by(kind: pa.DataType) -> int:
    """How many times as finely canonical values of a column of this type count: dates and what Parquet stores of
    seconds are milliseconds."""
    if types.is_date32(kind):
        return DAY_MS
    if not types.is_temporal(kind) or types.is_date(kind):
        return 1
    return UNIT_NS[kind.unit] // UNIT_NS[stored_type(kind).unit]


def number(array: pa.Array) -> pa.Array:
    """Floats of any width as float64."""
    return (array.dictionary_decode() if types.is_dictionary(array.type) else array).cast(pa.float64())


def canonical_type(kind: pa.DataType) -> pa.DataType:
    """The Arrow type that `canonical` gives for a column of type `kind`."""
    return canonical(pa.array([], kind), kind).type


def sql_type(kind: pa.DataType) -> str:
    """DuckDB's name of `canonical_type(kind)`."""
    names = {pa.int64(): "BIGINT", pa.uint64(): "UBIGINT", pa.bool_(): "BOOLEAN", pa.binary(): "BLOB"}
    return names[canonical_type(kind)]


def words(value: Any, kind: pa.DataType) -> str:
    """A canonical value of a column of type `kind` as a reader knows it.

    >>> words(None, pa.int64()), words(b"YR.ED10", pa.string()), words(0, pa.float64())
    ('null', "'YR.ED10'", '0.0')
    """
    if value is None:
        return "null"
    if types.is_floating(kind):
        _, bits, number = _FLOAT_BITS[kind.bit_width]
        return repr(struct.unpack(number, struct.pack(bits, value))[0])
    if types.is_timestamp(kind):
        return timestamp_words(value, kind.unit)
    if types.is_date(kind):
        return str(pa.scalar(value, pa.int64()).cast(pa.date64()))
    if types.is_decimal(kind):
        return value.decode()
    if isinstance(value, bytes) and not (types.is_binary(kind) or types.is_fixed_size_binary(kind)):
        return repr(value.decode(errors="replace"))
    return str(value)
