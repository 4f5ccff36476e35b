"""Which columns a condition may read, and where their values lie in a tuple."""

from __future__ import annotations

from typing import Mapping, Sequence

import pyarrow as pa
from pyarrow import types

from mpijoin.conditions.code import Place
from mpijoin.conditions.tree import BOOLEAN, INTEGER, KEY_SIDE, REAL, TIME, Kinds
from mpijoin.config.units import show
from mpijoin.data.record import WORD_BYTES, RecordLayout
from mpijoin.data.schema import JoinSchema
from mpijoin.data.types import decoded

WANTED = "wanted integers up to 64 bits, float, double or boolean; cast it"
KEY_AT, TIME_AT, RECORD_AT = 0, 1, 3  # words of a tuple; a record with a blob begins two words later


def kind_of_type(kind: pa.DataType, called: str) -> str:
    """The kind of a column of this type. ValueError: conditions do not know it."""
    kind = decoded(kind)
    if types.is_boolean(kind):
        return BOOLEAN
    if types.is_integer(kind) and not types.is_uint64(kind):
        return INTEGER
    if types.is_float32(kind) or types.is_float64(kind):
        return REAL
    raise ValueError(f"column {show(called)} is {kind}, {WANTED}")


Types = Mapping[str, pa.DataType]  # of columns, by their names


def kinds_of(columns: Sequence[Types], keys: Sequence[Types]) -> Kinds:
    """columns, keys: of each stream, those that it carries, and those of its key."""

    def kind_of(side: int, name: str) -> str:
        own = keys[max(side, 0)]
        if name == "time" and side != KEY_SIDE:
            return TIME
        if side != KEY_SIDE and name in columns[side]:
            return kind_of_type(columns[side][name], name)
        if side != KEY_SIDE and name not in own:
            told = ", ".join((*columns[side], *own))
            raise ValueError(f"no column {show(name)}, wanted time or one that the stream carries: {told}")
        if len(own) != 1:
            raise ValueError(f"the key has {len(own)} columns, wanted one; carry them among the others, too")
        return kind_of_type(*own.values(), *own)

    return kind_of


def kinds_of_schema(schema: JoinSchema) -> Kinds:
    payloads = [{column.name: column.type for column in stream.payload} for stream in schema.streams]
    return kinds_of(payloads, [{column.name: column.type for column in stream.keys} for stream in schema.streams])


def place_in(schema: JoinSchema, side: int, name: str) -> Place:
    """Where the tuples of a stream have a column."""
    stream = schema.streams[max(side, 0)]
    if name == "time" and side != KEY_SIDE:
        return Place(TIME_AT)
    if side == KEY_SIDE or name not in {column.name for column in stream.payload}:
        return Place(KEY_AT, form="boolean" if types.is_boolean(decoded(stream.keys[0].type)) else "signed")
    layout = RecordLayout(stream)
    index, field = next(
        (index, field)
        for index, field in enumerate(layout.fields)
        if not field.is_key and field.column.name == name
    )
    first = RECORD_AT + 2 * layout.has_blob
    word, octet = divmod(field.offset, WORD_BYTES)
    null_octet, null_bit = layout.null_bit(index)
    null_word, within = divmod(layout.null_offset + null_octet, WORD_BYTES)
    form = "signed"
    if types.is_boolean(field.kind):
        form = "boolean"
    elif types.is_floating(field.kind):
        form = "real"
    elif types.is_unsigned_integer(field.kind):
        form = "unsigned"
    null = (first + null_word, 8 * within + null_bit)
    return Place(first + word, 8 * octet, 8 * field.dtype.itemsize, form, null)
