"""Kernels that work out functions over all partners of a tuple, of which none is kept.

Each function has some rows of `found`, and an exact sum of floats perhaps one of `sums`. Nulls are left out.
"""

from __future__ import annotations

import numpy as np

from mpijoin.aggregate.state import REAL, SIGNED
from mpijoin.aggregate.sums import DIGIT_BITS, DIGIT_MASK, NAN_BITS, add_real, clear_sum, rounded
from mpijoin.aggregate.values import one_nan, ordered
from mpijoin.compiled import part
from mpijoin.data.batch import KEYLESS
from mpijoin.matching.partners import keep_partners, take_partners
from mpijoin.matching.state import (
    COUNT,
    FAULT,
    FAULT_SLOT,
    FIRST_AT,
    FORM,
    FUNCTION,
    KEEPS_ALONE,
    MAX,
    MEAN,
    MIN,
    NO_SUM,
    PARTNERS,
    SUM,
    SUM_AT,
)
from mpijoin.store.simd import unsigned
from mpijoin.store.state import NONE, ROW, TIME

HIGH_MAX, TWO_TO_32 = 1 << 31, 4294967296.0


@part
def reduce_due(s, bucket, due, table, count):
    """Writes the results of the first `due` tuples that are due, all of one bucket, to the table, from column `count`
    on. Returns the new count."""
    for i in range(due):
        forget(s, i)
    # The functions are the last ones that are asked about partners.
    take_partners(s, bucket, due, keep_partners)
    for i in range(due):
        if s.words[s.due[i] + ROW] & KEYLESS:
            forget(s, i)
        if s.found[PARTNERS, i] > 0 or s.rule[KEEPS_ALONE]:
            table[0, count], table[1, count] = s.due[i], NONE
            write_answers(s, i, table, count)
            count += 1
    return count


@part
def forget(s, at):
    for row in range(len(s.found)):
        s.found[row, at] = 0
    for i in range(len(s.sums)):
        clear_sum(s.sums[i, at])


@part
def add_count(s, at, row, null):
    s.found[row, unsigned(at)] += not null


@part
def add_integer(s, at, row, value, null):
    """Adds an integer, its upper and lower 32 bits apart, so that nothing is lost."""
    if not null:
        s.found[row, unsigned(at)] += 1
        s.found[row + 1, unsigned(at)] += value >> DIGIT_BITS
        s.found[row + 2, unsigned(at)] += value & DIGIT_MASK


@part
def add_float(s, at, row, which, bits, null):
    """Adds a float64, given by its bits, exactly."""
    if not null:
        s.found[row, unsigned(at)] += 1
        add_real(s.sums[which, at], bits, np.int64(1))


@part
def add_extreme(s, at, row, word, null, is_min):
    """word: an int64 in the order of the values."""
    before = s.found[row + 1, unsigned(at)]
    if not null and (s.found[row, unsigned(at)] == 0 or (word < before if is_min else word > before)):
        s.found[row + 1, unsigned(at)] = word
    s.found[row, unsigned(at)] += not null


@part
def add_placed(s, at, row, word, null, other, is_first):
    """Keeps the value of the first or last partner by time, of several at that time the one of the smallest row."""
    time, number = s.words[unsigned(other + TIME)], s.words[unsigned(other + ROW)]
    its_time, its_row = s.found[row + 2, unsigned(at)], s.found[row + 3, unsigned(at)]
    is_further = time < its_time if is_first else time > its_time
    if not null and (s.found[row, unsigned(at)] == 0 or is_further or (time == its_time and number < its_row)):
        s.found[row + 1, unsigned(at)] = word
        s.found[row + 2, unsigned(at)], s.found[row + 3, unsigned(at)] = time, number
    s.found[row, unsigned(at)] += not null


@part
def add_best(s, at, row, word, order, null, other, is_min):
    """Keeps the value of the partner that has the least or the greatest `order`; of several, that of the first one by
    time, then by row."""
    time, number = s.words[unsigned(other + TIME)], s.words[unsigned(other + ROW)]
    its_order = s.found[row + 2, unsigned(at)]
    its_time, its_row = s.found[row + 3, unsigned(at)], s.found[row + 4, unsigned(at)]
    is_further = order < its_order if is_min else order > its_order
    is_earlier = order == its_order and (time < its_time or (time == its_time and number < its_row))
    if not null and (s.found[row, unsigned(at)] == 0 or is_further or is_earlier):
        s.found[row + 1, unsigned(at)], s.found[row + 2, unsigned(at)] = word, order
        s.found[row + 3, unsigned(at)], s.found[row + 4, unsigned(at)] = time, number
    s.found[row, unsigned(at)] += not null


@part
def write_answers(s, at, table, count):
    """Writes what the functions give for the tuple number `at`, and a bit for each that is null."""
    nulls, last = np.int64(0), len(table) - 1
    for i in range(len(s.functions)):
        row, which = s.functions[i, FIRST_AT], s.functions[i, FUNCTION]
        known = s.found[row, at]
        table[2 + i, count] = known
        if which != COUNT:
            if known == 0:
                nulls |= np.int64(1) << i
            elif s.functions[i, SUM_AT] != NO_SUM:
                table[2 + i, count] = real_answer(s, at, i, known)
            elif which == SUM or which == MEAN:
                table[2 + i, count] = integer_answer(s, at, i, known)
            else:
                word = s.found[row + 1, at]
                is_extreme = which == MIN or which == MAX
                table[2 + i, count] = ordered(word, s.functions[i, FORM]) if is_extreme else word
    table[last, count] = nulls


@part
def integer_answer(s, at, i, known):
    """Returns the sum, or the bits of the mean. A sum beyond 64 bits is noted as a fault."""
    row = s.functions[i, FIRST_AT]
    upper, lower = s.found[row + 1, at], s.found[row + 2, at]
    upper += lower >> DIGIT_BITS
    lower &= DIGIT_MASK
    if s.functions[i, FUNCTION] == MEAN:
        return bits_of((np.float64(upper) * TWO_TO_32 + np.float64(lower)) / np.float64(known))
    if not -HIGH_MAX <= upper < HIGH_MAX:
        s.cursor[FAULT], s.cursor[FAULT_SLOT] = i, s.due[at]
    return upper << DIGIT_BITS | lower


@part
def real_answer(s, at, i, known):
    """Returns the bits of the sum, or of the mean."""
    bits = rounded(s.sums[s.functions[i, SUM_AT], at], s.digits)
    value = np.int64(bits).view(np.float64)
    if s.functions[i, FUNCTION] == MEAN:
        value = value / np.float64(known)
    return np.int64(NAN_BITS) if np.isnan(value) else bits_of(value)


@part
def bits_of(value):
    return np.float64(value).view(np.int64)


@part
def word_of_real(value):
    """Returns an int64 in the order of float64s, of which all NaNs are one, and the largest."""
    return ordered(one_nan(bits_of(value)), REAL)


@part
def word_of_integer(value):
    return ordered(np.int64(value), SIGNED)
