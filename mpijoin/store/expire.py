"""Kernels that let blocks go once no tuple that is still to come can join them. Afterwards they tune the groups.

A block that a tuple on a disk may still meet leaves its chain like the others, but is kept (kept.py).
"""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import kernel, part
from mpijoin.store.blocks import return_block, slot_id, time_before
from mpijoin.store.directory import clear_chain, prefix_of
from mpijoin.store.kept import is_kept, keep_block
from mpijoin.store.state import (
    BYTES,
    COUNT,
    COUNTED,
    DEPTH,
    DIRECTORY,
    EXPIRED,
    EXPIRES_FROM,
    FIRST,
    FIRST_TIME_MAX,
    FOREVER,
    GROUP_BYTES,
    GROUP_STREAM_WORDS,
    GROUP_TUPLES,
    GROWS,
    HAS_BLOB,
    LOOKS_BACK,
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
from mpijoin.store.tune import shrunk_too_far, tune_group


@kernel
def expire_groups(s, groups, watermarks):
    """Advances the groups' watermarks, lets expired blocks go, and tunes the groups.

    groups: int64[m]; they hold no fresh tuple · watermarks: int64[m, n], for each group one per stream, or int64[1, n]
    for all of them. A watermark never goes back.
    """
    streams = len(s.layout)
    for at in range(len(groups)):
        group = groups[at]
        advance_watermarks(s, group, watermarks[min(at, len(watermarks) - 1)])
        for stream in range(streams):
            bound = expiry_bound(s, group, stream)
            if s.groups[group, EXPIRES_FROM + stream * GROUP_STREAM_WORDS] < bound:
                expire_stream(s, group, stream, bound)
        tune_group(s, group)


@part
def advance_watermarks(s, group, watermarks):
    """Advances a group's watermarks, of which none goes back. watermarks: int64[n]."""
    for stream in range(len(s.layout)):
        place = WATERMARK + stream * GROUP_STREAM_WORDS
        s.groups[group, place] = max(s.groups[group, place], watermarks[stream])


@part
def expiry_bound(s, group, stream):
    """Returns the time before which no tuple of the stream can find a partner any more.

    The watermarks of all other streams have passed the time of such a tuple by more than its window. If there is no
    other stream, no tuple is wanted. Where tuples of stream 0 look back, those of stream 1 stay until all that may look
    at them have done so.
    """
    streams, reached = len(s.layout), np.int64(TIME_MAX_VALUE)
    for other in range(streams):
        if other != stream:
            reached = min(reached, s.groups[group, WATERMARK + other * GROUP_STREAM_WORDS])
    window = s.counters[LOOKS_BACK]
    if stream == 1 and window:
        own = s.groups[group, WATERMARK + GROUP_STREAM_WORDS]
        window -= window != FOREVER
        reached = min(reached, own if own == TIME_MAX_VALUE else time_before(own, window))
    return reached if streams == 1 else time_before(reached, s.layout[stream, WINDOW])


@part
def expire_stream(s, group, stream, bound):
    """Lets the blocks at the front of each chain go for as long as their maximum time is below `bound`."""
    earliest = TIME_MAX_VALUE
    region = s.groups[group, DIRECTORY]
    for entry in range(1 << s.groups[group, DEPTH]):
        bucket = s.directory[region + entry]
        if prefix_of(s, bucket) == entry:
            if s.buckets[bucket, stream * STREAM_WORDS + FIRST_TIME_MAX] < bound:
                expire_chain(s, group, bucket, stream, bound)
            earliest = min(earliest, s.buckets[bucket, stream * STREAM_WORDS + FIRST_TIME_MAX])
    s.groups[group, EXPIRES_FROM + stream * GROUP_STREAM_WORDS] = earliest


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
        s.groups[group, GROUP_TUPLES + stream * GROUP_STREAM_WORDS] -= count
        s.groups[group, GROUP_BYTES + stream * GROUP_STREAM_WORDS] -= octets
        if is_kept(s, group, stream, page):
            keep_block(s, group, stream, page)
        else:
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
    """Returns how many bytes all blobs of the block in `page` have."""
    octets = 0
    if s.layout[stream, HAS_BLOB]:
        for slot in range(s.heads[page, COUNT]):
            octets += s.words[slot_id(s, stream, page, slot) + SIZE]
    return octets
