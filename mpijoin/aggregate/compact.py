"""Kernels that let go of rows that no row to come can need."""

from __future__ import annotations

import numpy as np

from mpijoin.aggregate.gather import due_before
from mpijoin.aggregate.state import DEAD, IN_ROWS, LISTED, SPAN
from mpijoin.compiled import part
from mpijoin.store.blocks import flags_of, free_pages, note_tuples, open_block, slot_id, tags_of, time_before
from mpijoin.store.directory import clear_chain, note_first
from mpijoin.store.expire import expire_stream
from mpijoin.store.rewrite import copy_tuple, drop_block, take_blobs
from mpijoin.store.state import (
    BYTES,
    COUNT,
    COUNTED,
    EXPIRED,
    EXPIRES_FROM,
    FIRST,
    GROUP_BYTES,
    GROUP_TUPLES,
    GROUPS_MAX,
    GROWS,
    HAS_BLOB,
    NONE,
    OWNER,
    PAGE_WORDS,
    SLOTS,
    STREAMS_MAX,
    TIME,
    TIME_MAX_VALUE,
    TUNED,
    TUPLE_WORDS,
    TUPLES_AT,
    WATERMARK,
)
from mpijoin.store.tune import tune_group


@part
def mark_dead(s, slot):
    """Flags a tuple as dead."""
    page = slot // s.pool[PAGE_WORDS]
    at = (slot - page * s.pool[PAGE_WORDS] - s.layout[0, TUPLES_AT]) // s.layout[0, TUPLE_WORDS]
    s.octets[flags_of(s, 0, page) + at] |= np.uint8(DEAD)


@part
def list_if_dead(s, work, bucket, dead):
    """Lists a bucket that is to be rewritten, because half of its rows and more than fit a block are dead."""
    listed = work.cursor[LISTED]
    if dead >= s.layout[0, SLOTS] and 2 * dead >= s.buckets[bucket, COUNTED] and listed < len(work.listed):
        work.listed[listed] = bucket
        work.cursor[LISTED] = listed + 1


@part
def rewrite_listed(s, work):
    """Rewrites the listed buckets without their dead rows, as far as there are pages for that."""
    for i in range(work.cursor[LISTED]):
        bucket, wanted = work.listed[i], 2
        if s.layout[0, HAS_BLOB]:
            wanted += 2 * (s.buckets[bucket, BYTES] // (s.pool[PAGE_WORDS] * 8) + 1)
        if free_pages(s) >= wanted:
            rewrite_bucket(s, bucket)
    work.cursor[LISTED] = 0


@part
def rewrite_bucket(s, bucket):
    page = s.buckets[bucket, FIRST]
    group = s.heads[page, OWNER] // STREAMS_MAX & GROUPS_MAX - 1
    tuples, octets = s.buckets[bucket, COUNTED], s.buckets[bucket, BYTES]
    clear_chain(s, bucket, 0)
    while page != NONE:
        slot = 0
        while slot < s.heads[page, COUNT]:
            slot = copy_live(s, group, page, slot, bucket)
        page = drop_block(s, page)
    gone = tuples - s.buckets[bucket, COUNTED]
    s.groups[group, GROUP_TUPLES] -= gone
    s.groups[group, GROUP_BYTES] -= octets - s.buckets[bucket, BYTES]
    s.counters[EXPIRED] += gone
    s.groups[group, GROWS] = s.groups[group, TUNED] = 0
    note_first(s, group, 0, bucket)


@part
def copy_live(s, group, page, slot, bucket):
    """Appends those tuples of a block that are not dead to the bucket, from a slot on, until one block of it is full.

    Returns the slot after the last one that was looked at.
    """
    flags, end = flags_of(s, 0, page), s.heads[page, COUNT]
    while slot < end and s.octets[flags + slot] & DEAD:
        slot += 1
    if slot == end:
        return slot
    into = open_block(s, bucket, 0, group)
    used, count = s.heads[into, COUNT], np.int64(0)
    earliest, latest = s.words[slot_id(s, 0, page, slot) + TIME], s.words[slot_id(s, 0, page, slot) + TIME]
    while slot < end and used + count < s.layout[0, SLOTS]:
        if not s.octets[flags + slot] & DEAD:
            source, target = slot_id(s, 0, page, slot), slot_id(s, 0, into, used + count)
            copy_tuple(s.words, source, target, s.layout[0, TUPLE_WORDS])
            s.halves[tags_of(s, into) + used + count] = s.halves[tags_of(s, page) + slot]
            s.octets[flags_of(s, 0, into) + used + count] = 0
            earliest, latest = min(earliest, s.words[source + TIME]), max(latest, s.words[source + TIME])
            count += 1
        slot += 1
    note_tuples(s, bucket, 0, into, count, earliest, latest, take_blobs(s, group, 0, into, used, count))
    return slot


@part
def let_go(s, rules, group, mark):
    """Advances the watermark of a group, and lets go of blocks that no row to come can need."""
    s.groups[group, WATERMARK] = max(s.groups[group, WATERMARK], mark)
    bound = due_before(rules, s.groups[group, WATERMARK])
    if bound != TIME_MAX_VALUE and rules.rule[IN_ROWS] == 0:
        bound = time_before(bound, rules.rule[SPAN])
    if s.groups[group, EXPIRES_FROM] < bound and (bound == TIME_MAX_VALUE or rules.rule[IN_ROWS] == 0):
        expire_stream(s, group, 0, bound)
    tune_group(s, group)
