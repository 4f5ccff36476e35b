"""Kernels of the block-nested-loop join: every fresh tuple against every block of the opposite chain (WSJ, section IV-D).

Left's fresh tuples meet right's old ones, then right's fresh tuples meet all of left's: no pair twice, none lost. The
join stops between two candidate slots when its budget is spent or the result buffer is full, and goes on from its cursor.
"""

from __future__ import annotations

from mpijoin.join.blocks import kernel, slot_id, tags_of
from mpijoin.join.simd import LANES, lowest_bit, match_tags
from mpijoin.join.state import (
    BUDGET,
    CANDIDATES,
    COMPARED,
    COMPARISONS,
    COUNT,
    DONE,
    FIRST,
    FRESH,
    FRESH_PAGE,
    FRESH_SLOT,
    KEY,
    NEXT,
    NEXT_FRESH,
    NONE,
    OUT_COUNT,
    OUT_FULL,
    RESULTS,
    SPENT,
    STREAM_WORDS,
    TIME,
    TIME_MAX,
    TIME_MAX_VALUE,
    TIME_MIN,
    TIME_MIN_VALUE,
    TUPLE_WORDS,
    UNLISTED,
    WINDOW,
)

# The cursor: where a probe that stopped goes on. PHASE 0: left's fresh tuples, 1: right's.
GROUP_INDEX, PHASE, FRESH_AT, FRESH_FROM, FRESH_NEXT, OPPOSITE_AT, OPPOSITE_FROM, CURSOR_WORDS = range(8)

PANEL = 8 * LANES  # slots whose tags (512 bytes) stay in the innermost cache while a block's fresh tuples pass over them
SLOT_BITS = 32
SLOT_MASK = (1 << SLOT_BITS) - 1


@kernel
def saturating_add(a, b):
    """a + b for b of any sign, held to the int64 range."""
    if b > 0 and a > TIME_MAX_VALUE - b:
        return TIME_MAX_VALUE
    if b < 0 and a < TIME_MIN_VALUE - b:
        return TIME_MIN_VALUE
    return a + b


@kernel
def probe_groups(s, groups, cursor, budget, out):
    """Joins the fresh tuples of the groups. groups: int64[m] · budget: comparisons before it returns BUDGET · out:
    int64[2, capacity], left and right slot ids of results; counters[OUT_COUNT] of them are filled.

    Returns DONE, BUDGET or OUT_FULL; after the latter two it is called again with the same arguments, the cursor as left.
    """
    s.counters[SPENT] = 0
    while cursor[GROUP_INDEX] < len(groups):
        group = groups[cursor[GROUP_INDEX]]
        bucket = s.groups[group, FRESH]
        while bucket != NONE:
            results = s.counters[OUT_COUNT]
            compared = s.counters[COMPARED]
            status = probe_bucket(s, bucket, cursor, budget, out)
            s.groups[group, RESULTS] += s.counters[OUT_COUNT] - results
            s.groups[group, COMPARISONS] += s.counters[COMPARED] - compared
            if status != DONE:
                return status
            s.groups[group, FRESH] = s.buckets[bucket, NEXT_FRESH]
            s.buckets[bucket, NEXT_FRESH] = UNLISTED
            bucket = s.groups[group, FRESH]
        cursor[GROUP_INDEX] += 1
    return DONE


@kernel
def probe_bucket(s, bucket, cursor, budget, out):
    while cursor[PHASE] < 2:
        stream = cursor[PHASE]
        base = stream * STREAM_WORDS
        if cursor[FRESH_AT] == NONE:
            cursor[FRESH_AT] = s.buckets[bucket, base + FRESH_PAGE]
            cursor[FRESH_FROM] = s.buckets[bucket, base + FRESH_SLOT]
        while cursor[FRESH_AT] != NONE:
            status = probe_block(s, bucket, stream, cursor, budget, out)
            if status != DONE:
                return status
            cursor[FRESH_AT] = s.heads[cursor[FRESH_AT], NEXT]
            cursor[FRESH_FROM] = 0
        s.buckets[bucket, base + FRESH_PAGE] = NONE
        s.buckets[bucket, base + FRESH_SLOT] = 0
        cursor[PHASE] += 1
    cursor[PHASE] = 0
    return DONE


@kernel
def probe_block(s, bucket, stream, cursor, budget, out):
    """Joins the fresh tuples of one block (from slot FRESH_FROM on) with the opposite chain, block by block."""
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
            status = probe_pair(s, bucket, stream, end, cursor, budget, out)
            if status != DONE:
                return status
        cursor[OPPOSITE_AT] = NONE if at_mark else s.heads[page, NEXT]
    return DONE


@kernel
def first_fresh_slot(s, bucket, stream, page):
    """Where the fresh tuples of a block begin: at the mark in the block that holds it, at 0 in later ones."""
    base = stream * STREAM_WORDS
    return s.buckets[bucket, base + FRESH_SLOT] if page == s.buckets[bucket, base + FRESH_PAGE] else 0


@kernel
def probe_pair(s, bucket, stream, end, cursor, budget, out):
    """Joins fresh tuples of block FRESH_AT with slots 0..end of block OPPOSITE_AT, from the cursor on, panel by panel.

    First the tags of a panel are compared and the masks of candidates kept, then the candidates' keys and times are looked
    at. Neither loop branches on the data, which a processor could not predict: that halves the time per result.
    """
    first = first_fresh_slot(s, bucket, stream, cursor[FRESH_AT])
    fresh_end = s.heads[cursor[FRESH_AT], COUNT]
    while cursor[OPPOSITE_FROM] < end:
        if s.counters[SPENT] >= budget:
            return BUDGET
        panel = cursor[OPPOSITE_FROM] & -PANEL
        panel_end = min(end, panel + PANEL)
        while cursor[FRESH_FROM] < fresh_end:
            found = compare_tags(s, stream, panel, panel_end, fresh_end, cursor)
            if confirm(s, stream, found, cursor, out) == OUT_FULL:
                return OUT_FULL
            cursor[FRESH_FROM] = cursor[FRESH_NEXT]
            cursor[OPPOSITE_FROM] = panel
        compared = (fresh_end - first) * (panel_end - panel)
        s.counters[COMPARED] += compared
        s.counters[SPENT] += compared
        cursor[FRESH_FROM] = first
        cursor[OPPOSITE_FROM] = panel_end
    cursor[OPPOSITE_FROM] = 0
    return DONE


@kernel
def compare_tags(s, stream, panel, panel_end, fresh_end, cursor):
    """Compares tags of fresh tuples with those of the panel while `candidates` has room; returns how many masks are in it.

    Starts at fresh slot FRESH_FROM, of which only slots from OPPOSITE_FROM on are wanted, and sets FRESH_NEXT.
    """
    halves, candidates = s.halves, s.candidates
    fresh_tags, tags = tags_of(s, cursor[FRESH_AT]), tags_of(s, cursor[OPPOSITE_AT])
    found, fresh = 0, cursor[FRESH_FROM]
    skipped = cursor[OPPOSITE_FROM]
    last = panel + ((panel_end - 1 - panel) & -LANES)
    tail = (1 << (panel_end - last)) - 1
    while fresh < fresh_end and found <= CANDIDATES - PANEL // LANES:
        tag = halves[fresh_tags + fresh]
        start = skipped & -LANES
        keep = -1 << (skipped - start)
        for chunk in range(start, last, LANES):
            mask = match_tags(halves, tags + chunk, tag) & keep
            candidates[0, found] = mask
            candidates[1, found] = fresh << SLOT_BITS | chunk
            found += mask != 0
            keep = -1
        mask = match_tags(halves, tags + last, tag) & tail & keep
        candidates[0, found] = mask
        candidates[1, found] = fresh << SLOT_BITS | last
        found += mask != 0
        fresh += 1
        skipped = panel
    cursor[FRESH_NEXT] = fresh
    return found


@kernel
def confirm(s, stream, found, cursor, out):
    """Writes the candidates whose keys are equal and whose times lie in the windows to `out`; DONE or OUT_FULL."""
    words, candidates = s.words, s.candidates
    opposite = 1 - stream
    before, after = -s.layout[opposite, WINDOW], s.layout[stream, WINDOW]
    mine_at, mine_words = slot_id(s, stream, cursor[FRESH_AT], 0), s.layout[stream, TUPLE_WORDS]
    theirs_at, theirs_words = slot_id(s, opposite, cursor[OPPOSITE_AT], 0), s.layout[opposite, TUPLE_WORDS]
    count, capacity, at = s.counters[OUT_COUNT], out.shape[1], 0
    while at < found:
        mask, place = candidates[0, at], candidates[1, at]
        fresh, slot = place >> SLOT_BITS, (place & SLOT_MASK) + lowest_bit(mask)
        if count == capacity:
            cursor[FRESH_FROM], cursor[OPPOSITE_FROM] = fresh, slot
            s.counters[OUT_COUNT] = count
            return OUT_FULL
        mine, theirs = mine_at + fresh * mine_words, theirs_at + slot * theirs_words
        out[stream, count] = mine
        out[opposite, count] = theirs
        time, other = words[mine + TIME], words[theirs + TIME]
        within = (saturating_add(time, before) <= other) & (other <= saturating_add(time, after))
        count += (words[mine + KEY] == words[theirs + KEY]) & within
        mask &= mask - 1
        candidates[0, at] = mask
        at += mask == 0
    s.counters[OUT_COUNT] = count
    return DONE
