"""The 64-bit key of a tuple: the key column's own value where one word holds it, else the hash of all key columns."""

from __future__ import annotations

from typing import Sequence

import numpy as np
import pyarrow as pa

from mpijoin.data.arrow import byte_values, is_variable, null_mask, one_array
from mpijoin.data.record import key_column, key_word
from mpijoin.data.schema import StreamSchema
from mpijoin.data.types import decoded
from mpijoin.partitioning.hashing import combine_bytes, combine_words, keep_bits


def key_codes(schema: StreamSchema, columns: Sequence[pa.Array], hash_bits: int = 64) -> np.ndarray:
    """int64[n] keys of the stream's key columns, in order; equal values of one logical type give equal keys.

    A hashed key keeps its low `hash_bits` bits. What a null gives means nothing: see `key_nulls`. May be a view.
    """
    arrays = [one_array(column) for column in columns]
    if not schema.hashed:
        return key_word(arrays[0])
    hashed = np.zeros(len(arrays[0]), np.uint64)
    for array in arrays:
        if is_variable(array.type) or pa.types.is_fixed_size_binary(array.type):
            combine_bytes(*byte_values(array), hashed)
        else:
            combine_words(key_word(array), hashed)
    return keep_bits(hashed, hash_bits)


def key_nulls(columns: Sequence[pa.Array]) -> np.ndarray | None:
    """bool[n], true where any key column is null, so that the tuple matches nothing; None when none is."""
    nulls = None
    for column in columns:
        mask = null_mask(one_array(column))
        if mask is not None:
            nulls = mask if nulls is None else nulls | mask
    return nulls


def key_values(schema: StreamSchema, key: np.ndarray) -> pa.Array:
    """The key column, in its own type (a dictionary's value type), of int64[n] keys that are not hashed."""
    return key_column(decoded(schema.keys[0].type), key)
