"""Kernels of the block-nested-loop join: each fresh tuple meets each block of the opposite chain (WSJ, section IV-D).

In each group the fresh tuples of stream 0 meet the old ones of stream 1. Then the fresh tuples of stream 1 meet all
tuples of stream 0. So no pair is found twice, and none is lost. If fresh tuples must not meet each other (APART), those
of stream 0 become old only after both phases, and the second phase stops at them.

Tags are compared first, and the answers kept as masks of candidates. The candidates' keys and times are looked at
afterwards. Neither loop has a branch that depends on the data, because a processor could not predict it, and between
the two there is time to fetch the tuples.
"""

from __future__ import annotations

from mpijoin.compiled import kernel, part
from mpijoin.join.compare import first_fresh_slot, is_filtered, mark_tags, scan_pair
from mpijoin.join.confirm import confirm
from mpijoin.join.state import AHEAD, BUCKET, FRESH_AT, FRESH_FROM, GROUP_INDEX, OPPOSITE_AT, PHASE, SHORT_LIST
from mpijoin.store.blocks import tags_of, time_after, time_before
from mpijoin.store.fresh import make_bucket_old, make_old
from mpijoin.store.simd import LANES, LINE_TAGS, prefetch
from mpijoin.store.state import (
    APART,
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

# The chains of so many buckets are asked for together, and of each chain so many blocks. This is a part of the
# second-level cache.
FETCHED_BUCKETS, FETCHED_BLOCKS = 32, 8


def start_probe(cursor):
    """Sets a cursor, int64[CURSOR_WORDS], to before the first group."""
    cursor[:] = 0
    cursor[GROUP_INDEX], cursor[PHASE] = -1, 1
    for column in (BUCKET, FRESH_AT, OPPOSITE_AT):
        cursor[column] = NONE


@kernel
def probe_groups(s, cursor, groups, budget, out):
    """Joins the fresh tuples of the groups. Returns DONE, BUDGET or OUT_FULL.

    groups: int64[m] · budget: comparisons after which it returns BUDGET · out: int64[2, capacity], the slot ids of the
    results per stream, or in its first row their latest times, as the counter KEEPS says. counters[OUT_COUNT] columns
    are filled. After BUDGET or OUT_FULL it is called again with the same arguments and an unchanged cursor.
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
    """Goes on with a probe that stopped, to the end of the block of fresh tuples that it is at.

    The marks of fresh tuples then tell alone what is left of it. Arguments and answers are those of `probe_groups`.
    After DONE, a new probe of the groups does the rest.
    """
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
    """Goes on to the group's fresh tuples of stream 1, or after these to the next group that has fresh tuples.

    Returns False if there is no such group.
    """
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
    """Collects the candidates of the phase's fresh tuples, bucket by bucket.

    Returns DONE, BUDGET, or OUT_FULL if `candidates` has no more room.
    """
    stream = cursor[PHASE]
    compared, status = s.counters[COMPARED], DONE
    while cursor[BUCKET] != NONE and status == DONE:
        bucket = cursor[BUCKET]
        if cursor[AHEAD] == 0:
            cursor[AHEAD] = fetch_buckets(s, bucket, stream)
        status = scan_bucket(s, bucket, cursor, budget)
        if status == DONE:
            following = s.buckets[bucket, NEXT_FRESH]
            if s.counters[APART] == 0:
                make_old(s, bucket, stream)
            elif stream == 1:
                make_bucket_old(s, bucket)
            if stream == 1:
                s.buckets[bucket, NEXT_FRESH] = UNLISTED
                s.groups[group, FRESH] = following
            cursor[BUCKET] = following
            cursor[AHEAD] -= 1
    s.groups[group, COMPARISONS] += s.counters[COMPARED] - compared
    return status


@part
def fetch_buckets(s, bucket, stream):
    """Asks for the cache lines that the fresh tuples of the next buckets will be compared with: heads and tags.

    All chains are followed in step, so that the cache misses of many chains overlap. Those of one chain cannot, because
    each block tells where the next one is. Returns how many buckets were asked for.
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
    """Compares the fresh tuples of one block, from slot FRESH_FROM on, with the opposite chain, block by block."""
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
        # Fresh tuples of the opposite stream are left out, because they join when their own turn comes. Those of stream
        # 0 are old by then, unless fresh tuples must not meet each other.
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
