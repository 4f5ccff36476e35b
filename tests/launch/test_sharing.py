"""Processes that need the same kernels share the work of compiling them, and a run on threads has helpers."""

import fcntl
import os
import shutil
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from mpijoin.compiled import cache_folder
from mpijoin.launch import sharing
from mpijoin.launch.sharing import KernelSet, help_out, prepare
from mpijoin.launch.use import Use
from mpijoin.launch.warmup import sets_of

ROOT = Path(__file__).parents[2]
FEW_S = 0.2


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sharing, "cache_folder", lambda: tmp_path)
    return tmp_path


def test_a_set_that_another_process_compiles_is_left_for_later(folder):
    done, last_came = [], threading.Event()
    with open(folder / "held.lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        sets = [KernelSet(name, partial(done.append, name)) for name in ("held", "free")]
        sets.append(KernelSet("last", last_came.set))
        thread = threading.Thread(target=prepare, args=(sets,))
        thread.start()
        assert last_came.wait(30) and done == ["free"], "the set that is held was not waited for"
    thread.join(30)
    assert done == ["free", "held"] and all(one.is_compiled for one in sets)


def test_a_process_that_never_lets_go_is_waited_for_only_so_long(folder, monkeypatch):
    monkeypatch.setattr(sharing, "LOCK_S", FEW_S)
    done = []
    with open(folder / "held.lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert prepare([KernelSet("held", lambda: done.append("held"))]) >= FEW_S
    assert done == ["held"]


def test_of_two_threads_one_compiles_and_the_other_takes_no_lock_meanwhile(folder):
    """Each thread prepares all sets, but only the first one that comes compiles."""
    at_once, meanwhile, begun = [], [], threading.Event()

    def compile_it():
        if one.is_compiled:
            return
        at_once.append(1)
        begun.set()
        time.sleep(FEW_S)  # The other thread has so long to do what it must not.
        with open(folder / "second.lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # Another process could have taken it.
        at_once.pop()

    one = KernelSet("first", compile_it)
    sets = [one, KernelSet("second", lambda: meanwhile.append(len(at_once)))]
    threads = [threading.Thread(target=prepare, args=(order,)) for order in (sets, sets[::-1])]
    threads[0].start()
    assert begun.wait(30)
    threads[1].start()
    for thread in threads:
        thread.join(30)
    assert meanwhile == [0, 0] and all(each.is_compiled for each in sets)


def test_what_is_compiled_needs_no_lock(folder):
    (folder / "there.done").touch()
    with open(folder / "there.lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert prepare([KernelSet("there", lambda: None)]) < sharing.LOCK_S


def test_who_helps_leaves_to_others_what_they_compile(folder):
    (folder / "there.done").touch()
    done = []
    sets = [KernelSet(name, partial(done.append, name)) for name in ("there", "begun", "missing")]
    with open(folder / "begun.lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        help_out(sets)
    assert done == ["missing"] and [one.is_compiled for one in sets] == [True, False, True]


HELPED = """
import sys, time
from mpijoin.launch.helping import helpers
from mpijoin.launch.use import Use
from mpijoin.launch.warmup import sets_of

use = Use(text=False, rows=False)
sets = sets_of("slave", use)
# Helpers tell nobody when they are done, except by their stamps.
with helpers(use) as count:
    deadline_s = time.monotonic() + 120
    while not all(one.is_compiled for one in sets) and time.monotonic() < deadline_s:
        time.sleep(0.05)
with helpers(use) as further:
    pass
print(count, len(sets), all(one.is_compiled for one in sets), further, "numba" in sys.modules)
"""


def test_helpers_compile_all_that_a_run_on_threads_needs(tmp_path):
    """The kernels are there already, so that the helpers only load them. Their stamps are not."""
    prepare(sets_of("slave", Use(text=False, rows=False)))
    copied = tmp_path / cache_folder().name
    shutil.copytree(cache_folder(), copied, ignore=shutil.ignore_patterns("*.done", "*.lock"))
    environ = dict(os.environ, PYTHONPATH=str(ROOT), NUMBA_CACHE_DIR=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", HELPED], env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    count, sets, *rest = done.stdout.split()
    assert int(count) == min(len(os.sched_getaffinity(0)), int(sets)) - 1 and rest == ["True", "0", "False"], rest


def test_there_are_no_helpers_where_nothing_can_be_kept(tmp_path):
    """What they compile would be gone with them."""
    (tmp_path / "file").touch()
    nowhere = str(tmp_path / "file")  # No folder can be made below a file, not even by root.
    environ = dict(os.environ, PYTHONPATH=str(ROOT), NUMBA_CACHE_DIR=nowhere, TMPDIR=nowhere)
    program = (
        "import tempfile\n"
        f"tempfile.tempdir = {nowhere!r}\n"
        "from mpijoin.launch.helping import helpers\n"
        "from mpijoin.launch.use import Use\n"
        "with helpers(Use()) as count:\n"
        "    print(count)"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=60)
    assert done.stdout == "0\n", done.stderr
