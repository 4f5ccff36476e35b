"""Time as the runtimes see it: the wall clock of the run and the CPU time of a rank's thread."""

from __future__ import annotations

import time


class RunClock:
    """Counts from `start`, which all ranks call once kernels are loaded and ranks connected."""

    def __init__(self) -> None:
        self.start()

    def start(self, started_s: float | None = None) -> None:
        """Counts from now, or from `started_s`, seconds since 1970: ranks that share it agree as well as their nodes'
        clocks do, and delays may be measured across ranks."""
        ago_s = 0.0 if started_s is None else time.time() - started_s
        self.started_s = time.time() - ago_s
        self._wall_s, self._cpu_s = time.perf_counter() - ago_s, time.thread_time()

    @property
    def wall_s(self) -> float:
        return time.perf_counter() - self._wall_s

    @property
    def cpu_s(self) -> float:
        """CPU seconds of the calling thread, which must be the one that called `start`."""
        return time.thread_time() - self._cpu_s

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
