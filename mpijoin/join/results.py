"""Reads the tuples of results: for their certificate, for their latest times, and to filter them by their keys."""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import kernel
from mpijoin.data.batch import KEYLESS
from mpijoin.operators.base import Out, Rows
from mpijoin.partitioning.hashing import GOLDEN, mix
from mpijoin.store.read import KeyWords
from mpijoin.store.state import NONE, ROW, TIME, TIME_MIN_VALUE


@kernel
def certificate_of(words, slots, count):
    """Returns the sum of the hashes of results, uint64 modulo 2**64. slots: int64[n, at least count] slot ids.

    The hash of a result is made of the rows of its tuples, with -1 for a missing one: h(r_1) = r_1, and
    h(r_1 .. r_k) = mix(mix(h(r_1 .. r_k-1) + GOLDEN) + r_k).
    """
    total = np.uint64(0)
    for i in range(count):
        hashed = np.uint64(0)
        for stream in range(len(slots)):
            slot = slots[stream, i]
            row = np.uint64(words[slot + ROW] & ~KEYLESS if slot != NONE else NONE)
            hashed = mix(mix(hashed + GOLDEN) + row) if stream else row
        total += hashed
    return total


@kernel
def latest_times(words, slots, out):
    """Sets out[i] to the latest time of result i's tuples. slots: int64[n, at least m] slot ids · out: int64[m]."""
    for i in range(len(out)):
        latest = np.int64(TIME_MIN_VALUE)
        for stream in range(len(slots)):
            if slots[stream, i] != NONE:
                latest = max(latest, words[slots[stream, i] + TIME])
        out[i] = latest


class EqualKeys:
    """A filter for results that were found by hashed keys. It keeps those whose keys themselves are equal."""

    def __init__(self, key: KeyWords):
        self._key = key

    def keep(self, out: Out, rows: Rows) -> None:
        rows.keep_equal_keys(out, self._key)


class CountRows:
    """A consumer that counts and certifies results where the operator cannot, because a filter may drop some."""

    def consume(self, out: Out, rows: Rows, epoch: int) -> None:
        out.counted(out.count, int(certificate_of(rows.words, out.slots, out.count)))

    def end_epoch(self, epoch: int, last: bool) -> None:
        pass
