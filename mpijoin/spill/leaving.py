"""The groups that are to leave memory next."""

from __future__ import annotations

from collections import deque

import numpy as np


class Leaving:
    """A queue of groups, and how many bytes each of them occupies."""

    def __init__(self, page_bytes: int):
        self._page_bytes = page_bytes
        self._groups: deque[tuple[int, int]] = deque()

    def __bool__(self) -> bool:
        return bool(self._groups)

    def fill(self, groups: np.ndarray, blocks: np.ndarray) -> None:
        """Makes these the groups, int64[m], in their order. blocks: int64[m], the pages of each."""
        self._groups = deque(zip(groups.tolist(), (blocks * self._page_bytes).tolist()))

    def first(self, octets: int) -> list[int]:
        """Takes the first groups, which occupy so many bytes together if there are as many, but at least one."""
        taken = list[int]()
        while self._groups and (octets > 0 or not taken):
            group, own = self._groups.popleft()
            taken.append(group)
            octets -= own
        return taken
