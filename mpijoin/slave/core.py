"""What a slave decides: the order of its work, in pieces short enough to be interrupted, and when it reports.

`SlaveCore.step(event) -> actions` holds counts only. One work action is under way at a time; its outcome is the next event.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from mpijoin.errors import ProtocolError
from mpijoin.operators.base import Progress

# A slice of groups is inserted, probed and expired before the next: its state (a few MB) stays in the processor's cache.
SLICE_ROWS = 1 << 15
# Comparisons between two looks at the network: 32 a nanosecond or two, so a few milliseconds (DESIGN: at most 10 ms).
PROBE_BUDGET = 1 << 26


class Arrived(NamedTuple):
    """A slot's message. rows: int64[m] of both streams per group of the message."""

    epoch: int
    octets: int
    rows: np.ndarray
    last: bool


class Inserted(NamedTuple):
    pass


class Probed(NamedTuple):
    progress: Progress


class Expired(NamedTuple):
    pass


Event = Arrived | Inserted | Probed | Expired


class Insert(NamedTuple):
    """Insert the oldest message's rows of its groups low:high, both streams."""

    low: int
    high: int


class Probe(NamedTuple):
    """Join the fresh tuples of groups low:high for about `budget` comparisons."""

    low: int
    high: int
    budget: int


class Consume(NamedTuple):
    """Hand the results found so far to the consumers."""


class Expire(NamedTuple):
    """Advance the watermarks of groups low:high to the message's, and let go of what is expired."""

    low: int
    high: int


class EndMessage(NamedTuple):
    """The oldest message is joined: forget it, tell the master (credit) and the collector."""

    epoch: int
    octets: int


class Finish(NamedTuple):
    """All input is joined: close the sinks and report."""


Action = Insert | Probe | Consume | Expire | EndMessage | Finish


class SlaveCore:
    """Joins messages in the order of arrival, slice by slice of their groups.

    >>> core = SlaveCore()
    >>> core.step(Arrived(epoch=0, octets=24, rows=np.array([1]), last=True))
    [Insert(low=0, high=1)]
    """

    def __init__(self, slice_rows: int = SLICE_ROWS, budget: int = PROBE_BUDGET):
        self._slice_rows = slice_rows
        self._budget = budget
        self._messages: deque[Arrived] = deque()
        self._slices: deque[tuple[int, int]] = deque()
        self._awaits: type | None = None  # the event that the action under way will bring
        self._ended = False
        self.backlog_bytes = 0  # of the stream buffer: messages not yet joined

    @property
    def busy(self) -> bool:
        return self._awaits is not None

    def step(self, event: Event) -> list[Action]:
        if isinstance(event, Arrived):
            return self._arrived(event)
        if self._awaits is not type(event):
            wanted = self._awaits.__name__ if self._awaits else "a message"
            raise ProtocolError(f"slave got {type(event).__name__} while it waits for {wanted}")
        if isinstance(event, Inserted):
            return [self._work(Probe(*self._slices[0], self._budget), Probed)]
        if isinstance(event, Probed):
            return self._probed(event)
        self._slices.popleft()  # Expired
        return self._next_slice()

    def _arrived(self, event: Arrived) -> list[Action]:
        if self._ended:
            raise ProtocolError("slave got a message after the last one")
        self._ended = event.last
        self._messages.append(event)
        self.backlog_bytes += event.octets
        return [] if self.busy else self._start_message()

    def _start_message(self) -> list[Action]:
        self._slices = deque(cut_slices(self._messages[0].rows, self._slice_rows))
        return self._next_slice()

    def _next_slice(self) -> list[Action]:
        if self._slices:
            return [self._work(Insert(*self._slices[0]), Inserted)]
        message = self._messages.popleft()
        self.backlog_bytes -= message.octets
        self._awaits = None
        actions: list[Action] = [EndMessage(message.epoch, message.octets)]
        if self._messages:
            return actions + self._start_message()
        return actions + [Finish()] if self._ended else actions

    def _probed(self, event: Probed) -> list[Action]:
        if event.progress is Progress.BUDGET:
            return [self._work(Probe(*self._slices[0], self._budget), Probed)]
        if event.progress is Progress.OUT_FULL:
            return [Consume(), self._work(Probe(*self._slices[0], self._budget), Probed)]
        return [Consume(), self._work(Expire(*self._slices[0]), Expired)]

    def _work(self, action: Action, outcome: type) -> Action:
        self._awaits = outcome
        return action


def cut_slices(rows: np.ndarray, slice_rows: int) -> list[tuple[int, int]]:
    """Cuts groups into runs of about `slice_rows` rows; a single larger group is a run of its own.

    >>> cut_slices(np.array([3, 3, 9, 0, 1]), 6)
    [(0, 2), (2, 3), (3, 5)]
    """
    ends, total = [], 0
    for index, count in enumerate(rows.tolist()):
        if total and total + count > slice_rows:
            ends.append(index)
            total = 0
        total += count
    bounds = [0, *ends, len(rows)] if len(rows) else [0]
    return list(zip(bounds[:-1], bounds[1:]))
