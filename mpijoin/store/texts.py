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
    left = min(a_count, b_count)
    if left > 0:
        a, a_end = place_behind(s, a, a_skip)
        b, b_end = place_behind(s, b, b_skip)
        while True:
            run = min(left, a_end - a, b_end - b)
            for i in range(run):
                difference = np.int64(s.octets[unsigned(a + i)]) - np.int64(s.octets[unsigned(b + i)])
                if difference != 0:
                    return difference
            left -= run
            if left == 0:
                break
            a, a_end = place_behind(s, a, run)
            b, b_end = place_behind(s, b, run)
    return np.int64(a_count) - np.int64(b_count)


@part
def order_of_given(s, a, a_skip, a_count, octets):
    """Does what `order_of_stored` does, for a stored string and bytes, uint8[]."""
    return _order_of_part(s, a, a_skip, a_count, octets, 0, len(octets))


@part
def is_among_given(s, a, a_skip, a_count, octets, ends):
    """Returns whether a stored string is one of some others, which are in ascending order. octets, uint8[]: of one
    after the other · ends, int64[n]: of each."""
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high) // 2
        start = ends[unsigned(middle - 1)] if middle > 0 else 0
        order = _order_of_part(s, a, a_skip, a_count, octets, start, ends[unsigned(middle)] - start)
        if order == 0:
            return True
        low, high = (low, middle) if order < 0 else (middle + 1, high)
    return False


@part
def _order_of_part(s, a, a_skip, a_count, octets, start, count):
    shared, done = min(a_count, count), 0
    if shared > 0:
        a, end = place_behind(s, a, a_skip)
        while True:
            run = min(shared - done, end - a)
            for i in range(run):
                difference = np.int64(s.octets[unsigned(a + i)]) - np.int64(octets[unsigned(start + done + i)])
                if difference != 0:
                    return difference
            done += run
            if done == shared:
                break
            a, end = place_behind(s, a, run)
    return np.int64(a_count) - count


@part
def place_behind(s, address, skip):
    """Returns where the byte lies that comes `skip` bytes later in a blob, which must have it, and where its page ends.
    """
    page_bytes = s.pool[PAGE_WORDS] * 8
    page = address // page_bytes
    end = (page + 1) * page_bytes
    while skip >= end - address:
        skip -= end - address
        page = s.heads[page, NEXT]
        address = page * page_bytes
        end = address + page_bytes
    return address + skip, end
