"""How far the slaves are with the clean-up at the end of a run."""

from __future__ import annotations

from mpijoin.records import SpillFigures


class Debt:
    """Watches what the slaves owe once the input has ended. After the last spill it only falls.

    >>> debt = Debt()
    >>> for now_s, owed_bytes in enumerate([500, 800, 600]):
    ...     debt.note(SpillFigures(owed_bytes=owed_bytes), now_s, input_ended=True)
    >>> debt.cleaned, debt.left_s(2.0)
    (0.25, 3.0)
    """

    def __init__(self) -> None:
        self._most = self._now = SpillFigures()  # when the most was owed, and now
        self._since_s = 0.0  # the moment of the most

    def note(self, spilling: SpillFigures, now_s: float, input_ended: bool) -> None:
        """spilling: of all slaves together."""
        self._now = spilling
        rises = spilling.owed_bytes > self._most.owed_bytes
        if not input_ended or rises or spilling.spills > self._most.spills:
            self._most, self._since_s = spilling, now_s

    @property
    def cleaned(self) -> float | None:
        """The share of the debt that is worked off; None before the clean-up has begun."""
        most, now = self._most, self._now
        if not most.owed_bytes or (now.owed_bytes == most.owed_bytes and now.cleanup_s == most.cleanup_s):
            return None
        return 1 - now.owed_bytes / most.owed_bytes

    def left_s(self, now_s: float) -> float | None:
        """How long the rest may take; None before anything is worked off."""
        done = self.cleaned
        return (now_s - self._since_s) * (1 / done - 1) if done else None
