"""Kernels that look at a probe's candidates: which of them are results, and what is kept of these."""

from __future__ import annotations

import numpy as np

from mpijoin.join.blocks import part
from mpijoin.join.simd import PAIRS, keep_matches, lowest_bit, prefetch, unsigned
from mpijoin.join.state import (
    CANDIDATE_WORDS,
    COLLECTED,
    CONFIRMED,
    DONE,
    FIRST_OTHER,
    FOUND,
    GROUP_INDEX,
    HASHED,
    KEEPS,
    MASK,
    NOTHING,
    ONE,
    OUT_COUNT,
    OUT_FULL,
    PAIRED,
    PHASE,
    RESULTS,
    ROW,
    SLOT_IDS,
    TIME,
    TUPLE_WORDS,
    WINDOW,
)
from mpijoin.partitioning.hashing import pair_hash


@part
def confirm(s, groups, cursor, out):
    """Counts the candidates whose keys are equal and whose times lie in the windows; keeps of them what is wanted in `out`.
    DONE or OUT_FULL.

    They are certified at once, while their rows are in the innermost cache.
    """
    stream, at, end = cursor[PHASE], cursor[CONFIRMED], cursor[COLLECTED]
    if at == end:
        return DONE
    words, certifies = s.words, s.counters[HASHED] == 0
    before, after = -s.layout[1 - stream, WINDOW], s.layout[stream, WINDOW]
    left, right = (s.mine, s.theirs) if stream == 0 else (s.theirs, s.mine)
    count, found, capacity = s.counters[OUT_COUNT], 0, out.shape[1]
    while at < end and count < capacity:
        at, filled = fetch_candidates(s, stream, at, end, min(PAIRED - PAIRS, capacity - count))
        kept = 0
        for start in range(0, filled, PAIRS):
            kept += keep_matches(words, s.mine, s.theirs, start, min(filled - start, PAIRS), kept, before, after)
        found += kept
        if certifies:
            s.certificate[0] += certify(words, left, right, 0, kept)
        count += keep_results(s, left, right, kept, out, count)
    s.counters[OUT_COUNT] = count
    s.counters[FOUND] += found if certifies else 0
    s.groups[groups[cursor[GROUP_INDEX]], RESULTS] += found
    cursor[CONFIRMED] = at
    if at < end:
        return OUT_FULL
    cursor[CONFIRMED] = cursor[COLLECTED] = 0
    return DONE


@part
def fetch_candidates(s, stream, at, end, room):
    """Takes up to `room` pairs out of the candidates at..end and asks for their tuples; returns where it stopped, and how many."""
    words, candidates, mine, theirs = s.words, s.candidates, s.mine, s.theirs
    fresh_words, old_words = s.layout[stream, TUPLE_WORDS], s.layout[1 - stream, TUPLE_WORDS]
    filled = 0
    while at < end and filled < room:
        mask, one, first = candidates[unsigned(at + MASK)], candidates[unsigned(at + ONE)], candidates[unsigned(at + FIRST_OTHER)]
        place = lowest_bit(mask)
        fresh, old = (one, first + place * old_words) if first >= 0 else (~first + place * fresh_words, one)
        mine[unsigned(filled)] = fresh
        theirs[unsigned(filled)] = old
        prefetch(words, fresh)
        prefetch(words, old)
        prefetch(words, old + ROW)  # a quarter of the tuples lie across two lines
        filled += 1
        mask &= mask - 1
        candidates[unsigned(at + MASK)] = mask
        at += CANDIDATE_WORDS * (mask == 0)
    return at, filled


@part
def keep_results(s, left, right, kept, out, count):
    """Writes what the counter KEEPS says of the pairs 0..kept to `out`, from `count` on; returns how many entries that made."""
    keeps, words = s.counters[KEEPS], s.words
    if keeps == NOTHING:
        return 0
    if keeps == SLOT_IDS:
        for i in range(kept):
            out[0, unsigned(count + i)] = left[unsigned(i)]
            out[1, unsigned(count + i)] = right[unsigned(i)]
    else:
        for i in range(kept):
            time, other = words[unsigned(left[unsigned(i)] + TIME)], words[unsigned(right[unsigned(i)] + TIME)]
            out[0, unsigned(count + i)] = max(time, other)
    return kept


@part
def certify(words, left, right, first, end):
    """Sum of the pair hashes (DESIGN, section 1) of results first..end, uint64 modulo 2**64. left, right: int64[] slot ids."""
    total = np.uint64(0)
    for i in range(first, end):
        total += pair_hash(words[unsigned(left[unsigned(i)] + ROW)], words[unsigned(right[unsigned(i)] + ROW)])
    return total
