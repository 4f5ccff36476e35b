"""How far a producer may run ahead of the slowest one.

Shares of the input lie in turn along event time. So a producer that has come to the end of one stands at once where the
others have not been yet, and has to go on: they all work side by side. But what it sends is state at the slaves until
the slowest has come there, too. It may therefore begin a share while nobody stands before the one that it had before.
Some ticks more are allowed, so that producers need not wait for word of each other.
"""

from __future__ import annotations

from mpijoin.producer.pacing import TIME_MAX, TIME_MIN

AHEAD_TICKS = 4  # So many ticks are always allowed, beside what lies between two shares.


class Lead:
    """Times are running maxima, in the join's unit. position: no row of this producer to come lies below it."""

    def __init__(self) -> None:
        self.position = TIME_MIN
        self._floor = TIME_MIN  # of all producers, TIME_MIN before all have told theirs
        self._start = TIME_MIN  # where this one began
        self._tick = self._jump = 0  # the longest of its ticks, and of what lay between two of them

    def tick_ended(self, border: int, position: int) -> None:
        """A tick that ends at `border` is over."""
        if self._start == TIME_MIN:
            self._start = border
        else:
            self._tick = max(self._tick, border - max(self._start, self.position))
        if position != TIME_MAX:
            self._jump = max(self._jump, position - border)
        self.position = position

    def others(self, floor: int) -> None:
        self._floor = max(self._floor, floor)

    @property
    def is_bounded(self) -> bool:
        """Whether this producer has to wait for the slowest one."""
        if self._start == TIME_MIN or self.position == TIME_MAX:
            return False
        ahead = AHEAD_TICKS * self._tick + self._jump
        return self.position - max(self._floor, min(self._start, self.position)) > ahead
