"""When a checkpoint is due: at fixed intervals, after a number of epochs, before the walltime ends, or when a signal
asks for one."""

from __future__ import annotations

from typing import Mapping

from mpijoin.config.job import Checkpoint


class Schedule:
    """Asked at the end of each slot. All seconds are of the run's clock."""

    def __init__(self, wanted: Checkpoint, slots_per_epoch: int, now_s: float, end_s: float | None):
        """slots_per_epoch: of a reorganization epoch · end_s: when the walltime ends, None: unknown."""
        self.slots_per_epoch = slots_per_epoch
        self._wanted, self._end_s = wanted, end_s
        self._last_s, self._slots = now_s, 0

    def slot_ended(self, now_s: float) -> bool:
        """Whether a checkpoint is due now."""
        self._slots += 1
        wanted = self._wanted
        if wanted.every_ns is not None and (now_s - self._last_s) * 1e9 >= wanted.every_ns:
            return True
        return wanted.epochs is not None and self._slots >= wanted.epochs * self.slots_per_epoch

    def ends_soon(self, now_s: float) -> bool:
        """Whether the walltime ends within the margin."""
        margin_ns = self._wanted.margin_ns
        return margin_ns is not None and self._end_s is not None and (self._end_s - now_s) * 1e9 <= margin_ns

    def began(self, now_s: float) -> None:
        """A checkpoint has begun: the time to the next one counts from here."""
        self._last_s, self._slots = now_s, 0


def walltime_end_s(wanted: Checkpoint, environ: Mapping[str, str], start_s: float) -> float | None:
    """When this run must have ended, in seconds since 1970; None if nobody says. start_s: when it began."""
    if wanted.walltime_ns is not None:
        return start_s + wanted.walltime_ns / 1e9
    told = environ.get("SLURM_JOB_END_TIME", "")
    return float(told) if told.isdecimal() else None
