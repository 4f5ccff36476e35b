"""The groups that are to leave memory next."""

from __future__ import annotations

from collections import deque

import numpy as np

from mpijoin.join.window_join import WindowJoin


class Leaving:
    """A queue of groups, and how many bytes each of them occupies."""

    def __init__(self, operator: WindowJoin):
        """operator: it holds the groups."""
        self._operator = operator
        self._groups: deque[tuple[int, int]] = deque()

    def __bool__(self) -> bool:
        return bool(self._groups)

    def fill(self, groups: np.ndarray) -> None:
        """Makes these the groups, int64[m], in their order."""
        octets = self._operator.info(groups).blocks * self._operator.page_bytes
        self._groups = deque(zip(groups.tolist(), octets.tolist()))

    def first(self, octets: int) -> list[int]:
        """Takes the first groups, which occupy so many bytes together if there are as many, but at least one."""
        taken = list[int]()
        while self._groups and (octets > 0 or not taken):
            group, own = self._groups.popleft()
            taken.append(group)
            octets -= own
        return taken
