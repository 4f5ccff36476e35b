"""When the parts of a paced run's ticks are handed out, and when the next one is prepared."""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

from mpijoin.producer.backlog import Backlog
from mpijoin.producer.events import HandOver, Input, PartReady, Read
from mpijoin.producer.pacing import Pacing
from mpijoin.time_events import Rest

# A tick is begun at the latest when it is due in so many times the seconds that the last one took to prepare.
PREPARE_AHEAD = 3.0


class Now(NamedTuple):
    """What the decision depends on beside the timetable itself. wants_input: whether a part may be handed out ·
    has_room: whether what was read ahead and what waits leave room to read on · wait_s: for so long the sources have
    nothing."""

    now_s: float
    wants_input: bool
    has_room: bool
    wait_s: float


class Timetable:
    """The parts that are read and scattered before they are due: in idle time, as WSJ says in section VI-A (streams are
    generated "during idle period")."""

    def __init__(self, pacing: Pacing, backlog: Backlog, now_s: float):
        self.due_s = now_s  # the moment at which the tick was due that was handed out last
        self.octets = 0  # of all parts that are prepared
        self._pacing, self._backlog = pacing, backlog
        self._parts: deque[PartReady] = deque()
        self._border = 0  # of the tick that was handed out last
        # what it took to prepare the tick under way, and the last whole one
        self._preparing_s = self._prepare_s = 0.0

    @property
    def is_empty(self) -> bool:
        return not self._parts

    def prepared(self, part: PartReady) -> None:
        self._parts.append(part)
        self.octets += part.octets
        self._preparing_s += part.took_s
        if part.completes:
            self._prepare_s, self._preparing_s = self._preparing_s, 0.0

    def handed_over(self, now_s: float) -> None:
        """The oldest part has gone to the mini-buffers."""
        part = self._parts.popleft()
        self.octets -= part.octets
        self.due_s = self._pacing.due_s(part.border)
        if part.completes:
            self._border = part.border
            self._backlog.lagged(max(0.0, now_s - self.due_s))

    def next(self, at: Now) -> Input:
        """What shall be done about the input."""
        if not self._parts:
            spare_s = self._spare_s(at.now_s)
            return Rest(spare_s) if spare_s > 0 else _read_within(math.inf, at)
        if self._pacing.origin is None:  # other producers have not read theirs
            return Rest(math.inf)
        due_s = self._pacing.due_s(self._parts[0].border)
        wait_s = due_s - at.now_s if due_s > at.now_s else math.inf
        if due_s <= at.now_s and at.wants_input:
            return HandOver(due_s)
        if not self._parts[-1].completes and at.has_room:
            return _read_within(wait_s, at)
        return Rest(wait_s)

    def _spare_s(self, now_s: float) -> float:
        """For so long the next tick need not be prepared: slaves that join may share this core, and results wait for
        them."""
        if self._pacing.origin is None or not self._backlog.joining:
            return 0.0
        due_s = self._pacing.due_s(self._border + (self._pacing.pace.length or 0))
        return due_s - PREPARE_AHEAD * self._prepare_s - now_s


def _read_within(seconds: float, at: Now) -> Input:
    """Reads on where the sources have something, or rests until they do, at most so long."""
    return Read() if at.wait_s <= 0 else Rest(min(seconds, at.wait_s))
