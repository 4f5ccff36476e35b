"""Kernels that read words, blobs and keys of stored tuples out of the blocks. Slot ids name the tuples."""

from __future__ import annotations

from mpijoin.compiled import kernel
from mpijoin.named import NamedTuple
from mpijoin.store.blocks import copy_blob
from mpijoin.store.simd import unsigned
from mpijoin.store.state import ADDRESS, HAS_BLOB, NEXT, PAGE_WORDS, SIZE


class KeyWords(NamedTuple):
    """Where a tuple's record keeps its key.

    words: how many leading words of the record belong to the key · fixed_words: how many of these are values; behind
    them stand the lengths of the columns of variable length, two to a word · variable: how many such columns there are.
    Their bytes are the first ones of the blob.
    """

    words: int
    fixed_words: int
    variable: int


@kernel
def gather_columns(words, slots, chosen, out, at):
    """Sets out[c, at + i] to word chosen[c] of tuple slots[i].

    slots: int64[m] · chosen: int64[k] · out: int64[k, capacity].
    """
    for i in range(len(slots)):
        slot = slots[i]
        for c in range(len(chosen)):
            out[unsigned(c), unsigned(at + i)] = words[unsigned(slot + chosen[c])]


@kernel
def gather_blobs(s, slots, starts, out):
    """Copies the blobs of tuples slots[i] to out[starts[i]:]; out: uint8[]."""
    for i in range(len(slots)):
        copy_blob(s, s.words[slots[i] + ADDRESS], s.words[slots[i] + SIZE], out, starts[i])


@kernel
def keep_equal_keys(s, out, count, key_words, fixed_words, variable):
    """Keeps those of the results 0..count whose tuples have equal key bytes, in their order. Returns how many they are.

    It is needed where the stored key is a hash, because different keys can have the same hash. out: int64[n, capacity]
    slot ids · key_words, fixed_words, variable: as in `KeyWords`.
    """
    kept = 0
    for i in range(count):
        equal = True
        for stream in range(1, len(out)):
            equal &= same_key(s, out[0, i], out[stream, i], stream, key_words, fixed_words, variable)
        for stream in range(len(out)):
            out[stream, kept] = out[stream, i]
        kept += equal
    return kept


@kernel
def same_key(s, first, other, stream, key_words, fixed_words, variable):
    """Returns whether a tuple of stream 0 and a tuple of `stream` have the same key bytes."""
    words, equal, octets = s.words, True, 0
    # A payload may give a blob to some of the streams only. Their records begin two words later.
    left, right = first + ADDRESS + 2 * s.layout[0, HAS_BLOB], other + ADDRESS + 2 * s.layout[stream, HAS_BLOB]
    for word in range(key_words):
        equal &= words[left + word] == words[right + word]
    for column in range(variable):
        octets += words[left + fixed_words + column // 2] >> (32 * (column % 2)) & 0x7FFFFFFF
    if equal and octets > 0:
        equal = same_octets(s, words[first + ADDRESS], words[other + ADDRESS], octets)
    return equal


@kernel
def same_octets(s, a, b, count):
    """Returns whether two stored blobs begin with the same `count` bytes. It follows both across their pages."""
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
