"""Kernels that a paced slave runs for each result: they compute its delay and find the bucket of the histogram."""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import kernel
from mpijoin.metrics.buckets import LANES, LONGEST_US, STEPS_BITS
from mpijoin.store.simd import unsigned

# The buckets of this many delays are found together, in a loop that processors run on vectors.
BLOCK = 1024
MANTISSA_BITS = 52
# This is subtracted from the leading bits of a delay as a float, so that a delay of 64 us has bucket 64.
FIRST_STEP = (1023 + STEPS_BITS - 1) << STEPS_BITS


@kernel
def delays_of(times, origin, origin_us, unit_us, now_us, out):
    """Sets out[i] to how many us ago times[i] was due, and to 0 if it is not due yet.

    The event time `origin` was due at origin_us, and one unit of event time takes unit_us. times, out: int64[n].
    """
    for i in range(len(times)):
        out[i] = max(0.0, now_us - (origin_us + (times[i] - origin) * unit_us))


@kernel
def bucket_of(delay_us):
    """Returns the bucket of a delay, which must be at least 0.

    From 64 us on, the bucket follows from the exponent and the leading bits of the delay as a float, since there are 64
    buckets for each doubling.

    >>> [int(bucket_of(delay_us)) for delay_us in (0, 63, 64, 127, 128, 129, 130)]
    [0, 63, 64, 127, 128, 128, 129]
    """
    value = min(delay_us, LONGEST_US)
    bits = np.float64(value).view(np.int64)
    return value if value < 1 << STEPS_BITS else (bits >> MANTISSA_BITS - STEPS_BITS) - FIRST_STEP


@kernel
def count_delays(delays_us, counts, lanes, places):
    """Adds counts[i] results with the delay delays_us[i] to lanes, for each i.

    Returns the number of all these results, the sum of their delays and the longest delay.
    delays_us, counts: int64[n] · lanes: int64[LANES, BUCKETS], whose sum is the histogram · places: int64[BLOCK],
    scratch space. Results that come together have nearly the same delay. Each bucket therefore has several counts that
    take turns, so that one addition need not wait for the one before it (3.0 ns a result became 1.4).
    """
    count, sum_us, max_us = 0, 0, 0
    for first in range(0, len(delays_us), BLOCK):
        own, weights = delays_us[first : first + BLOCK], counts[first : first + BLOCK]
        for i in range(len(own)):
            places[i] = bucket_of(own[i])
            count += weights[i]
            sum_us += weights[i] * own[i]
            max_us = max(max_us, own[i] if weights[i] > 0 else 0)
        for i in range(len(own)):
            lanes[unsigned(i % LANES), unsigned(places[i])] += weights[i]
    return count, sum_us, max_us
