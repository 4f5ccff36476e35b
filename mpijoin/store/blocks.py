"""Kernels that work on blocks: they take and return pages, open blocks, copy blobs, and compute where things lie."""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import kernel, part
from mpijoin.store.state import (
    BLOB_FIRST,
    BLOB_LAST,
    BLOCK_ID,
    BLOCKS,
    BYTES,
    COUNT,
    COUNTED,
    FIRST,
    FIRST_TIME_MAX,
    FLAGS_AT,
    FOREVER,
    FREE_PAGE,
    GENERATION,
    GROUPS_MAX,
    LAST,
    NEXT,
    NEXT_BLOCK_ID,
    NONE,
    OPERATOR,
    OPERATORS_MAX,
    OWN_PAGES,
    OWN_PAGES_MAX,
    OWNER,
    PAGE_WORDS,
    PAGES,
    PAGES_HELD,
    PAGES_HELD_MAX,
    RELEASED,
    RELEASED_PAGE,
    SLOTS,
    STREAM_WORDS,
    STREAMS_MAX,
    TIME_MAX,
    TIME_MAX_VALUE,
    TIME_MIN,
    TIME_MIN_VALUE,
    TUPLE_BYTES,
    TUPLE_WORDS,
    TUPLES_AT,
    UNUSED_PAGE,
)


@part
def free_pages(s):
    """Returns how many pages can still be taken."""
    return s.pool[PAGES] - s.pool[PAGES_HELD]


@part
def owner_of(s, group, stream):
    """Returns the OWNER word of the blocks that a group takes now; state.py says how its four numbers are packed."""
    number = s.groups[group, GENERATION] * OPERATORS_MAX + s.counters[OPERATOR]
    return (number * GROUPS_MAX + group) * STREAMS_MAX + stream


@part
def generation_of(owner):
    """Returns the generation of the block that has this OWNER word."""
    return owner // (OPERATORS_MAX * GROUPS_MAX * STREAMS_MAX)


@part
def take_page(s, group, stream):
    """Takes a page for `group` and returns it. It has a block id that was never used before.

    The caller has checked `free_pages`.
    """
    pool, heads = s.pool, s.heads
    page = pool[FREE_PAGE]
    if page != NONE:
        pool[FREE_PAGE] = heads[page, NEXT]
    elif pool[RELEASED_PAGE] != NONE:
        page = pool[RELEASED_PAGE]
        pool[RELEASED_PAGE] = heads[page, NEXT]
        pool[RELEASED] -= 1
    else:
        page = pool[UNUSED_PAGE]
        pool[UNUSED_PAGE] += 1
    heads[page, NEXT] = NONE
    heads[page, COUNT] = 0
    heads[page, TIME_MIN] = TIME_MAX_VALUE
    heads[page, TIME_MAX] = TIME_MIN_VALUE
    heads[page, BLOCK_ID] = pool[NEXT_BLOCK_ID]
    heads[page, OWNER] = owner_of(s, group, stream)
    heads[page, BLOB_FIRST] = NONE
    heads[page, BLOB_LAST] = NONE
    pool[NEXT_BLOCK_ID] += 1
    pool[PAGES_HELD] += 1
    pool[PAGES_HELD_MAX] = max(pool[PAGES_HELD_MAX], pool[PAGES_HELD])
    s.counters[OWN_PAGES] += 1
    s.counters[OWN_PAGES_MAX] = max(s.counters[OWN_PAGES_MAX], s.counters[OWN_PAGES])
    s.groups[group, BLOCKS] += 1
    return page


@part
def return_block(s, page):
    """Gives a block's page, and the pages of its blobs, back to the pool."""
    group = s.heads[page, OWNER] // STREAMS_MAX & GROUPS_MAX - 1
    following = s.heads[page, BLOB_FIRST]
    while page != NONE:
        s.heads[page, NEXT] = s.pool[FREE_PAGE]
        s.pool[FREE_PAGE] = page
        s.pool[PAGES_HELD] -= 1
        s.counters[OWN_PAGES] -= 1
        s.groups[group, BLOCKS] -= 1
        page = following
        if page != NONE:
            following = s.heads[page, NEXT]


@kernel
def take_free_pages(heads, pool, pages):
    """Takes len(pages) pages, int64[], out of the list of free ones, or all of these. Returns how many they are."""
    taken = 0
    while taken < len(pages) and pool[FREE_PAGE] != NONE:
        pages[taken] = pool[FREE_PAGE]
        pool[FREE_PAGE] = heads[pages[taken], NEXT]
        taken += 1
    return taken


@part
def open_block(s, bucket, stream, group):
    """Returns the page of a bucket's last block. If that block is full, or there is none, a new one is appended."""
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
    """Appends source[start : start + size], size > 0, to the blobs of the block in `page`, and returns its address.

    An address is an index into `octets`. A blob may run over several pages: the NEXT of a page tells where it goes on.
    """
    heads, octets = s.heads, s.octets
    page_bytes = s.pool[PAGE_WORDS] * 8
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
    page_bytes = s.pool[PAGE_WORDS] * 8
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
    """Appends a stored blob, size > 0, piece by piece to the blobs of the block in `page`. Returns its new address."""
    page_bytes = s.pool[PAGE_WORDS] * 8
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
def saturating_add(a, b):
    """Returns a + b, limited to the int64 range. b may have either sign."""
    if b > 0 and a > TIME_MAX_VALUE - b:
        return TIME_MAX_VALUE
    if b < 0 and a < TIME_MIN_VALUE - b:
        return TIME_MIN_VALUE
    return a + b


@part
def time_before(time, window):
    """Returns the earliest time from which a tuple, of a stream with this window, still waits at `time`."""
    return np.int64(TIME_MIN_VALUE) if window == FOREVER else saturating_add(time, -window)


@part
def time_after(time, window):
    """Returns the latest time until which a tuple of `time`, of a stream with this window, waits."""
    return np.int64(TIME_MAX_VALUE) if window == FOREVER else saturating_add(time, window)


@part
def slot_id(s, stream, page, slot):
    """Returns the slot id of a stored tuple, which is the index of its first word."""
    return page * s.pool[PAGE_WORDS] + s.layout[stream, TUPLES_AT] + slot * s.layout[stream, TUPLE_WORDS]


@part
def tags_of(s, page):
    """Returns the index in `halves` of a block's first tag."""
    return page * s.pool[PAGE_WORDS] * 4


@part
def flags_of(s, stream, page):
    """Returns the index in `octets` of a block's first flag. It means something only if the stream has flags."""
    return (page * s.pool[PAGE_WORDS] + s.layout[stream, FLAGS_AT]) * 8


@part
def note_tuples(s, bucket, stream, page, count, earliest, latest, octets):
    """Notes in a block and its bucket that `count` tuples were added, with `octets` bytes of blobs in all.

    earliest, latest: the smallest and the largest of their times.
    """
    heads, buckets, base = s.heads, s.buckets, stream * STREAM_WORDS
    heads[page, COUNT] += count
    heads[page, TIME_MIN] = min(heads[page, TIME_MIN], earliest)
    heads[page, TIME_MAX] = max(heads[page, TIME_MAX], latest)
    buckets[bucket, base + COUNTED] += count
    buckets[bucket, base + BYTES] += count * s.layout[stream, TUPLE_BYTES] + octets
    if page == buckets[bucket, base + FIRST]:
        buckets[bucket, base + FIRST_TIME_MAX] = heads[page, TIME_MAX]
