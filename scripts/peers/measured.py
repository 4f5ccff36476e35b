"""What every program here prints as its last line: its answer, and the time and CPU that it took, by its own clock."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Callable, Sequence


def measure(join: Callable[[], tuple[int, int]], version: str, processes: Sequence[int] = (), **further: Any) -> None:
    """Runs `join` and prints one line of JSON.

    join: opens the files, and returns the results and the sum of l.id * 31 + r.id · processes: others that work for
    this one, such as a JVM · further: more entries of the line, read when the join is done.
    """
    cpu_s, start_s = _cpu_s(processes), time.perf_counter()
    results, total = join()
    seconds = time.perf_counter() - start_s
    figures = {"seconds": seconds, "results": results, "sum": int(total or 0), "cpu_s": _cpu_s(processes) - cpu_s}
    print(json.dumps({**figures, "version": version, **further}), flush=True)


def _cpu_s(processes: Sequence[int]) -> float:
    """Returns the CPU seconds so far of all threads of this process, and of others."""
    times = (Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()[11:13] for one in processes)
    ticks = sum(int(user) + int(system) for user, system in times)
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")
