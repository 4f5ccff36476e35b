"""This table says which slave has which partition."""

from __future__ import annotations

from typing import Iterable

import numpy as np

from mpijoin.named import NamedTuple

# These numbers stand for the owners of partitions that are held back, and of those that go to several slaves.
HELD, SHARED = -1, -2
# These are the `move`, the `peer` and the `dealt` of a `Copy` that has nothing to do with one.
NO_MOVE = NO_PEER = NO_STREAM = -1
TIME_MAX = (1 << 63) - 1


class Copy(NamedTuple):
    """A slave gets rows of a partition that go to another one, too. `move` is the number of the move for which they do,
    and `step` says what they are to this slave (moving/steps.py). If a stream is `dealt`, the slaves share its rows,
    and each gets all rows of the others. What it is told without rows may be about another slave, the `peer`."""

    slave: int
    move: int = NO_MOVE
    step: str = ""
    peer: int = NO_PEER
    dealt: int = NO_STREAM


class Waited(NamedTuple):
    """An item of one group that waits for a slave. octets: the bytes of its rows · later: the earliest time of each
    stream among the group's rows that wait behind it, TIME_MAX for a stream without any, or () if none wait."""

    slave: int
    octets: int
    later: tuple[int, ...]


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
        self._copies: dict[int, tuple[Copy, ...]] = {}
        self._lay_out()

    @classmethod
    def even(cls, partitions: int, slaves: tuple[int, ...]) -> PartitionTable:
        """Deals the partitions out in turn. Every run begins like this, and stays so under policy "none"."""
        return cls(slaves[partition % len(slaves)] for partition in range(partitions))

    def copy(self) -> PartitionTable:
        """Returns a table of its own that says the same."""
        table = PartitionTable(self._owners)
        table._copies = dict(self._copies)
        return table

    @property
    def slaves(self) -> tuple[int, ...]:
        """The slave of each partition in order, or HELD or SHARED."""
        return tuple(self._owners.tolist())

    @property
    def partitions(self) -> int:
        return len(self._owners)

    def route(self, group: int, slave: int | None) -> None:
        """From now on this slave joins the group. None holds it back instead. `place` becomes another array."""
        self._copies.pop(group, None)
        self._owners[group] = HELD if slave is None else slave
        self._lay_out()

    def share(self, group: int, *copies: Copy) -> None:
        """From now on each of these slaves gets all rows of the group, or those that are dealt to it."""
        self._copies[group] = copies
        self._owners[group] = SHARED
        self._lay_out()

    def copies_of(self, group: int) -> tuple[Copy, ...]:
        """Returns who gets the rows of a group that is shared. Nobody does, if it is not."""
        return self._copies.get(group, ())

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
        for one in (HELD, SHARED):
            # Each group that is held back or shared is a piece of its own.
            own = self.places_of(one)
            self.firsts[own] = np.arange(own.start, own.stop)
        self._groups = {slave: order[places] for slave, places in self._places.items()}
        # These slaves have partitions for themselves. They are in ascending order.
        self.owners = tuple(slave for slave in self._places if slave not in (HELD, SHARED))

    def owner_of(self, group: int) -> int:
        return int(self._owners[group])

    @property
    def active(self) -> tuple[int, ...]:
        """The slaves that get rows, in ascending order."""
        if not self._copies:
            return self.owners
        return tuple(sorted({*self.owners, *(one.slave for copies in self._copies.values() for one in copies)}))

    def groups_of(self, slave: int) -> np.ndarray:
        """Returns the partitions of one slave, or those that are HELD or SHARED, as int64[m] in ascending order."""
        return self._groups.get(slave, NO_GROUPS)

    def places_of(self, slave: int) -> slice:
        """Returns the places of these partitions in the scatter's layout."""
        return self._places.get(slave, slice(0, 0))


NO_GROUPS = np.empty(0, np.int64)
