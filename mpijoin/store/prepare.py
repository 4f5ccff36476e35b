"""Kernels for a table that a clean-up fills: they prepare a group for what comes, and let go of one stream of it."""

from __future__ import annotations

from mpijoin.compiled import kernel
from mpijoin.store.directory import UNSPLITTABLE, empty_chain, local_depth, prefix_of, split_bucket, within_limits
from mpijoin.store.state import (
    DEPTH,
    DIRECTORY,
    EXPIRES_FROM,
    GROUP_BYTES,
    GROUP_STREAM_WORDS,
    GROUP_TUPLES,
    GROWS,
    SHAPE,
    TIME_MAX_VALUE,
)


@kernel
def split_for(s, group, depth):
    """Splits the buckets of a group that holds no tuple until all have this local depth, or the limits are reached.

    Splits of empty buckets are free. Nothing is merged before something has expired.
    """
    s.groups[group, GROWS] = 1
    for level in range(depth):
        if level > s.groups[group, DEPTH]:  # a limit was reached: the directory has no more entries
            break
        for prefix in range(1 << level):
            bucket = s.directory[s.groups[group, DIRECTORY] + prefix]
            if local_depth(s, bucket) == level and within_limits(s, group, bucket):
                split_bucket(s, group, bucket)


@kernel
def clear_stream(s, group, stream):
    """Frees the blocks of one stream of a group that holds no fresh tuple. Nobody counts these tuples."""
    place = stream * GROUP_STREAM_WORDS
    for entry in range(1 << s.groups[group, DEPTH]):
        bucket = s.directory[s.groups[group, DIRECTORY] + entry]
        if prefix_of(s, bucket) == entry:
            empty_chain(s, bucket, stream)
            s.buckets[bucket, SHAPE] &= ~UNSPLITTABLE
    s.groups[group, GROUP_TUPLES + place] = s.groups[group, GROUP_BYTES + place] = 0
    s.groups[group, EXPIRES_FROM + place] = TIME_MAX_VALUE
