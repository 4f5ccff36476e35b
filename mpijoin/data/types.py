"""Which Arrow types may be keys or payload, and which keys can be compared with each other."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types

from mpijoin.config.units import COLUMN_TYPES

# One 64-bit word tells two such keys apart; of the other kinds the kernels compare a hash, confirmed on the bytes.
WORD_KINDS = ("integer", "unsigned", "boolean", "date", "timestamp")

_KEY_KINDS = (
    ("unsigned", types.is_uint64),
    ("integer", types.is_integer),
    ("boolean", types.is_boolean),
    ("date", types.is_date),
    ("timestamp", types.is_timestamp),
    ("string", lambda kind: is_string(kind)),
    ("binary", lambda kind: is_binary(kind)),
)


# What a job may call the type of a column, as Arrow does.
NAMED_TYPES = {
    **{name: pa.type_for_alias(name) for name in COLUMN_TYPES if "tz=" not in name},
    **{f"timestamp[{unit}, tz=UTC]": pa.timestamp(unit, "UTC") for unit in ("s", "ms", "us", "ns")},
}


def is_string(kind: pa.DataType) -> bool:
    """string, large_string or string_view."""
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def is_binary(kind: pa.DataType) -> bool:
    """binary, large_binary, binary_view or fixed_size_binary of at least a byte: results as Parquet have no other."""
    return (
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or (types.is_fixed_size_binary(kind) and kind.byte_width > 0)
    )


def decoded(kind: pa.DataType) -> pa.DataType:
    """The type itself, or the value type of a dictionary: the type in which results give the column back.

    >>> decoded(pa.dictionary(pa.int8(), pa.string()))
    DataType(string)
    """
    return kind.value_type if types.is_dictionary(kind) else kind


def key_kind(kind: pa.DataType) -> str | None:
    """The logical type of a key column, or None when it cannot be a key.

    One of "integer" (any width but uint64), "unsigned" (uint64), "boolean", "date", "timestamp", "string", "binary".

    >>> key_kind(pa.int32()), key_kind(pa.uint64()), key_kind(pa.float64())
    ('integer', 'unsigned', None)
    """
    plain = decoded(kind)
    return next((name for name, matches in _KEY_KINDS if matches(plain)), None)


def key_advice(kind: pa.DataType) -> str:
    """What to do about a column that cannot be a key."""
    plain = decoded(kind)
    if types.is_floating(plain):
        return "floats rarely compare equal: round and cast them to integers first"
    if types.is_decimal(plain):
        return "scale and cast decimals to integers, or cast them to strings, first"
    if types.is_null(plain):
        return "no row has a value, so that nothing says of which type it is: cast it to that of the other streams"
    if types.is_fixed_size_binary(plain):
        return "its values have no bytes: leave it out"
    if types.is_nested(plain):
        return "give the fields inside as columns of their own and list them as the key"
    return "cast it to an integer or a string first"


def is_payload(kind: pa.DataType) -> bool:
    """Whether values of this type can travel with a tuple: fixed width, string or binary, or a dictionary of those."""
    plain = decoded(kind)
    if types.is_null(plain) or types.is_nested(plain) or types.is_interval(plain):
        return False
    return types.is_primitive(plain) or types.is_decimal(plain) or is_string(plain) or is_binary(plain)


def is_number(kind: pa.DataType) -> bool:
    """Whether values of this type can be added up: integers, and floats of 32 or 64 bits.

    >>> is_number(pa.uint8()), is_number(pa.float16()), is_number(pa.date32())
    (True, False, False)
    """
    plain = decoded(kind)
    return types.is_integer(plain) or types.is_float32(plain) or types.is_float64(plain)
