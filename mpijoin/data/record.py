"""The record form of a stream's stored columns: fixed-size words per tuple, and a blob for what has variable size.

    record  | key words | key lengths, to a whole word || payload by falling width | payload lengths | null bits | pad |
    blob    | key values || payload values |

The key part (only where the key is hashed) is normalised, so that two keys of one logical type are equal iff their
`key_words` and their blobs' key bytes are. A payload length of -1 is a null; every payload column has a null bit too.
Key columns have null bits, behind the payload's, only where the schema says so (`null_keys`). These are no part of the
key: a tuple with a null key equals nothing, which its row number tells, and is compared with nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
import pyarrow as pa
from pyarrow import types

from mpijoin.compiled import kernel
from mpijoin.data.arrow import (
    NO_BYTES,
    byte_array,
    byte_values,
    fixed_array,
    fixed_values,
    is_variable,
    item_dtype,
    null_mask,
    one_array,
    width_bytes,
)
from mpijoin.data.batch import read_only
from mpijoin.data.schema import Column, StreamSchema
from mpijoin.data.types import decoded
from mpijoin.errors import InputError
from mpijoin.named import NamedTuple

WORD_BYTES = 8
LENGTH_MAX = 2**31 - 1
NULL_LENGTH = -1
DAY_MS = 86_400_000
NO_SIZES = np.empty(0, np.int64)


class Field(NamedTuple):
    """Where one stored column lies: its value, or an int32 length if its size varies, `offset` bytes into the
    record."""

    column: Column
    is_key: bool
    is_variable: bool
    offset: int

    @property
    def kind(self) -> pa.DataType:
        """The type in which the column is given back."""
        return decoded(self.column.type)

    @property
    def dtype(self) -> np.dtype:
        """The numpy type of what the record holds of it."""
        if self.is_variable:
            return np.dtype("i4")
        return np.dtype("i8") if self.is_key else item_dtype(width_bytes(self.kind))


@kernel
def _put_bytes(offsets, data, length, at, blob):
    """Copies value i, length[i] bytes of it (none if negative), to blob[at[i]:] and moves at[i] behind it."""
    for index in range(len(at)):
        start, target = offsets[index], at[index]
        for offset in range(length[index]):
            blob[target + offset] = data[start + offset]
        at[index] = target + max(length[index], 0)


@kernel
def _get_bytes(blob, length, at, offsets, data):
    """Copies length[i] bytes from blob[at[i]:] to data[offsets[i]:] and moves at[i] behind them."""
    for index in range(len(at)):
        source, start = at[index], offsets[index]
        for offset in range(length[index]):
            data[start + offset] = blob[source + offset]
        at[index] = source + max(length[index], 0)


def key_word(array: pa.Array) -> np.ndarray:
    """int64[n]: a fixed-size key column so that equal values of one logical type are equal words; 0 where null."""
    if types.is_date(array.type):
        values = fixed_values(array)
        return values.view(np.int32).astype(np.int64) * DAY_MS if types.is_date32(array.type) else values.view(np.int64)
    if types.is_timestamp(array.type) or types.is_uint64(array.type):
        return fixed_values(array).view(np.int64)
    signed = types.is_signed_integer(array.type)
    values = fixed_values(array)
    return values.view(f"i{values.itemsize}" if signed else values.dtype).astype(np.int64, copy=False)


def key_column(kind: pa.DataType, words: np.ndarray, nulls: np.ndarray | None = None) -> pa.Array:
    """A key column of its own type from `key_word`'s int64[n]. nulls: bool[n]; None: it has none."""
    if types.is_date32(kind):
        words = words // DAY_MS
    if width_bytes(kind) < WORD_BYTES:
        words = words.astype(f"i{width_bytes(kind)}")
    return fixed_array(kind, words, nulls)


@dataclass(frozen=True)
class RecordLayout:
    """How a stream's stored columns lie in records and blobs. It is the same on every rank, since the schema is."""

    schema: StreamSchema

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """The stored columns in the schema's order, each with its place."""
        schema = self.schema
        keys = _place(schema.keys, True, 0) if schema.hashed else {}
        payload = _place(schema.payload, False, self.key_words * WORD_BYTES)
        places = {**keys, **payload}
        return tuple(places[column.name] for column in schema.stored)

    @cached_property
    def variable(self) -> tuple[Field, ...]:
        """The variable-size columns in the order of their values in the blob: the key's first."""
        return tuple(sorted((field for field in self.fields if field.is_variable), key=lambda field: field.offset))

    @cached_property
    def has_blob(self) -> bool:
        return len(self.variable) > 0

    @cached_property
    def key_count_var(self) -> int:
        """Key columns of variable size: the first of `variable`."""
        return sum(_key_is_variable(column) for column in self.schema.keys) if self.schema.hashed else 0

    @cached_property
    def key_fixed_words(self) -> int:
        """Words of the fixed-size key columns; the variable ones' lengths follow, two to a word."""
        return len(self.schema.keys) - self.key_count_var if self.schema.hashed else 0

    @cached_property
    def key_words(self) -> int:
        """Leading words of the record that belong to the key; 0 unless the key is hashed."""
        return self.key_fixed_words + -(-self.key_count_var // 2)

    @cached_property
    def null_offset(self) -> int:
        """Bytes into the record at which the null bits start."""
        ends = [field.offset + field.dtype.itemsize for field in self.fields if not field.is_key]
        return max(ends, default=self.key_words * WORD_BYTES)

    @cached_property
    def _null_bytes(self) -> int:
        schema = self.schema
        return -(-(len(schema.payload) + (len(schema.keys) if schema.null_keys else 0)) // 8)

    @cached_property
    def record_words(self) -> int:
        return -(-(self.null_offset + self._null_bytes) // WORD_BYTES)

    @cached_property
    def _dtype(self) -> np.dtype:
        """A record as a structure: fields "0", "1", … in the order of `fields`, null bytes "null0", "null1", …"""
        null_bytes = self._null_bytes
        return np.dtype(
            {
                "names": [str(i) for i in range(len(self.fields))] + [f"null{i}" for i in range(null_bytes)],
                "formats": [field.dtype for field in self.fields] + ["u1"] * null_bytes,
                "offsets": [field.offset for field in self.fields] + [self.null_offset + i for i in range(null_bytes)],
                "itemsize": self.record_words * WORD_BYTES,
            }
        )

    def pack(self, columns: list[pa.Array], rows: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(record int64[n, record_words], size int64[n], blob uint8[sum(size)]) of the columns, given as `fields` are.

        Without variable-size columns size and blob are empty. `rows` = n is needed only where no column is stored.
        Which keys are null is kept only with `null_keys`. Raises InputError when a value is longer than a 32-bit length
        can say.
        """
        arrays = [one_array(column) for column in columns]
        count = len(arrays[0]) if arrays else rows
        record = np.zeros((count, self.record_words), np.int64)
        if not arrays:
            return record, NO_SIZES, NO_BYTES
        view = record.view(self._dtype)[:, 0]
        values: dict[str, _Values] = {}
        for index, (field, array) in enumerate(zip(self.fields, arrays)):
            nulls = null_mask(array)
            if field.is_variable:
                values[field.column.name] = _variable_values(field, array, nulls)
                view[str(index)] = values[field.column.name].length
            else:
                view[str(index)] = key_word(array) if field.is_key else fixed_values(array)
            if nulls is not None and self._has_null_bit(field):
                self._set_nulls(view, index, nulls)
        return record, *self._pack_blob(values, count)

    def null_bit(self, index: int) -> tuple[int, int]:
        """Which bit of which null byte belongs to a field that has one, by its index in `fields`."""
        payload = len(self.schema.payload)
        keys = len(self.fields) - payload
        return divmod(index - keys if index >= keys else payload + index, 8)

    def _has_null_bit(self, field: Field) -> bool:
        return not field.is_key or self.schema.null_keys

    def _set_nulls(self, view: np.ndarray, index: int, nulls: np.ndarray) -> None:
        octet, bit = self.null_bit(index)
        view[f"null{octet}"] |= nulls.astype(np.uint8) << np.uint8(bit)

    def _pack_blob(self, values: dict[str, _Values], rows: int) -> tuple[np.ndarray, np.ndarray]:
        if not self.has_blob:
            return NO_SIZES, NO_BYTES
        ordered = [values[field.column.name] for field in self.variable]
        size = np.zeros(rows, np.int64)
        for one in ordered:
            size += np.maximum(one.length, 0)
        at = np.cumsum(size) - size
        blob = np.empty(int(size.sum()), np.uint8)
        for one in ordered:
            _put_bytes(read_only(one.offsets), read_only(one.data), read_only(one.length), at, blob)
        return size, blob

    def unpack(self, record: np.ndarray, size: np.ndarray, blob: np.ndarray) -> list[pa.Array]:
        """The stored columns in `fields`' order, each of its own type (dictionaries: their value type).

        Takes what `pack` gives, or any choice of its tuples. Raises ArrowCapacityError when one column's values need
        more than 2 GiB and its type has 32-bit offsets.
        """
        if not self.fields:
            return []
        return self.unpack_words(np.ascontiguousarray(record.T), size, blob)

    def unpack_words(self, words: np.ndarray, size: np.ndarray, blob: np.ndarray) -> list[pa.Array]:
        """Works as `unpack`, on records that are given word by word: int64[record_words, n], rows contiguous. It copies
        only what does not fill words."""
        values = _Items(words)
        data = self._unpack_blob(values, size, blob)
        return [self._unpack_field(index, values, data) for index in range(len(self.fields))]

    def _unpack_blob(
        self, values: _Items, size: np.ndarray, blob: np.ndarray
    ) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Offsets and bytes of each variable field, by its index in `fields`."""
        columns = {}
        at = np.cumsum(size) - size
        for field in self.variable:
            index = self.fields.index(field)
            length = values.of(field.offset, field.dtype).astype(np.int64)
            offsets = np.zeros(len(length) + 1, np.int64)
            np.cumsum(np.maximum(length, 0), out=offsets[1:])
            data = np.empty(offsets[-1], np.uint8)
            _get_bytes(read_only(blob), read_only(length), at, read_only(offsets), data)
            columns[index] = (offsets, data)
        return columns

    def _unpack_field(self, index: int, values: _Items, data: dict[int, tuple[np.ndarray, np.ndarray]]) -> pa.Array:
        field, nulls = self.fields[index], None
        if self._has_null_bit(field):
            octet, bit = self.null_bit(index)
            nulls = values.bit(self.null_offset + octet, bit)
        if field.is_variable:
            return byte_array(field.kind, *data[index], nulls)
        if field.is_key:
            return key_column(field.kind, values.of(field.offset, field.dtype), nulls)
        return fixed_array(field.kind, values.of(field.offset, field.dtype), nulls)


class _Items:
    """Columns of records that are given word by word, int64[record_words, n]."""

    def __init__(self, words: np.ndarray):
        self._words = words
        self._rows: np.ndarray | None = None  # the records' bytes, uint8[n, 8 * record_words]
        self._set: dict[int, int] = {}  # offset -> of that byte the bits that any record has set

    def of(self, offset: int, dtype: np.dtype) -> np.ndarray:
        """Items of a type, `offset` bytes into the record: a view where they lie aligned in one word."""
        width = dtype.itemsize
        if width in (1, 2, 4, 8) and offset % width == 0:
            word, within = divmod(offset, WORD_BYTES)
            return self._words[word].view(dtype)[within // width :: WORD_BYTES // width]
        if width == 0:
            return np.zeros(self._words.shape[1], dtype)
        if self._rows is None:
            self._rows = np.ascontiguousarray(self._words.T).view(np.uint8)
        return np.ascontiguousarray(self._rows[:, offset : offset + width]).view(dtype)[:, 0]

    def bit(self, offset: int, bit: int) -> np.ndarray | None:
        """bool[n]: a bit of one byte of the records; None where no record has it set."""
        octets = self.of(offset, np.dtype("u1"))
        if offset not in self._set:
            self._set[offset] = int(np.bitwise_or.reduce(octets, initial=0))
        return octets >> np.uint8(bit) & np.uint8(1) == 1 if self._set[offset] >> bit & 1 else None


class _Values(NamedTuple):
    """A variable-size column: value i is data[offsets[i]:] for length[i] bytes, int64[n] each; a null has length -1."""

    offsets: np.ndarray
    data: np.ndarray
    length: np.ndarray


def _variable_values(field: Field, array: pa.Array, nulls: np.ndarray | None) -> _Values:
    offsets, data = byte_values(array)
    length = np.diff(offsets)
    if length.max(initial=0) > LENGTH_MAX:
        raise InputError(
            f"column {field.column.name!r}: got a value of {length.max()} bytes, wanted at most {LENGTH_MAX} bytes each"
        )
    if nulls is not None:
        length[nulls] = 0 if field.is_key else NULL_LENGTH
    return _Values(offsets, data, length)


def _key_is_variable(column: Column) -> bool:
    """Whether a key column counts as variable. Fixed-size binary keys do, because they may have to equal binary
    ones."""
    return is_variable(column.type) or types.is_fixed_size_binary(decoded(column.type))


def _place(columns: tuple[Column, ...], is_key: bool, start: int) -> dict[str, Field]:
    """Places the fields, by name: fixed-size columns first, wide before narrow so that each lies aligned, then the
    lengths."""
    variable = _key_is_variable if is_key else lambda column: is_variable(column.type)
    fields = [Field(column, is_key, variable(column), 0) for column in columns]
    fields.sort(key=lambda field: (field.is_variable, -field.dtype.itemsize))
    offsets = accumulate((field.dtype.itemsize for field in fields), initial=start)
    return {field.column.name: field._replace(offset=offset) for field, offset in zip(fields, offsets)}
