"""The exact sums: what was taken away has left no trace, and what is left is rounded once, as Python's fsum does it."""

import math
import random

import numpy as np
import pytest

from mpijoin.aggregate import sums
from mpijoin.aggregate.state import SUM_WORDS
from mpijoin.compiled import kernel

TINY, HUGE = 5e-324, 1.7976931348623157e308


@kernel
def add_all(total, bits, times):
    for i in range(len(bits)):
        sums.add_real(total, bits[i], times[i])


@kernel
def clear(total):
    sums.clear_sum(total)


@kernel
def round_sum(total, digits):
    return sums.rounded(total, digits)


def sum_of(values, gone=()):
    """Adds values and `gone` in a random order, and takes `gone` away again."""
    total = np.zeros((2, SUM_WORDS), np.int64)
    clear(total[0])
    steps = [(value, 1) for value in (*values, *gone)]
    random.Random(len(steps)).shuffle(steps)
    steps += [(value, -1) for value in gone]
    numbers = np.array([value for value, _ in steps], np.float64)
    add_all(total[0], numbers.view(np.int64), np.array([times for _, times in steps], np.int64))
    return float(np.array([round_sum(total[0], total[1])], np.int64).view(np.float64)[0])


@pytest.mark.parametrize(
    "values",
    [
        [],
        [0.1] * 10,
        [1e16, 1.0, -1e16],
        [1.0, 2.0**-53],  # half of the last bit: to the even one
        [1.0, 2.0**-53, TINY],  # a little more
        [1.0 + 2.0**-52, 2.0**-53],
        [-1.0, -(2.0**-53), -TINY],
        [TINY, TINY, TINY],
        [2.2250738585072014e-308, -TINY],
        [HUGE, -HUGE, 1.0],
        [2.0**53 - 1, 0.5],  # all bits carry
    ],
)
def test_sums_are_rounded_once(values):
    assert sum_of(values).hex() == math.fsum(values).hex()


def test_a_sum_beyond_all_floats_is_infinite():
    assert sum_of([HUGE, HUGE]) == math.inf and sum_of([-HUGE, -HUGE]) == -math.inf
    assert sum_of([HUGE, HUGE, -HUGE]) == HUGE


def test_what_is_not_finite_leaves_no_trace():
    assert sum_of([1.0], gone=[math.inf, -math.inf, math.nan]) == 1.0
    assert sum_of([math.inf, 1.0], gone=[math.nan]) == math.inf and sum_of([-math.inf]) == -math.inf
    assert math.isnan(sum_of([math.inf, -math.inf])) and math.isnan(sum_of([math.nan, 1.0]))


@pytest.mark.parametrize("seed", range(60))
def test_random_sums(seed):
    chance = random.Random(seed)
    spread = chance.choice([1, 30, 300, 1070])

    def some(count):
        return [math.ldexp(chance.uniform(-1, 1), chance.randint(-spread, min(spread, 1000))) for _ in range(count)]

    values = some(chance.randint(1, 40))
    if chance.random() < 0.3:
        values += [-value for value in values[: len(values) // 2]]
    assert sum_of(values, some(chance.randint(0, 20))).hex() == math.fsum(values).hex()
