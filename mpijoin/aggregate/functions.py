"""Makes the rules by which kernels aggregate, of what the job says."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyarrow import types

from mpijoin.aggregate.state import (
    COUNT,
    COUNT_ROWS,
    FUNCTION_WORDS,
    IN_ROWS,
    KEY_FIXED,
    KEY_VARIABLE,
    KEY_WORDS,
    MAX,
    MEAN,
    MIN,
    PERIOD,
    REAL,
    RECORD,
    RULE_WORDS,
    SIGNED,
    SPAN,
    SUM,
    UNSIGNED,
    Rules,
)
from mpijoin.config.job import Aggregate, Function
from mpijoin.data.record import RecordLayout
from mpijoin.data.schema import JoinSchema
from mpijoin.store.state import ADDRESS, SIZE

CODES = {"count": COUNT, "sum": SUM, "min": MIN, "max": MAX, "mean": MEAN}


def rules_of(aggregate: Aggregate, schema: JoinSchema) -> Rules:
    """Returns the rules of an aggregate over the only stream of the schema, which has the columns of all functions."""
    layout, history = RecordLayout(schema.streams[0]), aggregate.history
    assert history is not None  # A job without it has no aggregate.
    rule = np.zeros(RULE_WORDS, np.int64)
    rule[IN_ROWS] = history.rows is not None
    rule[SPAN] = schema.ticks(history.span_ns) if history.rows is None else history.rows
    rule[PERIOD] = 0 if aggregate.emit_ns is None else schema.ticks(aggregate.emit_ns)
    rule[RECORD] = SIZE + 1 if layout.has_blob else ADDRESS
    rule[[KEY_WORDS, KEY_FIXED, KEY_VARIABLE]] = layout.key_words, layout.key_fixed_words, layout.key_count_var
    functions = np.array([_row_of(one, layout) for one in aggregate.columns], np.int64)
    return Rules(rule, functions.reshape(-1, FUNCTION_WORDS))


def _row_of(function: Function, layout: RecordLayout) -> tuple[int, ...]:
    if function.column is None:
        return (COUNT_ROWS, *[0] * (FUNCTION_WORDS - 1))
    index, field = next(
        (index, field)
        for index, field in enumerate(layout.fields)
        if not field.is_key and field.column.name == function.column
    )
    octet, bit = layout.null_bit(index)
    null_offset = layout.null_offset + octet
    return CODES[function.name], form_of(field.kind), field.offset, field.dtype.itemsize, null_offset, bit


def form_of(kind: pa.DataType) -> int:
    """Returns how the bytes of a value of this type are read."""
    if types.is_floating(kind):
        return REAL
    return UNSIGNED if types.is_unsigned_integer(kind) else SIGNED
