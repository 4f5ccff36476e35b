"""Kernels that slide a window over the rows of one key, and work out a function for each row that has a result.

A row enters the window once and leaves it once, so a result takes the same time whatever the length of the history.
"""

from __future__ import annotations

import numpy as np

from mpijoin.aggregate.state import (
    COUNT,
    COUNT_ROWS,
    FORM,
    FUNCTION,
    IN_ROWS,
    MAX,
    MEAN,
    MIN,
    PERIOD,
    REAL,
    SPAN,
    SUM,
    UNSIGNED,
)
from mpijoin.aggregate.sums import DIGIT_BITS, DIGIT_MASK, NAN_BITS, add_real, clear_sum, rounded
from mpijoin.aggregate.values import load_values, ordered
from mpijoin.compiled import part
from mpijoin.store.blocks import time_before
from mpijoin.store.state import TIME

TWO_TO_32 = 4294967296.0
HIGH_MAX = 1 << 31


@part
def has_result(s, rules, work, i, high):
    """Returns whether row i of a key, whose rows end before `high`, has a result: each one, or the last in a period."""
    period = rules.rule[PERIOD]
    if period == 0 or i + 1 == high:
        return True
    return s.words[work.order[i] + TIME] // period != s.words[work.order[i + 1] + TIME] // period


@part
def window_start(s, rules, work, i, start, low):
    """Returns the first row of the window of row i. start: one from which on it lies."""
    span = rules.rule[SPAN]
    if rules.rule[IN_ROWS]:
        return max(i - span + 1, low)
    since = time_before(s.words[work.order[i] + TIME], span)
    while s.words[work.order[start] + TIME] < since:
        start += 1
    return start


@part
def window_end(s, rules, work, i, end, high):
    """Returns the row behind the last one of the window of row i. A time has all rows that are as old as row i."""
    if rules.rule[IN_ROWS]:
        return i + 1
    end, time = max(end, i + 1), s.words[work.order[i] + TIME]
    while end < high and s.words[work.order[end] + TIME] == time:
        end += 1
    return end


@part
def slide(s, rules, work, function, low, high, first, staged):
    """Works out a function for the rows order[first:high] of a key whose rows are order[low:high]. The answers stand
    from `staged` on. Returns False where a sum has no int64; its row is then the one that `queue[0]` names."""
    load_values(s, rules, work, function, low, high)
    which = rules.functions[function, FUNCTION]
    if which == MIN or which == MAX:
        slide_extremes(s, rules, work, function, low, high, first, staged)
        return True
    if which == COUNT_ROWS or which == COUNT or rules.functions[function, FORM] != REAL:
        return slide_integers(s, rules, work, function, low, high, first, staged)
    slide_reals(s, rules, work, function, low, high, first, staged)
    return True


@part
def slide_integers(s, rules, work, function, low, high, first, staged):
    """Counts, and adds integers up: of all values the upper and the lower 32 bits apart, so that nothing is lost."""
    which, form = rules.functions[function, FUNCTION], rules.functions[function, FORM]
    start = window_start(s, rules, work, first, low, low)
    end, count, upper, lower = start, np.int64(0), np.int64(0), np.int64(0)
    for i in range(first, high):
        if not has_result(s, rules, work, i, high):
            continue
        reached, left = window_end(s, rules, work, i, end, high), window_start(s, rules, work, i, start, low)
        while end < reached or start < left:
            enters = end < reached
            row, times = (end, np.int64(1)) if enters else (start, np.int64(-1))
            if work.valid[row]:
                count += times
                if which == SUM or which == MEAN:
                    word = work.values[row]
                    upper += times * (word >> DIGIT_BITS & (DIGIT_MASK if form == UNSIGNED else -1))
                    lower += times * (word & DIGIT_MASK)
            end += enters
            start += not enters
        if not set_integer(work, function, which, count, upper, lower, staged):
            work.queue[0] = work.order[i]
            return False
        staged += 1
    return True


@part
def set_integer(work, function, which, count, upper, lower, staged):
    """Sets an answer to a count, a sum or a mean. Returns False where a sum has no int64."""
    answer = count
    if which == SUM or which == MEAN:
        if count == 0:
            set_null(work, function, staged)
            return True
        upper += lower >> DIGIT_BITS
        lower &= DIGIT_MASK
        if which == SUM:
            if not -HIGH_MAX <= upper < HIGH_MAX:
                return False
            answer = upper << DIGIT_BITS | lower
        else:
            work.number[0] = (np.float64(upper) * TWO_TO_32 + np.float64(lower)) / np.float64(count)
            answer = work.bits[0]
    work.answers[function, staged] = answer
    return True


@part
def set_null(work, function, staged):
    work.answers[function, staged] = 0
    work.answers[len(work.answers) - 1, staged] |= np.int64(1) << function


@part
def slide_reals(s, rules, work, function, low, high, first, staged):
    """Adds floats up, exactly."""
    total, is_mean = work.total[0], rules.functions[function, FUNCTION] == MEAN
    clear_sum(total)
    start = window_start(s, rules, work, first, low, low)
    end, count = start, np.int64(0)
    for i in range(first, high):
        if not has_result(s, rules, work, i, high):
            continue
        reached, left = window_end(s, rules, work, i, end, high), window_start(s, rules, work, i, start, low)
        while end < reached or start < left:
            enters = end < reached
            row, times = (end, np.int64(1)) if enters else (start, np.int64(-1))
            if work.valid[row]:
                count += times
                add_real(total, work.values[row], times)
            end += enters
            start += not enters
        if count == 0:
            set_null(work, function, staged)
        else:
            work.answers[function, staged] = real_answer(work, is_mean, count)
        staged += 1


@part
def real_answer(work, is_mean, count):
    """Returns the bits of the sum, or of the mean of so many values."""
    work.bits[0] = rounded(work.total[0], work.total[1])
    if is_mean:
        work.number[0] = work.number[0] / np.float64(count)
    return np.int64(NAN_BITS) if np.isnan(work.number[0]) else work.bits[0]


@part
def slide_extremes(s, rules, work, function, low, high, first, staged):
    """Finds the smallest or the largest value. The queue has those rows of the window that no later one outdoes."""
    is_min, form = rules.functions[function, FUNCTION] == MIN, rules.functions[function, FORM]
    start = window_start(s, rules, work, first, low, low)
    end, head, tail = start, low, low
    for i in range(first, high):
        if not has_result(s, rules, work, i, high):
            continue
        reached, left = window_end(s, rules, work, i, end, high), window_start(s, rules, work, i, start, low)
        while end < reached:
            if work.valid[end]:
                value = work.values[end]
                while tail > head and outdoes(value, work.values[work.queue[tail - 1]], is_min):
                    tail -= 1
                work.queue[tail] = end
                tail += 1
            end += 1
        while head < tail and work.queue[head] < left:
            head += 1
        start = left
        if head == tail:
            set_null(work, function, staged)
        else:
            work.answers[function, staged] = ordered(work.values[work.queue[head]], form)
        staged += 1


@part
def outdoes(value, other, is_min):
    return value <= other if is_min else value >= other
