"""Kernels that find out which of a probe's candidates are results, and keep what is wanted of these."""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import part
from mpijoin.join.marks import FIRST, UNMARKED, mark_pairs
from mpijoin.join.state import (
    CANDIDATE_WORDS,
    COLLECTED,
    CONFIRMED,
    FIRST_OTHER,
    GROUP_INDEX,
    MASK,
    NOTHING,
    ONE,
    PAIRED,
    PHASE,
    SLOT_IDS,
)
from mpijoin.partitioning.hashing import pair_hash
from mpijoin.store.simd import CALL_SIZE, CALL_WORDS, call_entry, lowest_bit, prefetch, unsigned
from mpijoin.store.state import (
    DONE,
    FOREVER,
    FOUND,
    HASHED,
    KEEPS,
    KEY,
    NONE,
    OUT_COUNT,
    OUT_FULL,
    PAIRS,
    RESULTS,
    ROW,
    TIME,
    TUPLE_WORDS,
    WINDOW,
)


@part
def confirm(s, groups, cursor, out):
    """Counts the candidates that are results, and writes what is kept of them to `out`. Returns DONE or OUT_FULL.

    A candidate is a result if the keys are equal, the times lie in the windows, and all who are asked keep it.
    Results are marked and certified at once, while their rows are in the innermost cache. If keys are hashed,
    others do both, who compare the keys.
    """
    stream, at, end = cursor[PHASE], cursor[CONFIRMED], cursor[COLLECTED]
    if at == end:
        return DONE
    words, certifies, pairs = s.words, s.counters[HASHED] == 0, s.counters[PAIRS]
    before, after = longest_wait(s, 1 - stream), longest_wait(s, stream)
    left, right = (s.mine, s.theirs) if stream == 0 else (s.theirs, s.mine)
    count, found, capacity = s.counters[OUT_COUNT], 0, out.shape[1]
    while at < end and count < capacity:
        at, filled = fetch_candidates(s, stream, at, end, min(PAIRED, capacity - count))
        kept = keep_matches(words, s.mine, s.theirs, filled, before, after)
        kept = ask(s, stream, kept)
        if certifies and pairs != UNMARKED:
            kept = mark_pairs(s, pairs, left, right, kept)
        found += kept
        if certifies and pairs == FIRST:
            s.certificate[0] += certify_first(words, left, kept)
        elif certifies:
            s.certificate[0] += certify(words, left, right, 0, kept)
        count += keep_results(s, left, right, kept, out, count)
        if certifies and pairs == FIRST and s.counters[KEEPS] == SLOT_IDS:
            out[1, count - kept : count] = NONE
    s.counters[OUT_COUNT] = count
    s.counters[FOUND] += found
    s.groups[groups[cursor[GROUP_INDEX]], RESULTS] += found
    cursor[CONFIRMED] = at
    if at < end:
        return OUT_FULL
    cursor[CONFIRMED] = cursor[COLLECTED] = 0
    return DONE


@part
def fetch_candidates(s, stream, at, end, room):
    """Takes one pair out of each of up to `room` candidates of at..end, and asks for the cache lines of its tuples.

    Returns where the remaining candidates begin, and how many pairs there are.

    To take the bits of a mask one by one would be a chain, in which each waits for the one before, or a loop whose end
    no processor can foresee. So each candidate gives its lowest bit, and the candidates that have bits left join those
    that are still to come. This makes a probe of workload A faster by a twelfth.
    """
    words, candidates, mine, theirs = s.words, s.candidates, s.mine, s.theirs
    fresh_words, old_words = s.layout[stream, TUPLE_WORDS], s.layout[1 - stream, TUPLE_WORDS]
    stop = min(end, at + room * CANDIDATE_WORDS)
    rest, filled = stop, 0
    for i in range(stop - CANDIDATE_WORDS, at - 1, -CANDIDATE_WORDS):
        mask, one, first = (
            candidates[unsigned(i + MASK)],
            candidates[unsigned(i + ONE)],
            candidates[unsigned(i + FIRST_OTHER)],
        )
        place = lowest_bit(mask)
        fresh, old = (one, first + place * old_words) if first >= 0 else (~first + place * fresh_words, one)
        mine[unsigned(filled)] = fresh
        theirs[unsigned(filled)] = old
        prefetch(words, fresh)
        prefetch(words, old)
        prefetch(words, old + ROW)  # A quarter of the tuples lie across two lines.
        filled += 1
        mask &= mask - 1
        rest -= CANDIDATE_WORDS
        candidates[unsigned(rest + MASK)] = mask
        candidates[unsigned(rest + ONE)] = one
        candidates[unsigned(rest + FIRST_OTHER)] = first
        rest += CANDIDATE_WORDS * (mask == 0)
    return rest, filled


@part
def longest_wait(s, stream):
    """Returns the stream's window as uint64. A window without end is at least as long as any two times can differ."""
    window = s.layout[stream, WINDOW]
    return np.uint64(0xFFFF_FFFF_FFFF_FFFF) if window == FOREVER else np.uint64(window)


@part
def keep_matches(words, mine, theirs, count, before, after):
    """Moves those of the pairs 0..count that are results to the front, and returns how many they are.

    Their keys are equal, and their times differ by no more than the earlier tuple waits. before, after: uint64, how
    long the tuples of `theirs` and of `mine` wait. The difference of any two int64 times fits into an uint64.
    """
    kept = 0
    for i in range(count):
        fresh, old = mine[unsigned(i)], theirs[unsigned(i)]
        mine[unsigned(kept)] = fresh
        theirs[unsigned(kept)] = old
        time, other = words[unsigned(fresh + TIME)], words[unsigned(old + TIME)]
        difference = unsigned(other - time) if time <= other else unsigned(time - other)
        in_windows = difference <= (after if time <= other else before)
        kept += (words[unsigned(fresh + KEY)] == words[unsigned(old + KEY)]) & in_windows
    return kept


@part
def ask(s, chain, count):
    """Makes a chain of the calls of `asked`, of which each takes the pairs that the one before has kept. Returns how
    many are left. Kernels are called by address, so that there is one probe for any condition."""
    at = s.asked[chain]
    while s.asked[at] != 0:
        s.asked[at + CALL_SIZE + s.asked[at + CALL_SIZE]] = count
        count = call_entry(s.asked, at)
        at += s.asked[at + CALL_SIZE] + CALL_WORDS
    return count


@part
def keep_results(s, left, right, kept, out, count):
    """Writes to `out`, from entry `count` on, what the counter KEEPS wants of the pairs 0..kept.

    Returns how many entries were written.
    """
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
def certify_first(words, left, end):
    """Returns the sum of the hashes of results 0..end, of which each is a left tuple alone."""
    total = np.uint64(0)
    for i in range(end):
        total += pair_hash(words[unsigned(left[unsigned(i)] + ROW)], NONE)
    return total


@part
def certify(words, left, right, first, end):
    """Returns the sum of the pair hashes of results first..end, uint64 modulo 2**64. left, right: int64[] slot ids."""
    total = np.uint64(0)
    for i in range(first, end):
        total += pair_hash(words[unsigned(left[unsigned(i)] + ROW)], words[unsigned(right[unsigned(i)] + ROW)])
    return total
