"""Kernels that take the results of one query out of the pairs that all queries share."""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import kernel, part
from mpijoin.data.batch import KEYLESS
from mpijoin.join.confirm import certify, certify_first, longest_wait
from mpijoin.join.marks import FIRST, UNMARKED, mark_pairs
from mpijoin.partitioning.hashing import pair_hash
from mpijoin.store.simd import prefetch, unsigned
from mpijoin.store.state import NONE, ROW, TIME

# The tuples of this many pairs further on are asked for ahead. They were looked at when the pairs were found, but many
# other tuples have been since.
AHEAD = 24


@kernel
def take_pairs(s, left, right, count, own_left, own_right):
    """Copies those of the pairs 0..count that lie in the windows of the view `s`, and returns how many they are.

    left, right: int64[at least count] slot ids of tuples whose keys are alike. Two null keys are not equal, though
    the words that stand for them may be.
    """
    words, before, after, kept = s.words, longest_wait(s, 1), longest_wait(s, 0), 0
    for i in range(count):
        one, other = copy_pair(words, left, right, i, count, own_left, own_right, kept)
        kept += is_pair(words, one, other, before, after)
    return kept


@kernel
def certify_pairs(s, left, right, count, own_left, own_right, certificate):
    """Does what `take_pairs` does and adds the certificate of what it takes to `certificate`, uint64[1]."""
    words, before, after, kept, total = s.words, longest_wait(s, 1), longest_wait(s, 0), 0, np.uint64(0)
    for i in range(count):
        one, other = copy_pair(words, left, right, i, count, own_left, own_right, kept)
        is_result = is_pair(words, one, other, before, after)
        kept += is_result
        total += pair_hash(words[unsigned(one + ROW)], words[unsigned(other + ROW)]) * np.uint64(is_result)
    certificate[0] += total
    return kept


@part
def copy_pair(words, left, right, i, count, own_left, own_right, kept):
    """Copies pair i of `count` to place `kept`, asks for the tuples of one further on, and returns its slot ids."""
    one, other, ahead = left[unsigned(i)], right[unsigned(i)], unsigned(min(i + AHEAD, count - 1))
    prefetch(words, left[ahead])
    prefetch(words, right[ahead])
    own_left[unsigned(kept)] = one
    own_right[unsigned(kept)] = other
    return one, other


@part
def is_pair(words, one, other, before, after):
    """Whether two tuples lie in the windows and both have keys. before, after: uint64, how long the tuples of stream 1
    and of stream 0 wait."""
    time, its_time = words[unsigned(one + TIME)], words[unsigned(other + TIME)]
    difference = unsigned(its_time - time) if time <= its_time else unsigned(time - its_time)
    in_windows = difference <= (after if time <= its_time else before)
    return in_windows & ((words[unsigned(one + ROW)] | words[unsigned(other + ROW)]) & KEYLESS == 0)


@kernel
def finish_pairs(s, pairs, left, right, count, certificate):
    """Marks the tuples of the pairs 0..count as the type of the query wants it, and certifies what is left.

    pairs: UNMARKED, ALL, FIRST or NO_PAIRS · certificate: uint64[1], to which that of the results is added. Returns how
    many results there are, at the front of left and right.
    """
    if pairs != UNMARKED:
        count = mark_pairs(s, pairs, left, right, count)
    if pairs == FIRST:
        certificate[0] += certify_first(s.words, left, count)
        right[:count] = NONE
    else:
        certificate[0] += certify(s.words, left, right, 0, count)
    return count
