"""Kernels that compare the tags of one block's fresh tuples with those of a block of the opposite chain.

What is alike is collected as masks of candidates, whose keys and times are looked at later (confirm.py). There are
three ways to compare: for many fresh tuples, for few, and for blocks where time tells more than tags. All lead to the
same results.
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

# The tags of so many slots (8 KiB) stay in the innermost cache while a block's fresh tuples pass over them.
PANEL = 64 * LANES
# A block is compared by time if it spans more than so many times both windows, and has so many tags alike or more.
MANY_WINDOWS, MANY_ALIKE = 4, 8
# A filter is used for so many fresh tuples of a block. It does not pay for fewer, and more are too many for it.
FILTERED_MIN, FILTERED_MAX = 16, 8 * LANES


@part
def first_fresh_slot(s, bucket, stream, page):
    """Returns the slot where the fresh tuples of a block begin: the mark if it lies in this block, else 0."""
    base = stream * STREAM_WORDS
    return s.buckets[bucket, base + FRESH_SLOT] if page == s.buckets[bucket, base + FRESH_PAGE] else 0


@part
def scan_pair(s, stream, first, end, cursor, budget):
    """Compares the fresh tuples of block FRESH_AT with slots 0..end of block OPPOSITE_AT, from the cursor on.

    first: the slot at which the fresh tuples begin. Returns DONE, BUDGET, or OUT_FULL if `candidates` has no more room.
    """
    page = cursor[OPPOSITE_AT]
    if end <= PANEL and spans_many_windows(s, page) and goes_by_time(s, stream, first, page, end, cursor):
        return scan_pair_by_time(s, stream, first, end, cursor, budget)
    if is_filtered(s, cursor[FRESH_AT], first):
        return scan_pair_filtered(s, stream, first, end, cursor, budget)
    return scan_pair_by_tags(s, stream, first, end, cursor, budget)


@part
def scan_pair_by_tags(s, stream, first, end, cursor, budget):
    """Does what `scan_pair` does, panel by panel: each fresh tuple is compared with the whole panel."""
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
    """Returns whether a filter pays for the fresh tuples of a block, which begin at slot `first`."""
    return FILTERED_MIN <= s.heads[page, COUNT] - first <= FILTERED_MAX


@part
def mark_tags(s, page, first, mark):
    """Sets the filter's entries for the tags of a block's tuples, from slot `first` on, to `mark`."""
    tags = tags_of(s, page)
    for slot in range(first, s.heads[page, COUNT]):
        s.filter[unsigned(np.int64(s.halves[unsigned(tags + slot)]) % FILTER)] = mark


@part
def scan_pair_filtered(s, stream, first, end, cursor, budget):
    """Does what `scan_pair` does, with the roles exchanged.

    The tags of the fresh tuples are marked in the filter. A tuple of the opposite block is compared, with all fresh
    tuples, only if its tag is marked. A slot then costs a look at the filter, some 0.5 ns, instead of 0.04 ns for each
    fresh tuple. This makes a probe of workload A faster by a sixth.
    """
    halves, candidates, marks, opposite, found = s.halves, s.candidates, s.filter, 1 - stream, cursor[COLLECTED]
    # Lines are compared whole, so the comparison begins with the line of the first fresh tag.
    rows, line = s.heads[cursor[FRESH_AT], COUNT] - first, first & -LINE_TAGS
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
        listed = np.int64(0)
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
    """Returns whether a block spans so much more time than both windows that no tuple can reach most of it."""
    reach, end = saturating_add(s.layout[0, WINDOW], s.layout[1, WINDOW]), s.heads[page, TIME_MIN]
    for _ in range(MANY_WINDOWS):
        end = saturating_add(end, reach)
    return s.heads[page, TIME_MAX] > end


@part
def goes_by_time(s, stream, first, page, end, cursor):
    """Returns whether tags let much through, and slots 0..end of `page` are in the order of time.

    The fresh tuple in slot `first` of block FRESH_AT serves as a sample for the tags.
    """
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
    """Does what `scan_pair` does, for a block in the order of time: a fresh tuple meets only the tuples in its windows.

    Few keys and short windows need this. With 10 million arrivals at 60 stations and a window of 20 s (workload F2),
    nearly all that tags let through was out of time, and a slave took 5.7 s of a core instead of 1.1 s.
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
            base, mask = slot, np.int64(0)
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
    """Returns a mask of the lowest `count` bits, of which there are 1 to 64."""
    return (1 << count) - 1 if count < LANES else -1


@part
def compare_tags(s, stream, panel_end, rows, cursor):
    """Compares the tags of `rows` fresh tuples with those of a panel. `candidates` must have room for all masks."""
    halves, candidates = s.halves, s.candidates
    fresh, panel, found = cursor[FRESH_FROM], cursor[OPPOSITE_FROM], cursor[COLLECTED]
    fresh_tags, tags = tags_of(s, cursor[FRESH_AT]), tags_of(s, cursor[OPPOSITE_AT])
    mine, mine_words = slot_id(s, stream, cursor[FRESH_AT], fresh), s.layout[stream, TUPLE_WORDS]
    theirs, chunk_words = slot_id(s, 1 - stream, cursor[OPPOSITE_AT], panel), s.layout[1 - stream, TUPLE_WORDS] * LANES
    last = panel + ((panel_end - 1 - panel) & -LANES)
    # If one line is left, the last mask takes in a line that was compared before, and not one beyond the panel.
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
