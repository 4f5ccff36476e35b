"""How far a producer may run ahead of the slowest one.

Shares of the input lie in turn along event time. So a producer that has come to the end of one stands at once where the
others have not been yet. What it sends from there is state at the slaves until the slowest has come there, too. So it
only prepares it (`stock`), as long as there is room: they all work side by side, and slaves get about the same time of
all of them. Where a share does not fit, it may begin to send it while nobody stands before the one that it had before.
A tick and a part of a window more are allowed, so that producers need not wait for word of each other. They hear it
less often the more of them there are, so that part is smaller for few: there it would bring nothing, and make windows
larger.
"""

from __future__ import annotations

from mpijoin.producer.pacing import TIME_MAX, TIME_MIN

AHEAD_TICKS = 1  # So many ticks are always allowed, beside what lies between two shares and the part of a window.
MANY = 32  # So many producers or more are allowed the whole part of a window, fewer less of it.


class Lead:
    """Times are running maxima, in the join's unit. position: no row of this producer to come lies below it."""

    def __init__(self, producers: int = 2, always: int = 0) -> None:
        """producers: how many there are · always: a time by which each of many may be ahead, beside its ticks."""
        # Between two shares of one producer lie those of all others. This is a share more on both sides.
        self._reach = (producers + 1) / max(1, producers - 1)
        self.position = TIME_MIN
        self._always = always * min(producers, MANY) // MANY
        self._floor: int | None = None  # of all producers; None before all know where they begin
        self._tick = self._jump = 0  # the longest of its ticks, and of what lay between two of them

    def begin(self, start: int, border: int) -> None:
        """Its first tick is from `start` to `border`."""
        self.position, self._tick = start, border - start

    def tick_ended(self, border: int, position: int) -> None:
        """A tick that ends at `border` is over."""
        self._tick = max(self._tick, border - self.position)
        if position != TIME_MAX:
            self._jump = max(self._jump, position - border)
        self.position = position

    def others(self, floor: int) -> None:
        if self._floor is None:  # What lies before its first share is what lies between two, or a part of that.
            self._jump = max(self._jump, self.position - floor)
        self._floor = floor if self._floor is None else max(self._floor, floor)

    def may_prepare(self, border: int) -> bool:
        """Whether to go on from here with what is to be sent later. More than the next share would only take room."""
        return self._floor is not None and border - self._floor <= self._ahead + self._reach * self._jump

    def is_bounded(self, has_room: bool) -> bool:
        """Whether this producer has to wait for the slowest one. has_room: to prepare what it may not send."""
        if self.position == TIME_MAX:
            return False
        if self._floor is None:
            return True
        return self.position - self._floor > self._ahead + (0 if has_room else self._jump)

    @property
    def _ahead(self) -> int:
        return AHEAD_TICKS * self._tick + self._always
