"""Kernels that keep the size of each mini-partition-group between theta and 2 theta (WSJ, section IV-D)."""

from __future__ import annotations

from mpijoin.compiled import part
from mpijoin.store.directory import (
    UNSPLITTABLE,
    bucket_bytes,
    buddy_of,
    can_rewrite,
    can_separate,
    merge_buckets,
    prefix_of,
    split_bucket,
    within_limits,
)
from mpijoin.store.state import DEPTH, DIRECTORY, GROWS, NONE, PINNED, SHAPE, THETA, TUNED


@part
def shrunk_too_far(s, group, bucket):
    """Returns whether a bucket that has lost tuples must be merged, or must lose its mark as unsplittable."""
    theta, size = s.counters[THETA], bucket_bytes(s, bucket)
    if size < theta and s.buckets[bucket, SHAPE] & UNSPLITTABLE:
        return True
    buddy = buddy_of(s, group, bucket)
    if buddy == NONE:
        return False
    other = bucket_bytes(s, buddy)
    return min(size, other) < theta and size + other < 2 * theta


@part
def tune_bucket(s, group, bucket):
    """Brings one mini-partition-group back into [theta, 2 theta] if that is possible: splits it once, or merges it.

    A merged bucket is merged again for as long as it is too small. Returns whether the bucket was at rest: nothing was
    changed, and nothing had to be put off because pages or entries are lacking.
    """
    theta = s.counters[THETA]
    if bucket_bytes(s, bucket) > 2 * theta:
        if not within_limits(s, group, bucket):
            return False
        if not can_separate(s, bucket):
            return True
        split_bucket(s, group, bucket)
        return False
    if bucket_bytes(s, bucket) < theta:
        s.buckets[bucket, SHAPE] &= ~UNSPLITTABLE
    rest = True
    while bucket_bytes(s, bucket) < theta and not s.groups[group, GROWS]:
        buddy = buddy_of(s, group, bucket)
        if buddy == NONE or bucket_bytes(s, bucket) + bucket_bytes(s, buddy) >= 2 * theta:
            break
        rest = False
        if not (can_rewrite(s, bucket) and can_rewrite(s, buddy)):
            break
        bucket = merge_buckets(s, group, bucket, buddy)
    return rest


@part
def tune_group(s, group):
    """Tunes every mini-partition-group of a group that holds no fresh tuple. What a split makes is tuned as well.

    A group that was found at rest is not looked at again before an insert or an expiry gives a reason to. With short
    epochs, looking took longer than expiring.
    """
    if s.groups[group, TUNED] or s.groups[group, PINNED]:
        return
    entry, rest = 0, True
    while entry < 1 << s.groups[group, DEPTH]:
        bucket = s.directory[s.groups[group, DIRECTORY] + entry]
        if prefix_of(s, bucket) == entry:
            rest &= tune_bucket(s, group, bucket)
        if s.directory[s.groups[group, DIRECTORY] + entry] == bucket:
            entry += 1
    s.groups[group, TUNED] = rest
