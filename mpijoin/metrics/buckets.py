"""The buckets of a histogram of delays: one us wide up to 128 us, and above that 64 to a doubling.

No value is off by more than a 64th.
"""

from __future__ import annotations

import numpy as np

STEPS_BITS = 6
EXACT = 2 << STEPS_BITS
LONGEST_US = (1 << 40) - 1  # 12 days; what took longer counts as that
BUCKETS = (40 - STEPS_BITS << STEPS_BITS) + (1 << STEPS_BITS)
LANES = 4  # counts per bucket, of which each takes its turn (delay_kernels.count_delays)


def bucket_starts() -> np.ndarray:
    """int64[BUCKETS + 1]: least value of each bucket, in us, and the end of the last."""
    index = np.arange(BUCKETS + 1)
    shift = np.maximum(0, (index >> STEPS_BITS) - 1)
    return (index - (shift << STEPS_BITS)) << shift


STARTS_US = bucket_starts()
