"""What a paced slave does for each result it finds: how late is it, and which bucket of the histogram is that?"""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import kernel
from mpijoin.metrics.buckets import LANES, LONGEST_US, STEPS_BITS
from mpijoin.store.simd import unsigned

BLOCK = 1024  # delays whose buckets are found together, in a loop that processors run on vectors
MANTISSA_BITS = 52
FIRST_STEP = (1023 + STEPS_BITS - 1) << STEPS_BITS  # of 64 us: what is left then is 64


@kernel
def delays_of(times, origin, origin_us, unit_us, now_us, out):
    """out[i] = how many us ago times[i] was due, at least 0; event time `origin` was due at origin_us, and a unit of it
    takes unit_us. times, out: int64[n]."""
    for i in range(len(times)):
        out[i] = max(0.0, now_us - (origin_us + (times[i] - origin) * unit_us))


@kernel
def bucket_of(delay_us):
    """The bucket of a delay of at least 0: from 64 us on the exponent and leading bits of the delay as a float, since
    steps are 64 to a doubling.

    >>> [int(bucket_of(delay_us)) for delay_us in (0, 63, 64, 127, 128, 129, 130)]
    [0, 63, 64, 127, 128, 128, 129]
    """
    value = min(delay_us, LONGEST_US)
    bits = np.float64(value).view(np.int64)
    return value if value < 1 << STEPS_BITS else (bits >> MANTISSA_BITS - STEPS_BITS) - FIRST_STEP


@kernel
def count_delays(delays_us, counts, lanes, places):
    """Adds to lanes: counts[i] results had delays_us[i]. Returns how many in all, the sum of their delays and the
    longest.

    delays_us, counts: int64[n] · lanes: int64[LANES, BUCKETS], whose sum is the histogram · places: int64[BLOCK].
    Results come with delays that are much alike: several counts of each bucket, taken in turn, do not wait for one
    another (3.0 ns a result became 1.4).
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
