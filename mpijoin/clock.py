"""Time as the runtimes see it: the wall clock of the run and the CPU time of a rank's thread."""

from __future__ import annotations

import time


class RunClock:
    """Counts from `start`, which all ranks call once kernels are loaded and ranks connected."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        self._wall_s, self._cpu_s = time.perf_counter(), time.thread_time()

    @property
    def wall_s(self) -> float:
        return time.perf_counter() - self._wall_s

    @property
    def cpu_s(self) -> float:
        """CPU seconds of the calling thread, which must be the one that called `start`."""
        return time.thread_time() - self._cpu_s
