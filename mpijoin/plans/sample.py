"""Kernels that look at some of the fresh tuples: how many partners does each have in each of the other streams?"""

from __future__ import annotations

from mpijoin.compiled import kernel, part
from mpijoin.join.compare import low_bits
from mpijoin.store.blocks import slot_id, tags_of, time_after
from mpijoin.store.simd import LANES, lowest_bit, match_tags, unsigned
from mpijoin.store.state import (
    COUNT,
    FIRST,
    FRESH,
    FRESH_PAGE,
    FRESH_SLOT,
    KEY,
    NEXT,
    NEXT_FRESH,
    NONE,
    STREAM_WORDS,
    TIME,
    TIME_MAX,
    TIME_MIN,
    TUPLE_WORDS,
    WINDOW,
)


@kernel
def sample_fresh(s, groups, stream, step, skip, wanted, partners):
    """Takes each `step`-th fresh tuple of a stream, after the first `skip` ones, until `wanted` were taken.

    groups: int64[k] · partners: int64[at least wanted, n], how many partners each of the taken tuples has in each
    stream: tuples of its key that have come before it and still wait for it; 1 for its own. Returns how many were
    taken.
    """
    taken = 0
    for i in range(len(groups)):
        bucket = s.groups[groups[i], FRESH]
        while bucket != NONE and taken < wanted:
            base = stream * STREAM_WORDS
            page, slot = s.buckets[bucket, base + FRESH_PAGE], s.buckets[bucket, base + FRESH_SLOT]
            while page != NONE and taken < wanted:
                count = s.heads[page, COUNT]
                if slot + skip < count:
                    slot += skip
                    count_partners(s, bucket, stream, page, slot, partners, taken)
                    taken, skip = taken + 1, step - 1
                    slot += 1
                    if taken == wanted:
                        break
                else:
                    skip -= count - slot
                    page, slot = s.heads[page, NEXT], 0
            bucket = s.buckets[bucket, NEXT_FRESH]
    return taken


@part
def count_partners(s, bucket, stream, page, slot, partners, row):
    place, tag = slot_id(s, stream, page, slot), s.halves[tags_of(s, page) + slot]
    key, time = s.words[place + KEY], s.words[place + TIME]
    for other in range(len(s.layout)):
        partners[row, other] = 1 if other == stream else partners_in(s, bucket, other, key, time, tag)


@part
def partners_in(s, bucket, other, key, time, tag):
    """Returns how many tuples of the other stream have come before a tuple, and wait for it."""
    words, width, window, found = s.words, s.layout[other, TUPLE_WORDS], s.layout[other, WINDOW], 0
    page = s.buckets[bucket, other * STREAM_WORDS + FIRST]
    while page != NONE:
        if s.heads[page, TIME_MIN] <= time and time <= time_after(s.heads[page, TIME_MAX], window):
            tags, base = tags_of(s, page), slot_id(s, other, page, 0)
            for low in range(0, s.heads[page, COUNT], LANES):
                mask = match_tags(s.halves, tags + low, tag) & low_bits(s.heads[page, COUNT] - low)
                while mask != 0:
                    at = base + (low + lowest_bit(mask)) * width
                    came = words[unsigned(at + TIME)]
                    waits = (came <= time) & (time <= time_after(came, window))
                    found += (words[unsigned(at + KEY)] == key) & waits
                    mask &= mask - 1
        page = s.heads[page, NEXT]
    return found
