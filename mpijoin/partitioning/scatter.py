"""The master's one stable scatter. It turns the columns of a tick into tuples that lie together by (owner, partition).
"""

from __future__ import annotations

from typing import Sequence

import numpy as np

from mpijoin.compiled import kernel
from mpijoin.data.batch import Batch, read_only
from mpijoin.named import NamedTuple
from mpijoin.partitioning.hashing import hash64, partition_of

# Each tuple begins with these words: key, time, row.
FIXED_WORDS = 3
# A tuple with a blob has these words, too: blob address, blob size.
BLOB_WORDS = 2


class Scattered(NamedTuple):
    """The rows of one stream in the table's layout. `tuples` are int64[n, tuple_words] and `blob` is uint8[]. `starts`,
    int64[P + 1], is the first row of each place, and `blob_starts`, int64[P + 1], its first byte. `firsts`, int64[P],
    names for each place another place, from whose first byte its blob addresses count. So none of them must be changed
    in a piece that begins there."""

    tuples: np.ndarray
    blob: np.ndarray
    starts: np.ndarray
    blob_starts: np.ndarray
    firsts: np.ndarray


def scatter(
    batches: Sequence[Batch], place: np.ndarray, record_words: int, has_blob: bool, firsts: np.ndarray | None = None
) -> Scattered:
    """Lays out the rows of all batches, in their order, by place[partition of the key]. `place` is int64[P].

    `firsts`, int64[P], is as in `Scattered`. If it is None, all addresses count from the start of the blob.
    """
    partitions = len(place)
    firsts = np.zeros(partitions, np.int64) if firsts is None else firsts
    counts, octets = np.zeros(partitions + 1, np.int64), np.zeros(partitions + 1, np.int64)
    places = []
    for batch in batches:
        places.append(np.empty(batch.rows, np.uint16))
        _count(read_only(batch.key), read_only(batch.size), place, places[-1], counts, octets)
    starts, blob_starts = np.cumsum(counts), np.cumsum(octets)
    words = FIXED_WORDS + (BLOB_WORDS if has_blob else 0) + record_words
    tuples, blob = np.empty((starts[-1], words), np.int64), np.empty(blob_starts[-1], np.uint8)
    at, blob_at, base = starts[:-1].copy(), blob_starts[:-1].copy(), blob_starts[firsts]
    for batch, own in zip(batches, places):
        _lay_out(*(read_only(np.ascontiguousarray(column)) for column in batch), own, at, blob_at, base, tuples, blob)
    return Scattered(tuples, blob, starts, blob_starts, firsts)


def rearranged(scattered: Scattered, before: np.ndarray, place: np.ndarray, firsts: np.ndarray) -> Scattered:
    """Lays out rows anew that were scattered by another table. Returns what `scatter` would have made of them.

    before, place, firsts: int64[P], as of `scatter`, of the table then and of the table now.
    """
    runs = before[np.argsort(place)]  # For each place, where the rows of its partition lay.
    order, counts, starts = _runs(scattered.starts, runs)
    blob_order, _, blob_starts = _runs(scattered.blob_starts, runs)
    tuples, blob = scattered.tuples[order], scattered.blob[blob_order]
    if len(blob):
        base_before, base = scattered.blob_starts[scattered.firsts[runs]], blob_starts[firsts]
        tuples[:, FIXED_WORDS] += np.repeat(base_before - scattered.blob_starts[runs] + blob_starts[:-1] - base, counts)
    return Scattered(tuples, blob, starts, blob_starts, firsts)


def _runs(starts: np.ndarray, runs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the entries of these runs in their order, how many each has, and where each starts then. starts: as of
    `Scattered`."""
    counts = np.diff(starts)[runs]
    after = np.concatenate([[0], np.cumsum(counts)])
    return np.arange(after[-1]) + np.repeat(starts[runs] - after[:-1], counts), counts, after


@kernel
def _count(key, size, place, places, counts, octets):
    """Fills `places`, uint16[n], and counts the rows and the blob bytes of each place. The counts of place p are added
    to entry p + 1."""
    partitions = len(place)
    for i in range(len(key)):
        own = place[partition_of(hash64(key[i]), partitions)]
        places[i] = own
        counts[own + 1] += 1
    for i in range(len(size)):
        octets[np.int64(places[i]) + 1] += size[i]


@kernel
def _lay_out(key, time, row, record, size, blob, places, at, blob_at, base, tuples, blob_out):
    """Copies each row to the next free position of its place, and its blob behind the place's blobs.

    `base`, int64[P], is the byte from which the addresses in a place count."""
    width, first = record.shape[1], tuples.shape[1] - record.shape[1]
    source = 0
    for i in range(len(key)):
        own = np.int64(places[i])
        target = at[own]
        at[own] = target + 1
        tuples[target, 0] = key[i]
        tuples[target, 1] = time[i]
        tuples[target, 2] = row[i]
        for word in range(width):
            tuples[target, first + word] = record[i, word]
        if len(size) > 0:
            start = blob_at[own]
            tuples[target, 3] = start - base[own]
            tuples[target, 4] = size[i]
            for octet in range(size[i]):
                blob_out[start + octet] = blob[source + octet]
            source += size[i]
            blob_at[own] = start + size[i]
