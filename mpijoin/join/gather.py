"""Kernels on the slot ids of results: their later times, and which of them have equal keys where keys are hashes."""

from __future__ import annotations

from mpijoin.join.confirm import certify
from mpijoin.store.blocks import kernel
from mpijoin.store.state import ADDRESS, FOUND, HAS_BLOB, NEXT, OUT_COUNT, PAGE_WORDS, TIME


@kernel
def gather_later(words, left, right, out):
    """out[i] = the later time of the tuples left[i] and right[i], slot ids; int64[n] all."""
    for i in range(len(left)):
        out[i] = max(words[left[i] + TIME], words[right[i] + TIME])


@kernel
def keep_equal_keys(s, out, first, key_words, fixed_words, variable):
    """Keeps, counts and certifies those of the results from `first` on whose key bytes are equal, in their order.

    Where the key is but a hash, equal hashes may belong to different keys. out: int64[2, capacity] slot ids ·
    key_words: leading record words of the key, of which `fixed_words` are values; lengths of `variable` columns, whose
    bytes lead the blob, follow two to a word.
    """
    words, kept = s.words, first
    # Payload may give a blob, and with it a record that begins later, to one of the streams only.
    left_record, right_record = ADDRESS + 2 * s.layout[0, HAS_BLOB], ADDRESS + 2 * s.layout[1, HAS_BLOB]
    for i in range(first, s.counters[OUT_COUNT]):
        left, right = out[0, i] + left_record, out[1, i] + right_record
        equal, octets = True, 0
        for word in range(key_words):
            equal &= words[left + word] == words[right + word]
        for column in range(variable):
            octets += words[left + fixed_words + column // 2] >> (32 * (column % 2)) & 0x7FFFFFFF
        if equal and octets > 0:
            equal = same_octets(s, words[out[0, i] + ADDRESS], words[out[1, i] + ADDRESS], octets)
        out[0, kept], out[1, kept] = out[0, i], out[1, i]
        kept += equal
    s.certificate[0] += certify(words, out[0], out[1], first, kept)
    s.counters[FOUND] += kept - first
    s.counters[OUT_COUNT] = kept


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
