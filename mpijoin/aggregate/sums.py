"""Exact sums of float64s, to which values are added and from which they are taken away again.

A sum is a number of so many digits that every float64 fits it exactly (state.py says how it is kept). So the sum of a
window does not depend on which values were in it before, nor on their order, and it is rounded once, when it is asked
for. That is why neither a move nor a restart can change a bit of an answer.
"""

from __future__ import annotations

import numpy as np

from mpijoin.aggregate.state import DIGITS, HIGHEST, INFINITE, LOWEST, MINUS_INFINITE, NOT_NUMBERS
from mpijoin.compiled import part

DIGIT_BITS, DIGIT_MASK = 32, (1 << 32) - 1
FRACTION_BITS, FRACTION_MASK = 52, (1 << 52) - 1
EXPONENT_MASK = 0x7FF
SIGN_BIT = np.iinfo(np.int64).min
INFINITY_BITS, NAN_BITS = EXPONENT_MASK << FRACTION_BITS, (EXPONENT_MASK << FRACTION_BITS) | 1 << (FRACTION_BITS - 1)


@part
def clear_sum(total):
    """Makes a sum 0."""
    for i in range(len(total)):
        total[i] = 0
    total[LOWEST] = DIGITS
    total[HIGHEST] = -1


@part
def add_real(total, bits, times):
    """Adds a float64, given by its bits, once, or takes it away where `times` is -1."""
    exponent = (bits >> FRACTION_BITS) & EXPONENT_MASK
    fraction = bits & FRACTION_MASK
    if exponent == EXPONENT_MASK:
        if fraction != 0:
            total[NOT_NUMBERS] += times
        elif bits < 0:
            total[MINUS_INFINITE] += times
        else:
            total[INFINITE] += times
        return
    if exponent > 0:
        fraction |= np.int64(1) << FRACTION_BITS
    sign = -times if bits < 0 else times
    place = max(exponent, 1) - 1
    digit, shift = place // DIGIT_BITS, place % DIGIT_BITS
    low, high = (fraction & DIGIT_MASK) << shift, (fraction >> DIGIT_BITS) << shift
    total[digit] += sign * (low & DIGIT_MASK)
    total[digit + 1] += sign * ((low >> DIGIT_BITS) + (high & DIGIT_MASK))
    total[digit + 2] += sign * (high >> DIGIT_BITS)
    total[LOWEST] = min(total[LOWEST], digit)
    total[HIGHEST] = max(total[HIGHEST], digit + 2)


@part
def rounded(total, digits):
    """Returns the bits of the float64 nearest to a sum, of two equally near ones the even one. digits: scratch memory
    of the size of a sum."""
    if total[NOT_NUMBERS] > 0 or (total[INFINITE] > 0 and total[MINUS_INFINITE] > 0):
        return np.int64(NAN_BITS)
    if total[INFINITE] > 0:
        return np.int64(INFINITY_BITS)
    if total[MINUS_INFINITE] > 0:
        return np.int64(INFINITY_BITS) | np.int64(SIGN_BIT)
    if total[HIGHEST] < 0:
        return np.int64(0)
    sign = np.int64(1) if carried(total, digits, np.int64(1)) >= 0 else np.int64(-1)
    if sign < 0:
        carried(total, digits, sign)
    top = min(total[HIGHEST] + 2, DIGITS - 1)
    while top >= total[LOWEST] and digits[top] == 0:
        top -= 1
    if top < total[LOWEST]:
        return np.int64(0)
    bits = nearest(digits, total[LOWEST], top)
    return bits if sign > 0 else bits | np.int64(SIGN_BIT)


@part
def carried(total, digits, sign):
    """Writes sign * total to `digits`, each from 0 to 2**32 - 1. Returns what is carried out of the highest digit,
    which is negative if and only if the number is."""
    carry = np.int64(0)
    for i in range(total[LOWEST], min(total[HIGHEST] + 3, DIGITS)):
        carry += sign * total[i]
        digits[i] = carry & DIGIT_MASK
        carry >>= DIGIT_BITS
    return carry


@part
def digit_at(digits, lowest, top, i):
    return digits[i] if lowest <= i <= top else np.int64(0)


@part
def nearest(digits, lowest, top):
    """Returns the bits of the float64 nearest to the number of digits lowest..top, the last of which is not 0."""
    highest_bit = top * DIGIT_BITS
    while digits[top] >> (highest_bit - top * DIGIT_BITS) > 1:
        highest_bit += 1
    first = max(highest_bit - FRACTION_BITS, 0)  # This bit is the last one that fits.
    at, shift = first // DIGIT_BITS, first % DIGIT_BITS
    kept = digit_at(digits, lowest, top, at) >> shift
    kept |= digit_at(digits, lowest, top, at + 1) << (DIGIT_BITS - shift)
    if 2 * DIGIT_BITS - shift <= FRACTION_BITS:
        kept |= digit_at(digits, lowest, top, at + 2) << (2 * DIGIT_BITS - shift)
    kept &= (np.int64(1) << (FRACTION_BITS + 1)) - 1
    if first > 0:
        below = first - 1
        rest = digit_at(digits, lowest, top, below // DIGIT_BITS)
        half = (rest >> (below % DIGIT_BITS)) & 1
        sticky = rest & ((np.int64(1) << (below % DIGIT_BITS)) - 1)
        for i in range(lowest, below // DIGIT_BITS):
            sticky |= digits[i]
        if half == 1 and (sticky != 0 or kept & 1 == 1):
            kept += 1
    if kept >> (FRACTION_BITS + 1):
        kept >>= 1
        first += 1
    if kept >> FRACTION_BITS == 0:
        return kept  # It is so small that its exponent is 0.
    if first + 1 >= EXPONENT_MASK:
        return np.int64(INFINITY_BITS)
    return (first + 1) << FRACTION_BITS | kept & FRACTION_MASK
