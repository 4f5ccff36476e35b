"""Kernels of the block-nested-loop join: every fresh tuple against every block of the opposite chain (WSJ, section IV-D).

In each group left's fresh tuples meet right's old ones, then right's fresh tuples meet all of left's: no pair twice, none
lost. Tags are compared first, and the masks of candidates kept; then the candidates' keys and times are looked at. Neither
loop branches on the data, which a processor could not predict, and between the two there is time to fetch the tuples.
"""

from __future__ import annotations

import numpy as np

from mpijoin.join.blocks import kernel, part, slot_id, tags_of
from mpijoin.join.confirm import confirm
from mpijoin.join.simd import LANES, LINE_TAGS, match_tags, prefetch, unsigned
from mpijoin.join.state import (
    AHEAD,
    BUCKET,
    BUDGET,
    CANDIDATES,
    CANDIDATE_WORDS,
    CHAINS,
    COLLECTED,
    COMPARED,
    COMPARISONS,
    COUNT,
    DONE,
    FETCHED_BUCKETS,
    FIRST,
    FRESH,
    FRESH_AT,
    FRESH_FROM,
    FRESH_PAGE,
    FRESH_SLOT,
    GROUP_INDEX,
    HEAD_WORDS,
    MASK,
    MINE,
    NEXT,
    NEXT_FRESH,
    NONE,
    OPPOSITE_AT,
    OPPOSITE_FROM,
    OUT_FULL,
    PHASE,
    SPENT,
    STREAM_WORDS,
    THEIRS,
    TIME,
    TIME_MAX,
    TIME_MAX_VALUE,
    TIME_MIN,
    TIME_MIN_VALUE,
    TUPLE_WORDS,
    UNLISTED,
    WINDOW,
)

PANEL = 64 * LANES  # slots whose tags (8 KiB) stay in the innermost cache while a block's fresh tuples pass over them
MANY_WINDOWS, MANY_ALIKE = 4, 8  # a block that spans more of both windows, with more tags alike, is compared by time
FETCHED_BLOCKS = 8  # per chain; of FETCHED_BUCKETS, a small part of the second-level cache


@part
def saturating_add(a, b):
    """a + b for b of any sign, held to the int64 range."""
    if b > 0 and a > TIME_MAX_VALUE - b:
        return TIME_MAX_VALUE
    if b < 0 and a < TIME_MIN_VALUE - b:
        return TIME_MIN_VALUE
    return a + b


def start_probe(cursor):
    """Sets a cursor before the first group."""
    cursor[:] = 0
    cursor[GROUP_INDEX], cursor[PHASE] = -1, 1
    for column in (BUCKET, FRESH_AT, OPPOSITE_AT):
        cursor[column] = NONE


@kernel
def probe_groups(s, groups, cursor, budget, out):
    """Joins the fresh tuples of the groups. groups: int64[m] · budget: comparisons after which it returns BUDGET · out:
    int64[2, capacity], left and right slot ids of results, or in its first row their later times, as the counter KEEPS says;
    counters[OUT_COUNT] of them are filled.

    Returns DONE, BUDGET or OUT_FULL; after the latter two it is called again with the same arguments, the cursor as left.
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


@part
def next_phase(s, groups, cursor):
    """Goes on to right's fresh tuples of the group, then to the next group that has fresh tuples; False if there is none."""
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
        chains[CHAINS + count] = page
        prefetch(s.heads, max(page, 0) * HEAD_WORDS)
        bucket = s.buckets[bucket, NEXT_FRESH]
        count += 1
    for _ in range(FETCHED_BLOCKS):
        for i in range(count):
            page = chains[CHAINS + i]
            if page != NONE:
                tags = tags_of(s, page)
                for slot in range(0, max(s.heads[page, COUNT], LANES), LINE_TAGS):
                    prefetch(s.halves, tags + slot)
                following = s.heads[page, NEXT]
                chains[CHAINS + i] = following
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
    earliest = saturating_add(s.heads[fresh_page, TIME_MIN], -s.layout[opposite, WINDOW])
    latest = saturating_add(s.heads[fresh_page, TIME_MAX], s.layout[stream, WINDOW])
    if cursor[OPPOSITE_AT] == NONE:
        cursor[OPPOSITE_AT] = buckets[bucket, base + FIRST]
    while cursor[OPPOSITE_AT] != NONE:
        page = cursor[OPPOSITE_AT]
        # Fresh tuples of the opposite stream are left out: they join when their own turn comes. Left's are old by then.
        at_mark = page == buckets[bucket, base + FRESH_PAGE]
        end = buckets[bucket, base + FRESH_SLOT] if at_mark else s.heads[page, COUNT]
        if s.heads[page, TIME_MAX] >= earliest and s.heads[page, TIME_MIN] <= latest:
            if end <= PANEL and spans_many_windows(s, page) and goes_by_time(s, bucket, stream, page, end, cursor):
                status = scan_pair_by_time(s, bucket, stream, end, cursor, budget)
            else:
                status = scan_pair(s, bucket, stream, end, cursor, budget)
            if status != DONE:
                return status
        cursor[OPPOSITE_AT] = NONE if at_mark else s.heads[page, NEXT]
    return DONE


@part
def first_fresh_slot(s, bucket, stream, page):
    """Where the fresh tuples of a block begin: at the mark in the block that holds it, at 0 in later ones."""
    base = stream * STREAM_WORDS
    return s.buckets[bucket, base + FRESH_SLOT] if page == s.buckets[bucket, base + FRESH_PAGE] else 0


@part
def scan_pair(s, bucket, stream, end, cursor, budget):
    """Compares fresh tuples of block FRESH_AT with slots 0..end of block OPPOSITE_AT, from the cursor on, panel by panel."""
    fresh_end = s.heads[cursor[FRESH_AT], COUNT]
    while cursor[OPPOSITE_FROM] < end:
        panel_end = min(end, cursor[OPPOSITE_FROM] + PANEL)
        panel = panel_end - cursor[OPPOSITE_FROM]
        masks = (panel + LANES - 1) // LANES
        while cursor[FRESH_FROM] < fresh_end:
            rows, room = fresh_end - cursor[FRESH_FROM], CANDIDATES - cursor[COLLECTED] // CANDIDATE_WORDS
            if rows * masks > room:
                rows = room // masks
            if rows == 0:
                return OUT_FULL
            if s.counters[SPENT] >= budget:
                return BUDGET
            compare_tags(s, stream, panel_end, rows, cursor)
            s.counters[COMPARED] += rows * panel
            s.counters[SPENT] += rows * panel
            cursor[FRESH_FROM] += rows
        cursor[FRESH_FROM] = first_fresh_slot(s, bucket, stream, cursor[FRESH_AT])
        cursor[OPPOSITE_FROM] = panel_end
    cursor[OPPOSITE_FROM] = 0
    return DONE


@part
def spans_many_windows(s, page):
    """Whether a block spans so much more time than both windows together that most of it is out of reach of any one tuple."""
    reach, end = saturating_add(s.layout[0, WINDOW], s.layout[1, WINDOW]), s.heads[page, TIME_MIN]
    for _ in range(MANY_WINDOWS):
        end = saturating_add(end, reach)
    return s.heads[page, TIME_MAX] > end


@part
def goes_by_time(s, bucket, stream, page, end, cursor):
    """Whether tags let much through, by the first fresh tuple of block FRESH_AT, and slots 0..end of `page` are in order of time."""
    halves, tags = s.halves, tags_of(s, page)
    tag = halves[unsigned(tags_of(s, cursor[FRESH_AT]) + first_fresh_slot(s, bucket, stream, cursor[FRESH_AT]))]
    alike = 0
    for slot in range(end):
        alike += halves[unsigned(tags + slot)] == tag
    if alike < MANY_ALIKE:
        return False
    opposite = 1 - stream
    words, at, width = s.words, slot_id(s, opposite, page, 0) + TIME, s.layout[opposite, TUPLE_WORDS]
    for _ in range(1, end):
        if words[unsigned(at + width)] < words[unsigned(at)]:
            return False
        at += width
    return True


@part
def scan_pair_by_time(s, bucket, stream, end, cursor, budget):
    """As `scan_pair`, of a block in order of time: each fresh tuple meets only those that lie in its windows.

    Few keys and short windows need it: of 10 million arrivals at 60 stations with a window of 20 s (workload F2) nearly all
    that tags let through was out of time, and a slave took 5.7 s of a core instead of 1.1.
    """
    words, halves, candidates, opposite = s.words, s.halves, s.candidates, 1 - stream
    tags, width = tags_of(s, cursor[OPPOSITE_AT]), s.layout[opposite, TUPLE_WORDS]
    first, fresh_tags = slot_id(s, opposite, cursor[OPPOSITE_AT], 0), tags_of(s, cursor[FRESH_AT])
    masks, low, found = (end + LINE_TAGS - 1) // LINE_TAGS, 0, cursor[COLLECTED]
    status = DONE
    while cursor[FRESH_FROM] < s.heads[cursor[FRESH_AT], COUNT]:
        if CANDIDATES - found // CANDIDATE_WORDS < masks:
            status = OUT_FULL
            break
        if s.counters[SPENT] >= budget:
            status = BUDGET
            break
        mine, tag = slot_id(s, stream, cursor[FRESH_AT], cursor[FRESH_FROM]), halves[unsigned(fresh_tags + cursor[FRESH_FROM])]
        earliest = saturating_add(words[unsigned(mine + TIME)], -s.layout[opposite, WINDOW])
        latest = saturating_add(words[unsigned(mine + TIME)], s.layout[stream, WINDOW])
        while low > 0 and words[unsigned(first + (low - 1) * width + TIME)] >= earliest:
            low -= 1
        while low < end and words[unsigned(first + low * width + TIME)] < earliest:
            low += 1
        slot = low
        while slot < end and words[unsigned(first + slot * width + TIME)] <= latest:
            base, mask = slot, 0
            while slot < min(end, base + LINE_TAGS) and words[unsigned(first + slot * width + TIME)] <= latest:
                mask |= np.int64(halves[unsigned(tags + slot)] == tag) << (slot - base)
                slot += 1
            candidates[unsigned(found + MASK)] = mask
            candidates[unsigned(found + MINE)] = mine
            candidates[unsigned(found + THEIRS)] = first + base * width
            found += CANDIDATE_WORDS * (mask != 0)
        s.counters[COMPARED] += slot - low
        s.counters[SPENT] += slot - low + 1
        cursor[FRESH_FROM] += 1
    cursor[COLLECTED] = found
    if status == DONE:
        cursor[FRESH_FROM] = first_fresh_slot(s, bucket, stream, cursor[FRESH_AT])
    return status


@part
def low_bits(count):
    """A mask of the lowest `count` bits, 1 to 64."""
    return (1 << count) - 1 if count < LANES else -1


@part
def compare_tags(s, stream, panel_end, rows, cursor):
    """Compares the tags of `rows` fresh tuples with those of a panel; `candidates` has room for all their masks."""
    halves, candidates = s.halves, s.candidates
    fresh, panel, found = cursor[FRESH_FROM], cursor[OPPOSITE_FROM], cursor[COLLECTED]
    fresh_tags, tags = tags_of(s, cursor[FRESH_AT]), tags_of(s, cursor[OPPOSITE_AT])
    mine, mine_words = slot_id(s, stream, cursor[FRESH_AT], fresh), s.layout[stream, TUPLE_WORDS]
    theirs, chunk_words = slot_id(s, 1 - stream, cursor[OPPOSITE_AT], panel), s.layout[1 - stream, TUPLE_WORDS] * LANES
    last = panel + ((panel_end - 1 - panel) & -LANES)
    again = LINE_TAGS if 0 < last and panel_end - last <= LINE_TAGS else 0  # a line compared before, rather than one beyond
    tail = low_bits(panel_end - last + again) & -1 << again
    last_theirs = slot_id(s, 1 - stream, cursor[OPPOSITE_AT], last - again)
    for row in range(fresh, fresh + rows):
        tag = halves[unsigned(fresh_tags + row)]
        base = theirs
        for chunk in range(tags + panel, tags + last, LANES):
            mask = match_tags(halves, chunk, tag)
            candidates[unsigned(found + MASK)] = mask
            candidates[unsigned(found + MINE)] = mine
            candidates[unsigned(found + THEIRS)] = base
            found += CANDIDATE_WORDS * (mask != 0)
            base += chunk_words
        mask = match_tags(halves, tags + last - again, tag) & tail
        candidates[unsigned(found + MASK)] = mask
        candidates[unsigned(found + MINE)] = mine
        candidates[unsigned(found + THEIRS)] = last_theirs
        found += CANDIDATE_WORDS * (mask != 0)
        mine += mine_words
    cursor[COLLECTED] = found
