"""Kernels that append a batch of one stream to the chains of the groups, as fresh tuples."""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import kernel, part
from mpijoin.named import NamedTuple
from mpijoin.partitioning.hashing import hash64
from mpijoin.store.blocks import append_blob, flags_of, free_pages, note_tuples, open_block, slot_id, tags_of
from mpijoin.store.directory import UNSPLITTABLE, bucket_bytes, local_depth, note_first, split_bucket, within_limits
from mpijoin.store.simd import prefetch, unsigned
from mpijoin.store.state import (
    ADDRESS,
    COMES,
    COUNT,
    DEPTH,
    DIRECTORY,
    DIRECTORY_DEPTH_MAX,
    FIXED_WORDS,
    FLAGS_AT,
    FRESH,
    FRESH_PAGE,
    FRESH_SLOT,
    GROUP_BYTES,
    GROUP_STREAM_WORDS,
    GROUP_TUPLES,
    GROWS,
    HAS_BLOB,
    HEAD_WORDS,
    INSERTED,
    INSERTED_BYTES,
    KEY,
    LACKING,
    LAST,
    MATCHED,
    MATCHED_ROW,
    NEXT_FRESH,
    NONE,
    PAGE_WORDS,
    PINNED,
    ROW,
    SHAPE,
    SIZE,
    SLOTS,
    STREAM_WORDS,
    THETA,
    TIME,
    TIME_MAX_VALUE,
    TIME_MIN_VALUE,
    TUNED,
    TUPLE_BYTES,
    TUPLE_WORDS,
    UNLISTED,
    WINDOW,
)

TAG_SHIFT = DIRECTORY_DEPTH_MAX  # A tag is the 16 bits above those that the directory uses.
# A group that grows is split ahead for up to this many times the rows of its first batch. Splits of empty buckets are
# free: expiring and tuning workload A fell from 5.5 to 1.6 ns a tuple.
GROWTH_MAX = 4


class Fresh(NamedTuple):
    """One stream's part of a message. Rows of one partition lie together: tuples int64[n, tuple_words], blob uint8[].

    A tuple has the same words as in a block (state.py), except that its blob address is an index into `blob`.
    """

    tuples: np.ndarray
    blob: np.ndarray


class Scratch(NamedTuple):
    """The memory that an insert works with. It is used again from call to call, and the operator makes it larger.

    One entry for each row of a group: bucket, order: int32[rows] · tag: uint16[rows]. One for each bucket of the table:
    incoming, start: int32[buckets], where `incoming` is all 0 between calls · touched: int32[buckets].
    """

    bucket: np.ndarray
    order: np.ndarray
    tag: np.ndarray
    incoming: np.ndarray
    start: np.ndarray
    touched: np.ndarray


@kernel
def insert_groups(s, scratch, stream, groups, bounds, fresh, first):
    """Appends rows bounds[i, 0]:bounds[i, 1] of `fresh` to group groups[i], for i from `first` on.

    groups: int64[m] · bounds: int64[m, 2]. Returns how many groups are in. They are fewer than m if pages for the next
    group are lacking; the counter LACKING then says how many.
    """
    for i in range(first, len(groups)):
        low, high = bounds[i, 0], bounds[i, 1]
        if low == high:
            continue
        touched = assign_buckets(s, stream, groups[i], low, high, fresh, scratch)
        while split_ahead(s, stream, groups[i], touched, low, high, fresh, scratch):
            clear_incoming(touched, scratch)
            touched = assign_buckets(s, stream, groups[i], low, high, fresh, scratch)
        fetch_blocks(s, stream, touched, scratch)
        lacking = pages_needed(s, stream, low, high, touched, fresh, scratch) - free_pages(s)
        if lacking > 0:
            s.counters[LACKING] = lacking
            clear_incoming(touched, scratch)
            return i
        append_group(s, stream, groups[i], low, high, fresh, scratch)
    return len(groups)


@part
def clear_incoming(touched, scratch):
    for i in range(touched):
        scratch.incoming[scratch.touched[i]] = 0


@part
def assign_buckets(s, stream, group, low, high, fresh, scratch):
    """Sets the bucket and the tag of each row, and counts in `incoming` how many rows come to each bucket.

    The buckets that get any are listed in `touched`. Returns how many they are.
    """
    region, mask = s.groups[group, DIRECTORY], (1 << s.groups[group, DEPTH]) - 1
    touched = 0
    for i in range(high - low):
        code = hash64(fresh.tuples[unsigned(low + i), KEY])
        bucket = s.directory[unsigned(region + np.int64(code & np.uint64(mask)))]
        scratch.bucket[i] = bucket
        scratch.tag[i] = np.uint16(code >> np.uint64(TAG_SHIFT) & np.uint64(0xFFFF))
        count = scratch.incoming[unsigned(bucket)]
        if count == 0:
            line = bucket * s.buckets.shape[1]
            prefetch(s.buckets, line)
            prefetch(s.buckets, line + max(stream, 1) * STREAM_WORDS)
            scratch.touched[touched] = bucket
            touched += 1
        scratch.incoming[unsigned(bucket)] = count + 1
    return touched


@part
def split_ahead(s, stream, group, touched, low, high, fresh, scratch):
    """Splits each small bucket that these rows would make too large, and returns whether any was split.

    It assumes that each other stream brings as many tuples as this one. A bucket is too large with more than 4 theta;
    in a group that held nothing and will grow, with more than 2 theta by the time that its windows are full.

    Without this, a first or very long epoch would build one huge bucket that is joined before it can be split, and a
    group that grows would be split, which copies all of its tuples, again and again. The margin above 2 theta keeps a
    steady stream from splitting now what its next expiry would merge again. A bucket that is large already is left to
    `tune_group`, which knows whether a split would separate anything.
    """
    changed = False
    # A group is split only while it holds no fresh tuple.
    if s.groups[group, FRESH] != NONE or s.groups[group, PINNED]:
        return changed
    deepest, growth = depth_of_rows(high - low), 1
    if is_empty(s, group):
        growth = growth_of_rows(s, low, high, fresh)
        s.groups[group, GROWS] |= growth > 1  # A group that was spilled keeps the shape that it had.
    limit = (4 if growth == 1 else 2) * s.counters[THETA]
    tuple_bytes = np.int64(0)
    for each in range(len(s.layout)):
        tuple_bytes += s.layout[each, TUPLE_BYTES]
    for i in range(touched):
        bucket = np.int64(scratch.touched[i])
        held = bucket_bytes(s, bucket)
        coming = np.int64(scratch.incoming[bucket]) * tuple_bytes
        if held <= s.counters[THETA] and held + growth * coming > limit and local_depth(s, bucket) < deepest:
            changed |= within_limits(s, group, bucket) and split_bucket(s, group, bucket)
    return changed


@part
def is_empty(s, group):
    """Returns whether a group holds no tuple of any stream."""
    held = np.int64(0)
    for stream in range(len(s.layout)):
        held += s.groups[group, GROUP_TUPLES + stream * GROUP_STREAM_WORDS]
    return held == 0


@part
def growth_of_rows(s, low, high, fresh):
    """Returns how many times as many tuples as these rows the full windows will hold, if the rate stays the same.

    The answer is at most GROWTH_MAX, because the stream may end before its window is full. It is 1 where the times of
    the rows tell no rate.
    """
    span = fresh.tuples[high - 1, TIME] - fresh.tuples[low, TIME]
    if span <= 0:
        return 1
    streams, window = len(s.layout), 0
    for stream in range(streams):
        window += s.layout[stream, WINDOW] // streams
    return 1 + min(window // span, GROWTH_MAX - 1)


@part
def depth_of_rows(rows):
    """Returns a depth beyond which splitting ahead for so many rows cannot pay.

    Equal keys stay together at any depth, so without this limit a hot key would be split again and again.
    """
    depth = 0
    while 1 << depth < rows:
        depth += 1
    return min(depth, DIRECTORY_DEPTH_MAX - 8)


@part
def fetch_blocks(s, stream, touched, scratch):
    """Asks for the cache lines of the heads of the open blocks.

    `assign_buckets` has done so for the buckets, and `pages_needed` will do so for the slots. A small batch brings a
    bucket only a tuple or two, and then an insert spends most of its time on cache misses.
    """
    for i in range(touched):
        last = s.buckets[np.int64(scratch.touched[i]), stream * STREAM_WORDS + LAST]
        prefetch(s.heads, max(last, 0) * HEAD_WORDS)


@part
def pages_needed(s, stream, low, high, touched, fresh, scratch):
    """Returns how many pages appending the rows can take at most."""
    slots, pages = s.layout[stream, SLOTS], 0
    for i in range(touched):
        bucket = np.int64(scratch.touched[i])
        last = s.buckets[bucket, stream * STREAM_WORDS + LAST]
        room = np.int64(0)
        if last != NONE:
            used = s.heads[last, COUNT]
            room = slots - used
            prefetch(s.halves, tags_of(s, last) + used)
            prefetch(s.words, slot_id(s, stream, last, used))
        pages += (max(0, np.int64(scratch.incoming[bucket]) - room) + slots - 1) // slots
    if s.layout[stream, HAS_BLOB]:
        pages += pages + touched + blob_bytes(low, high, fresh) // (s.pool[PAGE_WORDS] * 8)
    return pages


@part
def blob_bytes(low, high, fresh):
    octets = 0
    for i in range(low, high):
        octets += fresh.tuples[i, SIZE]
    return octets


@part
def append_group(s, stream, group, low, high, fresh, scratch):
    """Appends the rows bucket by bucket and marks them fresh. A stable counting sort by bucket keeps their order."""
    place, touched = np.int64(0), 0
    while place < high - low:
        bucket = np.int64(scratch.touched[touched])
        scratch.start[bucket] = place
        place += scratch.incoming[bucket]
        touched += 1
    for i in range(high - low):
        bucket = unsigned(np.int64(scratch.bucket[i]))
        start = np.int64(scratch.start[bucket])
        scratch.order[unsigned(start)] = i
        scratch.start[bucket] = start + 1
    place = np.int64(0)
    for i in range(touched):
        bucket = np.int64(scratch.touched[i])
        count = np.int64(scratch.incoming[bucket])
        append_bucket(s, stream, group, bucket, place, count, low, fresh, scratch)
        place += count
        scratch.incoming[bucket] = 0
    octets = (high - low) * s.layout[stream, TUPLE_BYTES]
    if s.layout[stream, HAS_BLOB]:
        octets += blob_bytes(low, high, fresh)
    s.groups[group, GROUP_TUPLES + stream * GROUP_STREAM_WORDS] += high - low
    s.groups[group, GROUP_BYTES + stream * GROUP_STREAM_WORDS] += octets
    s.counters[INSERTED + stream] += high - low
    s.counters[INSERTED_BYTES + stream] += octets


@part
def append_bucket(s, stream, group, bucket, place, count, low, fresh, scratch):
    """Appends the rows order[place : place + count], counted from `low`, to one bucket."""
    mark_fresh(s, stream, group, bucket)
    end = place + count
    while place < end:
        page = open_block(s, bucket, stream, group)
        count = min(end - place, s.layout[stream, SLOTS] - s.heads[page, COUNT])
        fill_block(s, stream, group, bucket, page, place, count, low, fresh, scratch)
        if s.buckets[bucket, stream * STREAM_WORDS + FRESH_PAGE] == NONE:
            s.buckets[bucket, stream * STREAM_WORDS + FRESH_PAGE] = page
        place += count
    note_first(s, group, stream, bucket)
    if bucket_bytes(s, bucket) > 2 * s.counters[THETA] and not s.buckets[bucket, SHAPE] & UNSPLITTABLE:
        s.groups[group, TUNED] = 0


@part
def mark_fresh(s, stream, group, bucket):
    """Marks where the bucket's fresh tuples of this stream begin, and lists the bucket for the next probe."""
    buckets, base = s.buckets, stream * STREAM_WORDS
    if buckets[bucket, NEXT_FRESH] == UNLISTED:
        buckets[bucket, NEXT_FRESH] = s.groups[group, FRESH]
        s.groups[group, FRESH] = bucket
    page = buckets[bucket, base + LAST]
    if buckets[bucket, base + FRESH_PAGE] == NONE and page != NONE and s.heads[page, COUNT] < s.layout[stream, SLOTS]:
        buckets[bucket, base + FRESH_PAGE] = page
        buckets[bucket, base + FRESH_SLOT] = s.heads[page, COUNT]


@part
def fill_block(s, stream, group, bucket, page, place, count, low, fresh, scratch):
    """Copies `count` rows into the open block in `page`."""
    words, tuples = s.words, fresh.tuples
    slot, width, blobs = s.heads[page, COUNT], s.layout[stream, TUPLE_WORDS], s.layout[stream, HAS_BLOB] != 0
    tags, target = tags_of(s, page) + slot, slot_id(s, stream, page, slot)
    earliest, latest = np.int64(TIME_MAX_VALUE), np.int64(TIME_MIN_VALUE)
    octets = np.int64(0)
    for i in range(count):
        row = np.int64(scratch.order[unsigned(place + i)])
        s.halves[unsigned(tags + i)] = scratch.tag[unsigned(row)]
        row = unsigned(low + row)
        time = tuples[row, TIME]
        for word in range(FIXED_WORDS):
            words[unsigned(target + word)] = tuples[row, word]
        for word in range(FIXED_WORDS, width):
            words[unsigned(target + word)] = tuples[row, word]
        earliest, latest = min(earliest, time), max(latest, time)
        if blobs:
            size = words[target + SIZE]
            words[target + ADDRESS] = append_blob(s, page, group, stream, fresh.blob, words[target + ADDRESS], size)
            octets += size
        target += width
    if s.layout[stream, FLAGS_AT]:
        set_flags(s, stream, page, slot, count)
    note_tuples(s, bucket, stream, page, count, earliest, latest, octets)


@part
def set_flags(s, stream, page, slot, count):
    """Sets the flags of tuples that have just come, which were matched only if they come from a disk."""
    comes = s.counters[COMES]
    flags, place = flags_of(s, stream, page) + slot, slot_id(s, stream, page, slot) + ROW
    for i in range(count):
        row = s.words[unsigned(place)]
        s.octets[unsigned(flags + i)] = MATCHED * (row & MATCHED_ROW != 0) | comes
        s.words[unsigned(place)] = row & ~MATCHED_ROW
        place += s.layout[stream, TUPLE_WORDS]
