"""Which columns a condition may read, where their values lie in a tuple, and which types what is made of them has."""

from __future__ import annotations

from typing import Mapping, Sequence

import pyarrow as pa
from pyarrow import types

from mpijoin.conditions.code import Place
from mpijoin.conditions.literals import DAY_NS, NAIVE
from mpijoin.conditions.lower import unit_of
from mpijoin.conditions.tree import (
    BOOLEAN,
    CLOCK,
    DURATION,
    INTEGER,
    KEY_SIDE,
    OF_JOIN,
    REAL,
    TEXT,
    TIME,
    UNSIGNED,
    Kind,
    Kinds,
    Node,
)
from mpijoin.config.units import show
from mpijoin.data.arrow import is_variable
from mpijoin.data.record import DAY_MS, WORD_BYTES, Field, RecordLayout
from mpijoin.data.schema import UNIT_NS, Column, JoinSchema
from mpijoin.data.types import decoded
from mpijoin.named import NamedTuple

WANTED = "wanted integers, float, double, boolean, dates, times, durations, string or binary"
KEY_AT, TIME_AT, RECORD_AT = 0, 1, 3  # words of a tuple; a record with a blob begins two words later
UNIT_NAMES = {ns: unit for unit, ns in UNIT_NS.items()}


def kind_of_type(kind: pa.DataType, called: str) -> Kind:
    """What a column of this type is. ValueError: conditions do not know it."""
    kind = decoded(kind)
    if types.is_boolean(kind):
        return Kind(BOOLEAN)
    if types.is_integer(kind):
        return Kind(UNSIGNED if types.is_uint64(kind) else INTEGER)
    if types.is_float32(kind) or types.is_float64(kind):
        return Kind(REAL)
    if types.is_timestamp(kind):
        return Kind(TIME, UNIT_NS[kind.unit], kind.tz or NAIVE)
    if types.is_date(kind):
        return Kind(TIME, DAY_NS if types.is_date32(kind) else UNIT_NS["ms"], NAIVE)
    if types.is_time(kind) or types.is_duration(kind):
        return Kind(CLOCK if types.is_time(kind) else DURATION, UNIT_NS[kind.unit])
    if is_variable(kind):
        return Kind(TEXT)
    raise ValueError(f"column {show(called)} is {kind}, {WANTED}; {_advice(kind)}")


def _advice(kind: pa.DataType) -> str:
    if types.is_decimal(kind):
        return "cast it to double, or scale it and cast it to an integer"
    return "cast it to binary" if types.is_fixed_size_binary(kind) else "cast it"


Types = Mapping[str, pa.DataType]


class Columns(NamedTuple):
    """The columns of one stream that a condition may name, with their types: those that it carries, those of its key,
    and its time."""

    carried: Types
    keys: Types
    time: pa.DataType


def kinds_of(streams: Sequence[Columns]) -> Kinds:
    """What the columns of these streams are."""

    def kind_of(side: int, name: str) -> Kind:
        own = streams[max(side, 0)]
        if side == KEY_SIDE:
            if len(own.keys) != 1:
                raise ValueError(f"the key has {len(own.keys)} columns, wanted one; name the columns instead")
            return kind_of_type(*own.keys.values(), *own.keys)
        if name == "time":
            return Kind(TIME, OF_JOIN, (own.time.tz or NAIVE) if types.is_timestamp(own.time) else None)
        for columns in (own.carried, own.keys):
            if name in columns:
                return kind_of_type(columns[name], name)
        told = ", ".join((*own.carried, *own.keys))
        raise ValueError(f"no column {show(name)}, wanted time or one that the stream carries: {told}")

    return kind_of


def kinds_of_schema(schema: JoinSchema) -> Kinds:
    return kinds_of([
        Columns(types_of(stream.payload), types_of(stream.keys), stream.time.type) for stream in schema.streams
    ])  # fmt: skip


def types_of(columns: Sequence[Column]) -> Types:
    """Their types, by name."""
    return {column.name: column.type for column in columns}


def type_of(node: Node, tick_ns: int) -> pa.DataType:
    """The type of the values of an expression. tick_ns: the unit of the join, in which times are integers if they are
    nothing else in the input."""
    if node.kind not in (TIME, DURATION, CLOCK):
        return {REAL: pa.float64(), UNSIGNED: pa.uint64()}.get(node.kind, pa.int64())
    unit = unit_of(node, tick_ns)
    if node.kind == TIME and (node.zone is None or unit == DAY_NS):
        return pa.int64() if node.zone is None else pa.date32()
    name = UNIT_NAMES[unit]
    if node.kind == CLOCK:
        return pa.time32(name) if name in ("s", "ms") else pa.time64(name)
    return pa.duration(name) if node.kind == DURATION else pa.timestamp(name, node.zone or None)


def place_in(schema: JoinSchema, side: int, name: str) -> Place:
    """Where the tuples of a stream have a column."""
    stream = schema.streams[max(side, 0)]
    if name == "time" and side != KEY_SIDE:
        return Place(TIME_AT)
    is_key = side == KEY_SIDE or name not in {column.name for column in stream.payload}
    if is_key and not stream.hashed:
        return _of_word(KEY_AT, decoded(stream.keys[0].type))
    layout = RecordLayout(stream)
    name = stream.keys[0].name if side == KEY_SIDE else name
    index, field = next(
        (index, field)
        for index, field in enumerate(layout.fields)
        if field.is_key == is_key and field.column.name == name
    )
    first = RECORD_AT + 2 * layout.has_blob
    null = None
    if not is_key:
        octet, bit = layout.null_bit(index)
        word, within = divmod(layout.null_offset + octet, WORD_BYTES)
        null = (first + word, 8 * within + bit)
    if field.is_variable:
        lengths = [_item(first, one) for one in layout.variable[: layout.variable.index(field) + 1]]
        return lengths[-1]._replace(form="octets", null=null, before=tuple(lengths[:-1]))
    word, octet = divmod(field.offset, WORD_BYTES)
    return _of_word(first + word, field.kind) if is_key else _item(first, field)._replace(null=null)


def _of_word(word: int, kind: pa.DataType) -> Place:
    """A value of a key that fills a word, as `record.key_word` makes it: dates of either type are milliseconds."""
    form = "boolean" if types.is_boolean(kind) else "signed"
    return Place(word, form=form, per=DAY_MS if types.is_date32(kind) else 1)


def _item(first: int, field: Field) -> Place:
    """A value, or a length, of the record that begins at word `first`."""
    word, octet = divmod(field.offset, WORD_BYTES)
    form = "signed"
    if field.is_variable:
        return Place(first + word, 8 * octet, 8 * field.dtype.itemsize)
    if types.is_boolean(field.kind):
        form = "boolean"
    elif types.is_floating(field.kind):
        form = "real"
    elif types.is_unsigned_integer(field.kind):
        form = "unsigned"
    return Place(first + word, 8 * octet, 8 * field.dtype.itemsize, form)
