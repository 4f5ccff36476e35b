"""Which slaves have which partition."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Hop(NamedTuple):
    """One destination of a partition's tuples. role: what the slave does with them; "join" joins and keeps them."""

    slave: int
    role: str


Route = tuple[Hop, ...]  # () = held back at the master
JOIN = "join"


class PartitionTable:
    """Routes of all partitions, and the order in which the scatter lays them out: by (owner, partition).

    >>> table = PartitionTable.even(partitions=5, slaves=(1, 2))
    >>> table.groups_of(1), table.groups_of(2)
    (array([0, 2, 4]), array([1, 3]))
    >>> table.place
    array([0, 3, 1, 4, 2])
    """

    def __init__(self, routes: list[Route]):
        self.routes = routes
        owners = np.array([route[0].slave if route else -1 for route in routes], np.int64)
        self._order = np.argsort(owners, kind="stable")
        self._owners = owners
        self.place = np.empty(len(routes), np.int64)  # partition -> position in the scatter's layout
        self.place[self._order] = np.arange(len(routes))

    @classmethod
    def even(cls, partitions: int, slaves: tuple[int, ...]) -> PartitionTable:
        """Partitions dealt out in turn: the start of every run, and all of it under policy "none"."""
        return cls([(Hop(slaves[partition % len(slaves)], JOIN),) for partition in range(partitions)])

    def groups_of(self, slave: int) -> np.ndarray:
        """int64[m]: the partitions of one slave, ascending."""
        return np.flatnonzero(self._owners == slave)

    def places_of(self, slave: int) -> slice:
        """Where they lie in the scatter's layout."""
        own = np.flatnonzero(self._owners[self._order] == slave)
        return slice(int(own[0]), int(own[-1]) + 1) if len(own) else slice(0, 0)
