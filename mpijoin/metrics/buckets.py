"""The buckets of a histogram of delays.

A bucket is one us wide up to 128 us. Above that, each doubling of the delay has 64 buckets, so no value is off by
more than a 64th.
"""

from __future__ import annotations

import numpy as np

STEPS_BITS = 6
EXACT = 2 << STEPS_BITS
LONGEST_US = (1 << 40) - 1  # This is 12 days. A longer delay is counted as this one.
BUCKETS = (40 - STEPS_BITS << STEPS_BITS) + (1 << STEPS_BITS)
# Each bucket has this many counts, which take turns (see delay_kernels.count_delays).
LANES = 4


def bucket_starts() -> np.ndarray:
    """Returns int64[BUCKETS + 1]: the least value of each bucket in us, and then the end of the last bucket."""
    index = np.arange(BUCKETS + 1)
    shift = np.maximum(0, (index >> STEPS_BITS) - 1)
    return (index - (shift << STEPS_BITS)) << shift


STARTS_US = bucket_starts()
