"""Kernels that choose of all partners of a tuple the one that `match` wants."""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import part
from mpijoin.data.batch import KEYLESS
from mpijoin.join.compare import low_bits
from mpijoin.matching.partners import keep_partners, note_spans, take_partners
from mpijoin.matching.state import (
    EARLIEST,
    FIRST,
    ITS_ROW,
    ITS_TIME,
    KEEPS_ALONE,
    LAST,
    LATEST,
    MATCH,
    OF,
    OTHER,
    PAIRS_MAX,
    RANK,
    SLOT,
)
from mpijoin.store.blocks import slot_id, tags_of
from mpijoin.store.simd import LANES, lowest_bit, match_tags, unsigned
from mpijoin.store.state import (
    COMPARED,
    COUNT,
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
)
from mpijoin.store.state import FIRST as FIRST_PAGE

MANY_PAGES = 64  # Among so many blocks and more, the tuples that are due go by what the times of blocks promise.


@part
def match_due(s, bucket, due, table, count):
    """Writes the results of the first `due` tuples that are due, all of one bucket, to the table, from column `count`
    on. Returns the new count."""
    found = s.found
    for i in range(due):
        found[SLOT, i] = NONE
    chain = s.buckets[bucket, STREAM_WORDS + FIRST_PAGE]
    if has_many_pages(s, chain):
        note_spans(s, due)
        for i in range(due):
            find_best(s, chain, i)
    else:
        take_partners(s, bucket, due, take_best)
    for i in range(due):
        partner = found[SLOT, i] if s.words[s.due[i] + ROW] & KEYLESS == 0 else np.int64(NONE)
        if partner != NONE or s.rule[KEEPS_ALONE]:
            table[0, count], table[1, count] = s.due[i], partner
            count += 1
    return count


@part
def has_many_pages(s, page):
    pages = 0
    while page != NONE and pages < MANY_PAGES:
        page = s.heads[page, NEXT]
        pages += 1
    return pages == MANY_PAGES


@part
def take_best(s, filled):
    """Keeps of each tuple the best partner among `filled` pairs and before."""
    for i in range(keep_partners(s, filled)):
        keep_better(s, s.pairs[OF, unsigned(i)], s.pairs[OTHER, unsigned(i)])


@part
def keep_better(s, at, other):
    """Makes `other` the best partner of the tuple number `at` if it is better than the best so far.

    Of two that are alike, the earlier one is better, then the one of the smaller row.
    """
    words, found = s.words, s.found
    time, row = words[unsigned(other + TIME)], words[unsigned(other + ROW)]
    rank = rank_of(s.rule[MATCH], words[unsigned(s.due[unsigned(at)] + TIME)], time)
    is_tie = rank == found[RANK, unsigned(at)]
    is_earlier = time < found[ITS_TIME, unsigned(at)] or (
        time == found[ITS_TIME, unsigned(at)] and row < found[ITS_ROW, unsigned(at)]
    )
    if found[SLOT, unsigned(at)] == NONE or rank < found[RANK, unsigned(at)] or (is_tie and is_earlier):
        found[RANK, unsigned(at)], found[ITS_TIME, unsigned(at)] = rank, time
        found[ITS_ROW, unsigned(at)], found[SLOT, unsigned(at)] = row, other


@part
def rank_of(kind, time, other):
    """Returns an int64 that is the smaller, the better a partner of time `other` is for a tuple of this time."""
    if kind == FIRST:
        return other
    if kind == LAST:
        return ~other
    # The difference of any two times fits into 64 bits without a sign, and the highest bit makes it an int64. With a
    # sign it might overflow, of which the compiler takes for granted that it does not happen.
    distance = np.int64(max(time, other)).view(np.uint64) - np.int64(min(time, other)).view(np.uint64)
    return np.int64(distance) ^ np.int64(TIME_MIN_VALUE)


@part
def find_best(s, chain, at):
    """Finds the best partner of the tuple number `at` in a chain of stream 1.

    The block that promises most comes first, and after it only those that promise as much as was found. So among a
    million partners, this reads the heads of all blocks, but the tuples of one or two.
    """
    kind, time, found = s.rule[MATCH], s.words[s.due[at] + TIME], s.found
    earliest, latest = s.spans[EARLIEST, at], s.spans[LATEST, at]
    first = most_promising(s, chain, kind, time, earliest, latest)
    if first == NONE:
        return
    take_page(s, first, at)
    page = chain
    while page != NONE:
        reaches = s.heads[page, TIME_MAX] >= earliest and s.heads[page, TIME_MIN] <= latest
        if page != first and reaches:
            has_none = found[SLOT, at] == NONE
            if has_none or promise(s, page, kind, time, earliest, latest) <= found[RANK, at]:
                take_page(s, page, at)
        page = s.heads[page, NEXT]


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
def take_page(s, page, at):
    """Keeps the best partner of the tuple number `at` among a block and before."""
    tags, first, width, tag = tags_of(s, page), slot_id(s, 1, page, 0), s.layout[1, TUPLE_WORDS], s.tags[at]
    filled = 0
    for base in range(0, s.heads[page, COUNT], LANES):
        mask = match_tags(s.halves, tags + base, tag) & low_bits(min(s.heads[page, COUNT] - base, LANES))
        while mask != 0:
            if filled == PAIRS_MAX:
                take_best(s, filled)
                filled = 0
            s.pairs[OF, unsigned(filled)] = at
            s.pairs[OTHER, unsigned(filled)] = first + (base + lowest_bit(mask)) * width
            filled += 1
            mask &= mask - 1
    take_best(s, filled)
    s.counters[COMPARED] += s.heads[page, COUNT]
    s.counters[SPENT] += s.heads[page, COUNT]
