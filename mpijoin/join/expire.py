"""Kernels that let blocks go once no tuple to come can join them, and keep the groups' sizes tuned afterwards."""

from __future__ import annotations

from mpijoin.join.blocks import kernel, part, return_block, slot_id
from mpijoin.join.compare import saturating_add
from mpijoin.join.directory import clear_chain, prefix_of, shrunk_too_far, tune_group
from mpijoin.join.state import (
    BYTES,
    COUNT,
    COUNTED,
    DEPTH,
    DIRECTORY,
    EXPIRED,
    EXPIRES_FROM,
    FIRST,
    FIRST_TIME_MAX,
    GROUP_BYTES,
    GROUP_TUPLES,
    GROWS,
    HAS_BLOB,
    NEXT,
    NONE,
    SIZE,
    STREAM_WORDS,
    TIME_MAX,
    TIME_MAX_VALUE,
    TUNED,
    TUPLE_BYTES,
    WATERMARK,
    WINDOW,
)


@kernel
def expire_groups(s, groups, watermarks):
    """Advances the groups' watermarks to watermarks[stream], lets expired blocks go and tunes; groups hold no fresh
    tuple.

    groups: int64[m] · watermarks: int64[2], of left and right. A watermark never goes back.
    """
    for group in groups:
        for stream in range(2):
            s.groups[group, WATERMARK + stream] = max(s.groups[group, WATERMARK + stream], watermarks[stream])
        for stream in range(2):
            # A tuple of this stream is wanted until the other stream has passed its time by its window.
            bound = saturating_add(s.groups[group, WATERMARK + 1 - stream], -s.layout[stream, WINDOW])
            if s.groups[group, EXPIRES_FROM + stream] < bound:
                expire_stream(s, group, stream, bound)
        tune_group(s, group)


@part
def expire_stream(s, group, stream, bound):
    """Lets go, from the front of each chain, the blocks whose maximum time is below `bound`."""
    earliest = TIME_MAX_VALUE
    region = s.groups[group, DIRECTORY]
    for entry in range(1 << s.groups[group, DEPTH]):
        bucket = s.directory[region + entry]
        if prefix_of(s, bucket) == entry:
            if s.buckets[bucket, stream * STREAM_WORDS + FIRST_TIME_MAX] < bound:
                expire_chain(s, group, bucket, stream, bound)
            earliest = min(earliest, s.buckets[bucket, stream * STREAM_WORDS + FIRST_TIME_MAX])
    s.groups[group, EXPIRES_FROM + stream] = earliest


@part
def expire_chain(s, group, bucket, stream, bound):
    buckets, base = s.buckets, stream * STREAM_WORDS
    page = buckets[bucket, base + FIRST]
    while page != NONE and s.heads[page, TIME_MAX] < bound:
        following = s.heads[page, NEXT]
        count = s.heads[page, COUNT]
        octets = count * s.layout[stream, TUPLE_BYTES] + blob_bytes(s, stream, page)
        buckets[bucket, base + COUNTED] -= count
        buckets[bucket, base + BYTES] -= octets
        s.groups[group, GROUP_TUPLES + stream] -= count
        s.groups[group, GROUP_BYTES + stream] -= octets
        s.counters[EXPIRED + stream] += count
        return_block(s, page)
        page = following
    if page == NONE:
        clear_chain(s, bucket, stream)
    else:
        buckets[bucket, base + FIRST] = page
        buckets[bucket, base + FIRST_TIME_MAX] = s.heads[page, TIME_MAX]
    if s.groups[group, GROWS] or shrunk_too_far(s, group, bucket):
        s.groups[group, GROWS] = s.groups[group, TUNED] = 0


@part
def blob_bytes(s, stream, page):
    """Bytes of all blobs of the block in `page`."""
    octets = 0
    if s.layout[stream, HAS_BLOB]:
        for slot in range(s.heads[page, COUNT]):
            octets += s.words[slot_id(s, stream, page, slot) + SIZE]
    return octets
