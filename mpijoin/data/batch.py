"""Columns of tuples: the form in which tuples move between sources, scatter, codec and operator."""

from __future__ import annotations

import numpy as np

from mpijoin.named import NamedTuple

# This bit of a row number says that the tuple has a null key. File indices do not reach it.
KEYLESS = 1 << 62


class Batch(NamedTuple):
    """n tuples of one stream (schema.py says what each column means).

    key, time, row: int64[n] · record: int64[n, record_words] · size: int64[n] bytes of each tuple's blob, or int64[0]
    when the stream has no variable-size column · blob: uint8[sum(size)], the tuples' blobs one after the other.
    """

    key: np.ndarray
    time: np.ndarray
    row: np.ndarray
    record: np.ndarray
    size: np.ndarray
    blob: np.ndarray

    @property
    def rows(self) -> int:
        return len(self.key)

    @property
    def octets(self) -> int:
        """Bytes of all columns."""
        return sum(column.nbytes for column in self)


def read_only(array: np.ndarray) -> np.ndarray:
    """Returns the array, or a view of it, that cannot be written: kernels compile only once if their inputs always look
    alike."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view
