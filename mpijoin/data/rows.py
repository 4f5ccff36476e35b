"""Choosing, cutting and joining the rows of batches, blobs included."""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import kernel
from mpijoin.data.batch import Batch, read_only


@kernel
def _gather_blobs(blob, starts, size, out):
    """Copies size[i] bytes from blob[starts[i]:], one tuple after the other, to out."""
    at = 0
    for index in range(len(size)):
        source = starts[index]
        for offset in range(size[index]):
            out[at + offset] = blob[source + offset]
        at += size[index]


def empty_batch(record_words: int) -> Batch:
    """A batch of no rows."""
    none = np.empty(0, np.int64)
    return Batch(none, none, none, np.empty((0, record_words), np.int64), none, np.empty(0, np.uint8))


def split_batch(batch: Batch, rows: int) -> tuple[Batch, Batch]:
    """The first `rows` rows and the others, both views; costs no more than the first part is long."""
    blob_bytes = int(batch.size[:rows].sum())
    cuts = (*[rows] * 5, blob_bytes)
    head = Batch(*(column[:cut] for column, cut in zip(batch, cuts)))
    return head, Batch(*(column[cut:] for column, cut in zip(batch, cuts)))


def concat_batches(batches: list[Batch]) -> Batch:
    """All rows of batches of one stream, in order; copies unless there is but one."""
    if len(batches) == 1:
        return batches[0]
    return Batch(*(np.concatenate(columns) for columns in zip(*batches)))


def take_rows(batch: Batch, index: np.ndarray) -> Batch:
    """The rows at `index`, int64[m], in that order; copies."""
    fixed = (batch.key[index], batch.time[index], batch.row[index], batch.record[index])
    if len(batch.size) == 0:
        return Batch(*fixed, batch.size, batch.blob)
    size = batch.size[index]
    starts = (np.cumsum(batch.size) - batch.size)[index]
    blob = np.empty(int(size.sum()), np.uint8)
    _gather_blobs(read_only(batch.blob), read_only(starts), read_only(size), blob)
    return Batch(*fixed, size, blob)
