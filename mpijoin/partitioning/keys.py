"""The 64-bit key of a tuple. It is the value of the key column if one word holds it, and otherwise the hash of all key
columns."""

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
    """Returns the int64[n] keys of the stream's key columns, in order. Equal values of one logical type give equal
    keys.

    A hashed key keeps its low `hash_bits` bits. The key of a null means nothing (see `key_nulls`). The result may be a
    view.
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
    """Returns bool[n], which is true where any key column is null and the tuple thus matches nothing. Returns None if
    there is no null."""
    nulls = None
    for column in columns:
        mask = null_mask(one_array(column))
        if mask is not None:
            nulls = mask if nulls is None else nulls | mask
    return nulls


def key_values(schema: StreamSchema, key: np.ndarray) -> pa.Array:
    """Returns the key column of int64[n] keys that are not hashed, in its own type. For a dictionary this is the type
    of its values."""
    return key_column(decoded(schema.keys[0].type), key)
