"""What a slave decides: the order of its work, in pieces short enough to be interrupted, and when groups come and go.

`SlaveCore.step(event) -> actions` knows counts only. One work action is under way at a time, and its outcome is the
event that follows.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from dataclasses import dataclass
from typing import Iterator

import numpy as np

from mpijoin.errors import ProtocolError
from mpijoin.moving import steps
from mpijoin.operators.base import Progress
from mpijoin.slave.events import (
    Action,
    Arrived,
    Carry,
    Consume,
    EndMessage,
    Event,
    Expire,
    Expired,
    Finish,
    Handed,
    Insert,
    Inserted,
    Install,
    Marked,
    Ordered,
    Pause,
    Paused,
    Probe,
    Probed,
    RunOut,
    Save,
    SaveDone,
    SpillOrdered,
    Staged,
)
from mpijoin.time_events import Rest, Ticked

# A slice of groups is inserted, probed and expired before the next: its state (a few MB) stays in the processor's
# cache.
SLICE_ROWS = 1 << 15
# In a paced run results leave slice by slice. A message is cut into about so many slices, but a slice of fewer rows
# than the least is not worth its overhead.
PACED_SLICES = 8
PACED_SLICE_ROWS_MIN = 512
# So many comparisons are made between two looks at the network. 32 of them take a nanosecond or two, so that is a few
# milliseconds.
PROBE_BUDGET = 1 << 26
# For so long after a part of a group was sent or has come, its slave looks out for the next step without sleeping: who
# sleeps wakes late, and neither slave joins the group meanwhile.
ALERT_S = 0.02


@dataclass
class Unjoined:
    """A message that is not joined yet: only `rows_joined` of the `rows_all` that it came with are."""

    epoch: int
    octets: int
    groups: np.ndarray
    rows: np.ndarray
    own: bool
    rows_all: int
    rows_joined: int = 0

    @property
    def backlog_bytes(self) -> int:
        """The part of the stream buffer that it still takes: the share of its bytes that is not joined yet."""
        left = int(self.rows.sum()) - self.rows_joined
        return self.octets * left // self.rows_all if self.rows_all else 0


class SlaveCore:
    """Joins messages in the order of arrival, slice by slice of their groups. Groups come and go between slices.

    >>> core = SlaveCore()
    >>> core.step(Arrived(epoch=0, octets=24, groups=np.array([5]), rows=np.array([1]), last=True))
    [Insert(low=0, high=1)]
    """

    def __init__(self, slice_rows: int = SLICE_ROWS, budget: int = PROBE_BUDGET, paced: bool = False):
        self._slice_rows = slice_rows
        self._budget = budget
        self._paced = paced
        self._messages: deque[Unjoined | Marked] = deque()
        self._slices: deque[tuple[int, int]] = deque()
        self._changes: deque[Ordered | Staged] = deque()  # to be carried out between two slices
        self._awaits: type | None = None  # the event that the action under way will bring
        self._ended = self._finished = False
        self._stop: Marked | None = None  # with which the run ends, whatever is not joined yet
        self._alert_until_s = -math.inf
        self.newest_epoch = -1

    @property
    def busy(self) -> bool:
        return self._awaits is not None

    @property
    def between_slices(self) -> bool:
        """Whether no group holds fresh tuples."""
        return self._awaits in (None, Inserted)

    @property
    def backlog_bytes(self) -> int:
        """How much of the stream buffer is taken by what is not joined yet."""
        return sum(message.backlog_bytes for message in self._unjoined())

    def _unjoined(self) -> Iterator[Unjoined]:
        return (one for one in self._messages if isinstance(one, Unjoined))

    def step(self, event: Event) -> list[Action]:
        if isinstance(event, Arrived):
            return self._arrived(event)
        if isinstance(event, (Ordered, Staged)):
            self._changes.append(event)
            return [] if self.busy else self._change()
        if isinstance(event, Marked):
            self._messages.append(event)
            self._stop = event if event.stops else None
            return [] if self.busy else self._start_message()
        if isinstance(event, Handed):
            self._alert_until_s = event.now_s + ALERT_S
            return []
        if isinstance(event, Ticked):
            return [Rest(0.0 if event.now_s < self._alert_until_s else math.inf)]
        if isinstance(event, SpillOrdered):
            raise ProtocolError("slave was ordered to spill, and has no disk to spill to")
        if self._awaits is not type(event):
            wanted = self._awaits.__name__ if self._awaits else "a message"
            raise ProtocolError(f"slave got {type(event).__name__} while it waits for {wanted}")
        if isinstance(event, Inserted):
            return self._inserted(event)
        if isinstance(event, Probed):
            return self._probed(event)
        if isinstance(event, Paused):
            return self._paused(event)
        if isinstance(event, SaveDone):
            return self._saved()
        return self._expired(event)

    def _inserted(self, event: Inserted) -> list[Action]:
        low, high = self._slices[0]
        if event.taken.groups < high - low:
            return [RunOut(event.taken.lacking_pages)]
        if self._stop:
            return [self._save_as_it_is(self._stop, high)]
        return [self._work(Probe(low, high, self._budget), Probed)]

    def _expired(self, event: Expired) -> list[Action]:
        if event.progress is not Progress.DONE:
            return [Consume(), self._work(Expire(*self._slices[0]), Expired)]
        low, high = self._slices.popleft()
        message = self._messages[0]
        assert isinstance(message, Unjoined)  # nothing else has slices
        message.rows_joined += int(message.rows[low:high].sum())
        return self._change() + self._next_slice()

    def _arrived(self, event: Arrived) -> list[Action]:
        if self._ended:
            raise ProtocolError("slave got a message after the last one")
        self._ended = event.last
        self.newest_epoch = max(self.newest_epoch, event.epoch)
        rows_all = int(event.rows.sum())
        self._messages.append(Unjoined(event.epoch, event.octets, event.groups, event.rows, event.own, rows_all))
        return [] if self.busy else self._start_message()

    def _start_message(self) -> list[Action]:
        if self._stop:
            return [self._save_as_it_is(self._stop, 0)]
        if isinstance(self._messages[0], Marked):
            mark = self._messages[0]
            return [self._work(Save(mark.number, mark.cuts_metrics, mark.anew), SaveDone)]
        rows = self._messages[0].rows
        self._slices = deque(cut_slices(rows, self._rows_of_slice(int(rows.sum()))))
        return self._next_slice()

    def _rows_of_slice(self, rows: int) -> int:
        if not self._paced:
            return self._slice_rows
        return min(self._slice_rows, max(PACED_SLICE_ROWS_MIN, rows // PACED_SLICES))

    def _next_slice(self) -> list[Action]:
        if self._slices and self._stop:
            return [self._save_as_it_is(self._stop, self._slices[0][0])]
        if self._slices:
            return [self._work(Insert(*self._slices[0]), Inserted)]
        message = self._messages.popleft()
        assert isinstance(message, Unjoined)
        return [EndMessage(message.epoch, message.octets, message.own), *self._next_message()]

    def _next_message(self) -> list[Action]:
        self._awaits = None
        if self._messages:
            return self._start_message()
        if not self._ended or self._finished:
            return []
        self._finished = True
        return [Finish()]

    def _probed(self, event: Probed) -> list[Action]:
        if event.progress is Progress.DONE:
            return [Consume(), self._work(Expire(*self._slices[0]), Expired)]
        if self._stop:
            return [Consume(), self._work(Pause(self._budget), Paused)]
        again = self._work(Probe(*self._slices[0], self._budget), Probed)
        results_wait = event.progress is Progress.BUDGET and not self._paced
        return [again] if results_wait else [Consume(), again]

    def _paused(self, event: Paused) -> list[Action]:
        if self._stop and event.progress is Progress.DONE:
            return [Consume(), self._save_as_it_is(self._stop, self._slices[0][1])]
        return [Consume(), self._work(Pause(self._budget), Paused)]

    def _save_as_it_is(self, stop: Marked, low: int) -> Action:
        """The run stops here. low: the first of the oldest message's groups of which nothing is inserted."""
        others = sum(1 for _ in self._unjoined()) - 1
        unjoined = (low, *[0] * others) if others >= 0 else ()
        return self._work(Save(stop.number, stop.cuts_metrics, stop.anew, unjoined), SaveDone)

    def _saved(self) -> list[Action]:
        if self._stop:  # nothing is joined any more
            self._messages.clear()
            self._slices.clear()
            self._awaits = None
            return []
        self._messages.popleft()
        return self._change() + self._next_message()

    def _change(self) -> list[Action]:
        """Carries out what has waited for the end of a slice."""
        actions: list[Action] = []
        while self._changes:
            change = self._changes.popleft()
            if isinstance(change, Staged):
                actions.append(Install(change.move))
            else:
                places = self._take_out(change.group) if change.step == steps.FREEZE else ()
                actions.append(Carry(change.move, change.step, change.group, places))
        return actions

    def _take_out(self, group: int) -> tuple[tuple[int, int], ...]:
        """Forgets the group in all that is not joined yet; returns where it was."""
        places = []
        for index, message in enumerate(self._unjoined()):
            at = np.flatnonzero(message.groups == group)
            if len(at) == 0 or (index == 0 and not self._is_to_come(int(at[0]))):
                continue
            places.append((index, int(at[0])))
            message.groups, message.rows = np.delete(message.groups, at), np.delete(message.rows, at)
        if places and places[0][0] == 0:
            self._slices = deque(without(self._slices, places[0][1]))
        return tuple(places)

    def _is_to_come(self, at: int) -> bool:
        """Whether a group of the oldest message is in a slice that is still to be joined."""
        return bool(self._slices) and at >= self._slices[0][0]

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
    return list(itertools.pairwise(bounds))


def without(slices: deque[tuple[int, int]], at: int) -> list[tuple[int, int]]:
    """The slices when the group at `at` is one of them no more.

    >>> without(deque([(0, 2), (2, 3), (3, 5)]), 2)
    [(0, 2), (2, 4)]
    """
    moved = [(low - (low > at), high - (high > at)) for low, high in slices]
    return [(low, high) for low, high in moved if low < high]
