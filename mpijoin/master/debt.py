"""How far the slaves are with the clean-up at the end of a run."""

from __future__ import annotations


class Debt:
    """Watches what the slaves owe once the input has ended. It then only falls, after the last spill.

    >>> debt = Debt()
    >>> for now_s, owed_bytes in enumerate([500, 800, 600]):
    ...     debt.note(owed_bytes, now_s, input_ended=True)
    >>> debt.cleaned, debt.left_s(2.0)
    (0.25, 3.0)
    """

    def __init__(self) -> None:
        self._most_bytes = self._owed_bytes = 0
        self._since_s = 0.0

    def note(self, owed_bytes: int, now_s: float, input_ended: bool) -> None:
        self._owed_bytes = owed_bytes
        if not input_ended or owed_bytes >= self._most_bytes:
            self._most_bytes, self._since_s = owed_bytes, now_s

    @property
    def cleaned(self) -> float | None:
        """The share of the debt that is worked off; None before any is."""
        return 1 - self._owed_bytes / self._most_bytes if self._owed_bytes < self._most_bytes else None

    def left_s(self, now_s: float) -> float | None:
        """How long the rest may take; None before any is worked off."""
        done = self.cleaned
        return (now_s - self._since_s) * (1 / done - 1) if done else None
