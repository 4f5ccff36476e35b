"""Which groups rotate between memory and disk, and when: the decisions of rotation.

Flux, section 6.1: "There are two FIFO queues maintaining a list of in-memory (active) and on-disk (inactive)
partitions." It reads no clock and touches no file: times are arguments.
"""

from __future__ import annotations

from typing import Collection, Iterator


class Rotation:
    """The two queues of a slave, and when the next group is activated.

    >>> rotation = Rotation(gap_s=None)
    >>> rotation.holds([4, 7])
    >>> rotation.wrote(4)
    >>> rotation.has_pending(4)
    >>> rotation.due(now_s=10.0), rotation.due(now_s=10.0, at_once=True)
    (4, 4)
    """

    def __init__(self, gap_s: float | None):
        """gap_s: t_gap, None: "we set t_gap equal to the time taken to read in the previously activated partition"."""
        self._gap_s = gap_s
        self._active: dict[int, None] = {}
        self._inactive: dict[int, None] = {}
        self._pending: set[int] = set()
        self._activated_s: float | None = None
        self._took_s = 0.0

    @property
    def pending(self) -> Collection[int]:
        """The groups on disk for which input has come."""
        return self._pending

    def is_inactive(self, group: int) -> bool:
        return group in self._inactive

    def holds(self, groups: Collection[int]) -> None:
        """Says which groups the slave has. One that is new is in memory, and goes to the bottom of that queue. One that
        has moved away was in memory."""
        self._active = {group: None for group in self._active if group in groups}
        self._active.update(dict.fromkeys(sorted(set(groups) - self._active.keys() - self._inactive.keys())))

    def victims(self, fixed: Collection[int]) -> Iterator[int]:
        """The groups that may leave memory, in the order in which they do: "The first partition in the in-memory queue
        is extracted"."""
        return (group for group in tuple(self._active) if group not in fixed)

    def wrote(self, group: int) -> None:
        """The group was "written to disk, and added to bottom of the on-disk queue"."""
        del self._active[group]
        self._inactive[group] = None

    def has_pending(self, group: int) -> None:
        """Input has come for a group on disk."""
        self._pending.add(group)

    def due(self, now_s: float, at_once: bool = False) -> int | None:
        """Returns the group to activate now, if it is time: "If the most recently activated partition has been active
        for longer than time t_gap, then the policy initiates a swap".

        It is the first on-disk group for which input is pending, because to read any other would bring no result.
        at_once: there is nothing else to join, so no time has to pass.
        """
        gap_s = self._took_s if self._gap_s is None else self._gap_s
        if not at_once and self._activated_s is not None and now_s - self._activated_s <= gap_s:
            return None
        return next((group for group in self._inactive if group in self._pending), None)

    def activated(self, group: int, began_s: float, now_s: float) -> None:
        """The group is read and "added to the bottom of the in-memory queue". began_s: when its activation began."""
        del self._inactive[group]
        self._active[group] = None
        self._pending.discard(group)
        self._activated_s, self._took_s = now_s, now_s - began_s

    def took(self, group: int) -> None:
        """A group that the slave did not have is on its disk now."""
        self._inactive[group] = None

    def forget(self, group: int) -> None:
        """The slave needs a group on disk no more."""
        del self._inactive[group]
