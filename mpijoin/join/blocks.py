"""Kernels on blocks: taking and returning pages, appending a tuple to a chain, walking its blob."""

from __future__ import annotations

import numpy as np
from numba import njit

from mpijoin.compiled import compiled
from mpijoin.join.state import (
    ADDRESS,
    BLOB_FIRST,
    BLOB_LAST,
    BLOCK_ID,
    BLOCKS,
    BYTES,
    COUNT,
    COUNTED,
    FIRST,
    FIRST_TIME_MAX,
    FREE_PAGE,
    HAS_BLOB,
    LAST,
    NEXT,
    NEXT_BLOCK_ID,
    NONE,
    OWNER,
    PAGE_WORDS,
    PAGES,
    PAGES_HELD,
    PAGES_HELD_MAX,
    SIZE,
    SLOTS,
    STREAM_WORDS,
    TIME,
    TIME_MAX,
    TIME_MAX_VALUE,
    TIME_MIN,
    TIME_MIN_VALUE,
    TUPLE_BYTES,
    TUPLE_WORDS,
    TUPLES_AT,
    UNUSED_PAGE,
)

# Kernels allocate nothing, so they need no reference counts: counting cost two thirds of the time (an atomic per
# array).
kernel = compiled(_nrt=False, forceinline=True)

# What only kernels call: nothing for Python's use is compiled or kept, which saves a third of the time of a first
# start.
part = njit(nogil=True, _nrt=False, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)


@part
def free_pages(s):
    """Pages that can still be taken."""
    return s.counters[PAGES] - s.counters[PAGES_HELD]


@part
def take_page(s, group, stream):
    """Takes a page for `group` and gives it a block id that was never used before. The caller has checked
    `free_pages`."""
    counters, heads = s.counters, s.heads
    page = counters[FREE_PAGE]
    if page != NONE:
        counters[FREE_PAGE] = heads[page, NEXT]
    else:
        page = counters[UNUSED_PAGE]
        counters[UNUSED_PAGE] += 1
    heads[page, NEXT] = NONE
    heads[page, COUNT] = 0
    heads[page, TIME_MIN] = TIME_MAX_VALUE
    heads[page, TIME_MAX] = TIME_MIN_VALUE
    heads[page, BLOCK_ID] = counters[NEXT_BLOCK_ID]
    heads[page, OWNER] = group * 2 + stream
    heads[page, BLOB_FIRST] = NONE
    heads[page, BLOB_LAST] = NONE
    counters[NEXT_BLOCK_ID] += 1
    counters[PAGES_HELD] += 1
    counters[PAGES_HELD_MAX] = max(counters[PAGES_HELD_MAX], counters[PAGES_HELD])
    s.groups[group, BLOCKS] += 1
    return page


@part
def return_block(s, page):
    """Returns a block's page and those of its blobs."""
    group = s.heads[page, OWNER] >> 1
    following = s.heads[page, BLOB_FIRST]
    while page != NONE:
        s.heads[page, NEXT] = s.counters[FREE_PAGE]
        s.counters[FREE_PAGE] = page
        s.counters[PAGES_HELD] -= 1
        s.groups[group, BLOCKS] -= 1
        page = following
        if page != NONE:
            following = s.heads[page, NEXT]


@part
def open_block(s, bucket, stream, group):
    """The page of a bucket's last block with room for a tuple; a new block is added where there is none."""
    base = stream * STREAM_WORDS
    last = s.buckets[bucket, base + LAST]
    if last != NONE and s.heads[last, COUNT] < s.layout[stream, SLOTS]:
        return last
    page = take_page(s, group, stream)
    if last == NONE:
        s.buckets[bucket, base + FIRST] = page
    else:
        s.heads[last, NEXT] = page
    s.buckets[bucket, base + LAST] = page
    return page


@part
def append_blob(s, page, group, stream, source, start, size):
    """Copies source[start : start + size], size > 0, behind the blobs of the block in `page`; returns its address.

    An address is an index of the octets. A blob may run over several pages: its page's NEXT tells where it goes on.
    """
    heads, octets = s.heads, s.octets
    page_bytes = s.counters[PAGE_WORDS] * 8
    address = NONE
    while size > 0:
        blob = heads[page, BLOB_LAST]
        if blob == NONE or heads[blob, COUNT] == page_bytes:
            added = take_page(s, group, stream)
            if blob == NONE:
                heads[page, BLOB_FIRST] = added
            else:
                heads[blob, NEXT] = added
            heads[page, BLOB_LAST] = added
            blob = added
        target = blob * page_bytes + heads[blob, COUNT]
        if address == NONE:
            address = target
        part = min(size, page_bytes - heads[blob, COUNT])
        for i in range(part):
            octets[target + i] = source[start + i]
        heads[blob, COUNT] += part
        size -= part
        start += part
    return address


@part
def copy_blob(s, address, size, target, start):
    """Copies a stored blob out of its pages to target[start : start + size]."""
    page_bytes = s.counters[PAGE_WORDS] * 8
    page = address // page_bytes
    while size > 0:
        part = min(size, (page + 1) * page_bytes - address)
        for i in range(part):
            target[start + i] = s.octets[address + i]
        start += part
        size -= part
        page = s.heads[page, NEXT]
        address = page * page_bytes


@part
def move_blob(s, address, size, page, group, stream):
    """Appends a stored blob, size > 0, to the blobs of the block in `page`, piece by piece; returns its new address."""
    page_bytes = s.counters[PAGE_WORDS] * 8
    source = address // page_bytes
    moved = NONE
    while size > 0:
        part = min(size, (source + 1) * page_bytes - address)
        place = append_blob(s, page, group, stream, s.octets, address, part)
        if moved == NONE:
            moved = place
        size -= part
        source = s.heads[source, NEXT]
        address = source * page_bytes
    return moved


@part
def slot_id(s, stream, page, slot):
    """Index of a stored tuple's first word."""
    return page * s.counters[PAGE_WORDS] + s.layout[stream, TUPLES_AT] + slot * s.layout[stream, TUPLE_WORDS]


@part
def tags_of(s, page):
    """Index in `halves` of a block's first tag."""
    return page * s.counters[PAGE_WORDS] * 4


@part
def move_tuple(s, source, stream, bucket, group, tag):
    """Appends the stored tuple with slot id `source` to another bucket of its group, as old (not fresh)."""
    words = s.words
    page = open_block(s, bucket, stream, group)
    slot = s.heads[page, COUNT]
    target = slot_id(s, stream, page, slot)
    s.halves[tags_of(s, page) + slot] = tag
    for word in range(s.layout[stream, TUPLE_WORDS]):
        words[target + word] = words[source + word]
    size = np.int64(0)
    if s.layout[stream, HAS_BLOB]:
        size = words[source + SIZE]
        words[target + ADDRESS] = move_blob(s, words[source + ADDRESS], size, page, group, stream)
    time = words[source + TIME]
    note_tuples(s, bucket, stream, page, np.int64(1), time, time, size)


@part
def note_tuples(s, bucket, stream, page, count, earliest, latest, octets):
    """Counts `count` more tuples, with `octets` bytes of blobs in all, in a block and its bucket."""
    heads, buckets, base = s.heads, s.buckets, stream * STREAM_WORDS
    heads[page, COUNT] += count
    heads[page, TIME_MIN] = min(heads[page, TIME_MIN], earliest)
    heads[page, TIME_MAX] = max(heads[page, TIME_MAX], latest)
    buckets[bucket, base + COUNTED] += count
    buckets[bucket, base + BYTES] += count * s.layout[stream, TUPLE_BYTES] + octets
    if page == buckets[bucket, base + FIRST]:
        buckets[bucket, base + FIRST_TIME_MAX] = heads[page, TIME_MAX]
