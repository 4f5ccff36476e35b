"""Kernels of the extendible-hash directory of a partition group (WSJ, section IV-D; Fagin et al. 1979).

A group of global depth d owns a region of 2**d entries. The d least significant bits of a tuple's hash select one of
them. A bucket (mini-partition-group) has a local depth d' <= d, and 2**(d - d') entries point to it; the number of the
first of these is its `prefix`. The word SHAPE packs a bucket's local depth (bits 0-7), whether splitting it has proved
to be of no use (bit 8), and its prefix (from bit 16).
"""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import kernel, part
from mpijoin.partitioning.hashing import hash64
from mpijoin.store.blocks import free_pages, return_block, slot_id
from mpijoin.store.rewrite import divide_chain, interleave_chains
from mpijoin.store.state import (
    BUCKETS,
    BYTES,
    COUNT,
    COUNTED,
    DEEPEST,
    DEPTH,
    DIRECTORY,
    DIRECTORY_CLASS,
    DIRECTORY_DEPTH_MAX,
    ENTRIES_PER_BUCKET_MAX,
    EXPIRES_FROM,
    FIRST,
    FIRST_TIME_MAX,
    FREE_BUCKET,
    FREE_REGIONS,
    FRESH,
    FRESH_PAGE,
    FRESH_SLOT,
    GROUP_STREAM_WORDS,
    GROWS,
    KEEP_UNTIL,
    KEPT,
    KEY,
    LAST,
    MERGED,
    MERGES,
    NEXT,
    NEXT_FRESH,
    NONE,
    PAGE_WORDS,
    PINNED,
    SHAPE,
    SLOTS,
    SPLIT,
    SPLITS,
    STREAM_WORDS,
    TIME_MAX_VALUE,
    TIME_MIN_VALUE,
    TUNED,
    UNLISTED,
    UNUSED_BUCKET,
    UNUSED_ENTRY,
    WATERMARK,
)

UNSPLITTABLE = 1 << 8
PREFIX_SHIFT = 16


@part
def local_depth(s, bucket):
    return s.buckets[bucket, SHAPE] & 0xFF


@part
def prefix_of(s, bucket):
    return s.buckets[bucket, SHAPE] >> PREFIX_SHIFT


@part
def bucket_bytes(s, bucket):
    """Returns the size of a mini-partition-group: the bytes of its live tuples of all streams."""
    octets = s.buckets[bucket, BYTES]
    for stream in range(1, len(s.layout)):
        octets += s.buckets[bucket, stream * STREAM_WORDS + BYTES]
    return octets


@part
def take_bucket(s, depth, prefix):
    """Takes an empty bucket and returns it. The caller has checked `buckets_left`."""
    counters = s.counters
    bucket = counters[FREE_BUCKET]
    if bucket != NONE:
        counters[FREE_BUCKET] = s.buckets[bucket, NEXT_FRESH]
    else:
        bucket = counters[UNUSED_BUCKET]
        counters[UNUSED_BUCKET] += 1
    for stream in range(len(s.layout)):
        clear_chain(s, bucket, stream)
    s.buckets[bucket, NEXT_FRESH] = UNLISTED
    s.buckets[bucket, SHAPE] = depth | prefix << PREFIX_SHIFT
    return bucket


@part
def buckets_left(s):
    """Returns how many buckets have never been used."""
    return len(s.buckets) - s.counters[UNUSED_BUCKET]


@part
def clear_chain(s, bucket, stream):
    buckets, base = s.buckets, stream * STREAM_WORDS
    buckets[bucket, base + FIRST] = NONE
    buckets[bucket, base + LAST] = NONE
    buckets[bucket, base + COUNTED] = 0
    buckets[bucket, base + BYTES] = 0
    buckets[bucket, base + FRESH_PAGE] = NONE
    buckets[bucket, base + FRESH_SLOT] = 0
    buckets[bucket, base + FIRST_TIME_MAX] = TIME_MAX_VALUE


@part
def empty_chain(s, bucket, stream):
    """Frees the blocks of one stream of a bucket. Whoever calls it counts their tuples."""
    page = s.buckets[bucket, stream * STREAM_WORDS + FIRST]
    while page != NONE:
        following = s.heads[page, NEXT]
        return_block(s, page)
        page = following
    clear_chain(s, bucket, stream)


@part
def return_bucket(s, bucket):
    s.buckets[bucket, NEXT_FRESH] = s.counters[FREE_BUCKET]
    s.counters[FREE_BUCKET] = bucket


@part
def take_region(s, size_class):
    """Returns the start of a region of 2**size_class entries, or NONE if none is left."""
    start = s.counters[FREE_REGIONS + size_class]
    if start != NONE:
        s.counters[FREE_REGIONS + size_class] = s.directory[start]
        return start
    start = s.counters[UNUSED_ENTRY]
    if start + (1 << size_class) > len(s.directory):
        return NONE
    s.counters[UNUSED_ENTRY] += 1 << size_class
    return start


@part
def return_region(s, start, size_class):
    s.directory[start] = s.counters[FREE_REGIONS + size_class]
    s.counters[FREE_REGIONS + size_class] = start


@kernel
def start_group(s, group):
    """Gives a group its first bucket and a directory of one entry."""
    groups = s.groups
    take_directory(s, group)
    groups[group, FRESH] = groups[group, KEPT] = NONE
    groups[group, GROWS] = groups[group, PINNED] = 0
    for stream in range(len(s.layout)):
        groups[group, WATERMARK + stream * GROUP_STREAM_WORDS] = TIME_MIN_VALUE
        groups[group, EXPIRES_FROM + stream * GROUP_STREAM_WORDS] = TIME_MAX_VALUE
        groups[group, KEEP_UNTIL + stream * GROUP_STREAM_WORDS] = TIME_MIN_VALUE


@part
def take_directory(s, group):
    """Gives a group without a directory one of a single entry, with an empty bucket."""
    # Other callers pass an int64. For a literal zero, the functions below would be compiled a second time.
    groups, none = s.groups, np.int64(0)
    groups[group, DIRECTORY] = take_region(s, none)
    groups[group, DIRECTORY_CLASS] = 0
    groups[group, DEPTH] = 0
    groups[group, BUCKETS] = 1
    groups[group, DEEPEST] = 1
    s.directory[groups[group, DIRECTORY]] = take_bucket(s, none, none)


@part
def return_directory(s, group):
    """Gives back the buckets of a group, whose blocks are gone, and the region of its directory."""
    region = s.groups[group, DIRECTORY]
    for entry in range(1 << s.groups[group, DEPTH]):
        bucket = s.directory[region + entry]
        if prefix_of(s, bucket) == entry:
            return_bucket(s, bucket)
    return_region(s, region, s.groups[group, DIRECTORY_CLASS])


@part
def double_directory(s, group):
    """Raises the global depth by one, so that every entry stands twice. Returns False if no room is left for that."""
    groups, directory = s.groups, s.directory
    depth = groups[group, DEPTH]
    if groups[group, DIRECTORY_CLASS] == depth:
        region = take_region(s, depth + 1)
        if region == NONE:
            return False
        for entry in range(1 << depth):
            directory[region + entry] = directory[groups[group, DIRECTORY] + entry]
        return_region(s, groups[group, DIRECTORY], depth)
        groups[group, DIRECTORY] = region
        groups[group, DIRECTORY_CLASS] = depth + 1
    region = groups[group, DIRECTORY]
    for entry in range(1 << depth):
        directory[region + (1 << depth) + entry] = directory[region + entry]
    groups[group, DEPTH] = depth + 1
    groups[group, DEEPEST] = 0
    return True


@part
def halve_directory(s, group):
    """Lowers the global depth by one for as long as no bucket needs the last bit.

    The region keeps its size for the next doubling.
    """
    groups = s.groups
    while groups[group, DEPTH] > 0 and groups[group, DEEPEST] == 0:
        groups[group, DEPTH] -= 1
        deepest = 0
        for entry in range(1 << groups[group, DEPTH]):
            bucket = s.directory[groups[group, DIRECTORY] + entry]
            deepest += prefix_of(s, bucket) == entry and local_depth(s, bucket) == groups[group, DEPTH]
        groups[group, DEEPEST] = deepest


@part
def directory_code(key):
    """Returns the bits of a key's hash that a directory may use."""
    return np.int64(hash64(key) & np.uint64((1 << DIRECTORY_DEPTH_MAX) - 1))


@part
def hash_difference(s, bucket):
    """Returns a mask of the bits, among the lowest 24, in which the hashes of a bucket's tuples differ."""
    difference, first, seen = 0, 0, False
    for stream in range(len(s.layout)):
        page = s.buckets[bucket, stream * STREAM_WORDS + FIRST]
        while page != NONE:
            for slot in range(s.heads[page, COUNT]):
                code = directory_code(s.words[slot_id(s, stream, page, slot) + KEY])
                if not seen:
                    first, seen = code, True
                difference |= code ^ first
            page = s.heads[page, NEXT]
    return difference


@part
def within_limits(s, group, bucket):
    """Returns whether a split of the bucket is allowed: the directory may grow as it needs, and there is memory."""
    depth, groups = local_depth(s, bucket), s.groups
    entries_max = ENTRIES_PER_BUCKET_MAX * (groups[group, BUCKETS] + 1)
    doubled_too_far = depth == groups[group, DEPTH] and (2 << depth) > entries_max
    return depth < DIRECTORY_DEPTH_MAX and not doubled_too_far and can_rewrite(s, bucket)


@part
def can_rewrite(s, bucket):
    """Returns whether enough pages and buckets are free to copy a bucket's tuples before its own pages are returned.

    Blobs may pack worse in the copy, so twice the pages are wanted.
    """
    pages = 4
    for stream in range(len(s.layout)):
        base = stream * STREAM_WORDS
        pages += 2 * (s.buckets[bucket, base + COUNTED] // s.layout[stream, SLOTS] + 1)
        pages += 2 * (s.buckets[bucket, base + BYTES] // (s.pool[PAGE_WORDS] * 8) + 1)
    return free_pages(s) >= pages and buckets_left(s) >= 2


@part
def can_separate(s, bucket):
    """Returns whether further splits can separate a bucket's tuples.

    The bucket of a single hot key cannot be separated. It is marked, so that its tuples are not looked at again.
    """
    if s.buckets[bucket, SHAPE] & UNSPLITTABLE:
        return False
    if hash_difference(s, bucket) >> local_depth(s, bucket) == 0:
        s.buckets[bucket, SHAPE] |= UNSPLITTABLE
        return False
    return True


@part
def note_first(s, group, stream, bucket):
    """Lowers the group's EXPIRES_FROM if the first block of this bucket, which is new, ends before all others."""
    first, place = s.buckets[bucket, stream * STREAM_WORDS + FIRST_TIME_MAX], EXPIRES_FROM + stream * GROUP_STREAM_WORDS
    s.groups[group, place] = min(first, s.groups[group, place])


@part
def split_bucket(s, group, bucket):
    """Splits a bucket by the next bit of its tuples' hashes. The caller has checked `within_limits`.

    Returns False, and changes nothing, if the directory would have to be doubled and has no room for that.
    """
    groups, depth, prefix = s.groups, local_depth(s, bucket), prefix_of(s, bucket)
    if depth == groups[group, DEPTH] and not double_directory(s, group):
        return False
    low = take_bucket(s, depth + 1, prefix)
    high = take_bucket(s, depth + 1, prefix | 1 << depth)
    for stream in range(len(s.layout)):
        divide_chain(s, group, bucket, stream, low, high, depth)
        note_first(s, group, stream, low)
        note_first(s, group, stream, high)
    for entry in range(prefix, 1 << groups[group, DEPTH], 1 << depth):
        s.directory[groups[group, DIRECTORY] + entry] = high if entry >> depth & 1 else low
    return_bucket(s, bucket)
    groups[group, BUCKETS] += 1
    groups[group, SPLITS] += 1
    s.counters[SPLIT] += 1
    groups[group, TUNED] = 0
    if depth + 1 == groups[group, DEPTH]:
        groups[group, DEEPEST] += 2
    return True


@part
def buddy_of(s, group, bucket):
    """Returns the bucket whose prefix differs in bit d'-1 only, if it has the same local depth, else NONE.

    This is the "buddy" of WSJ, section IV-D.
    """
    depth = local_depth(s, bucket)
    if depth == 0:
        return NONE
    buddy = s.directory[s.groups[group, DIRECTORY] + (prefix_of(s, bucket) ^ 1 << (depth - 1))]
    return buddy if local_depth(s, buddy) == depth else NONE


@part
def merge_buckets(s, group, bucket, buddy):
    """Merges two buddies and returns the new bucket. The caller has checked `can_rewrite` for both."""
    groups, depth = s.groups, local_depth(s, bucket) - 1
    prefix = prefix_of(s, bucket) & ((1 << depth) - 1)
    merged = take_bucket(s, depth, prefix)
    for stream in range(len(s.layout)):
        interleave_chains(s, group, bucket, buddy, stream, merged)
        note_first(s, group, stream, merged)
    for entry in range(prefix, 1 << groups[group, DEPTH], 1 << depth):
        s.directory[groups[group, DIRECTORY] + entry] = merged
    return_bucket(s, bucket)
    return_bucket(s, buddy)
    groups[group, BUCKETS] -= 1
    groups[group, MERGES] += 1
    s.counters[MERGED] += 1
    if depth + 1 == groups[group, DEPTH]:
        groups[group, DEEPEST] -= 2
        halve_directory(s, group)
    return merged
