"""Parts of kernels that compare strings of stored tuples, byte by byte, where they lie.

A string is told by the address of its tuple's blob, the bytes before it there, and its length, which is negative for a
null. A null is told from an empty string by whoever asks; here both have no bytes.
"""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import part
from mpijoin.store.simd import unsigned
from mpijoin.store.state import NEXT, PAGE_WORDS


@part
def same_stored(s, a, a_skip, a_count, b, b_skip, b_count):
    """Returns whether two stored strings are equal."""
    return a_count == b_count and order_of_stored(s, a, a_skip, a_count, b, b_skip, b_count) == 0


@part
def same_given(s, a, a_skip, a_count, octets):
    """Returns whether a stored string has these bytes, uint8[]."""
    return a_count == len(octets) and order_of_given(s, a, a_skip, a_count, octets) == 0


@part
def order_of_stored(s, a, a_skip, a_count, b, b_skip, b_count):
    """Returns a negative number if the first string is less than the second one, 0 if they are equal, or else a
    positive one."""
    shared, page_bytes = min(a_count, b_count), s.pool[PAGE_WORDS] * 8
    if shared > 0:
        a, b = address_behind(s, a, a_skip), address_behind(s, b, b_skip)
        a_end, b_end = end_of_page(a, page_bytes), end_of_page(b, page_bytes)
        for _ in range(shared):
            if a == a_end:
                a = s.heads[a_end // page_bytes - 1, NEXT] * page_bytes
                a_end = a + page_bytes
            if b == b_end:
                b = s.heads[b_end // page_bytes - 1, NEXT] * page_bytes
                b_end = b + page_bytes
            difference = np.int64(s.octets[unsigned(a)]) - np.int64(s.octets[unsigned(b)])
            if difference != 0:
                return difference
            a += 1
            b += 1
    return np.int64(a_count) - np.int64(b_count)


@part
def order_of_given(s, a, a_skip, a_count, octets):
    """Does what `order_of_stored` does, for a stored string and bytes, uint8[]."""
    shared, page_bytes = min(a_count, len(octets)), s.pool[PAGE_WORDS] * 8
    if shared > 0:
        a = address_behind(s, a, a_skip)
        end = end_of_page(a, page_bytes)
        for i in range(shared):
            if a == end:
                a = s.heads[end // page_bytes - 1, NEXT] * page_bytes
                end = a + page_bytes
            difference = np.int64(s.octets[unsigned(a)]) - np.int64(octets[i])
            if difference != 0:
                return difference
            a += 1
    return np.int64(a_count) - len(octets)


@part
def end_of_page(address, page_bytes):
    return (address // page_bytes + 1) * page_bytes


@part
def address_behind(s, address, skip):
    """Returns where the byte lies that comes `skip` bytes later in a blob; there must be one."""
    page_bytes = s.pool[PAGE_WORDS] * 8
    end = end_of_page(address, page_bytes)
    while skip >= end - address:
        skip -= end - address
        address = s.heads[end // page_bytes - 1, NEXT] * page_bytes
        end = address + page_bytes
    return address + skip
