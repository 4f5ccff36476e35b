"""Memory that is taken from a slave and given back while it runs, as `[inject] memory` says: the external pressure of
Flux, section 6."""

from __future__ import annotations

from typing import Callable, Sequence

from mpijoin.config.job import Pressure, holds_at


class MemoryPressure:
    """Holds a slave's memory to the smallest of its budget and of the limits that are in force."""

    def __init__(self, schedule: Sequence[Pressure], budget_bytes: int, limit: Callable[[int], None]):
        """schedule: that of this slave · budget_bytes: what it has without them · limit: takes the bytes that it has
        from now on, as `GroupState.limit` does."""
        self._schedule, self._budget_bytes, self._limit = schedule, budget_bytes, limit
        self._held_to = budget_bytes

    def hold(self, now_ns: float) -> bool:
        """Calls `limit` if the slave has another amount now than at the last call. Returns whether it has.

        now_ns: of the run, by the wall clock
        """
        allowed = [one.limit_bytes for one in self._schedule if holds_at(one, now_ns)]
        octets = min([self._budget_bytes, *allowed])
        if octets == self._held_to:
            return False
        self._held_to = octets
        self._limit(octets)
        return True
