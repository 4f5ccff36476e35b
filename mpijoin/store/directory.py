"""Kernels of the extendible-hash directory of a partition group (WSJ, section IV-D; Fagin et al. 1979).

A group of global depth d owns a region of 2**d entries; the d least significant bits of a tuple's hash select one. A
bucket (mini-partition-group) of local depth d' <= d is pointed to by 2**(d - d') entries, the first of which equals its
`prefix`. SHAPE packs a bucket's local depth (bits 0-7), whether it has proved unsplittable (bit 8) and its prefix (from
bit 16).
"""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import kernel, part
from mpijoin.partitioning.hashing import hash64
from mpijoin.store.blocks import free_pages, slot_id
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
    KEY,
    LAST,
    MERGED,
    MERGES,
    NEXT,
    NEXT_FRESH,
    NONE,
    PAGE_WORDS,
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
    """Size of a mini-partition-group: live tuple bytes of all streams."""
    octets = s.buckets[bucket, BYTES]
    for stream in range(1, len(s.layout)):
        octets += s.buckets[bucket, stream * STREAM_WORDS + BYTES]
    return octets


@part
def take_bucket(s, depth, prefix):
    """An empty bucket. The caller has checked `buckets_left`."""
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
    """Buckets that were never used."""
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
def return_bucket(s, bucket):
    s.buckets[bucket, NEXT_FRESH] = s.counters[FREE_BUCKET]
    s.counters[FREE_BUCKET] = bucket


@part
def take_region(s, size_class):
    """Start of a region of 2**size_class entries, or NONE if none is left."""
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
    groups, none = s.groups, np.int64(0)  # of one type with what others pass: literals are compiled for separately
    groups[group, DIRECTORY] = take_region(s, none)
    groups[group, DIRECTORY_CLASS] = 0
    groups[group, DEPTH] = 0
    groups[group, BUCKETS] = 1
    groups[group, DEEPEST] = 1
    groups[group, FRESH] = NONE
    groups[group, GROWS] = 0
    s.directory[groups[group, DIRECTORY]] = take_bucket(s, none, none)
    for stream in range(len(s.layout)):
        groups[group, WATERMARK + stream * GROUP_STREAM_WORDS] = TIME_MIN_VALUE
        groups[group, EXPIRES_FROM + stream * GROUP_STREAM_WORDS] = TIME_MAX_VALUE


@part
def double_directory(s, group):
    """Global depth + 1: every entry twice; False if no room for it is left."""
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
    """Global depth - 1 for as long as no bucket needs the last bit. The region keeps its size for the next doubling."""
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
    """The bits of a key's hash that a directory may use."""
    return np.int64(hash64(key) & np.uint64((1 << DIRECTORY_DEPTH_MAX) - 1))


@part
def hash_difference(s, bucket):
    """Bits in which the hashes of a bucket's tuples differ, of the low 24."""
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
    """Whether the directory may grow as much as a split of the bucket needs, and pages and buckets suffice for it."""
    depth, groups = local_depth(s, bucket), s.groups
    entries_max = ENTRIES_PER_BUCKET_MAX * (groups[group, BUCKETS] + 1)
    doubled_too_far = depth == groups[group, DEPTH] and (2 << depth) > entries_max
    return depth < DIRECTORY_DEPTH_MAX and not doubled_too_far and can_rewrite(s, bucket)


@part
def can_rewrite(s, bucket):
    """Whether there are pages to copy a bucket's tuples to before its own are returned (blobs may pack worse:
    twice)."""
    pages = 4
    for stream in range(len(s.layout)):
        base = stream * STREAM_WORDS
        pages += 2 * (s.buckets[bucket, base + COUNTED] // s.layout[stream, SLOTS] + 1)
        pages += 2 * (s.buckets[bucket, base + BYTES] // (s.pool[PAGE_WORDS] * 8) + 1)
    return free_pages(s) >= pages and buckets_left(s) >= 2


@part
def can_separate(s, bucket):
    """Whether splits would separate a bucket's tuples one day; a hot key's bucket is marked, not looked at again."""
    if s.buckets[bucket, SHAPE] & UNSPLITTABLE:
        return False
    if hash_difference(s, bucket) >> local_depth(s, bucket) == 0:
        s.buckets[bucket, SHAPE] |= UNSPLITTABLE
        return False
    return True


@part
def note_first(s, group, stream, bucket):
    """Keeps EXPIRES_FROM true of a bucket whose first block is new: it may end earlier than any first block before."""
    first, place = s.buckets[bucket, stream * STREAM_WORDS + FIRST_TIME_MAX], EXPIRES_FROM + stream * GROUP_STREAM_WORDS
    s.groups[group, place] = min(first, s.groups[group, place])


@part
def split_bucket(s, group, bucket):
    """Splits a bucket, of which `within_limits` is true, by the next bit of its tuples' hashes; False if it cannot
    be."""
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
    """The bucket whose prefix differs in bit d'-1 only, if it has the same local depth; else NONE (WSJ, section
    IV-D)."""
    depth = local_depth(s, bucket)
    if depth == 0:
        return NONE
    buddy = s.directory[s.groups[group, DIRECTORY] + (prefix_of(s, bucket) ^ 1 << (depth - 1))]
    return buddy if local_depth(s, buddy) == depth else NONE


@part
def merge_buckets(s, group, bucket, buddy):
    """Merges two buddies of which `can_rewrite` is true; returns the new bucket."""
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
