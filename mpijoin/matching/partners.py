"""Kernels that go through the partners of one row, and choose the one that is wanted."""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import part
from mpijoin.data.batch import KEYLESS
from mpijoin.join.compare import low_bits
from mpijoin.matching.state import FIRST, KEEPS_ALONE, KEY_FIXED, KEY_VARIABLE, KEY_WORDS, LAST, MATCH
from mpijoin.store.blocks import slot_id, tags_of, time_after, time_before
from mpijoin.store.read import same_key
from mpijoin.store.simd import LANES, lowest_bit, match_tags, unsigned
from mpijoin.store.state import (
    COMPARED,
    COUNT,
    KEY,
    NEXT,
    NONE,
    ROW,
    SPENT,
    STREAM_WORDS,
    TIME,
    TIME_MAX,
    TIME_MIN,
    TIME_MIN_VALUE,
    TUPLE_WORDS,
    WINDOW,
)
from mpijoin.store.state import FIRST as FIRST_PAGE


@part
def match_one(s, rule, bucket, one, tag, table, count, holds):
    """Writes the result of a tuple of stream 0 that is over to column `count` of the table, if it has one.

    bucket: of the tuple · tag: its tag · holds: as of `best_partner`. Returns the new count.
    """
    partner = np.int64(NONE)
    if s.words[one + ROW] & KEYLESS == 0:
        partner = best_partner(s, rule, bucket, one, tag, holds)
    if partner == NONE and rule[KEEPS_ALONE] == 0:
        return count
    table[0, count], table[1, count] = one, partner
    return count + 1


@part
def best_partner(s, rule, bucket, one, tag, holds):
    """Returns the slot id of the partner that the rule wants, or NONE. holds: says of the words of a pool and two slot
    ids whether they are a pair, apart from key and windows.

    The block that promises most comes first, and after it only those that promise as much as was found. So among a
    million partners, this reads the heads of all blocks, but the tuples of one or two.
    """
    kind, time, best = rule[MATCH], s.words[one + TIME], (np.int64(0), np.int64(0), np.int64(0), np.int64(NONE))
    earliest, latest = time_before(time, s.layout[1, WINDOW]), time_after(time, s.layout[0, WINDOW])
    chain = s.buckets[bucket, STREAM_WORDS + FIRST_PAGE]
    first = most_promising(s, chain, kind, time, earliest, latest)
    if first == NONE:
        return np.int64(NONE)
    best = best_of_page(s, rule, first, one, tag, earliest, latest, holds, best)
    page = chain
    while page != NONE:
        reaches = s.heads[page, TIME_MAX] >= earliest and s.heads[page, TIME_MIN] <= latest
        promises = best[3] == NONE or promise(s, page, kind, time, earliest, latest) <= best[0]
        if page != first and reaches and promises:
            best = best_of_page(s, rule, page, one, tag, earliest, latest, holds, best)
        page = s.heads[page, NEXT]
    return best[3]


@part
def most_promising(s, page, kind, time, earliest, latest):
    """Returns the block of a chain whose times promise the best partner, NONE if none reaches the windows."""
    found, least = np.int64(NONE), np.int64(0)
    while page != NONE:
        if s.heads[page, TIME_MAX] >= earliest and s.heads[page, TIME_MIN] <= latest:
            own = promise(s, page, kind, time, earliest, latest)
            if found == NONE or own < least:
                found, least = page, own
        page = s.heads[page, NEXT]
    return found


@part
def promise(s, page, kind, time, earliest, latest):
    """Returns the rank of the best partner that a block can have, by its times alone."""
    low, high = max(s.heads[page, TIME_MIN], earliest), min(s.heads[page, TIME_MAX], latest)
    if kind == FIRST:
        return rank_of(kind, time, low)
    return rank_of(kind, time, high if kind == LAST else min(max(time, low), high))


@part
def rank_of(kind, time, other):
    """Returns an int64 that is the smaller, the better a partner of time `other` is for a tuple of this time."""
    if kind == FIRST:
        return other
    # The difference of any two times fits into 64 bits without a sign, and the highest bit makes it an int64.
    return ~other if kind == LAST else (max(time, other) - min(time, other)) ^ np.int64(TIME_MIN_VALUE)


@part
def best_of_page(s, rule, page, one, tag, earliest, latest, holds, best):
    """Returns the better one of the best so far and the best partner in a block: its rank, time, row and slot id.

    Of two that are alike, the earlier one is better, then the one of the smaller row.
    """
    words, halves, kind = s.words, s.halves, rule[MATCH]
    key, time = words[unsigned(one + KEY)], words[unsigned(one + TIME)]
    tags, at, width = tags_of(s, page), slot_id(s, 1, page, 0), s.layout[1, TUPLE_WORDS]
    rank, its_time, its_row, slot = best
    for base in range(0, s.heads[page, COUNT], LANES):
        mask = match_tags(halves, tags + base, tag) & low_bits(min(s.heads[page, COUNT] - base, LANES))
        while mask != 0:
            other = at + (base + lowest_bit(mask)) * width
            mask &= mask - 1
            if is_partner(s, rule, one, other, key, earliest, latest) and holds(words, one, other):
                other_time, row = words[unsigned(other + TIME)], words[unsigned(other + ROW)]
                own = rank_of(kind, time, other_time)
                earlier = other_time < its_time or (other_time == its_time and row < its_row)
                if slot == NONE or own < rank or (own == rank and earlier):
                    rank, its_time, its_row, slot = own, other_time, row, other
    s.counters[COMPARED] += s.heads[page, COUNT]
    s.counters[SPENT] += s.heads[page, COUNT]
    return rank, its_time, its_row, slot


@part
def is_partner(s, rule, one, other, key, earliest, latest):
    """Returns whether a tuple of stream 1 has the key of `one`, and a time in the windows."""
    words = s.words
    time = words[unsigned(other + TIME)]
    if words[unsigned(other + KEY)] != key or time < earliest or time > latest:
        return False
    if rule[KEY_WORDS] == 0:
        return True
    return same_key(s, one, other, 1, rule[KEY_WORDS], rule[KEY_FIXED], rule[KEY_VARIABLE])
