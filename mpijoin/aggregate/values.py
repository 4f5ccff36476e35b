"""Kernels that read the values of a function's column, in a form in which they can be added or compared."""

from __future__ import annotations

import numpy as np

from mpijoin.aggregate.state import (
    COUNT_ROWS,
    FORM,
    FUNCTION,
    MAX,
    MIN,
    NULL_BIT,
    NULL_OFFSET,
    OFFSET,
    REAL,
    RECORD,
    SIGNED,
    UNSIGNED,
    WIDTH,
)
from mpijoin.aggregate.sums import EXPONENT_MASK, FRACTION_BITS, FRACTION_MASK, NAN_BITS, SIGN_BIT
from mpijoin.compiled import part

ALL_BUT_SIGN = np.iinfo(np.int64).max


@part
def load_values(s, rules, work, function, low, high):
    """Fills values[low:high] and valid[low:high] with what the rows order[low:high] have for the function."""
    which = rules.functions[function, FUNCTION]
    form = rules.functions[function, FORM]
    for i in range(low, high):
        work.valid[i] = 1
        if which != COUNT_ROWS:
            record = (work.order[i] + rules.rule[RECORD]) * 8
            null = s.octets[record + rules.functions[function, NULL_OFFSET]] >> rules.functions[function, NULL_BIT] & 1
            work.valid[i] = 1 - null
            word = word_of(s, rules, work, function, record)
            work.values[i] = ordered(word, form) if which == MIN or which == MAX else word


@part
def word_of(s, rules, work, function, record):
    """Returns a value of a record at this byte: an integer as int64, with the bits of a uint64; a float as the bits of
    a float64."""
    start, width = record + rules.functions[function, OFFSET], rules.functions[function, WIDTH]
    form, word = rules.functions[function, FORM], np.int64(0)
    for i in range(width):
        word |= np.int64(s.octets[start + i]) << (8 * i)
    if form == SIGNED and width < 8:
        sign = np.int64(1) << (8 * width - 1)
        word = (word ^ sign) - sign
    if form == REAL and width == 4:
        work.small[0] = np.int32((word ^ 0x80000000) - 0x80000000)
        work.number[0] = np.float64(work.small_number[0])
        word = work.bits[0]
    return one_nan(word) if form == REAL else word


@part
def ordered(word, form):
    """Returns an int64 that is in the order of the values. 0.0 is larger than -0.0. Applied twice, it gives the word
    again."""
    if form == UNSIGNED:
        return word ^ np.int64(SIGN_BIT)
    if form == REAL and word < 0:
        return word ^ np.int64(ALL_BUT_SIGN)
    return word


@part
def one_nan(word):
    """Returns the bits of a float64, but of all NaNs the same ones, which are in order larger than all numbers."""
    is_nan = (word >> FRACTION_BITS) & EXPONENT_MASK == EXPONENT_MASK and word & FRACTION_MASK != 0
    return np.int64(NAN_BITS) if is_nan else word
