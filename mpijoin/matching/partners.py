"""Kernels that find the partners of tuples that are due.

Either each tuple is compared with all tags of a block, or, if many are due, each tag of the block that the filter knows
with all of theirs. What is alike is collected as pairs, whose keys and times are looked at later, when the processor
has had time to fetch the tuples.
"""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import part
from mpijoin.data.batch import KEYLESS
from mpijoin.join.compare import FILTERED_MIN, low_bits
from mpijoin.join.confirm import ask
from mpijoin.matching.state import (
    EARLIEST,
    FILTER,
    ITS_KEY,
    KEY_FIXED,
    KEY_VARIABLE,
    KEY_WORDS,
    LATEST,
    LISTED_MAX,
    OF,
    OTHER,
    OWN,
    PAIRS_MAX,
)
from mpijoin.store.blocks import slot_id, tags_of, time_after, time_before
from mpijoin.store.read import same_key
from mpijoin.store.simd import LANES, lowest_bit, match_tags, prefetch, unsigned
from mpijoin.store.state import (
    COMPARED,
    COUNT,
    FIRST,
    KEY,
    NEXT,
    NONE,
    ROW,
    SPENT,
    STREAM_WORDS,
    TIME,
    TIME_MAX,
    TIME_MAX_VALUE,
    TIME_MIN,
    TIME_MIN_VALUE,
    TUPLE_WORDS,
    WINDOW,
)


@part
def take_partners(s, bucket, due, take):
    """Hands all pairs of the first `due` tuples that are due to `take`, which looks at keys and times itself.

    take: takes the state and how many of `pairs` there are.
    """
    earliest, latest = note_spans(s, due)
    is_filtered = due >= FILTERED_MIN
    mark_tags(s, due, is_filtered)
    filled, page = np.int64(0), s.buckets[bucket, STREAM_WORDS + FIRST]
    while page != NONE:
        following = s.heads[page, NEXT]
        if s.heads[page, TIME_MAX] >= earliest and s.heads[page, TIME_MIN] <= latest:
            if is_filtered:
                filled = pair_by_filter(s, page, due, filled, take)
            else:
                filled = pair_one_by_one(s, page, due, filled, take)
            s.counters[COMPARED] += due * s.heads[page, COUNT]
            s.counters[SPENT] += due * s.heads[page, COUNT]
        page = following
    take(s, filled)
    mark_tags(s, due, 0)


@part
def note_spans(s, due):
    """Notes the keys of the tuples that are due, and between which times their partners lie. Returns the first and the
    last of these times."""
    first, last, spans = np.int64(TIME_MAX_VALUE), np.int64(TIME_MIN_VALUE), s.spans
    for i in range(due):
        time = s.words[unsigned(s.due[i] + TIME)]
        spans[ITS_KEY, i] = s.words[unsigned(s.due[i] + KEY)]
        spans[EARLIEST, i] = time_before(time, s.layout[1, WINDOW])
        spans[LATEST, i] = time_after(time, s.layout[0, WINDOW])
        first, last = min(first, spans[EARLIEST, i]), max(last, spans[LATEST, i])
    return first, last


@part
def mark_tags(s, due, mark):
    """Sets the filter's entries for the tags of the tuples that are due to `mark`."""
    for i in range(due):
        s.filter[unsigned(np.int64(s.tags[i]) % FILTER)] = mark


@part
def pair_by_filter(s, page, due, filled, take):
    """Collects the pairs of a block, and has them taken whenever there are many. Returns how many are left."""
    halves, tags, listed = s.halves, tags_of(s, page), s.listed
    first, width, count = slot_id(s, 1, page, 0), s.layout[1, TUPLE_WORDS], s.heads[page, COUNT]
    chunks = (due + LANES - 1) // LANES
    for low in range(0, count, LISTED_MAX):
        found = np.int64(0)
        for slot in range(low, min(count, low + LISTED_MAX)):
            listed[unsigned(found)] = slot
            found += np.int64(s.filter[unsigned(np.int64(halves[unsigned(tags + slot)]) % FILTER)])
        for i in range(found):
            tag, other = halves[unsigned(tags + listed[i])], first + listed[i] * width
            prefetch(s.words, other)
            for chunk in range(chunks):
                mask = match_tags(s.tags, chunk * LANES, tag) & low_bits(min(due - chunk * LANES, LANES))
                while mask != 0:
                    if filled == PAIRS_MAX:
                        take(s, filled)
                        filled = 0
                    s.pairs[OF, unsigned(filled)] = chunk * LANES + lowest_bit(mask)
                    s.pairs[OTHER, unsigned(filled)] = other
                    filled += 1
                    mask &= mask - 1
    return filled


@part
def pair_one_by_one(s, page, due, filled, take):
    """Does what `pair_by_filter` does, for a few tuples."""
    tags, first, width, count = tags_of(s, page), slot_id(s, 1, page, 0), s.layout[1, TUPLE_WORDS], s.heads[page, COUNT]
    for i in range(due):
        tag = s.tags[i]
        for base in range(0, count, LANES):
            mask = match_tags(s.halves, tags + base, tag) & low_bits(min(count - base, LANES))
            while mask != 0:
                if filled == PAIRS_MAX:
                    take(s, filled)
                    filled = 0
                other = first + (base + lowest_bit(mask)) * width
                prefetch(s.words, other)
                s.pairs[OF, unsigned(filled)] = i
                s.pairs[OTHER, unsigned(filled)] = other
                filled += 1
                mask &= mask - 1
    return filled


@part
def keep_partners(s, filled):
    """Moves those of `filled` pairs to the front that are partners and kept by all that `asked` calls. Returns how many
    they are."""
    kept = np.int64(0)
    for i in range(filled):
        at, other = s.pairs[OF, unsigned(i)], s.pairs[OTHER, unsigned(i)]
        s.pairs[OF, unsigned(kept)], s.pairs[OTHER, unsigned(kept)] = at, other
        s.pairs[OWN, unsigned(kept)] = s.due[unsigned(at)]
        kept += is_partner(s, at, other)
    return ask(s, 0, kept) if kept > 0 else kept


@part
def is_partner(s, at, other):
    """Returns whether a tuple of stream 1 has the key of the tuple number `at`, and both are in their windows.

    The word that stands for a null key may be that of another key.
    """
    rule, spans, time = s.rule, s.spans, s.words[unsigned(other + TIME)]
    in_windows = (spans[EARLIEST, unsigned(at)] <= time) & (time <= spans[LATEST, unsigned(at)])
    if not (in_windows & (s.words[unsigned(other + KEY)] == spans[ITS_KEY, unsigned(at)])):
        return False
    if s.words[unsigned(other + ROW)] & KEYLESS:
        return False
    if rule[KEY_WORDS] == 0:
        return True
    return same_key(s, s.due[at], other, 1, rule[KEY_WORDS], rule[KEY_FIXED], rule[KEY_VARIABLE])
