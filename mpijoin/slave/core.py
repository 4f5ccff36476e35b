"""What a slave decides: the order of its work, in pieces short enough to be interrupted, and when groups come and go.

`SlaveCore.step(event) -> actions` knows counts only. One work action is under way at a time, and its outcome is the
event that follows.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from mpijoin.errors import ProtocolError
from mpijoin.moving import steps
from mpijoin.operators.base import Memory, Progress
from mpijoin.slave.events import (
    Action,
    Arrived,
    Carry,
    Cleaned,
    CleanUp,
    Consume,
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
    Resumed,
    RunOut,
    Save,
    SaveDone,
    Spill,
    Spilled,
    SpillOrdered,
    Staged,
)
from mpijoin.slave.patience import Patience
from mpijoin.slave.rule import SpillRule
from mpijoin.slave.slices import Messages, Unjoined, cut_slices, end_all, joint_count, paced_slice_rows, without
from mpijoin.time_events import Rest, Ticked

# A slice of groups is inserted, probed and expired before the next, so that its state (some MB) is still in the
# processor's cache. Each slice costs some calls: with a quarter as many rows, runs took a twentieth to a tenth longer.
SLICE_ROWS = 1 << 18
# So many comparisons are made between two looks at the network. 32 of them take a nanosecond or two, so that is a few
# milliseconds.
PROBE_BUDGET = 1 << 26
# For so long after a part of a group was sent or has come, its slave looks out for the next step without sleeping: who
# sleeps wakes late, and neither slave joins the group meanwhile.
ALERT_S = 0.02
# A slave that has had nothing to do for so long takes up what is owed for rows on disk.
IDLE_S = 0.1
# For so long a slave waits for memory that a group which changes hands may give back.
ROOM_S = 0.001
# So often in a row an insert may take nothing at all. At first groups are spilled for it. Then it takes groups in
# parts. After that, the memory is too small for anything.
TRIES_MAX = 2


class SlaveCore:
    """Joins messages in the order of arrival, slice by slice of their groups. Groups come and go between slices.

    >>> core = SlaveCore()
    >>> core.step(Arrived(epoch=0, octets=24, groups=np.array([5]), rows=np.array([1]), last=True))
    [Insert(low=0, high=1)]
    """

    def __init__(
        self,
        slice_rows: int = SLICE_ROWS,
        budget: int = PROBE_BUDGET,
        paced: bool = False,
        rule: SpillRule | None = None,
        open_groups: int = 0,
        joint_max: int = 1,
    ):
        """rule: when to spill, or None if the run fails where memory is short · open_groups: how many groups have
        something on disk already · joint_max: so many messages at most are joined together."""
        self._slice_rows, self._budget, self._paced = slice_rows, budget, paced
        self._rule = rule
        self._lacking: Spill | None = None  # what has to be spilled before more of the slice can be inserted
        self._tries = 0
        self._waits_for_room, self._tries_at_s = False, math.inf  # because a group changes hands
        self._orders: deque[Spill] = deque()  # from the master
        self._open_groups = open_groups
        self._is_within_message = False  # the oldest message has begun,
        self._joint = 1  # ... and so many of the oldest are joined together, slice by slice
        self._joint_max = joint_max
        self._idle_s, self._cleans_at_s = IDLE_S, math.inf  # if nothing comes until then
        self._took_up_s, self._not_before_s = 0.0, -math.inf  # when it took up a group last, and may do so again
        self._messages = Messages()
        self._patience = Patience(joint_max, slice_rows)
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
    def _stops(self) -> Marked | None:
        """The mark with which the run ends here and now."""
        return self._stop

    @property
    def _may_wait(self) -> bool:
        """Whether groups may come and go while a slice waits for memory."""
        return True

    @property
    def backlog_bytes(self) -> int:
        """How much of the stream buffer is taken by what is not joined yet."""
        return self._messages.backlog_bytes

    def step(self, event: Event) -> list[Action]:
        if isinstance(event, Arrived):
            return self._arrived(event)
        if isinstance(event, (Ordered, Staged)):
            self._changes.append(event)
            return [] if self.busy else self._change()
        if isinstance(event, Marked):
            self._messages.add(event)
            self._stop = event if event.stops else None
            return [] if self.busy else self._next_message()
        if isinstance(event, Handed):
            self._alert_until_s = event.now_s + ALERT_S
            return []
        if isinstance(event, Ticked):
            return self._ticked(event.now_s)
        if isinstance(event, SpillOrdered):
            return self._ordered_to_spill(event)
        if isinstance(event, Resumed):
            return self._resumed(event)
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
        if isinstance(event, Spilled):
            return self._spilled(event)
        if isinstance(event, Cleaned):
            return self._cleaned(event)
        assert isinstance(event, Expired)  # whoever awaits anything else takes it
        return self._expired(event)

    def _inserted(self, event: Inserted) -> list[Action]:
        low, high = self._slices[0]
        self._tries = 0 if event.progressed else self._tries + 1
        if event.taken.groups < high - low:
            return self._make_room(event, self._slices[0])
        self._tries = 0
        if self._stops:
            return [self._save_as_it_is(self._stops, high)]
        return [self._work(Probe(low, high, self._budget), Probed)]

    def _expired(self, event: Expired) -> list[Action]:
        if event.progress is not Progress.DONE:
            return [Consume(), self._expire()]
        low, high = self._slices.popleft()
        self._messages.joined(self._joint, low, high)
        actions = self._change()
        if self._rule and not event.is_moving and event.memory.held > self._rule.threshold * event.memory.budget:
            self._orders.append(self._pushes(self._rule, event.memory))
        return actions + self._go_on()

    def _arrived(self, event: Arrived) -> list[Action]:
        if self._ended:
            raise ProtocolError("slave got a message after the last one")
        self._ended = event.last
        self._cleans_at_s = math.inf
        self.newest_epoch = max(self.newest_epoch, event.epoch)
        rows_all = int(event.rows.sum())
        own = (event.epoch, event.octets, event.groups, event.rows, event.own, rows_all)
        message = Unjoined(*own, joint=event.joint, producer=event.producer)
        self._messages.add(message)
        self._patience.came(message, event.rests)
        return [] if self.busy else self._next_message()

    def _resumed(self, event: Resumed) -> list[Action]:
        """Joins fresh tuples at first. They are in no message, and their groups can neither spill nor expire before."""
        rows = np.zeros(len(event.groups), np.int64)
        self._messages.add(Unjoined(0, 0, event.groups, rows, True, 0, pending=True))
        return self._next_message()

    def _start_message(self) -> list[Action]:
        if self._stops:
            return [self._save_as_it_is(self._stops, 0)]
        if isinstance(mark := self._messages.oldest, Marked):
            return [self._work(Save(mark.number, mark.cuts_metrics, mark.anew), SaveDone)]
        self._joint = joint_count(self._messages, self._joint_max)
        rows = np.sum([message.rows for message in self._messages.first(self._joint)], axis=0)
        slice_rows = paced_slice_rows(int(rows.sum())) if self._paced else self._slice_rows
        self._slices = deque(cut_slices(rows, min(self._slice_rows, slice_rows)))
        self._is_within_message = True
        return self._slice_or_end()

    def _next_slice(self) -> list[Action]:
        actions = self._slice_or_end()
        return actions if self.busy else actions + self._next_message()

    def _slice_or_end(self) -> list[Action]:
        if self._slices and self._stops:
            return [self._save_as_it_is(self._stops, self._slices[0][0])]
        if self._slices:
            return [self._insert()]
        if self._rule and self._ended and len(self._messages.first(self._joint + 1)) == self._joint:
            return [self._work(CleanUp(ends=True), Cleaned)]
        return self._end_message()

    def _insert(self, in_parts: bool = False) -> Action:
        return self._work(Insert(*self._slices[0], in_parts, self._joint), Inserted)

    def _end_message(self) -> list[Action]:
        self._awaits = None
        under_way = self._messages.first(self._joint)
        ends = end_all(under_way)
        for _ in ends:
            self._messages.pop_oldest()
        self._is_within_message, self._joint = False, 1
        return [*ends, *self._change()]

    def _next_message(self) -> list[Action]:
        """Takes up the next message with something to join. Hundreds in a row may have none: their groups have left."""
        self._awaits = None
        actions: list[Action] = []
        while self._messages and not self.busy and not self._patience.waits(self._messages):
            actions += self._start_message()
        if self._ended and not self.busy and not self._finished:
            self._finished = True
            actions.append(Finish())
        return actions

    def _make_room(self, event: Inserted, cut: tuple[int, int]) -> list[Action]:
        """Memory is short. What is inserted so far is joined, then groups are spilled, and then the rest comes."""
        lacking = event.taken.lacking_pages
        if self._rule is None or (self._tries > TRIES_MAX and not (event.is_moving and self._may_wait)):
            return [RunOut(lacking)]
        if self._tries > TRIES_MAX:  # Groups that change hands stay in memory until they have.
            self._waits_for_room = True
            return []
        self._lacking = self._pushes(self._rule, event.memory, lacking * self._rule.page_bytes)
        return [self._work(Probe(*cut, self._budget), Probed)]

    def _pushes(self, rule: SpillRule, memory: Memory, least_bytes: int = 0) -> Spill:
        return Spill(max(least_bytes, int(rule.share * memory.held)), rule.ranking)

    def _ordered_to_spill(self, event: SpillOrdered) -> list[Action]:
        """A slave at which a group changes hands does not spill. The master orders it again if it must be."""
        if self._rule is None:
            raise ProtocolError("slave was ordered to spill, and has no disk to spill to")
        if event.is_moving:
            return []
        self._orders.append(Spill(event.octets, event.ranking))
        return [] if self.busy else self._go_on()

    def _go_on(self) -> list[Action]:
        """Spills what is to be spilled between two slices, and then goes on."""
        if self._orders:
            return [self._work(self._orders.popleft(), Spilled)]
        return self._next_slice() if self._is_within_message else [*self._change(), *self._next_message()]

    def _spilled(self, event: Spilled) -> list[Action]:
        self._open_groups = event.open_groups
        if event.more:
            return [self._work(Spill(0, "", begins=False), Spilled)]
        if self._lacking:
            self._lacking = None
            return [self._insert(in_parts=self._tries == TRIES_MAX)]
        return self._go_on()

    def _ticked(self, now_s: float) -> list[Action]:
        """Nothing can be done now, unless something is owed."""
        if self._waits_for_room:
            return self._try_again(now_s)
        if self._messages and not self.busy:
            left_s = self._patience.left_s(now_s)
            return [Rest(left_s)] if left_s > 0 else self._next_message()
        if self.busy or self._messages or not (self._rule and self._rule.idle and self._open_groups):
            self._cleans_at_s = math.inf
        elif self._cleans_at_s == math.inf:
            self._cleans_at_s = max(now_s + self._idle_s, self._not_before_s)
        elif now_s >= self._cleans_at_s:
            self._took_up_s = now_s
            return self._take_up_owed()
        return [Rest(0.0 if now_s < self._alert_until_s else self._cleans_at_s - now_s)]

    def _take_up_owed(self) -> list[Action]:
        return [self._work(CleanUp(), Cleaned)]

    def _try_again(self, now_s: float) -> list[Action]:
        """Memory was too short for the slice while a group changed hands, which has gone on meanwhile."""
        if self._tries_at_s == math.inf:
            self._tries_at_s = now_s + ROOM_S
        if now_s < self._tries_at_s:
            return [Rest(self._tries_at_s - now_s)]
        self._waits_for_room, self._tries_at_s, self._tries = False, math.inf, 0
        return [*self._change(), *self._next_slice()]

    def _cleaned(self, event: Cleaned) -> list[Action]:
        self._open_groups = event.open_groups
        if event.more and not (event.is_between and (self._stop or not self._is_within_message)):
            return [Consume(), self._work(CleanUp(), Cleaned)]
        if self._stop and self._is_within_message:
            message = self._messages.oldest
            assert isinstance(message, Unjoined)  # all of its rows are joined
            return [Consume(), self._save_as_it_is(self._stop, len(message.groups))]
        if self._is_within_message:
            return [Consume(), *self._end_message(), *self._next_message()]
        self._cleans_at_s = -math.inf if event.more and not self._messages else math.inf
        if self._messages:  # They have waited for the group. Joining comes first for as long as that took.
            self._not_before_s = 2 * event.now_s - self._took_up_s
        return [Consume(), *self._change(), *self._next_message()]

    def _probed(self, event: Probed) -> list[Action]:
        if event.progress is Progress.DONE and self._lacking:
            return [Consume(), self._work(self._lacking, Spilled)]
        if event.progress is Progress.DONE:
            return [Consume(), self._expire()]
        if self._stops and not self._lacking:
            return [Consume(), self._work(Pause(self._budget), Paused)]
        again = self._work(Probe(*self._slices[0], self._budget), Probed)
        results_wait = event.progress is Progress.BUDGET and not self._paced
        return [again] if results_wait else [Consume(), again]

    def _expire(self) -> Action:
        return self._work(Expire(*self._slices[0], self._joint), Expired)

    def _paused(self, event: Paused) -> list[Action]:
        if self._stop and event.progress is Progress.DONE:
            return [Consume(), self._save_as_it_is(self._stop, self._slices[0][1])]
        return [Consume(), self._work(Pause(self._budget), Paused)]

    def _save_as_it_is(self, stop: Marked, low: int) -> Action:
        """The run stops here. low: the first group of the messages under way of which nothing is inserted."""
        count = sum(1 for _ in self._messages.unjoined())
        unjoined = tuple(low if index < self._joint else 0 for index in range(count))
        return self._work(Save(stop.number, stop.cuts_metrics, stop.anew, unjoined), SaveDone)

    def _saved(self) -> list[Action]:
        if self._stop:  # nothing is joined any more
            self._messages.clear()
            self._slices.clear()
            self._is_within_message, self._joint = False, 1
            self._open_groups = 0
            self._awaits = None
            return []
        self._messages.pop_oldest()
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
        begun = self._joint if self._is_within_message else 0
        places = self._messages.take_out(group, begun, self._slices)
        if places and places[0][0] == 0:
            self._slices = deque(without(self._slices, places[0][1]))
        return places

    def _work(self, action: Action, outcome: type) -> Action:
        self._awaits = outcome
        return action
