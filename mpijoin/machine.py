"""What this machine gives a rank: cores, and memory that is kept once it is there."""

from __future__ import annotations

import ctypes
import os
import platform
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Iterator

import numpy as np

PROCESSORS = "/proc/cpuinfo"
PROCESSOR_FACTS = ("vendor_id", "cpu family", "model", "model name", "flags", "CPU implementer", "CPU part", "Features")
MAPPINGS = "/proc/self/maps"
# One word for each page of the address space. To read it for one library takes a millisecond; /proc/self/smaps, which
# says the same in text of all that is mapped, takes 15 and holds up every thread that needs a page meanwhile.
PAGES = "/proc/self/pagemap"
HELD = np.uint64(0b11 << 62)  # in memory, or swapped out
OF_FILE = np.uint64(1 << 61)
MADV_DONTNEED = 4  # of Linux
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # of glibc
KEPT_BYTES = 128 << 20  # free memory at the end of the heap that is kept
# what is larger, or than this part of all, is never kept
HEAP_BYTES_MAX, HEAP_SHARE, MMAP_BYTES_MIN = 32 << 20, 4, 1 << 17
HEAP_PIECE_BYTES = 4 << 20  # so that some room between what lies in the heap already is used, too


def core_count() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def host_name() -> str:
    """What this node is called."""
    return os.uname().nodename


def processor_model() -> str:
    """What the system calls its processor; its architecture where it does not say."""
    with suppress(OSError):
        for line in Path(PROCESSORS).read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.machine()


def processor() -> str:
    """What decides which machine code this processor runs: its model, and what it can do."""
    facts = [platform.machine()]
    with suppress(OSError), open(PROCESSORS) as lines:
        for line in lines:
            name, _, value = line.partition(":")
            if not value:
                break  # on to the next core, of the same kind
            if name.strip() in PROCESSOR_FACTS:
                facts.append(value.strip())
    return " ".join(facts)


def keep_freed_memory(octets: int = KEPT_BYTES) -> None:
    """Lets the allocator keep this much of what is freed for what is allocated next, instead of giving it back at once.

    Messages and parts of ticks come and go, megabytes each, and it takes longer to get fresh pages for them than to
    fill them (a third to a half of the master's time, and of a move's). If the C library has no such setting, the run
    is only slower. Arrow, if it is not loaded yet, takes its memory from this allocator, too, and not from one of its
    own, which keeps 30 MB more.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_TRIM_THRESHOLD, octets)
        mallopt(M_MMAP_THRESHOLD, max(MMAP_BYTES_MIN, min(HEAP_BYTES_MAX, octets // HEAP_SHARE)))


def share_heap() -> None:
    """Has all threads that begin from now on allocate from one heap, not from one each.

    So what one of them frees is there for the others, with its pages: blocks that a thread decodes lie where the heap
    was touched. Kernels do not allocate and most other code holds the interpreter's lock, so that threads hardly ever
    wait for each other here. If the C library has no such setting, the run only takes more memory.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def touch_heap(octets: int) -> None:
    """Has the system provide memory for what will be allocated, if the allocator keeps what is freed
    (`keep_freed_memory`)."""
    pieces = [np.empty(HEAP_PIECE_BYTES, np.uint8) for _ in range(octets // HEAP_PIECE_BYTES)]
    for piece in pieces:
        piece[:: os.sysconf("SC_PAGE_SIZE")] = 0


def use_small_pages() -> None:
    """Makes NumPy ask for no huge pages from now on. What has been touched stays as it is.

    A virtual machine may have given its free huge pages back to its host, and takes milliseconds to get one again.
    Small pages come from memory that was in use a moment ago. Where NumPy has no such setting, the run is only slower.
    """
    with suppress(ImportError, AttributeError):
        import_module("numpy._core.multiarray")._set_madvise_hugepage(False)


def unmap_unchanged(library: str) -> None:
    """Drops those pages of a shared library from this process that are as in its file. What is used again comes back by
    itself.

    Of the compiler 68 MB are mapped once it has loaded a kernel, a seventh of all that three ranks hold, and then it is
    not used: the system may have these pages for other files. Where it keeps no list of mappings, nothing happens.
    """
    with suppress(OSError, AttributeError):
        madvise = ctypes.CDLL(None).madvise
        madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for start, end in _unchanged(library):
            madvise(start, end - start, MADV_DONTNEED)


def _unchanged(library: str) -> Iterator[tuple[int, int]]:
    """Where those mappings of the library begin and end that cannot be written and hold no page of this process's
    own."""
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    lines = [line for line in Path(MAPPINGS).read_text().splitlines() if library in line.rpartition("/")[2]]
    with open(PAGES, "rb") as pages:
        for addresses, rights, *_ in (line.split() for line in lines):
            start, end = (int(address, 16) for address in addresses.split("-"))
            pages.seek(start // page_bytes * 8)
            states = np.frombuffer(pages.read((end - start) // page_bytes * 8), np.uint64)
            own = (states & HELD != 0) & (states & OF_FILE == 0)
            if "w" not in rights and len(states) and not own.any():
                yield start, end
