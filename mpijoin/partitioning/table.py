"""This table says which slave has which partition."""

from __future__ import annotations

from typing import Iterable

import numpy as np

# This number stands for the owner of partitions that are held back.
HELD = -1


class PartitionTable:
    """The slave of each partition, and the order in which the scatter lays the partitions out: by (owner, partition).

    >>> table = PartitionTable.even(partitions=5, slaves=(1, 2))
    >>> table.groups_of(1), table.groups_of(2)
    (array([0, 2, 4]), array([1, 3]))
    >>> table.place
    array([0, 3, 1, 4, 2])
    >>> table.route(4, None)
    >>> table.groups_of(1), table.groups_of(HELD), table.owners
    (array([0, 2]), array([4]), (1, 2))
    """

    def __init__(self, owners: Iterable[int]):
        """`owners` are the slaves of the partitions in order. HELD stands for a partition that the master holds back.
        """
        self._owners = np.fromiter(owners, np.int64)
        self._lay_out()

    @classmethod
    def even(cls, partitions: int, slaves: tuple[int, ...]) -> PartitionTable:
        """Deals the partitions out in turn. Every run begins like this, and stays so under policy "none"."""
        return cls(slaves[partition % len(slaves)] for partition in range(partitions))

    def copy(self) -> PartitionTable:
        """Returns a table of its own that says the same."""
        return PartitionTable(self._owners)

    @property
    def slaves(self) -> tuple[int, ...]:
        """The slave of each partition in order, or HELD."""
        return tuple(self._owners.tolist())

    @property
    def partitions(self) -> int:
        return len(self._owners)

    def route(self, group: int, slave: int | None) -> None:
        """From now on this slave joins the group. None holds it back instead. `place` becomes another array."""
        self._owners[group] = HELD if slave is None else slave
        self._lay_out()

    def _lay_out(self) -> None:
        owners = self._owners
        order = np.argsort(owners, kind="stable")
        # It maps each partition to its position in the scatter's layout.
        self.place = np.empty(len(owners), np.int64)
        self.place[order] = np.arange(len(owners))
        slaves, starts = np.unique(owners[order], return_index=True)
        ends = [*starts[1:].tolist(), len(owners)]
        # For each place, this is the first place of its owner. The blob addresses in a piece count from there.
        self.firsts = np.repeat(starts, np.diff([*starts, len(owners)]))
        self._places = {slave: slice(*ends) for slave, *ends in zip(slaves.tolist(), starts.tolist(), ends)}
        held = self._places.get(HELD, slice(0, 0))
        # Each group that is held back is a piece of its own.
        self.firsts[held] = np.arange(held.start, held.stop)
        self._groups = {slave: order[places] for slave, places in self._places.items()}
        # These slaves have partitions. They are in ascending order.
        self.owners = tuple(slave for slave in self._places if slave != HELD)

    def owner_of(self, group: int) -> int:
        return int(self._owners[group])

    def groups_of(self, slave: int) -> np.ndarray:
        """Returns the partitions of one slave, or those that are HELD, as int64[m] in ascending order."""
        return self._groups.get(slave, NO_GROUPS)

    def places_of(self, slave: int) -> slice:
        """Returns the places of these partitions in the scatter's layout."""
        return self._places.get(slave, slice(0, 0))


NO_GROUPS = np.empty(0, np.int64)
