"""Makes the kernel that looks for a partner of each tuple, for which a condition is true."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from mpijoin.compiled import kernel
from mpijoin.join.where import part_of
from mpijoin.named import NamedTuple
from mpijoin.store.simd import unsigned

NO, YES, OPEN = 0, 1, 2  # whether a tuple has a partner; OPEN: not all that it may have were asked


class Tuples(NamedTuple):
    """What a condition reads: as much of `Stored` as it needs for numbers."""

    words: np.ndarray


SEEK = '''
def {name}(words, size, turned, own, others, low, high, most, found):
    for i in range(len(own)):
        one, first = own[unsigned(i)] * size, low[unsigned(i)]
        count = high[unsigned(i)] - first
        asked = min(count, most)
        found[unsigned(i)] = OPEN if asked < count else NO
        for j in range(asked):
            other = others[unsigned(first + j * count // asked)] * size
            left, right = (other, one) if turned else (one, other)
            if holds(Tuples(words), left, right):
                found[unsigned(i)] = YES
                break
'''


@cache
def seeking_kernel(source: str) -> Any:
    """Returns the kernel.

    source: the condition, as `source_of` writes it. The kernel takes words, int64; the words of a tuple; whether own
    tuples are the right ones; own, int64[n], and others, tuples by their numbers; low and high, int64[n]: which of the
    others may be partners; how many of these to ask at most, spread evenly; and found, int64[n], which becomes NO, YES
    or OPEN.
    """
    digest, holds = part_of(source)
    name = f"seek_where_{digest}"
    space: dict[str, Any] = {"unsigned": unsigned, "holds": holds, "NO": NO, "YES": YES, "OPEN": OPEN}
    space |= {"Tuples": Tuples, "__name__": __name__}
    exec(SEEK.format(name=name), space)
    return kernel(space[name])
