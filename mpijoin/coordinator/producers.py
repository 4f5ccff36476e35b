"""What the coordinator knows of the producers: how far each has come."""

from __future__ import annotations

import math
from typing import Sequence

from mpijoin.errors import ProtocolError
from mpijoin.producer.events import Begin, BeginsAt, Floor, SlotEnded
from mpijoin.producer.pacing import TIME_MAX, TIME_MIN

FLOOR_S = 0.00025  # For each producer: that often they hear at most where the slowest of them stands.


class Producers:
    """One or more, numbered from 0 on."""

    def __init__(self, count: int):
        self._count = count
        self._ended: set[int] = set()
        self._slots = [0] * count  # 0 once it has ended
        self._due: dict[int, dict[int, int]] = {}
        self._positions = [TIME_MIN] * count
        self._floor, self._told_s = TIME_MIN, 0.0
        self._begins: dict[int, BeginsAt] = {}
        self._has_begun = count == 1

    @property
    def all_ended(self) -> bool:
        """Whether all have come to the end of their input."""
        return len(self._ended) == self._count

    @property
    def due(self) -> dict[int, int]:
        """The bytes per slave that were due at the end of each producer's last slot, and lacked credit."""
        if self._count == 1:
            return self._due.get(0, {})
        slaves = {slave for due in self._due.values() for slave in due}
        return {slave: sum(due.get(slave, 0) for due in self._due.values()) for slave in slaves}

    def slot_ended(self, event: SlotEnded) -> bool:
        """Returns whether none of the producers that go on had so many before."""
        self._positions[event.producer] = event.position
        self._due[event.producer] = event.due
        is_new = event.slots > max(self._slots)
        self._slots[event.producer] = event.slots
        return is_new

    def input_ended(self, producer: int, now_s: float) -> Sequence[Floor | Begin]:
        """Returns what producers are to be told. ProtocolError: it has ended before."""
        if producer in self._ended:
            raise ProtocolError(f"producer {producer} has come to its end twice")
        self._ended.add(producer)
        self._slots[producer] = 0
        self._positions[producer] = TIME_MAX
        return [*self._begin(now_s), *self.floor(now_s)]

    def floor(self, now_s: float) -> Sequence[Floor]:
        """Returns what producers are to be told: where the slowest of them stands, if it has gone on."""
        if now_s < self.floor_due_s:
            return []
        self._floor, self._told_s = min(self._positions), now_s
        return [Floor(self._floor)]

    @property
    def floor_due_s(self) -> float:
        """From which second of the run on `floor` has something to tell. It is to be asked then: all producers may wait
        for it, and nothing else happens meanwhile."""
        if self._count == 1 or min(self._positions) == self._floor:
            return math.inf
        return self._told_s + FLOOR_S * self._count

    def begins(self, event: BeginsAt, now_s: float) -> Sequence[Begin]:
        """Returns what producers are to be told: when event time begins to pass, once all know where they begin."""
        self._begins[event.producer] = event
        self._positions[event.producer] = max(self._positions[event.producer], event.event)
        return self._begin(now_s)

    def _begin(self, now_s: float) -> Sequence[Begin]:
        known = {*self._begins, *self._ended}
        if self._has_begun or not self._begins or len(known) < self._count:
            return []
        self._has_begun = True
        self._floor = min(one.event for one in self._begins.values())
        return [Begin(self._floor, now_s)]
