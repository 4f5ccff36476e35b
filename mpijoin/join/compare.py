"""Kernels that compare tags: the fresh tuples of one block with the tuples of a block of the opposite chain.

What is alike is collected as masks of candidates, whose keys and times are looked at later (confirm.py). There are
three ways, for many fresh tuples, for few, and for blocks where time tells more than tags; all bring the same.
"""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import part
from mpijoin.join.state import (
    CANDIDATE_WORDS,
    CANDIDATES,
    COLLECTED,
    FILTER,
    FIRST_OTHER,
    FRESH_AT,
    FRESH_FROM,
    LISTED,
    MASK,
    ONE,
    OPPOSITE_AT,
    OPPOSITE_FROM,
    SHORT_LIST,
)
from mpijoin.store.blocks import saturating_add, slot_id, tags_of, time_after, time_before
from mpijoin.store.simd import LANES, LINE_TAGS, match_tags, unsigned
from mpijoin.store.state import (
    BUDGET,
    COMPARED,
    COUNT,
    DONE,
    FRESH_PAGE,
    FRESH_SLOT,
    OUT_FULL,
    SPENT,
    STREAM_WORDS,
    TIME,
    TIME_MAX,
    TIME_MIN,
    TUPLE_WORDS,
    WINDOW,
)

PANEL = 64 * LANES  # slots whose tags (8 KiB) stay in the innermost cache while a block's fresh tuples pass over them
MANY_WINDOWS, MANY_ALIKE = 4, 8  # a block that spans more of both windows, with more tags alike, is compared by time
FILTERED_MIN, FILTERED_MAX = 16, 8 * LANES  # fresh tuples of a block with which a filter pays, and are not too many


@part
def first_fresh_slot(s, bucket, stream, page):
    """Where the fresh tuples of a block begin: at the mark in the block that holds it, at 0 in later ones."""
    base = stream * STREAM_WORDS
    return s.buckets[bucket, base + FRESH_SLOT] if page == s.buckets[bucket, base + FRESH_PAGE] else 0


@part
def scan_pair(s, stream, first, end, cursor, budget):
    """Compares the fresh tuples of block FRESH_AT, which begin at slot `first`, with slots 0..end of block OPPOSITE_AT,
    from the cursor on."""
    page = cursor[OPPOSITE_AT]
    if end <= PANEL and spans_many_windows(s, page) and goes_by_time(s, stream, first, page, end, cursor):
        return scan_pair_by_time(s, stream, first, end, cursor, budget)
    if is_filtered(s, cursor[FRESH_AT], first):
        return scan_pair_filtered(s, stream, first, end, cursor, budget)
    return scan_pair_by_tags(s, stream, first, end, cursor, budget)


@part
def scan_pair_by_tags(s, stream, first, end, cursor, budget):
    """As `scan_pair`, panel by panel: each fresh tuple meets all of a panel."""
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
        cursor[FRESH_FROM] = first
        cursor[OPPOSITE_FROM] = panel_end
    cursor[OPPOSITE_FROM] = 0
    return DONE


@part
def is_filtered(s, page, first):
    """Whether the fresh tuples of a block, from slot `first` on, are so many that a filter pays, and not too many for
    it."""
    return FILTERED_MIN <= s.heads[page, COUNT] - first <= FILTERED_MAX


@part
def mark_tags(s, page, first, mark):
    """Sets the filter's entries of the tags of a block's tuples from slot `first` on."""
    tags = tags_of(s, page)
    for slot in range(first, s.heads[page, COUNT]):
        s.filter[unsigned(np.int64(s.halves[unsigned(tags + slot)]) % FILTER)] = mark


@part
def scan_pair_filtered(s, stream, first, end, cursor, budget):
    """As `scan_pair` with roles exchanged, the tags of the fresh tuples being marked in the filter: of the opposite
    block's tuples only those whose tags are marked are compared, with all fresh ones.

    A slot costs a look at the filter, some 0.5 ns, instead of 0.04 for each fresh tuple (a probe of workload A: a sixth
    less).
    """
    halves, candidates, marks, opposite, found = s.halves, s.candidates, s.filter, 1 - stream, cursor[COLLECTED]
    rows, line = s.heads[cursor[FRESH_AT], COUNT] - first, first & -LINE_TAGS  # lines are compared whole
    skipped = first - line
    chunks = (skipped + rows + LANES - 1) // LANES
    tail = low_bits(skipped + rows - (chunks - 1) * LANES)
    fresh_tags, tags = tags_of(s, cursor[FRESH_AT]) + line, tags_of(s, cursor[OPPOSITE_AT])
    fresh, chunk_words = slot_id(s, stream, cursor[FRESH_AT], line), s.layout[stream, TUPLE_WORDS] * LANES
    old, old_words = slot_id(s, opposite, cursor[OPPOSITE_AT], 0), s.layout[opposite, TUPLE_WORDS]
    while cursor[OPPOSITE_FROM] < end:
        low, high, room = (
            cursor[OPPOSITE_FROM],
            min(end, cursor[OPPOSITE_FROM] + LISTED),
            CANDIDATES - found // CANDIDATE_WORDS,
        )
        if room < chunks:
            return OUT_FULL
        if s.counters[SPENT] >= budget:
            return BUDGET
        listed = 0
        for slot in range(low, high):
            candidates[unsigned(SHORT_LIST + listed)] = slot
            listed += np.int64(marks[unsigned(np.int64(halves[unsigned(tags + slot)]) % FILTER)])
        if listed * chunks > room:
            listed = room // chunks
            high = candidates[unsigned(SHORT_LIST + listed)]
        for chunk in range(chunks):
            asked = -1 << skipped if chunk == 0 else -1
            asked &= tail if chunk == chunks - 1 else -1
            lanes, others = fresh_tags + chunk * LANES, ~(fresh + chunk * chunk_words)
            for i in range(listed):
                slot = candidates[unsigned(SHORT_LIST + i)]
                mask = match_tags(halves, lanes, halves[unsigned(tags + slot)]) & asked
                candidates[unsigned(found + MASK)] = mask
                candidates[unsigned(found + ONE)] = old + slot * old_words
                candidates[unsigned(found + FIRST_OTHER)] = others
                found += CANDIDATE_WORDS * (mask != 0)
        cursor[COLLECTED] = found
        cursor[OPPOSITE_FROM] = high
        s.counters[COMPARED] += rows * (high - low)
        s.counters[SPENT] += rows * (high - low)
    cursor[OPPOSITE_FROM] = 0
    return DONE


@part
def spans_many_windows(s, page):
    """Whether a block spans so much more time than both windows together that most of it is out of reach of any one
    tuple."""
    reach, end = saturating_add(s.layout[0, WINDOW], s.layout[1, WINDOW]), s.heads[page, TIME_MIN]
    for _ in range(MANY_WINDOWS):
        end = saturating_add(end, reach)
    return s.heads[page, TIME_MAX] > end


@part
def goes_by_time(s, stream, first, page, end, cursor):
    """Whether tags let much through, by the fresh tuple in slot `first` of block FRESH_AT, and slots 0..end of `page`
    are in order of time."""
    halves, tags = s.halves, tags_of(s, page)
    tag = halves[unsigned(tags_of(s, cursor[FRESH_AT]) + first)]
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
def scan_pair_by_time(s, stream, first, end, cursor, budget):
    """As `scan_pair`, of a block in order of time: each fresh tuple meets only those that lie in its windows.

    Few keys and short windows need it: of 10 million arrivals at 60 stations with a window of 20 s (workload F2) nearly
    all that tags let through was out of time, and a slave took 5.7 s of a core instead of 1.1.
    """
    words, halves, candidates, opposite = s.words, s.halves, s.candidates, 1 - stream
    tags, width = tags_of(s, cursor[OPPOSITE_AT]), s.layout[opposite, TUPLE_WORDS]
    old, fresh_tags = slot_id(s, opposite, cursor[OPPOSITE_AT], 0), tags_of(s, cursor[FRESH_AT])
    masks, low, found = (end + LINE_TAGS - 1) // LINE_TAGS, 0, cursor[COLLECTED]
    status = DONE
    while cursor[FRESH_FROM] < s.heads[cursor[FRESH_AT], COUNT]:
        if CANDIDATES - found // CANDIDATE_WORDS < masks:
            status = OUT_FULL
            break
        if s.counters[SPENT] >= budget:
            status = BUDGET
            break
        mine, tag = (
            slot_id(s, stream, cursor[FRESH_AT], cursor[FRESH_FROM]),
            halves[unsigned(fresh_tags + cursor[FRESH_FROM])],
        )
        earliest = time_before(words[unsigned(mine + TIME)], s.layout[opposite, WINDOW])
        latest = time_after(words[unsigned(mine + TIME)], s.layout[stream, WINDOW])
        while low > 0 and words[unsigned(old + (low - 1) * width + TIME)] >= earliest:
            low -= 1
        while low < end and words[unsigned(old + low * width + TIME)] < earliest:
            low += 1
        slot = low
        while slot < end and words[unsigned(old + slot * width + TIME)] <= latest:
            base, mask = slot, 0
            while slot < min(end, base + LINE_TAGS) and words[unsigned(old + slot * width + TIME)] <= latest:
                mask |= np.int64(halves[unsigned(tags + slot)] == tag) << (slot - base)
                slot += 1
            candidates[unsigned(found + MASK)] = mask
            candidates[unsigned(found + ONE)] = mine
            candidates[unsigned(found + FIRST_OTHER)] = old + base * width
            found += CANDIDATE_WORDS * (mask != 0)
        s.counters[COMPARED] += slot - low
        s.counters[SPENT] += slot - low + 1
        cursor[FRESH_FROM] += 1
    cursor[COLLECTED] = found
    if status == DONE:
        cursor[FRESH_FROM] = first
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
    # a line compared before, rather than one beyond
    again = LINE_TAGS if 0 < last and panel_end - last <= LINE_TAGS else 0
    tail = low_bits(panel_end - last + again) & -1 << again
    last_theirs = slot_id(s, 1 - stream, cursor[OPPOSITE_AT], last - again)
    for row in range(fresh, fresh + rows):
        tag = halves[unsigned(fresh_tags + row)]
        base = theirs
        for chunk in range(tags + panel, tags + last, LANES):
            mask = match_tags(halves, chunk, tag)
            candidates[unsigned(found + MASK)] = mask
            candidates[unsigned(found + ONE)] = mine
            candidates[unsigned(found + FIRST_OTHER)] = base
            found += CANDIDATE_WORDS * (mask != 0)
            base += chunk_words
        mask = match_tags(halves, tags + last - again, tag) & tail
        candidates[unsigned(found + MASK)] = mask
        candidates[unsigned(found + ONE)] = mine
        candidates[unsigned(found + FIRST_OTHER)] = last_theirs
        found += CANDIDATE_WORDS * (mask != 0)
        mine += mine_words
    cursor[COLLECTED] = found
