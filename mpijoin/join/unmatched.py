"""Kernels that find the tuples without a partner whose window is over: those of an outer or an anti join.

They leave row by row, and not block by block, in the round in which the watermark passes the end of their windows. A
tuple that has left is marked like one that has a partner, so that no later round finds it again, here or where its
group goes. A tuple that may still meet some on a disk stays. If its block expires, it is kept (store/kept.py), and the
clean-up knows whether it has a partner.
"""

from __future__ import annotations

from typing import Sequence

import numpy as np

from mpijoin.compiled import kernel, part
from mpijoin.operators.base import Out, Progress
from mpijoin.store.blocks import flags_of, slot_id
from mpijoin.store.directory import prefix_of
from mpijoin.store.expire import advance_watermarks, expiry_bound
from mpijoin.store.simd import unsigned
from mpijoin.store.state import (
    COUNT,
    DEPTH,
    DIRECTORY,
    DONE,
    FIRST,
    FLAGS_AT,
    GROUP_STREAM_WORDS,
    KEEP_UNTIL,
    MARK,
    NEXT,
    NONE,
    OUT_FULL,
    PAGE_WORDS,
    RESULTS,
    STREAM_WORDS,
    TIME,
    TIME_MAX_VALUE,
    TIME_MIN,
    TIME_MIN_VALUE,
    TUPLE_WORDS,
    WATERMARK,
    StoreState,
)

FLAGS_PER_WORD = 8
EIGHT = 0x0101_0101_0101_0101  # times a mark: the flags of eight tuples that have it


class Unmatched:
    """A `Finder` of tuples without partner."""

    def __init__(self, table: StoreState, leave: Sequence[bool]):
        """leave: of each stream, whether its tuples are results."""
        self._find = find_unmatched.bound(table, np.array(leave))
        self._at = 0  # so many groups hold no more tuples that have to leave

    def find(self, groups: np.ndarray, watermarks: np.ndarray, out: Out) -> Progress:
        status, self._at, out.count = self._find(groups, watermarks, self._at, out.slots, 0)
        out.is_final = out.count > 0
        if status == OUT_FULL or out.count:
            return Progress.OUT_FULL
        self._at = 0
        return Progress.DONE


@kernel
def find_unmatched(s, leave, groups, watermarks, at, out, count):
    """Advances the watermarks of groups[at:], and adds their tuples without partner that are over to `out`.

    leave: bool[2], whose tuples leave · groups: int64[m]; they hold no fresh tuple · watermarks: int64[m, 2], or
    int64[1, 2] for all of them · out: int64[2, capacity] slot ids, of which `count` columns are filled. Returns DONE or
    OUT_FULL, the group at which it goes on, and the new count.
    """
    while at < len(groups):
        advance_watermarks(s, groups[at], watermarks[min(at, len(watermarks) - 1)])
        before = count
        for stream in range(2):
            if leave[stream]:
                count = find_in_group(s, groups[at], stream, out, count)
        s.groups[groups[at], RESULTS] += count - before
        if count == out.shape[1]:
            return OUT_FULL, at, count
        at += 1
    return DONE, at, count


@part
def find_in_group(s, group, stream, out, count):
    """Adds the group's tuples of a stream. Returns the new count, which is the capacity if some may be left."""
    region, bound = s.groups[group, DIRECTORY], expiry_bound(s, group, stream)
    until = s.groups[group, KEEP_UNTIL + stream * GROUP_STREAM_WORDS]
    if s.groups[group, WATERMARK + (1 - stream) * GROUP_STREAM_WORDS] == TIME_MAX_VALUE:
        bound = TIME_MAX_VALUE  # The other stream has ended, so no window is too long.
    for entry in range(1 << s.groups[group, DEPTH]):
        bucket = s.directory[region + entry]
        if prefix_of(s, bucket) == entry:
            page = s.buckets[bucket, stream * STREAM_WORDS + FIRST]
            while page != NONE and count < out.shape[1]:
                if s.heads[page, TIME_MIN] < bound or bound == TIME_MAX_VALUE:
                    count = find_in_block(s, stream, page, bound, until, out, count)
                page = s.heads[page, NEXT]
    return count


@part
def find_in_block(s, stream, page, bound, until, out, count):
    flags, octets, tuples = flags_of(s, stream, page), s.octets, slot_id(s, stream, page, 0)
    mark = s.counters[MARK]
    eight = page * s.pool[PAGE_WORDS] + s.layout[stream, FLAGS_AT]
    for first in range(0, s.heads[page, COUNT], FLAGS_PER_WORD):
        if s.words[unsigned(eight)] & mark * EIGHT != mark * EIGHT:
            for slot in range(first, min(s.heads[page, COUNT], first + FLAGS_PER_WORD)):
                place = tuples + slot * s.layout[stream, TUPLE_WORDS]
                time = s.words[unsigned(place + TIME)]
                is_over = (time < bound or bound == TIME_MAX_VALUE) and (time > until or until == TIME_MIN_VALUE)
                if octets[unsigned(flags + slot)] & mark == 0 and is_over and count < out.shape[1]:
                    octets[unsigned(flags + slot)] |= mark
                    out[stream, unsigned(count)] = place
                    out[1 - stream, unsigned(count)] = NONE
                    count += 1
        eight += 1
    return count
