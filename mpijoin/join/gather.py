"""Kernels on the slot ids of results: their later times, and which of them have equal keys where keys are hashes."""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import kernel, part
from mpijoin.partitioning.hashing import GOLDEN, mix
from mpijoin.store.state import ADDRESS, FOUND, HAS_BLOB, NEXT, OUT_COUNT, PAGE_WORDS, ROW, TIME


@kernel
def gather_latest(words, slots, out):
    """out[i] = the latest time of the tuples slots[0, i], slots[1, i], ...; slots: int64[n, at least k] slot ids, out:
    int64[k]."""
    for i in range(len(out)):
        out[i] = words[slots[0, i] + TIME]
        for stream in range(1, len(slots)):
            out[i] = max(out[i], words[slots[stream, i] + TIME])


@kernel
def keep_equal_keys(s, out, first, key_words, fixed_words, variable):
    """Keeps, counts and certifies those of the results from `first` on whose key bytes are equal, in their order.

    Where the key is but a hash, equal hashes may belong to different keys. out: int64[n, capacity] slot ids ·
    key_words: leading record words of the key, of which `fixed_words` are values; lengths of `variable` columns, whose
    bytes lead the blob, follow two to a word.
    """
    words, kept, total = s.words, first, np.uint64(0)
    for i in range(first, s.counters[OUT_COUNT]):
        equal, hashed = True, np.uint64(words[out[0, i] + ROW])
        out[0, kept] = out[0, i]
        for stream in range(1, len(out)):
            equal = equal and same_keys(s, out[0, i], out[stream, i], stream, key_words, fixed_words, variable)
            hashed = mix(mix(hashed + GOLDEN) + np.uint64(words[out[stream, i] + ROW]))
            out[stream, kept] = out[stream, i]
        total += hashed if equal else np.uint64(0)
        kept += equal
    s.certificate[0] += total
    s.counters[FOUND] += kept - first
    s.counters[OUT_COUNT] = kept


@part
def same_keys(s, one, other, stream, key_words, fixed_words, variable):
    """Whether the tuples with slot ids `one`, of stream 0, and `other`, of `stream`, have the same bytes of keys."""
    # Payload may give a blob, and with it a record that begins later, to one of the streams only.
    words, octets = s.words, 0
    one_record = one + ADDRESS + 2 * s.layout[0, HAS_BLOB]
    other_record = other + ADDRESS + 2 * s.layout[stream, HAS_BLOB]
    for word in range(key_words):
        if words[one_record + word] != words[other_record + word]:
            return False
    for column in range(variable):
        octets += words[one_record + fixed_words + column // 2] >> (32 * (column % 2)) & 0x7FFFFFFF
    return octets == 0 or same_octets(s, words[one + ADDRESS], words[other + ADDRESS], octets)


@kernel
def same_octets(s, a, b, count):
    """Whether two stored blobs begin with the same `count` bytes, across the pages they lie in."""
    page_bytes = s.pool[PAGE_WORDS] * 8
    a_page, b_page = a // page_bytes, b // page_bytes
    for _ in range(count):
        if a == (a_page + 1) * page_bytes:
            a_page = s.heads[a_page, NEXT]
            a = a_page * page_bytes
        if b == (b_page + 1) * page_bytes:
            b_page = s.heads[b_page, NEXT]
            b = b_page * page_bytes
        if s.octets[a] != s.octets[b]:
            return False
        a += 1
        b += 1
    return True
