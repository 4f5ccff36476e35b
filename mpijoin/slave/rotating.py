"""What a slave decides whose groups rotate between memory and disk (Flux, section 6.1).

A message is begun by an activation, if one is due. Then the rows of groups that are on disk are diverted, before the
message is cut into slices, and again after groups were written to disk. Pending input of a group that was activated is
joined as the oldest message, which nothing else can come between. A group that is to move is activated first. When the
input has ended, groups are activated until nothing is pending. So they are when no message has come for a while. In
shorter pauses they are not: the less is pending for a group, the more of its state is read and written for each row. A
paced run has the time for that, and its results are to come soon, so every pause is used.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Iterator

from mpijoin.moving import steps
from mpijoin.operators.base import Progress
from mpijoin.slave.core import IDLE_S, TRIES_MAX, SlaveCore
from mpijoin.slave.events import (
    Action,
    Divert,
    Diverted,
    EndInput,
    Event,
    Expired,
    Insert,
    Inserted,
    Marked,
    Ordered,
    Rotate,
    Rotated,
    Spilled,
)
from mpijoin.slave.rule import SpillRule
from mpijoin.slave.slices import Unjoined, without


class RotatingCore(SlaveCore):
    """A slave's core that also asks for activations. `spill.rotation.Rotation` says of which group."""

    def __init__(self, paced: bool, rule: SpillRule, open_groups: int = 0):
        super().__init__(paced=paced, rule=rule, open_groups=open_groups)
        self._idle_s = 0.0 if paced else IDLE_S
        self._begins_message = False  # what is under way comes before the oldest message
        # The slices of the message that waits while pending input is joined, and whether it has begun.
        self._interrupted: tuple[deque[tuple[int, int]], bool] | None = None
        self._activating: int | None = None  # the move for which a group is activated
        self._active_moves: set[int] = set()  # Their groups are in memory, and stay there.
        self._begun: set[int] = set()  # moves of which an order was carried out
        self._blocked: set[int | None] = set()  # moves without room for their group; None: its turn was

    @property
    def between_slices(self) -> bool:
        return super().between_slices or self._awaits in (Rotated, Diverted)

    @property
    def _stops(self) -> Marked | None:
        """Input that had been pending has no place in a checkpoint while it is joined, so that is done first."""
        return self._stop if self._interrupted is None else None

    @property
    def _may_wait(self) -> bool:
        """A group whose pending input is being joined can neither come nor go."""
        return self._interrupted is None

    def step(self, event: Event) -> list[Action]:
        if isinstance(event, Rotated) and self._awaits is Rotated:
            return self._rotated(event)
        if isinstance(event, Diverted) and self._awaits is Diverted:
            return self._diverted(event)
        actions = super().step(event)
        if isinstance(event, Ordered) and not self.busy:
            actions += self._go_on()
        return actions

    def _rotate(self, group: int | None = None, at_once: bool = False) -> list[Action]:
        return [self._work(Rotate(group, at_once), Rotated)]

    def _continue(self) -> Action:
        return self._work(Rotate(begins=False), Rotated)

    def _rotated(self, event: Rotated) -> list[Action]:
        self._open_groups = event.open_groups
        if len(event.groups):
            self._interrupted = self._slices, self._is_within_message
            rows = int(event.rows.sum())
            self._messages.add_oldest(Unjoined(self.newest_epoch, 0, event.groups, event.rows, True, rows))
            return self._cut()
        if self._stop:
            return [self._save_here(self._stop)]
        if event.more:
            return [self._continue()]
        return self._activated(event.is_blocked)

    def _save_here(self, stop: Marked) -> Action:
        """The run stops between two slices."""
        self._begins_message = False
        return self._save_as_it_is(stop, self._first_to_come())

    def _first_to_come(self) -> int:
        """The first of the oldest message's groups of which nothing is inserted."""
        if not self._is_within_message:
            return 0
        message = self._messages.oldest
        assert isinstance(message, Unjoined)  # nothing else is begun
        return self._slices[0][0] if self._slices else len(message.groups)

    def _activated(self, is_blocked: bool) -> list[Action]:
        """Nothing more is to be activated now."""
        if is_blocked:
            self._blocked.add(self._activating)
        elif self._activating is not None:
            self._active_moves.add(self._activating)
        self._activating = None
        if self._begins_message:
            self._begins_message = False
            return self._divert()
        actions = self._change()
        return actions + (self._divert() if self._slices else self._go_on())  # Others may have left for the group.

    def _divert(self) -> list[Action]:
        return [self._work(Divert(self._first_to_come()), Diverted)]

    def _diverted(self, event: Diverted) -> list[Action]:
        self._open_groups, message = event.open_groups, self._messages.oldest
        assert isinstance(message, Unjoined)  # a mark has no rows
        places = list(event.places)
        self._messages.without(message, places)
        if not self._is_within_message:
            return self._cut()
        before = len(self._slices)
        for at in reversed(places):
            self._slices = deque(without(self._slices, at))
        if self._lacking is None or len(self._slices) < before:
            self._lacking, self._tries = None, 0
            return self._go_on()
        return self._insert_again()

    def _insert_again(self) -> list[Action]:
        self._lacking = None
        return [self._work(Insert(*self._slices[0], in_parts=self._tries == TRIES_MAX), Inserted)]

    def _cut(self) -> list[Action]:
        """Cuts the oldest message into slices, and goes on."""
        actions = super()._start_message()
        return actions if self.busy else actions + self._next_message()

    def _start_message(self) -> list[Action]:
        oldest = self._messages.oldest
        if isinstance(oldest, Marked) or oldest.pending or self._stops:
            return super()._start_message()
        self._begins_message = True
        return self._rotate()

    def _slice_or_end(self) -> list[Action]:
        if self._slices:
            return super()._slice_or_end()
        if self._interrupted is not None:
            self._messages.pop_oldest()
            (self._slices, self._is_within_message), self._interrupted = self._interrupted, None
            return [EndInput(), self._save_here(self._stop) if self._stop else self._continue()]
        if self._ended and self._open_groups and len(self._messages.first(2)) == 1:
            return self._rotate(at_once=True)
        return super()._slice_or_end()

    def _expired(self, event: Expired) -> list[Action]:
        """A group whose pending input is being joined stays in memory until all of that is done."""
        if self._interrupted is None or event.progress is not Progress.DONE:
            self._blocked.clear()
            return super()._expired(event)
        self._slices.popleft()
        return self._next_slice()

    def _spilled(self, event: Spilled) -> list[Action]:
        if event.more or self._interrupted is not None or not self._is_within_message:
            return super()._spilled(event)
        self._open_groups = event.open_groups
        return self._divert()

    def _go_on(self) -> list[Action]:
        if (order := self._to_activate()) is not None:
            self._activating = order.move
            return self._rotate(order.group)
        return super()._go_on()

    def _change(self) -> list[Action]:
        """Carries out what has waited, but ships no group before it is in memory."""
        moves = {one.move for one in self._ships()}
        waiting = [one for one in self._changes if isinstance(one, Ordered) and one.move in moves]
        self._changes = deque(one for one in self._changes if one not in waiting)
        self._begun.update(one.move for one in self._changes if isinstance(one, Ordered))
        actions = super()._change()
        self._changes.extend(waiting)
        self._active_moves.clear()
        return actions

    def _to_activate(self) -> Ordered | None:
        """The next order to ship a group that may be on disk. Room for one may have to come from another that moves."""
        return next((one for one in self._ships() if one.move not in self._blocked), None)

    def _ships(self) -> Iterator[Ordered]:
        """The orders that begin a move. One that copies nothing ahead begins with the order to freeze."""
        known = self._active_moves | self._begun
        orders = (one for one in self._changes if isinstance(one, Ordered) and one.step in steps.FIRST.values())
        return (one for one in orders if one.move not in known)

    def _ticked(self, now_s: float) -> list[Action]:
        if self.busy or self._messages:
            return super()._ticked(now_s)
        if self._blocked:  # It looks again when a group has changed hands, or after a while.
            self._blocked.clear()
            self._cleans_at_s = math.inf
            return super()._ticked(now_s)
        if self._to_activate() is not None:
            return self._go_on()
        return super()._ticked(now_s)

    def _take_up_owed(self) -> list[Action]:
        return self._rotate(at_once=True)


def new_core(paced: bool, rule: SpillRule | None, open_groups: int, producers: int) -> SlaveCore:
    """The core of a slave that spills by this rule, or not at all. open_groups: as for `SlaveCore`.

    As many messages as there are producers are joined together. Not where groups rotate, whose rows are diverted
    message by message, nor in a paced run, where the results of the first would wait for the others.
    """
    if rule is not None and rule.rotates:
        return RotatingCore(paced, rule, open_groups)
    return SlaveCore(paced=paced, rule=rule, open_groups=open_groups, joint_max=1 if paced else producers)
