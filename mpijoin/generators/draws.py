"""Random bits from counters instead of a state: draw(base, i) = mix(base + (i + 1) * GOLDEN). Each purpose has a base.
"""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import kernel
from mpijoin.partitioning.hashing import GOLDEN, mix, pair_hash

# These are the purposes.
ARRIVAL, KEY, PAYLOAD, DELAY = range(4)
PURPOSES = 4
_ONE, _S11 = np.uint64(1), np.uint64(11)
_ALL = (1 << 64) - 1


def base_of(seed: int, stream: int, purpose: int) -> np.uint64:
    """Returns the base that `draw` starts from for one purpose of one stream."""
    with np.errstate(over="ignore"):
        return np.uint64(pair_hash(np.uint64(seed & _ALL), np.uint64(stream * PURPOSES + purpose)))


@kernel
def draw(base, index):
    """Returns 64 random bits as uint64: number `index` of the sequence that `base`, uint64, stands for."""
    return mix(base + (index + _ONE) * GOLDEN)


@kernel
def share(bits):
    """Returns 53 of 64 random bits as a double in (0, 1]. So its logarithm is finite."""
    return np.float64((bits >> _S11) + _ONE) * 2.0**-53


@kernel
def fill_payload(base, first, out):
    """Sets out[i] to the random bytes of tuple first + i. `out` is uint8[n, width]."""
    rows, width = out.shape
    words = (width + 7) // 8
    for i in range(rows):
        for word in range(words):
            random = draw(base, np.uint64(first + i) * np.uint64(words) + np.uint64(word))
            for at in range(8 * word, min(width, 8 * word + 8)):
                out[i, at] = np.uint8((random >> np.uint64(8 * (at % 8))) & np.uint64(255))


@kernel
def fill_delays(base, first, bound, out):
    """Sets out[i], int64[n], to the delay of tuple first + i. It is uniform over 0 to `bound`, both ends included."""
    for i in range(len(out)):
        delay = np.int64(share(draw(base, np.uint64(first + i))) * (np.float64(bound) + 1.0))
        out[i] = min(delay, bound)
