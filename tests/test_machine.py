"""What a rank gets of its machine."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from numpy._core.multiarray import _set_madvise_hugepage

import mpijoin
from mpijoin import machine
from mpijoin.machine import core_count, processor_model

ROOT = Path(__file__).parents[1]


def test_there_is_a_core():
    assert core_count() >= 1


def test_a_processor_has_a_name(tmp_path, monkeypatch):
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: other\n")
    monkeypatch.setattr(machine, "PROCESSORS", str(tmp_path / "cpuinfo"))
    assert processor_model() == "Some CPU @ 2 GHz"
    for text in (tmp_path / "empty", tmp_path / "missing"):
        monkeypatch.setattr(machine, "PROCESSORS", str(text))
        assert processor_model() == platform.machine()


def run(code, *arguments):
    """Runs Python code in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=dict(os.environ, PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        timeout=240,  # kernels may have to be compiled
    )


def test_freed_memory_is_kept_and_reused():
    """In a process of its own: an array of 8 MiB that is freed lies where the next one is made, with its pages."""
    code = (
        "import resource, numpy as np; from mpijoin.machine import keep_freed_memory; keep_freed_memory()\n"
        "def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "np.ones(1 << 20); before = faults()\n"
        "for _ in range(20): np.ones(1 << 20)\n"
        "print(faults() - before)"
    )
    done = run(code)
    assert int(done.stdout) < 20 * 2048 / 4, done.stderr


def test_memory_that_one_thread_freed_is_there_for_the_next():
    """In a process of its own: arrays of 2 MiB of one thread after the other lie in the same pages."""
    code = (
        "import resource, numpy as np; from threading import Thread\n"
        "from mpijoin.machine import keep_freed_memory, share_heap\n"
        "keep_freed_memory(); share_heap(); np.ones(1 << 18)\n"
        "def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "before, threads = faults(), [Thread(target=np.ones, args=[1 << 18]) for _ in range(4)]\n"
        "for thread in threads: thread.start(); thread.join()\n"
        "print(faults() - before)"
    )
    done = run(code)
    assert int(done.stdout) < 256, done.stderr  # half as many as the pages of one of them


def test_a_local_run_has_one_heap(job_file, tmp_path):
    """In a process of its own: ranks and decoders are threads, and glibc lists the heaps that there are afterwards."""
    code = (
        "import ctypes, sys; from mpijoin.cli import main\n"
        "assert main(sys.argv[2:]) == 0; libc = ctypes.CDLL(None); libc.fopen.restype = ctypes.c_void_p\n"
        "file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b'w'))\n"
        "libc.malloc_info(0, file); libc.fclose(file)"
    )
    done = run(code, tmp_path / "heaps.xml", "run", job_file, "--ranks", "2", "--quiet")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "heaps.xml").read_text().count("<heap ") == 1


def test_heap_that_was_touched_costs_no_faults_when_it_is_allocated():
    """In a process of its own: arrays of 12 MiB in all find their memory where 16 MiB were touched."""
    code = (
        "import resource, numpy as np; from mpijoin.machine import keep_freed_memory, touch_heap\n"
        "def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "keep_freed_memory(); first = faults(); touch_heap(16 << 20); before = faults()\n"
        "arrays = [np.ones(1 << 18) for _ in range(6)]; print(before - first, faults() - before)"
    )
    done = run(code)
    touched, later = map(int, done.stdout.split())
    assert touched > 4 and later < 100, done.stderr  # numpy asks for huge pages, where there are some


def test_pages_of_a_library_that_are_as_in_its_file_are_dropped_and_come_back():
    """In a process of its own, of the compiler: what was mapped is not, and it compiles as before."""
    code = (
        "import numba\n"
        "from pathlib import Path\n"
        "from mpijoin.machine import unmap_unchanged\n"
        "def compiled_sum(): return numba.njit(lambda a, b: a + b)(2, 3)\n"
        "def file_kb(): return int(Path('/proc/self/status').read_text().split('RssFile:')[1].split()[0])\n"
        "compiled_sum(); before = file_kb(); unmap_unchanged('nothing of this name'); unchanged = file_kb()\n"
        "unmap_unchanged('llvmlite'); print(before - unchanged, before - file_kb(), compiled_sum())"
    )
    done = run(code)
    other_kb, dropped_kb, total = map(int, done.stdout.split())
    assert other_kb <= 1024 and dropped_kb > 20_000 and total == 5, done.stderr


ADVICE = """
import numpy as np
from mpijoin.machine import use_small_pages

def asks_for_huge_pages():
    array = np.empty(64 << 20, np.uint8)  # too large for the heap: it has a mapping of its own
    address, own = array.ctypes.data + array.nbytes // 2, False
    for line in open("/proc/self/smaps"):
        first, _, rest = line.partition(" ")
        if not first.endswith(":"):
            low, high = (int(end, 16) for end in first.split("-"))
            own = low <= address < high
        elif own and first == "VmFlags:":
            return "hg" in rest.split()

print(asks_for_huge_pages(), use_small_pages(), asks_for_huge_pages())
"""


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").is_dir(), reason="the kernel has no huge pages")
def test_numpy_asks_for_no_huge_pages_once_told():
    environ = dict(os.environ, NUMPY_MADVISE_HUGEPAGE="1")
    done = subprocess.run([sys.executable, "-c", ADVICE], env=environ, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["True", "None", "False"], done.stderr


@pytest.mark.parametrize("producers", [1, 2])
def test_only_several_producers_ask_for_small_pages(producers):
    """Ranks are threads of this process here, so what one sets can be seen afterwards."""
    stream = {"kind": "synthetic", "tuples": 500, "window": "1 s"}
    cluster = {"producers": producers, "partitions": 4}
    before = _set_madvise_hugepage(True)
    try:
        mpijoin.run({"left": stream, "right": stream, "cluster": cluster, "output": {"results": "count"}}, slaves=1)
        assert _set_madvise_hugepage(True) == (producers == 1)
    finally:
        _set_madvise_hugepage(before)
