"""How far a paced run is behind its time: the time from the moment an epoch was due to the moment it was joined."""

from __future__ import annotations

from collections import deque

# The default load buffer holds the bytes of two epochs: a slave that is behind by more is overloaded, unless epochs are
# short.
EPOCHS_BEHIND = 2
# A busy neighbour or the system may hold up a rank for so long, which says nothing about its load.
BEHIND_S = 0.5


class Backlog:
    """Of each slave the messages that it has not joined, by the second at which they were due.

    A slave that keeps up joins an epoch before the next is due: it is behind by less than one epoch.
    """

    def __init__(self, slaves: tuple[int, ...]):
        self._due_s: dict[int, deque[float]] = {slave: deque() for slave in slaves}
        self.behind_s = dict.fromkeys(slaves, 0.0)  # at its last report
        self.behind_s_max = dict.fromkeys(slaves, 0.0)
        self.lag_s = 0.0  # of the last epoch that was sent: how long after its time
        self.lag_s_max = 0.0

    @property
    def joining(self) -> bool:
        """Whether some slave has not yet joined all that it was sent."""
        return any(self._due_s.values())

    def sent(self, slave: int, due_s: float) -> None:
        self._due_s[slave].append(due_s)

    def joined(self, slave: int, now_s: float) -> None:
        """The slave has joined its oldest message."""
        self.behind_s[slave] = now_s - self._due_s[slave].popleft()
        self.behind_s_max[slave] = max(self.behind_s_max[slave], self.behind_s[slave])

    def lagged(self, lag_s: float) -> None:
        """An epoch was sent so long after it was due."""
        self.lag_s = lag_s
        self.lag_s_max = max(self.lag_s_max, lag_s)

    def overload_s(self, epoch_ns: int) -> float:
        """How far the slowest slave, or the master, is behind; 0 as long as it is less than two epochs, or
        `BEHIND_S`."""
        behind_s = max(self.lag_s, *self.behind_s.values())
        return behind_s if behind_s > _allowed_s(epoch_ns) else 0.0

    def is_overloaded(self, epoch_ns: int) -> bool:
        """Whether some slave, or the producer, ever was."""
        return max(self.lag_s_max, *self.behind_s_max.values()) > _allowed_s(epoch_ns)

    def start_over(self) -> None:
        """Forgets the maxima: the warm-up has ended."""
        self.behind_s_max = dict.fromkeys(self.behind_s_max, 0.0)
        self.lag_s_max = 0.0


def _allowed_s(epoch_ns: int) -> float:
    return max(BEHIND_S, EPOCHS_BEHIND * epoch_ns / 1e9)
