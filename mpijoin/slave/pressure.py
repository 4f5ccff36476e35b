"""Memory that is taken from a slave and given back while it runs, as `[inject] memory` says, or as what the node allows
changes: the external pressure of Flux, section 6."""

from __future__ import annotations

from typing import Callable, Sequence

from mpijoin.config.inject import Pressure, holds_at

ASK_NS = 2_000_000_000  # So often `allowed` is asked; it reads some files of the kernel.


class MemoryPressure:
    """Holds a slave's memory to the smallest of its budget, of what the node allows and of the limits in force."""

    def __init__(
        self,
        schedule: Sequence[Pressure],
        budget_bytes: int,
        limit: Callable[[int], None],
        allowed: Callable[[], int] | None = None,
    ):
        """schedule: that of this slave · budget_bytes: what it has without pressure, and never more · limit: takes the
        bytes that it has from now on, as `GroupState.limit` does · allowed: says what the node allows it now; None:
        what it did at the start."""
        self._schedule, self._budget_bytes, self._limit, self._allowed = schedule, budget_bytes, limit, allowed
        self._held_to = self._allowed_bytes = budget_bytes
        self._asks_ns = 0.0

    def hold(self, now_ns: float) -> bool:
        """Calls `limit` if the slave has another amount now than at the last call. Returns whether it has.

        now_ns: of the run, by the wall clock
        """
        if self._allowed is not None and now_ns >= self._asks_ns:
            self._asks_ns = now_ns + ASK_NS
            self._allowed_bytes = self._allowed()
        limits = [one.limit_bytes for one in self._schedule if holds_at(one, now_ns)]
        octets = min([self._budget_bytes, self._allowed_bytes, *limits])
        if octets == self._held_to:
            return False
        self._held_to = octets
        self._limit(octets)
        return True
