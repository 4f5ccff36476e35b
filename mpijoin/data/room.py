"""Memory for one frame after another, which are read from a file or made to be written to one."""

from __future__ import annotations

from itertools import accumulate
from typing import Sequence

import numpy as np

from mpijoin.data.codec import ALIGNMENT, aligned_empty


class Room:
    """Memory that is used again and again, because it takes the system as long to hand out fresh pages as to read them
    full."""

    def __init__(self) -> None:
        self._memory = aligned_empty(0)

    def take(self, sizes: Sequence[int]) -> list[np.ndarray]:
        """Returns uint8[size] for each of `sizes`, aligned: one after the other, with the least gap between them. The
        next call gives out the same memory again."""
        starts = [*accumulate((-(-size // ALIGNMENT) * ALIGNMENT for size in sizes), initial=0)]
        if starts[-1] > len(self._memory):
            self._memory = aligned_empty(starts[-1])
        return [self._memory[start : start + size] for start, size in zip(starts, sizes)]

    def take_one(self, size: int) -> np.ndarray:
        """Returns uint8[size], as `take`."""
        if size > len(self._memory):
            self._memory = aligned_empty(-(-size // ALIGNMENT) * ALIGNMENT)
        return self._memory[:size]
