"""Production delays of results: how long after its latest tuple was due each one was found (WSJ, section VI-A)."""

from __future__ import annotations

from typing import Callable, Sequence

import numpy as np

from mpijoin.clock import RunClock
from mpijoin.join.results import latest_times
from mpijoin.metrics.delay_kernels import delays_of
from mpijoin.operators.base import Keep, Out, Rows
from mpijoin.store.state import FOREVER, NONE, TIME, TIME_MAX_VALUE


class DelayMeter:
    """A consumer that tells `record` how many results were how many us late. origin: of what is being joined, a moment
    of event time and the second at which it was due; None for what is not to be timed."""

    def __init__(
        self,
        clock: RunClock,
        unit_s: float,
        record: Callable[[np.ndarray, np.ndarray], None],
        windows: Sequence[int],
    ):
        """unit_s: wall seconds of one unit of event time · record: takes delays in us and counts, int64[k] both ·
        windows: of each stream, in units of event time."""
        self._clock, self._unit_s, self._record, self._windows = clock, unit_s, record, windows
        self.origin: tuple[int, float] | None = None

    def consume(self, out: Out, rows: Rows, epoch: int) -> None:
        if self.origin is None:
            return
        times, counts = self._over(out, rows) if out.is_final else times_of(out, rows)
        delays_us = np.empty(len(times), np.int64)
        time, second = self.origin
        delays_of(times, time, second * 1e6, self._unit_s * 1e6, self._clock.wall_s * 1e6, delays_us)
        self._record(delays_us, counts)

    def _over(self, out: Out, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """When tuples that were answered at the end of their windows are due, which is then. They are of stream 0, or
        without partner. One that waits for ever is not timed."""
        slots = out.slots[:, : out.count]
        is_right = slots[0] == NONE
        windows = np.where(is_right, self._windows[1], self._windows[0])
        bounded = windows != FOREVER
        times = rows.words[np.where(is_right, slots[1], slots[0])[bounded] + TIME]
        due = np.minimum(times, TIME_MAX_VALUE - windows[bounded]) + windows[bounded]
        return due, np.ones(len(due), np.int64)

    def end_epoch(self, epoch: int, last: bool) -> None:
        pass


def times_of(out: Out, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Latest times of results, and how many results have each: int64[k] both."""
    if out.keep is Keep.LATEST_TIMES:
        return out.slots[0, : out.count], out.weights[: out.count]
    times = np.empty(out.count, np.int64)
    latest_times(rows.words, out.slots, times)
    return times, np.ones(out.count, np.int64)
