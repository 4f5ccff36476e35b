"""What waits at the master for one slave, and how much the slave has not yet joined: counts and bytes only."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

Watermarks = tuple[int, int]


class Waiting(NamedTuple):
    """An item in a slave's mini-buffers. watermarks: those it completes, None within a tick · layout: items of one layout
    have the same groups, and only such go into one message."""

    octets: int
    watermarks: Watermarks | None
    layout: int


@dataclass
class SlaveQueue:
    """What the master believes of a slave. First in, first out; the oldest `due` items may go as soon as credit allows, the
    others wait for their slot."""

    subgroup: int
    waiting: deque[Waiting] = field(default_factory=deque)
    waiting_bytes: int = 0
    due: int = 0
    due_bytes: int = 0
    layout: int = 0  # of the items to come
    unconsumed_slots: int = 0  # messages sent and not yet reported as joined
    unconsumed_bytes: int = 0  # theirs; at most the slave's buffer, or one item
    watermarks: Watermarks | None = None  # of its last message

    def add(self, octets: int, watermarks: Watermarks | None) -> None:
        self.waiting.append(Waiting(octets, watermarks, self.layout))
        self.waiting_bytes += octets

    def deliver(self, octets: int, watermarks: Watermarks | None) -> None:
        """Adds what was held of one group: it has other groups than what came before it and what will come."""
        self.layout += 1
        self.add(octets, watermarks)
        self.layout += 1

    def hold(self, octets: tuple[int, ...]) -> None:
        """So many bytes of each item were taken out: those of a group that is no longer the slave's."""
        self.waiting = deque(one._replace(octets=one.octets - less) for one, less in zip(self.waiting, octets, strict=True))
        self.waiting_bytes -= sum(octets)
        self.due_bytes -= sum(octets[: self.due])

    def make_due(self) -> None:
        """The slave's slot has come, or everybody's."""
        self.due, self.due_bytes = len(self.waiting), self.waiting_bytes

    def next_message(self, buffer_bytes: int) -> int:
        """Takes items for one message: as many as are due, of one layout, and fit the slave's buffer; returns how many.

        A slave with no byte unconsumed gets at least one item, so no size can block it for ever.
        """
        items = 0
        layout = self.waiting[0].layout if self.waiting else None
        while self.due and self.waiting[0].layout == layout:
            octets = self.waiting[0].octets
            if self.unconsumed_bytes and self.unconsumed_bytes + octets > buffer_bytes:
                break
            self.watermarks = self.waiting.popleft().watermarks or self.watermarks
            self.waiting_bytes -= octets
            self.due -= 1
            self.due_bytes -= octets
            self.unconsumed_bytes += octets
            items += 1
        self.unconsumed_slots += items > 0
        return items

    def consume(self, octets: int) -> bool:
        """The slave has joined one message of so many bytes; False: it was sent no such message."""
        if octets > self.unconsumed_bytes or self.unconsumed_slots == 0:
            return False
        self.unconsumed_bytes -= octets
        self.unconsumed_slots -= 1
        return True
