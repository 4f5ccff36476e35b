"""Kernels that copy the tuples of buckets into other buckets, for splits and merges.

They copy runs of tuples that are known to fit. Such a run is copied without any branch that depends on the data, and
its tuples are counted once, at its end. Tuples keep their order, and in the new chain they are old (not fresh).
"""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import part
from mpijoin.partitioning.hashing import hash64
from mpijoin.store.blocks import flags_of, move_blob, note_tuples, open_block, return_block, slot_id, tags_of
from mpijoin.store.simd import unsigned
from mpijoin.store.state import (
    ADDRESS,
    COUNT,
    FIRST,
    FIXED_WORDS,
    FLAGS_AT,
    HAS_BLOB,
    KEY,
    NEXT,
    NONE,
    SIZE,
    SLOTS,
    STREAM_WORDS,
    TIME,
    TIME_MAX_VALUE,
    TIME_MIN_VALUE,
    TUPLE_WORDS,
)


@part
def divide_chain(s, group, bucket, stream, low, high, depth):
    """Moves a chain's tuples to bucket `low` or `high`, by bit `depth` of their hash, and frees the chain's blocks."""
    page = s.buckets[bucket, stream * STREAM_WORDS + FIRST]
    while page != NONE:
        copy_side(s, group, page, stream, low, depth, 0)
        copy_side(s, group, page, stream, high, depth, 1)
        page = drop_block(s, page)


@part
def copy_side(s, group, page, stream, bucket, depth, side):
    """Appends to a bucket those tuples of a block whose hash has `side` as bit `depth`."""
    slot, end = 0, s.heads[page, COUNT]
    while True:
        while slot < end and side_of(s, slot_id(s, stream, page, slot), depth) != side:
            slot += 1
        if slot == end:
            break
        slot = copy_some(s, group, page, slot, stream, bucket, depth, side)


@part
def side_of(s, place, depth):
    """Returns bit `depth` of the hash of the tuple with slot id `place`."""
    return np.int64(hash64(s.words[unsigned(place + KEY)]) >> np.uint64(depth) & np.uint64(1))


@part
def copy_some(s, group, page, slot, stream, bucket, depth, side):
    """Does what `copy_side` does, from a slot on, until one block of the bucket is full.

    Returns the slot after the last one that was looked at.
    """
    words, halves, width = s.words, s.halves, s.layout[stream, TUPLE_WORDS]
    into = open_block(s, bucket, stream, group)
    used, end = s.heads[into, COUNT], s.heads[page, COUNT]
    room = s.layout[stream, SLOTS] - used
    source, target = slot_id(s, stream, page, slot), slot_id(s, stream, into, used)
    tags, target_tags = tags_of(s, page), tags_of(s, into) + used
    flagged, octets = s.layout[stream, FLAGS_AT] != 0, s.octets
    flags, target_flags = flags_of(s, stream, page), flags_of(s, stream, into) + used
    count = np.int64(0)
    earliest, latest = np.int64(TIME_MAX_VALUE), np.int64(TIME_MIN_VALUE)
    while slot < end and count < room:
        # Every tuple is written to the next free place. If it does not belong here, the next one overwrites it.
        copy_tuple(words, source, target, width)
        halves[unsigned(target_tags + count)] = halves[unsigned(tags + slot)]
        if flagged:
            octets[unsigned(target_flags + count)] = octets[unsigned(flags + slot)]
        belongs = side_of(s, source, depth) == side
        time = words[unsigned(source + TIME)]
        earliest, latest = min(earliest, time if belongs else earliest), max(latest, time if belongs else latest)
        target += width if belongs else 0
        count += belongs
        source += width
        slot += 1
    note_tuples(
        s, bucket, stream, into, count, earliest, latest, take_blobs(s, group, stream, into, used, count)
    )
    return slot


@part
def interleave_chains(s, group, bucket, buddy, stream, merged):
    """Moves two chains' tuples into one, in the order of time, so that the merged chain expires from its front."""
    first, second = s.buckets[bucket, stream * STREAM_WORDS + FIRST], s.buckets[buddy, stream * STREAM_WORDS + FIRST]
    i = j = np.int64(0)
    while first != NONE and second != NONE:
        i, j = copy_earlier(s, group, first, i, second, j, stream, merged)
        if i == s.heads[first, COUNT]:
            first, i = drop_block(s, first), np.int64(0)
        if j == s.heads[second, COUNT]:
            second, j = drop_block(s, second), np.int64(0)
    copy_rest(s, group, first, i, stream, merged)
    copy_rest(s, group, second, j, stream, merged)


@part
def copy_earlier(s, group, first, i, second, j, stream, bucket):
    """Appends the earlier one of the tuples in slot i of one block and slot j of another, again and again.

    It ends as soon as either block, or the bucket's open one, may be at its end. Returns the next i and j.
    """
    words, halves, width = s.words, s.halves, s.layout[stream, TUPLE_WORDS]
    into = open_block(s, bucket, stream, group)
    used = s.heads[into, COUNT]
    count = min(s.layout[stream, SLOTS] - used, s.heads[first, COUNT] - i, s.heads[second, COUNT] - j)
    target, target_tags = slot_id(s, stream, into, used), tags_of(s, into) + used
    place, other = slot_id(s, stream, first, i), slot_id(s, stream, second, j)
    earliest, latest = np.int64(TIME_MAX_VALUE), np.int64(TIME_MIN_VALUE)
    for taken in range(count):
        is_first = words[unsigned(place + TIME)] <= words[unsigned(other + TIME)]
        source = place if is_first else other
        tag = tags_of(s, first) + i if is_first else tags_of(s, second) + j
        copy_tuple(words, source, target, width)
        halves[unsigned(target_tags + taken)] = halves[unsigned(tag)]
        if s.layout[stream, FLAGS_AT]:
            flag = flags_of(s, stream, first) + i if is_first else flags_of(s, stream, second) + j
            s.octets[flags_of(s, stream, into) + used + taken] = s.octets[flag]
        time = words[unsigned(source + TIME)]
        earliest, latest = min(earliest, time), max(latest, time)
        target += width
        i += is_first
        j += not is_first
        place += width if is_first else 0
        other += 0 if is_first else width
    note_tuples(
        s, bucket, stream, into, count, earliest, latest, take_blobs(s, group, stream, into, used, count)
    )
    return i, j


@part
def copy_rest(s, group, page, slot, stream, bucket):
    """Appends the tuples of a chain, from a slot of its first block on, to a bucket. The chain's blocks are freed."""
    words, halves, width = s.words, s.halves, s.layout[stream, TUPLE_WORDS]
    while page != NONE:
        into = open_block(s, bucket, stream, group)
        used = s.heads[into, COUNT]
        count = min(s.layout[stream, SLOTS] - used, s.heads[page, COUNT] - slot)
        source, target = slot_id(s, stream, page, slot), slot_id(s, stream, into, used)
        tags, target_tags = tags_of(s, page) + slot, tags_of(s, into) + used
        earliest, latest = np.int64(TIME_MAX_VALUE), np.int64(TIME_MIN_VALUE)
        for i in range(count):
            copy_tuple(words, source, target, width)
            halves[unsigned(target_tags + i)] = halves[unsigned(tags + i)]
            if s.layout[stream, FLAGS_AT]:
                s.octets[flags_of(s, stream, into) + used + i] = s.octets[flags_of(s, stream, page) + slot + i]
            time = words[unsigned(source + TIME)]
            earliest, latest = min(earliest, time), max(latest, time)
            source += width
            target += width
        note_tuples(
            s, bucket, stream, into, count, earliest, latest, take_blobs(s, group, stream, into, used, count)
        )
        slot += count
        if slot == s.heads[page, COUNT]:
            page, slot = drop_block(s, page), np.int64(0)


@part
def copy_tuple(words, source, target, width):
    # The compiler knows the number of these words, so that they need no loop. Many tuples have few others.
    for word in range(FIXED_WORDS):
        words[unsigned(target + word)] = words[unsigned(source + word)]
    for word in range(FIXED_WORDS, width):
        words[unsigned(target + word)] = words[unsigned(source + word)]


@part
def take_blobs(s, group, stream, page, first, count):
    """Moves the blobs of `count` tuples that were copied into a block, from slot `first` on.

    Returns how many bytes these blobs have.
    """
    octets = np.int64(0)
    if s.layout[stream, HAS_BLOB]:
        for slot in range(first, first + count):
            place = slot_id(s, stream, page, slot)
            size = s.words[place + SIZE]
            s.words[place + ADDRESS] = move_blob(s, s.words[place + ADDRESS], size, page, group, stream)
            octets += size
    return octets


@part
def drop_block(s, page):
    """Frees a block and returns the page of the next one in its chain."""
    following = s.heads[page, NEXT]
    return_block(s, page)
    return following
