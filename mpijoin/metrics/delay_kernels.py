"""What a paced slave does for each result it finds: how late is it, and which bucket of the histogram is that?"""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import compiled
from mpijoin.metrics.delay import LONGEST_US, STEPS_BITS


MANTISSA_BITS = 52
FIRST_STEP = (1023 + STEPS_BITS - 1) << STEPS_BITS  # of 64 us: what is left then is 64


@compiled()
def delays_of(times, origin, origin_us, unit_us, now_us, out):
    """out[i] = how many us ago times[i] was due, at least 0; event time `origin` was due at origin_us, and a unit of it takes
    unit_us. times, out: int64[n]."""
    for i in range(len(times)):
        out[i] = max(0.0, now_us - (origin_us + (times[i] - origin) * unit_us))


@compiled()
def bucket_of(delay_us):
    """The bucket of a delay of at least 0: from 64 us on the exponent and leading bits of the delay as a float, since steps are
    64 to a doubling.

    >>> [int(bucket_of(delay_us)) for delay_us in (0, 63, 64, 127, 128, 129, 130)]
    [0, 63, 64, 127, 128, 128, 129]
    """
    value = min(delay_us, LONGEST_US)
    bits = np.float64(value).view(np.int64)
    return value if value < 1 << STEPS_BITS else (bits >> MANTISSA_BITS - STEPS_BITS) - FIRST_STEP


@compiled()
def count_delays(delays_us, counts, buckets):
    """Adds to buckets: counts[i] results had delays_us[i]. Returns how many in all, the sum of their delays and the longest.

    delays_us, counts: int64[n] · buckets: int64[BUCKETS].
    """
    count, sum_us, max_us = 0, 0, 0
    for i in range(len(delays_us)):
        buckets[bucket_of(delays_us[i])] += counts[i]
        count += counts[i]
        sum_us += counts[i] * delays_us[i]
        if counts[i] > 0:
            max_us = max(max_us, delays_us[i])
    return count, sum_us, max_us
