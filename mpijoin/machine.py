"""What this machine gives a rank: memory and cores. Read once, at launch."""

from __future__ import annotations

import ctypes
import os
import platform
from contextlib import suppress
from pathlib import Path
from typing import Mapping

CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
LOCAL_SIZES = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE")
PROCESSORS = "/proc/cpuinfo"
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc
KEPT_BYTES = 128 << 20  # free memory at the end of the heap that is kept
HEAP_BYTES_MAX = 32 << 20  # what is larger is never kept
USABLE_SHARE = 0.8  # of a node's memory; the rest is Python, libraries, messages under way and the page cache


def node_memory_bytes(environ: Mapping[str, str]) -> int:
    """The least of: what the machine has, the cgroup's limit, Slurm's limit for this job on a node."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in CGROUP_LIMITS:
        text = Path(path).read_text().strip() if Path(path).is_file() else "max"
        limits += [int(text)] if text.isdecimal() else []
    slurm_mib = environ.get("SLURM_MEM_PER_NODE", "")
    limits += [int(slurm_mib) << 20] if slurm_mib.isdecimal() and int(slurm_mib) else []
    return min(limits)


def slave_memory_bytes(environ: Mapping[str, str], ranks: int) -> int:
    """`[cluster] memory = "auto"`: a node's usable memory over the ranks on it (all ranks, if the launcher does not say)."""
    sizes = [environ[name] for name in LOCAL_SIZES if environ.get(name, "").isdecimal()]
    on_node = max(1, int(sizes[0])) if sizes else ranks
    return int(node_memory_bytes(environ) * USABLE_SHARE) // on_node


def core_count() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor_model() -> str:
    """What the system calls its processor; its architecture where it does not say."""
    with suppress(OSError):
        for line in Path(PROCESSORS).read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.machine()


def keep_freed_memory() -> None:
    """Lets the allocator keep what is freed for what is allocated next, instead of giving it back to the system at once.

    Messages and parts of ticks come and go, megabytes each: to get fresh pages for them takes longer than to fill them (a
    third to a half of the master's time, and of a move's). Where the C library has no such setting, nothing is lost but speed.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(M_MMAP_THRESHOLD, HEAP_BYTES_MAX)

