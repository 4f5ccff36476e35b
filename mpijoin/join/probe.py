"""Kernels of the block-nested-loop join: every fresh tuple against every block of the opposite chain (WSJ, section
IV-D).

In each group the fresh tuples of stream 0 meet the old ones of stream 1, then the fresh ones of stream 1 meet all of
stream 0's: no pair twice, none lost. Tags are compared first, and the masks of candidates kept; then the candidates'
keys and times are looked at. Neither loop branches on the data, which a processor could not predict, and between the
two there is time to fetch the tuples.
"""

from __future__ import annotations

from mpijoin.compiled import kernel, part
from mpijoin.join.compare import first_fresh_slot, is_filtered, mark_tags, scan_pair
from mpijoin.join.confirm import confirm
from mpijoin.join.state import AHEAD, BUCKET, FRESH_AT, FRESH_FROM, GROUP_INDEX, OPPOSITE_AT, PHASE, SHORT_LIST
from mpijoin.store.blocks import tags_of, time_after, time_before
from mpijoin.store.simd import LANES, LINE_TAGS, prefetch
from mpijoin.store.state import (
    BUDGET,
    COMPARED,
    COMPARISONS,
    COUNT,
    DONE,
    FIRST,
    FRESH,
    FRESH_PAGE,
    FRESH_SLOT,
    HEAD_WORDS,
    NEXT,
    NEXT_FRESH,
    NONE,
    OUT_FULL,
    SPENT,
    STREAM_WORDS,
    TIME_MAX,
    TIME_MIN,
    UNLISTED,
    WINDOW,
)

# whose chains are asked for together, and of each: a part of the second-level cache
FETCHED_BUCKETS, FETCHED_BLOCKS = 32, 8


def start_probe(cursor):
    """Sets a cursor before the first group."""
    cursor[:] = 0
    cursor[GROUP_INDEX], cursor[PHASE] = -1, 1
    for column in (BUCKET, FRESH_AT, OPPOSITE_AT):
        cursor[column] = NONE


@kernel
def probe_groups(s, cursor, groups, budget, out):
    """Joins the fresh tuples of the groups. groups: int64[m] · budget: comparisons after which it returns BUDGET · out:
    int64[2, capacity], slot ids of the results' tuples per stream, or in its first row their latest times, as the
    counter KEEPS says; counters[OUT_COUNT] of them are filled.

    Returns DONE, BUDGET or OUT_FULL; after the latter two it is called again with the same arguments, the cursor as
    left.
    """
    s.counters[SPENT] = 0
    status = DONE
    while True:
        if confirm(s, groups, cursor, out) == OUT_FULL:
            return OUT_FULL
        if status == BUDGET:
            return BUDGET
        if cursor[BUCKET] == NONE and not next_phase(s, groups, cursor):
            return DONE
        status = scan_buckets(s, groups[cursor[GROUP_INDEX]], cursor, budget)


@kernel
def pause_probe(s, cursor, groups, budget, out):
    """Goes on with a probe that stopped until the marks of fresh tuples alone tell what is left of it: to the end of
    the block of fresh tuples that it is at. As `probe_groups`; after DONE a new probe of the groups does the rest."""
    s.counters[SPENT] = 0
    status = DONE
    while True:
        if confirm(s, groups, cursor, out) == OUT_FULL:
            return OUT_FULL
        if status == BUDGET:
            return BUDGET
        bucket = cursor[BUCKET]
        if bucket == NONE or cursor[FRESH_AT] == NONE:
            return DONE
        compared = s.counters[COMPARED]
        status = scan_block(s, bucket, cursor[PHASE], cursor, budget)
        s.groups[groups[cursor[GROUP_INDEX]], COMPARISONS] += s.counters[COMPARED] - compared
        if status == DONE:
            base = cursor[PHASE] * STREAM_WORDS
            s.buckets[bucket, base + FRESH_PAGE] = s.heads[cursor[FRESH_AT], NEXT]
            s.buckets[bucket, base + FRESH_SLOT] = 0
            cursor[FRESH_AT] = NONE


@part
def next_phase(s, groups, cursor):
    """Goes on to stream 1's fresh tuples of the group, then to the next group that has fresh tuples; False if there is
    none."""
    cursor[PHASE] = 1 - cursor[PHASE]
    if cursor[PHASE] == 0:
        cursor[GROUP_INDEX] += 1
        while cursor[GROUP_INDEX] < len(groups) and s.groups[groups[cursor[GROUP_INDEX]], FRESH] == NONE:
            cursor[GROUP_INDEX] += 1
        if cursor[GROUP_INDEX] == len(groups):
            return False
    cursor[BUCKET] = s.groups[groups[cursor[GROUP_INDEX]], FRESH]
    return True


@part
def scan_buckets(s, group, cursor, budget):
    """Collects the candidates of the phase's fresh tuples, bucket by bucket; OUT_FULL: `candidates` has no room."""
    stream = cursor[PHASE]
    compared, status = s.counters[COMPARED], DONE
    while cursor[BUCKET] != NONE and status == DONE:
        bucket = cursor[BUCKET]
        if cursor[AHEAD] == 0:
            cursor[AHEAD] = fetch_buckets(s, bucket, stream)
        status = scan_bucket(s, bucket, cursor, budget)
        if status == DONE:
            following = s.buckets[bucket, NEXT_FRESH]
            s.buckets[bucket, stream * STREAM_WORDS + FRESH_PAGE] = NONE
            s.buckets[bucket, stream * STREAM_WORDS + FRESH_SLOT] = 0
            if stream == 1:
                s.buckets[bucket, NEXT_FRESH] = UNLISTED
                s.groups[group, FRESH] = following
            cursor[BUCKET] = following
            cursor[AHEAD] -= 1
    s.groups[group, COMPARISONS] += s.counters[COMPARED] - compared
    return status


@part
def fetch_buckets(s, bucket, stream):
    """Asks for the heads and tags that the next buckets' fresh tuples will be compared with; returns how many buckets.

    All chains are followed in step, so that the cache misses of many overlap: those of one are a chain themselves.
    """
    chains, base = s.candidates, (1 - stream) * STREAM_WORDS
    count = 0
    while bucket != NONE and count < FETCHED_BUCKETS:
        page = NONE
        if s.buckets[bucket, stream * STREAM_WORDS + FRESH_PAGE] != NONE:
            page = s.buckets[bucket, base + FIRST]
        chains[SHORT_LIST + count] = page
        prefetch(s.heads, max(page, 0) * HEAD_WORDS)
        bucket = s.buckets[bucket, NEXT_FRESH]
        count += 1
    for _ in range(FETCHED_BLOCKS):
        for i in range(count):
            page = chains[SHORT_LIST + i]
            if page != NONE:
                tags = tags_of(s, page)
                for slot in range(0, max(s.heads[page, COUNT], LANES), LINE_TAGS):
                    prefetch(s.halves, tags + slot)
                following = s.heads[page, NEXT]
                chains[SHORT_LIST + i] = following
                prefetch(s.heads, max(following, 0) * HEAD_WORDS)
    return count


@part
def scan_bucket(s, bucket, cursor, budget):
    stream = cursor[PHASE]
    base = stream * STREAM_WORDS
    if cursor[FRESH_AT] == NONE:
        cursor[FRESH_AT] = s.buckets[bucket, base + FRESH_PAGE]
        cursor[FRESH_FROM] = s.buckets[bucket, base + FRESH_SLOT]
    while cursor[FRESH_AT] != NONE:
        status = scan_block(s, bucket, stream, cursor, budget)
        if status != DONE:
            return status
        cursor[FRESH_AT] = s.heads[cursor[FRESH_AT], NEXT]
        cursor[FRESH_FROM] = 0
    return DONE


@part
def scan_block(s, bucket, stream, cursor, budget):
    """Compares the fresh tuples of one block (from slot FRESH_FROM on) with the opposite chain, block by block."""
    opposite = 1 - stream
    buckets, base = s.buckets, opposite * STREAM_WORDS
    fresh_page = cursor[FRESH_AT]
    earliest = time_before(s.heads[fresh_page, TIME_MIN], s.layout[opposite, WINDOW])
    latest = time_after(s.heads[fresh_page, TIME_MAX], s.layout[stream, WINDOW])
    if cursor[OPPOSITE_AT] == NONE:
        cursor[OPPOSITE_AT] = buckets[bucket, base + FIRST]
    first = first_fresh_slot(s, bucket, stream, fresh_page)
    filtered = is_filtered(s, fresh_page, first)
    if filtered:
        mark_tags(s, fresh_page, first, 1)
    status = DONE
    while cursor[OPPOSITE_AT] != NONE:
        page = cursor[OPPOSITE_AT]
        # Fresh tuples of the opposite stream are left out: they join when their own turn comes. Stream 0's are old by
        # then.
        at_mark = page == buckets[bucket, base + FRESH_PAGE]
        end = buckets[bucket, base + FRESH_SLOT] if at_mark else s.heads[page, COUNT]
        if s.heads[page, TIME_MAX] >= earliest and s.heads[page, TIME_MIN] <= latest:
            status = scan_pair(s, stream, first, end, cursor, budget)
            if status != DONE:
                break
        cursor[OPPOSITE_AT] = NONE if at_mark else s.heads[page, NEXT]
    if filtered:
        mark_tags(s, fresh_page, first, 0)
    return status
