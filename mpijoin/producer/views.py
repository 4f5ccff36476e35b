"""What the master believes of slaves and moves."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import islice

from mpijoin.named import NamedTuple
from mpijoin.producer.events import Watermarks
from mpijoin.producer.pacing import TIME_MIN


def never(streams: int) -> Watermarks:
    """Watermarks of so many streams, of which nothing is complete yet."""
    return (TIME_MIN,) * streams


# The source is read ahead of each slave so far that reading and sending overlap with joining, and no farther, since
# what is read ahead only takes memory.
AHEAD_SLOTS = 2
AHEAD_SLOTS_MAX = 64
AHEAD_BYTES = 8 << 20


class WaitingItem(NamedTuple):
    """An item in a slave's mini-buffers."""

    octets: int
    watermarks: Watermarks | None
    """Those that it completes; None within a tick."""
    layout: int
    """Items of one layout are of the same groups, and may go in one message."""


@dataclass
class SlaveState:
    """What the master believes of a slave."""

    subgroup: int
    waiting: deque[WaitingItem] = field(default_factory=deque)
    waiting_bytes: int = 0
    due: int = 0  # So many of the waiting items only lack credit: their slot has come.
    unconsumed_slots: int = 0  # messages sent and not yet reported as joined
    unconsumed_bytes: int = 0  # theirs; at most the slave's buffer, or one piece
    watermarks: Watermarks | None = None  # of its last message, but for those of a single group
    layout: int = 0  # of the items to come
    apart: int = 0  # So many items had a layout of their own.

    def queue(self, item: WaitingItem) -> None:
        self.waiting.append(item)
        self.waiting_bytes += item.octets

    def is_hungry(self, buffer_bytes: int) -> bool:
        """Whether it may run out of work: it was not sent a message to join and one to follow, or only small ones."""
        few_bytes = self.unconsumed_bytes < min(AHEAD_BYTES, buffer_bytes // 2)
        return self.unconsumed_slots < AHEAD_SLOTS or (few_bytes and self.unconsumed_slots < AHEAD_SLOTS_MAX)

    @property
    def due_bytes(self) -> int:
        if self.due == len(self.waiting):
            return self.waiting_bytes
        return sum(item.octets for item in islice(self.waiting, self.due))
