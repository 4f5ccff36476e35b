"""When the parts of a paced run's ticks are handed out, and when the next one is prepared."""

from __future__ import annotations

import math

from mpijoin.producer.backlog import Backlog
from mpijoin.producer.events import HandOver, Input, PartReady
from mpijoin.producer.pacing import Pacing
from mpijoin.producer.stock import Now, Stock, read_within
from mpijoin.time_events import Rest

# A tick is begun at the latest when it is due in so many times the seconds that the last one took to prepare.
PREPARE_AHEAD = 3.0


class Timetable(Stock):
    """The parts that are read and scattered before they are due: in idle time, as WSJ says in section VI-A (streams are
    generated "during idle period")."""

    def __init__(self, pacing: Pacing, backlog: Backlog, now_s: float):
        super().__init__()
        self.due_s = now_s  # the moment at which the tick was due that was handed out last
        self._pacing, self._backlog = pacing, backlog
        self._border = 0  # of the tick that was handed out last
        # what it took to prepare the tick under way, and the last whole one
        self._preparing_s = self._prepare_s = 0.0

    def prepared(self, part: PartReady) -> None:
        super().prepared(part)
        self._preparing_s += part.took_s
        if part.completes:
            self._prepare_s, self._preparing_s = self._preparing_s, 0.0

    def handed_over(self, now_s: float) -> PartReady:
        part = super().handed_over(now_s)
        self.due_s = self._pacing.due_s(part.border)
        if part.completes:
            self._border = part.border
            self._backlog.lagged(max(0.0, now_s - self.due_s))
        return part

    def next(self, at: Now) -> Input:
        if not self._parts:
            spare_s = self._spare_s(at.now_s)
            return Rest(spare_s) if spare_s > 0 else read_within(math.inf, at)
        if self._pacing.origin is None:  # other producers have not read theirs
            return Rest(math.inf)
        due_s = self._pacing.due_s(self._parts[0].border)
        wait_s = due_s - at.now_s if due_s > at.now_s else math.inf
        if due_s <= at.now_s and at.wants_input:
            return HandOver(due_s)
        if not self._parts[-1].completes and at.has_room:
            return read_within(wait_s, at)
        return Rest(wait_s)

    def _spare_s(self, now_s: float) -> float:
        """For so long the next tick need not be prepared: slaves that join may share this core, and results wait for
        them."""
        if self._pacing.origin is None or not self._backlog.joining:
            return 0.0
        due_s = self._pacing.due_s(self._border + (self._pacing.pace.length or 0))
        return due_s - PREPARE_AHEAD * self._prepare_s - now_s
