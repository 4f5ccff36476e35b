"""When ticks are due: event time paced by the wall clock, and epochs whose length follows what communication costs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpijoin.clock import RunClock
from mpijoin.config.job import MAX, Job
from mpijoin.data.schema import UNIT_NS, JoinSchema
from mpijoin.master.ticks import Pace, Tick, pace_of
from mpijoin.partitioning.scatter import Scattered
from mpijoin.policy.epoch import next_epoch_ns
from mpijoin.rank import WAIT_S

FIRST_EPOCH_NS = 500_000_000  # of a paced run whose epochs are automatic
ADVICE_EPOCHS = 10  # so many epochs are looked at before the next is made longer or shorter,
ADVICE_NS = 1_000_000_000  # ... and at least so long
# where distribution epochs have no length of their own: "an order of magnitude" (WSJ, IV-C)
EPOCHS_PER_REORGANIZATION = 10


class Prepared(NamedTuple):
    """A part of a tick of a paced run, ready before it is due. place: the layout for which it was scattered."""

    tick: Tick
    scattered: tuple[Scattered, ...]
    place: np.ndarray

    @property
    def octets(self) -> int:
        """About what it takes: rows as they were read, and as they were scattered."""
        return 2 * sum(one.tuples.nbytes + one.blob.nbytes for one in self.scattered)


class Pacing:
    """The lengths of epochs, and, in a paced run, the moments at which they end.

    In a paced run distribution and reorganization epochs are of the wall clock; `speed` seconds of event time pass in
    one.
    """

    def __init__(self, job: Job, schema: JoinSchema):
        cluster = job.cluster
        self.paced = job.run.speed != MAX
        self.origin: tuple[int, float] | None = None  # event time, second of the run: from there event time passes
        self._subgroups, self._schema = cluster.subgroups, schema
        self._windows = tuple(schema.ticks(stream.window_ns) for stream in job.streams)
        self._reorganization_ns = cluster.reorganization_epoch_ns
        self._bound = job.tuning.communication
        self.epoch_ns = cluster.distribution_epoch_ns
        self.adapts = self.paced and self.epoch_ns is None
        if self.paced:
            self._unit_s = UNIT_NS[schema.unit] / 1e9 / job.run.speed  # wall seconds of one unit of event time
            self.epoch_ns = self.epoch_ns or FIRST_EPOCH_NS
        self._advised_s = 0.0
        self._spent_s: dict[int, tuple[float, float]] = {}

    @property
    def pace(self) -> Pace:
        """Of a slot, in event time."""
        if not self.paced:
            epoch = None if self.epoch_ns is None else max(1, self._schema.ticks(self.epoch_ns))
            return pace_of(epoch, self._windows, self._subgroups)
        return pace_of(max(1, round(self.epoch_ns / 1e9 / self._unit_s)), self._windows, self._subgroups)

    @property
    def slots(self) -> int:
        """Slots of a reorganization epoch: of whole distribution epochs."""
        if self.epoch_ns is None:
            return EPOCHS_PER_REORGANIZATION * self._subgroups
        return max(1, round(self._reorganization_ns / self.epoch_ns)) * self._subgroups

    def begin(self, border: int, now_s: float) -> None:
        """The first tick ends at `border`: it began to pass now."""
        self.origin = (border - self.pace.length, now_s)

    def due_s(self, event: int) -> float:
        """The second of the run at which this event time has passed."""
        event_time, second = self.origin
        return second + (event - event_time) * self._unit_s

    def advise(self, spent_s: dict[int, tuple[float, float]], behind: bool, now_s: float) -> bool:
        """Looks at what communication and joining cost: seconds since the start, per slave. behind: whether the run is
        far behind its time. Whether epochs get another length."""
        passed_s = now_s - self._advised_s
        if not self.adapts or passed_s * 1e9 < max(ADVICE_NS, ADVICE_EPOCHS * self.epoch_ns):
            return False
        before, self._spent_s, self._advised_s = self._spent_s, dict(spent_s), now_s
        passed = [np.subtract(spent, before.get(slave, (0.0, 0.0))) / passed_s for slave, spent in spent_s.items()]
        communication, busy = (float(share) for share in np.max(passed, axis=0))
        epoch_ns, self.epoch_ns = self.epoch_ns, next_epoch_ns(self.epoch_ns, communication, self._bound, busy, behind)
        return self.epoch_ns != epoch_ns


def rest_s(clock: RunClock, until_s: float) -> float:
    """How long a rank that has nothing to do until a moment, in seconds since 1970, may sleep at once."""
    return min(WAIT_S, max(0.0, until_s - clock.started_s - clock.wall_s))
