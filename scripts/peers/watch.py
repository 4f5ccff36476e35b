"""Runs one command within limits of time and memory, and watches all of its processes from outside."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Sequence

import numpy as np

from benching.launch import SAMPLE_S, family, pin, pss_bytes

# Adding up the pages of many GB takes long, so memory is sampled only as often as takes about this share of a core. The
# times vary, or else all runs of a short command would be looked at in the same moments, which may all be outside of
# its span of much memory.
SAMPLER_SHARE, VARIES = 0.1, (0.5, 1.5)
ENDING_S = 30.0
EVERY_PROGRAM = ("",)  # Launchers and helpers count, too.


@dataclass(frozen=True)
class Limits:
    seconds: float
    pss_bytes: float


@dataclass(frozen=True)
class Watched:
    """A command that has ended.

    over: the limit for which it was ended, "time" or "memory", else "" · pss_bytes: the greatest sum over its processes
    · cpu: (seconds since 1970, CPU seconds of all processes so far), in order.
    """

    exit_code: int
    said: str
    errors: str
    over: str
    pss_bytes: int
    cpu: list[tuple[float, float]]

    def cpu_s(self, start_s: float, seconds: float) -> float:
        """Returns the CPU seconds between two moments. start_s: in seconds since 1970."""
        times, used = zip(*self.cpu)
        return float(np.interp(start_s + seconds, times, used) - np.interp(start_s, times, used))


def watch(line: Sequence[str], cores: Sequence[int], limits: Limits, extra: Mapping[str, str] = {}) -> Watched:
    """Runs a command on these cores. extra: further variables of its environment."""
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as errors:
        start, used_before = time.monotonic(), _cpu_of_children()
        process = subprocess.Popen(line, stdout=said, stderr=errors, env=os.environ | extra, preexec_fn=pin(cores))
        cpu, pss, held, due, over = [(time.time(), 0.0)], 0, 0, start, ""
        try:
            while process.poll() is None and not over:
                processes = family(process.pid)
                cpu.append((time.time(), sum(map(_cpu_s, processes))))
                if (before := time.monotonic()) >= due:
                    held = sum(pss_bytes(one, EVERY_PROGRAM) for one in processes)
                    pss, now = max(pss, held), time.monotonic()
                    due = now + (now - before) / SAMPLER_SHARE * random.uniform(*VARIES)
                over = "memory" if held > limits.pss_bytes else "time" if before - start > limits.seconds else ""
                time.sleep(SAMPLE_S)
        finally:
            _end(process)
        cpu.append((time.time(), _cpu_of_children() - used_before))
        texts = []
        for file in (said, errors):
            file.seek(0)
            texts.append(file.read())
    return Watched(process.returncode, *texts, over, pss, cpu)


def _end(process: subprocess.Popen) -> None:
    """Ends a command and all that it has started, and waits until their memory is free.

    A command that has ended already has left nothing behind.
    """
    if process.poll() is None:
        processes = family(process.pid)
        for one in processes:
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        process.wait()
        deadline = time.monotonic() + ENDING_S
        while any(map(is_alive, processes)) and time.monotonic() < deadline:
            time.sleep(SAMPLE_S)


def is_alive(process: int) -> bool:
    """Returns whether a process still runs. One that waits for its parent to take note of its end does not."""
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def _cpu_of_children() -> float:
    """Returns the CPU seconds of all processes that this one has started and seen end, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _cpu_s(process: int) -> float:
    """Returns the CPU seconds of a process and of its children that have ended. It is 0 if the process is gone."""
    with suppress(OSError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def machine_memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
