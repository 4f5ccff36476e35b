"""How long ticks and epochs are, and at which moments those of a paced run end.

A paced run keeps the pace of its data: `speed` seconds of event time pass in one second of the wall clock, and its
distribution and reorganization epochs are of the wall clock. Their length may follow what communication costs.
"""

from __future__ import annotations

from typing import Mapping, Sequence

import numpy as np

from mpijoin.named import NamedTuple
from mpijoin.policy.epoch import AUTO_ROWS, next_epoch_ns

TIME_MIN, TIME_MAX = -(1 << 63), (1 << 63) - 1
# An epoch is at most so many windows long, so that a row meets few others that are not in its window. With a third of a
# window, three streams took a tenth to a quarter longer, since each epoch costs every rank some work.
WINDOWS_MAX = 2
# With many producers it is at most this part of a window. Each may be a tick ahead of the others, and longer ticks made
# slaves a third to a half slower.
WINDOW_SHARE = 3
# Epochs are never shorter than this many rows, however many windows that is. Cutting them smaller saves a few MB of
# state, but an epoch has a cost of its own. With an eighth, workload F1 with windows of 10 s took twice as long, and on
# threads three times. With twice as many, a row of F1 met so many more that the run took a tenth longer.
LEAST_ROWS = 1 << 17
FIRST_EPOCH_NS = 500_000_000  # of a paced run whose epochs are automatic
ADVICE_EPOCHS = 10  # So many epochs are looked at before the next ones are made longer or shorter,
ADVICE_NS = 1_000_000_000  # ... and at least so long.
# Where distribution epochs have no length of their own, a reorganization epoch is longer by "an order of magnitude"
# (WSJ, IV-C).
EPOCHS_PER_REORGANIZATION = 10


class Pace(NamedTuple):
    """How long a tick is, in the join's time unit. It is `length`. Where that is None, a tick has about `rows` rows,
    but no more bytes than a part may have, and is at most `length_max` long unless it has fewer than `rows_min`
    rows."""

    length: int | None
    rows: int
    rows_min: int
    length_max: int


def pace_of(epoch: int | None, windows: Sequence[int], subgroups: int, shared: bool = False) -> Pace:
    """The pace of slots for distribution epochs of length `epoch` (None: automatic), all in the join's time unit.
    shared: whether there are several producers.

    >>> pace_of(100, (600, 600), 4)
    Pace(length=25, rows=131072, rows_min=32768, length_max=300)
    >>> pace_of(100, (600, 600), 4, shared=True).length_max
    50
    """
    length = None if epoch is None else max(1, epoch // subgroups)
    longest = max(windows) // WINDOW_SHARE if shared else WINDOWS_MAX * max(windows)
    longest = max(1, longest // subgroups) if max(windows) else TIME_MAX
    return Pace(length, max(1, AUTO_ROWS // subgroups), max(1, LEAST_ROWS // subgroups), longest)


class Tempo(NamedTuple):
    """What a job says about the length of its epochs."""

    windows: tuple[int, ...]
    """Of each stream, in the join's time unit."""
    subgroups: int = 1
    """So many slots are in a distribution epoch."""
    unit_s: float = 0.0
    """Wall seconds in which one unit of event time passes; 0: the run is as fast as possible."""
    epoch: int | None = None
    """Length of a distribution epoch in the join's time unit, where the run is not paced; None: automatic."""
    epoch_ns: int | None = None
    """The same in nanoseconds, of the wall clock where the run is paced; None: automatic."""
    reorganization_ns: int = 20_000_000_000
    """Length of a reorganization epoch."""
    shared: bool = False
    """Whether several producers share the input."""
    communication: float = 0.1
    """The share of its time that a slave may spend on communication, where epochs are automatic."""


class Pacing:
    """The lengths of epochs, and, in a paced run, the moments at which they end."""

    def __init__(self, tempo: Tempo):
        self.paced = tempo.unit_s > 0
        self.adapts = self.paced and tempo.epoch_ns is None
        self.epoch_ns = tempo.epoch_ns or FIRST_EPOCH_NS  # of a distribution epoch of a paced run
        self.origin: tuple[int, float] | None = None  # Event time passes from this time and second of the run on.
        self._tempo = tempo
        self._advised_s = 0.0
        self._spent_s: dict[int, tuple[float, float]] = {}

    @property
    def pace(self) -> Pace:
        """The pace of slots, in event time."""
        tempo = self._tempo
        epoch = max(1, round(self.epoch_ns / 1e9 / tempo.unit_s)) if self.paced else tempo.epoch
        return pace_of(epoch, tempo.windows, tempo.subgroups, tempo.shared)

    @property
    def lead(self) -> int:
        """The event time by which one of many producers may be ahead of the slowest: as an epoch of theirs, it is such
        a part of a window that it adds little to the state."""
        return max(self._tempo.windows) // WINDOW_SHARE

    @property
    def slots(self) -> int:
        """How many slots a reorganization epoch has: those of whole distribution epochs."""
        tempo = self._tempo
        if not self.paced and tempo.epoch_ns is None:
            return EPOCHS_PER_REORGANIZATION * tempo.subgroups
        return max(1, round(tempo.reorganization_ns / self.epoch_ns)) * tempo.subgroups

    def begin(self, border: int, now_s: float) -> None:
        """The first tick of a paced run, which ends at `border`, began to pass now."""
        self.origin = (border - (self.pace.length or 0), now_s)

    def due_s(self, event: int) -> float:
        """The second of the run at which this event time has passed; at once where none passes yet."""
        event_time, second = self.origin or (event, 0.0)
        return second + (event - event_time) * self._tempo.unit_s

    def wants_advice(self, now_s: float) -> bool:
        """Whether enough epochs have passed to look at what they cost."""
        return self.adapts and (now_s - self._advised_s) * 1e9 >= max(ADVICE_NS, ADVICE_EPOCHS * self.epoch_ns)

    def advise(self, spent_s: Mapping[int, tuple[float, float]], behind: bool, now_s: float) -> bool:
        """Looks at what communication and joining cost: seconds since the start, per slave. behind: whether the run is
        far behind its time. Returns whether epochs get another length."""
        if not self.wants_advice(now_s):
            return False
        passed_s = now_s - self._advised_s
        before, self._spent_s, self._advised_s = self._spent_s, dict(spent_s), now_s
        passed = [np.subtract(spent, before.get(slave, (0.0, 0.0))) / passed_s for slave, spent in spent_s.items()]
        communication, busy = (float(share) for share in np.max(passed, axis=0))
        before_ns, bound = self.epoch_ns, self._tempo.communication
        self.epoch_ns = next_epoch_ns(before_ns, communication, bound, busy, behind)
        return self.epoch_ns != before_ns
