"""Kernels that make fresh tuples old: after they were joined, or without that."""

from __future__ import annotations

from mpijoin.compiled import kernel, part
from mpijoin.store.state import FRESH, FRESH_PAGE, FRESH_SLOT, NEXT_FRESH, NONE, STREAM_WORDS, UNLISTED


@part
def make_old(s, bucket, stream):
    """Makes the fresh tuples of one stream of a bucket old."""
    s.buckets[bucket, stream * STREAM_WORDS + FRESH_PAGE] = NONE
    s.buckets[bucket, stream * STREAM_WORDS + FRESH_SLOT] = 0


@part
def make_bucket_old(s, bucket):
    for stream in range(len(s.layout)):
        make_old(s, bucket, stream)


@kernel
def settle_groups(s, groups):
    """Makes all fresh tuples of the groups old, although nobody has joined them. groups: int64[m]."""
    for group in groups:
        bucket = s.groups[group, FRESH]
        while bucket != NONE:
            make_bucket_old(s, bucket)
            following = s.buckets[bucket, NEXT_FRESH]
            s.buckets[bucket, NEXT_FRESH] = UNLISTED
            bucket = following
        s.groups[group, FRESH] = NONE
