"""Arrow arrays as plain numpy arrays and back: the only module that knows Arrow's buffer layouts.

An array may be sliced, have no validity bitmap, or be dictionary-encoded; what comes out never is.

The engine makes arrays here and not with `pa.array`, and never calls `to_numpy`: both import pandas where it is
installed, half a second and 30 MB for every rank. Nor does it ask Arrow for what numpy can do: Arrow's functions are
another 3 MB.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import accumulate
from typing import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyarrow import types

from mpijoin.data.types import decoded, is_binary, is_string
from mpijoin.errors import InputError

NO_BYTES = np.empty(0, np.uint8)
ARROW_OFFSET_MAX = 2**31 - 1
OFFSET_BYTES = 4
VIEW_ITEMS = 4  # of 32 bits in a view, the first of which is the length


@contextmanager
def stored_as_parquet(table: pa.Table) -> Iterator[None]:
    """Turns what Arrow says where values of this table have no form in Parquet into an InputError."""
    try:
        yield
    except pa.ArrowInvalid as error:
        beyond = [field.name for field in table.schema if _is_beyond_ms(table[field.name])]
        if not beyond:
            raise
        wanted = "wanted times that 64 bits hold as milliseconds, since Parquet knows no seconds: cast it to int64"
        raise InputError(f"column {', '.join(beyond)}: {str(error).splitlines()[0]}, {wanted}") from error


def _is_beyond_ms(column: pa.ChunkedArray) -> bool:
    """Whether the column has seconds that 64 bits do not hold as milliseconds."""
    if not types.is_timestamp(column.type) or column.type.unit != "s":
        return False
    try:
        column.cast(pa.timestamp("ms", column.type.tz))
    except pa.ArrowInvalid:
        return True
    return False


def is_variable(kind: pa.DataType) -> bool:
    """Whether values of this type (dictionaries decoded) have variable size."""
    plain = decoded(kind)
    return is_string(plain) or (is_binary(plain) and not types.is_fixed_size_binary(plain))


def width_bytes(kind: pa.DataType) -> int:
    """Bytes of one value of a fixed-size type; a boolean takes a byte of its own."""
    return 1 if types.is_boolean(kind) else kind.bit_width // 8


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Returns the column in one piece, without dictionary. String and binary views, which Arrow cannot filter, become
    large."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # what is too long for one array of 32-bit offsets
        raise pa.ArrowCapacityError(f"{column.nbytes} bytes of one column in one batch")
    if types.is_dictionary(column.type):
        values = _without_views(column.dictionary)
        column = pa.DictionaryArray.from_arrays(column.indices, values, safe=False).dictionary_decode()
    return _without_views(column)


def _without_views(array: pa.Array) -> pa.Array:
    if types.is_string_view(array.type) or types.is_binary_view(array.type):
        return array.cast(pa.large_string() if is_string(array.type) else pa.large_binary())
    return array


def null_mask(array: pa.Array) -> np.ndarray | None:
    """bool[n], true where null; None when nothing is."""
    if not array.null_count:
        return None
    valid = array.buffers()[0]
    return np.ones(len(array), bool) if valid is None else ~bits_of(valid, len(array), array.offset)


def booleans(array: pa.Array) -> np.ndarray:
    """bool[n] of booleans, false or anything where null."""
    return bits_of(array.buffers()[1], len(array), array.offset)


def bits_of(buffer: pa.Buffer, rows: int, offset: int = 0) -> np.ndarray:
    """bool[rows], those of a bitmap from `offset` on."""
    end = offset + rows
    octets = np.frombuffer(buffer, np.uint8, (end + 7) // 8)
    return np.unpackbits(octets, bitorder="little", count=end)[offset:].view(bool)


def fixed_bits(kind: pa.DataType) -> int:
    """Bits of one value of a fixed-size type, as Arrow stores it."""
    return 1 if types.is_boolean(kind) else kind.bit_width


def item_dtype(width: int) -> np.dtype:
    """How numpy sees items of `width` bytes: unsigned integers where there are such, else opaque."""
    return np.dtype(f"u{width}" if width in (1, 2, 4, 8) else f"V{width}")


def fixed_values(array: pa.Array) -> np.ndarray:
    """The values' bits, one item of the type's width each, zero where null (what Arrow holds there is arbitrary)."""
    if types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    width = width_bytes(array.type)
    if width == 0 or len(array) == 0:
        return np.zeros(len(array), item_dtype(width))
    values = np.frombuffer(array.buffers()[1], item_dtype(width), len(array), array.offset * width)
    nulls = null_mask(array)
    if nulls is not None:
        values = values.copy()
        values[nulls] = np.zeros((), values.dtype)
    return values


def decoded_bytes(array: pa.Array) -> int:
    """The bytes that the values take without dictionary and without validity; a view counts with the bytes that it
    shows."""
    kind = decoded(array.type)
    if not is_variable(kind):
        return len(array) * width_bytes(kind)
    if types.is_dictionary(array.type):
        lengths = _lengths(array.dictionary)
        chosen = fixed_values(array.indices)  # 0 where null
        return int(lengths[chosen].sum()) + OFFSET_BYTES * len(array) if len(lengths) else 0
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return int(_lengths(array).sum()) + OFFSET_BYTES * len(array)
    offsets = array.buffers()[1]
    if offsets is None or len(array) == 0:
        return 0
    item = np.dtype(np.int32 if _is_narrow(kind) else np.int64)
    first, last = (
        np.frombuffer(offsets, item, 1, at * item.itemsize)[0] for at in (array.offset, array.offset + len(array))
    )
    return int(last - first) + item.itemsize * len(array)


def _lengths(array: pa.Array) -> np.ndarray:
    """int64[n]: bytes of each value of a string or binary array."""
    if types.is_string_view(array.type) or types.is_binary_view(array.type):
        views = np.frombuffer(array.buffers()[1], np.int32, VIEW_ITEMS * len(array), array.offset * VIEW_ITEMS * 4)
        return views[::VIEW_ITEMS].astype(np.int64)
    return np.diff(byte_values(array)[0])


def byte_values(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """(offsets int64[n + 1], data uint8[]): value i is data[offsets[i]:offsets[i + 1]]; below a null lies anything."""
    _, *buffers = array.buffers()
    data = NO_BYTES if buffers[-1] is None else np.frombuffer(buffers[-1], np.uint8)
    if types.is_fixed_size_binary(array.type):
        return np.arange(array.offset, array.offset + len(array) + 1) * array.type.byte_width, data
    if buffers[0] is None or len(array) == 0:
        return np.zeros(1, np.int64), NO_BYTES
    kind = offset_dtype(array.type)
    offsets = np.frombuffer(buffers[0], kind, len(array) + 1, array.offset * kind.itemsize)
    return offsets.astype(np.int64, copy=False), data


def has_offsets(kind: pa.DataType) -> bool:
    """Whether values of this type are bytes between offsets: strings and binaries that are neither views nor of one
    size."""
    return _is_narrow(kind) or types.is_large_string(kind) or types.is_large_binary(kind)


def offset_dtype(kind: pa.DataType) -> np.dtype:
    """The numpy type of the offsets, of a type that has them."""
    return np.dtype(np.int32 if _is_narrow(kind) else np.int64)


def _is_narrow(kind: pa.DataType) -> bool:
    """Whether offsets have 32 bits, of a string or binary type."""
    return types.is_string(kind) or types.is_binary(kind)


def validity(nulls: np.ndarray | None) -> pa.Buffer | None:
    """Arrow's bitmap of bool[n]; None where nothing is null."""
    if nulls is None or not nulls.any():
        return None
    return pa.py_buffer(np.packbits(~nulls, bitorder="little"))


def fixed_array(kind: pa.DataType, values: np.ndarray, nulls: np.ndarray | None) -> pa.Array:
    """Array of `kind` from items of its width, as `fixed_values` gives them."""
    items = np.ascontiguousarray(values)
    if types.is_boolean(kind):
        items = np.packbits(items.view(np.uint8), bitorder="little")
    buffer = pa.py_buffer(items if kind.bit_width else b"")
    return pa.Array.from_buffers(kind, len(values), [validity(nulls), buffer])


def array_of(values: np.ndarray) -> pa.Array:
    """Numbers or booleans as an array of their own type, none of them null."""
    return fixed_array(pa.from_numpy_dtype(values.dtype), values, None)


def text_array(values: Sequence[str | None]) -> pa.Array:
    """An array of a few strings, None for null."""
    encoded = [(value or "").encode() for value in values]
    offsets = np.array([*accumulate(map(len, encoded), initial=0)], np.int64)
    nulls = np.array([value is None for value in values], bool)
    return byte_array(pa.string(), offsets, np.frombuffer(b"".join(encoded), np.uint8), nulls)


def byte_array(kind: pa.DataType, offsets: np.ndarray, data: np.ndarray, nulls: np.ndarray | None) -> pa.Array:
    """Array of a string or binary `kind` from offsets int64[n + 1] and bytes. nulls: bool[n]. Of a binary of fixed
    size, what has no bytes is null, too: so are the keys of tuples that are missing from a result.

    Raises ArrowCapacityError when they are more than the kind's 32-bit offsets can say.
    """
    narrow = _is_narrow(kind)
    if narrow and offsets[-1] > ARROW_OFFSET_MAX:
        raise pa.ArrowCapacityError(f"{offsets[-1]} bytes of {kind} in one array, at most {ARROW_OFFSET_MAX} fit")
    if types.is_fixed_size_binary(kind) and kind.byte_width:
        nulls = offsets[1:] == offsets[:-1]
    wide = pa.large_string() if is_string(kind) else pa.large_binary()
    stored = offsets.astype(np.int32) if narrow else offsets
    buffers = [validity(nulls), pa.py_buffer(stored), pa.py_buffer(data)]
    array = pa.Array.from_buffers(kind if narrow else wide, len(offsets) - 1, buffers)
    return array if array.type == kind else array.cast(kind)
