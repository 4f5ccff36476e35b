"""When a checkpoint is wanted, when it is cut, and whether the run ends with it."""

from __future__ import annotations

from mpijoin.checkpoint.schedule import Schedule
from mpijoin.producer.events import CutAsked

METRICS_S = 600.0  # so much of the metrics may be lost with a run that is killed


class Saves:
    """The checkpoints of a run, one at a time."""

    def __init__(self, schedule: Schedule | None, now_s: float):
        """schedule: None where only a stop wants a checkpoint."""
        self.schedule = schedule
        self.wanted = False
        self.open = False  # one is cut, and not yet whole or given up
        self.stops = ""  # why the run ends with the next one
        self.stopped = False  # that one has been cut: nothing may follow it
        self._metrics_s = now_s  # when the metrics were cut last

    def slot_ended(self, now_s: float) -> None:
        """At the end of every slot."""
        if self.schedule and self.schedule.slot_ended(now_s) and not self.open:
            self.wanted = True

    def ends_soon(self, now_s: float) -> bool:
        """Whether the walltime ends so soon that the run has to stop."""
        return self.schedule is not None and self.schedule.ends_soon(now_s)

    def cut(self, now_s: float) -> CutAsked:
        """The checkpoint that is wanted begins here. Not every one cuts the metrics, too, or there would be very many
        files."""
        self.wanted, self.open, self.stopped = False, True, bool(self.stops)
        metrics = self.stopped or now_s - self._metrics_s >= METRICS_S
        if metrics:
            self._metrics_s = now_s
        if self.schedule:
            self.schedule.began(now_s)
        return CutAsked(self.stops, metrics)
