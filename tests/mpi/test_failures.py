"""Real failures of a run under mpirun.

Each gives one message from rank 0 and the documented exit code, and no process hangs or is left behind.
"""

import os
import signal
import sys
import threading
import time

import pytest

from launching import ENDED_S, LONG_JOB, ROOT, Run

pytestmark = pytest.mark.mpi

RANKS = 4
COLLECT = LONG_JOB + 'results = "collect"\n'


@pytest.mark.parametrize("rank, named, text", [(0, "", LONG_JOB), (2, "rank 2: ", LONG_JOB), (3, "rank 3: ", COLLECT)])
def test_an_exception_on_any_rank_ends_all(tmp_path, rank, named, text):
    """Rank 3 is the collector in the last case."""
    with Run(tmp_path, text, RANKS, ["--set", f"inject.fail={{{rank}=5}}"]) as run:
        run.finish()
    told = f"{named}internal error: RuntimeError: [inject] fail: epoch 5 has come (--debug shows where)"
    assert (run.code, run.messages, run.failed["reason"]) == (3, [f"mpijoin: {told}"], told)
    assert "Traceback" not in run.err + run.output and "Abort" not in run.err + run.output
    assert "Traceback" in (tmp_path / f"out/logs/rank-{rank}.log").read_text()


def test_debug_shows_where_the_other_rank_failed(tmp_path):
    with Run(tmp_path, LONG_JOB, 3, ["--debug", "--set", "inject.fail={2=5}"]) as run:
        run.finish()
    assert run.code == 3 and run.err.count("Traceback") == 1 and "slave/runtime.py" in run.err


@pytest.mark.parametrize("rank, text", [(0, LONG_JOB), (1, LONG_JOB), (3, COLLECT)])
def test_a_killed_rank_takes_the_others_along(tmp_path, rank, text):
    with Run(tmp_path, text, RANKS) as run:
        run.wait_until_joining()
        os.kill(run.pid_of(rank), signal.SIGKILL)
        run.finish(ENDED_S)
    assert run.code != 0 and not (run.out / "summary.json").exists() and not list(run.out.glob("results/*.parquet"))


def test_a_killed_launcher_leaves_no_orphan(tmp_path):
    with Run(tmp_path, LONG_JOB, 3) as run:
        run.wait_until_joining()
        run.process.kill()
        run.finish(ENDED_S)
    assert not (run.out / "summary.json").exists()


@pytest.mark.parametrize("number, code, name", [(signal.SIGINT, 130, "Ctrl-C"), (signal.SIGTERM, 143, "SIGTERM")])
def test_a_signal_to_the_launcher_stops_all(tmp_path, number, code, name):
    with Run(tmp_path, LONG_JOB, RANKS) as run:
        run.wait_until_joining()
        run.process.send_signal(number)
        run.finish(ENDED_S)
    assert (run.code, run.messages, run.failed["exit_code"]) == (code, [f"mpijoin: stopped by {name}"], code)
    assert "Traceback" not in run.err + run.output


def test_a_signal_that_reaches_another_rank_first_is_the_launchers_all_the_same(tmp_path):
    with Run(tmp_path, LONG_JOB, 3) as run:
        run.wait_until_joining()
        os.kill(run.pid_of(1), signal.SIGINT)
        time.sleep(0.2)  # the slave has told the master by now
        run.process.send_signal(signal.SIGINT)
        run.finish(ENDED_S)
    assert (run.code, run.messages) == (130, ["mpijoin: stopped by Ctrl-C"])


def test_a_signal_to_one_rank_stops_all(tmp_path):
    with Run(tmp_path, LONG_JOB, 3) as run:
        run.wait_until_joining()
        os.kill(run.pid_of(2), signal.SIGTERM)
        run.finish(ENDED_S)
    assert (run.code, run.messages) == (143, ["mpijoin: rank 2: stopped by SIGTERM"])
    assert run.failed["exit_code"] == 143


def handles(pid, number):
    """Returns whether the process has a handler of its own for this signal."""
    with open(f"/proc/{pid}/status") as status:
        caught = next(line.split()[1] for line in status if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (number - 1) & 1)


@pytest.mark.parametrize("number, code, name", [(signal.SIGINT, 130, "Ctrl-C"), (signal.SIGTERM, 143, "SIGTERM")])
def test_a_signal_while_ranks_start_stops_all(tmp_path, number, code, name):
    """The signal comes when every rank listens for SIGTERM. The ranks still load the engine then, and have not met."""
    with Run(tmp_path, LONG_JOB, 3) as run:
        run.wait_for(lambda: [handles(pid, signal.SIGTERM) for pid in run.pids()] == [True] * 3, "signal handlers")
        run.process.send_signal(number)
        run.finish(ENDED_S)
    assert (run.code, run.messages) == (code, [f"mpijoin: stopped by {name}"])
    assert not run.out.exists() or run.failed["exit_code"] == code


def test_a_rank_that_dies_before_all_have_met_ends_the_launch(tmp_path):
    with Run(tmp_path, LONG_JOB, 3) as run:
        run.wait_for(lambda: len(run.pids()) == 3, "three processes")
        os.kill(run.pid_of(2), signal.SIGKILL)
        run.finish(ENDED_S)
    assert run.code != 0 and not (run.out / "summary.json").exists()


def test_a_rank_that_does_not_answer_is_taken_down_after_five_seconds(tmp_path):
    with Run(tmp_path, LONG_JOB, 3) as run:
        run.wait_until_joining()
        os.kill(run.pid_of(1), signal.SIGSTOP)
        run.process.send_signal(signal.SIGTERM)
        run.finish(ENDED_S)
    assert run.code != 0 and run.messages == ["mpijoin: stopped by SIGTERM"]
    assert run.failed["exit_code"] == 143


def test_a_rank_may_pause(tmp_path):
    """A silence shorter than a minute is no failure."""
    text = LONG_JOB.replace("100_000_000", "200_000") + 'results = "count"\n'
    with Run(tmp_path, text, 3) as run:
        run.wait_for(lambda: (run.out / "logs/rank-1.log").exists(), "the slave's log")
        pid = run.pid_of(1)
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(2.0, os.kill, (pid, signal.SIGCONT)).start()
        run.finish()
    assert run.code == 0 and (run.out / "summary.json").exists()


@pytest.mark.parametrize("stopped", [2, 0])
def test_a_rank_that_falls_silent_ends_the_run(tmp_path, stopped):
    """If rank 0 falls silent, the others say so only in their logs, because nobody else may speak for the run.

    The launcher then ends with their exit code.
    """
    program = [
        sys.executable,
        "-X",
        "mpijoin",
        "-m",
        "mpi4py",
        str(ROOT / "tests/harness/run_with_little_patience.py"),
        "2",
    ]
    with Run(tmp_path, LONG_JOB, 3, program=program) as run:
        run.wait_until_joining()
        os.kill(run.pid_of(stopped), signal.SIGSTOP)
        run.finish(3 * ENDED_S)
    assert run.code != 0 and not (run.out / "summary.json").exists()
    # MPICH's queue to a rank that stands still fills up, and then the others do not hear each other either.
    if stopped:
        assert "has been silent for" in run.failed["reason"] and "has been silent for" in run.messages[0]
    else:
        assert "rank 0 has been silent for" in (run.out / "logs/rank-1.log").read_text()


def test_a_wrong_job_is_told_once_and_nothing_is_made(tmp_path):
    with Run(tmp_path, LONG_JOB, 3, ["--set", "cluster.partitions=0", "--set", "left.bias=2"]) as run:
        run.finish()
    assert run.code == 2 and run.messages == ["mpijoin: 2 faults"] and not run.out.exists()


def test_an_output_that_is_not_empty_is_refused_once(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/precious").write_text("")
    with Run(tmp_path, LONG_JOB, 3) as run:
        run.finish()
    assert run.code == 2 and len(run.messages) == 1 and "is not empty" in run.messages[0]
    assert [path.name for path in run.out.iterdir()] == ["precious"]


def test_the_memory_budget_of_a_slave_ends_all(tmp_path):
    options = ["--set", "left.window=1 d", "--set", "right.window=1 d", "--set", "memory.limit=1 MB"]
    with Run(tmp_path, LONG_JOB, 3, options) as run:
        run.finish()
    assert (
        run.code == 3
        and len(run.messages) == 1
        and "[memory] limit" in run.messages[0]
        and run.failed["exit_code"] == 3
    )


SLOW_RELEASE = """
import time
from mpijoin.__main__ import process
from mpijoin.lock import FolderLock

release = FolderLock.release
FolderLock.release = lambda self: (time.sleep(1.0), release(self))
process()
"""
SHORT_JOB = LONG_JOB.replace("100_000_000", "1000")


def test_a_run_gives_its_folder_back_however_long_that_takes(tmp_path):
    """A launcher may end a process as soon as it has left MPI, so nothing of the run may be left to do then."""
    with Run(tmp_path, SHORT_JOB, 3, program=[sys.executable, "-c", SLOW_RELEASE]) as run:
        run.finish()
    assert run.code == 0 and (run.out / "summary.json").exists() and not list(run.out.glob("**/lock-*"))


# Rank 1 gets the signal before it has begun to catch any, and leaves before MPI. The others wait for it there.
EARLY = """
import builtins, os, signal

imported = builtins.__import__

def interrupted(name, *more):
    if name == "mpijoin.launch.command" and os.environ["PMI_RANK"] == "1":
        os.kill(os.getpid(), signal.SIGINT)
    return imported(name, *more)

from mpijoin.__main__ import process
builtins.__import__ = interrupted
process()
"""


def test_a_signal_to_a_rank_that_has_not_begun_stops_all(tmp_path):
    with Run(tmp_path, SHORT_JOB, 3, program=[sys.executable, "-c", EARLY]) as run:
        run.finish(ENDED_S)
    assert run.code != 0 and not (run.out / "summary.json").exists()
