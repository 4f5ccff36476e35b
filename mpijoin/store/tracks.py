"""Kernels about groups that two holders join side by side, each on its own track (DCAPE, section 3).

A tuple that comes to both holders is NEW at the one that had the group before. All others are old.
"""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import kernel, part
from mpijoin.store.blocks import flags_of, slot_id, time_after
from mpijoin.store.directory import prefix_of
from mpijoin.store.simd import lowest_bit, unsigned
from mpijoin.store.state import (
    COUNT,
    DEPTH,
    DIRECTORY,
    FIRST,
    NEW,
    NEXT,
    NONE,
    PAGE_WORDS,
    STREAM_WORDS,
    TIME,
    TIME_MIN_VALUE,
    TUPLE_WORDS,
    TUPLES_AT,
    WINDOW,
)


@kernel
def old_until(s, group, until):
    """Sets until[i], int64[n], to the last time at which an old tuple of stream i waits, or to TIME_MIN_VALUE if the
    group has none."""
    region = s.groups[group, DIRECTORY]
    until[:] = TIME_MIN_VALUE
    for entry in range(1 << s.groups[group, DEPTH]):
        bucket = s.directory[region + entry]
        if prefix_of(s, bucket) == entry:
            for stream in range(len(s.layout)):
                page = s.buckets[bucket, stream * STREAM_WORDS + FIRST]
                while page != NONE:
                    flags, place = flags_of(s, stream, page), slot_id(s, stream, page, 0) + TIME
                    for slot in range(s.heads[page, COUNT]):
                        if s.octets[unsigned(flags + slot)] & NEW == 0:
                            waits = time_after(s.words[unsigned(place)], s.layout[stream, WINDOW])
                            until[stream] = max(until[stream], waits)
                        place += s.layout[stream, TUPLE_WORDS]
                    page = s.heads[page, NEXT]


@kernel
def make_all_old(s, group):
    """Makes all new tuples of the group old."""
    region = s.groups[group, DIRECTORY]
    for entry in range(1 << s.groups[group, DEPTH]):
        bucket = s.directory[region + entry]
        if prefix_of(s, bucket) == entry:
            for stream in range(len(s.layout)):
                page = s.buckets[bucket, stream * STREAM_WORDS + FIRST]
                while page != NONE:
                    flags = flags_of(s, stream, page)
                    for slot in range(s.heads[page, COUNT]):
                        s.octets[unsigned(flags + slot)] &= ~NEW & 255
                    page = s.heads[page, NEXT]


@part
def is_new(s, stream, slot):
    """Returns whether a stored tuple is new. Its stream must have flags."""
    return s.octets[flag_at(s, stream, slot)] & NEW != 0


@kernel
def keep_with_old(s, left, right, count):
    """Moves those of the pairs 0..count that have an old tuple to the front, and returns how many they are: "if both
    tuples are marked as new, they are not joined together" (DCAPE, section 3.2).

    left, right: int64[at least count] slot ids, of streams 0 and 1.
    """
    kept = 0
    for i in range(count):
        one, other = left[unsigned(i)], right[unsigned(i)]
        left[unsigned(kept)] = one
        right[unsigned(kept)] = other
        kept += not (is_new(s, 0, one) and is_new(s, 1, other))
    return kept


@part
def flag_at(s, stream, slot):
    """Returns the index in `octets` of the flag of a stored tuple."""
    page_words = s.pool[PAGE_WORDS]
    # A division takes as long as all the rest, and most pages have a power of two.
    if page_words & (page_words - 1) == 0:
        page = slot >> lowest_bit(page_words)
    else:
        page = np.int64(np.uint64(slot) // np.uint64(page_words))
    within = np.uint32(slot - page * page_words - s.layout[stream, TUPLES_AT])
    return unsigned(flags_of(s, stream, page)) + within // np.uint32(s.layout[stream, TUPLE_WORDS])
