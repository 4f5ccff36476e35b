"""Run directories and checkpoint folders as other processes and people find them: in use, damaged, shared, left by the
dead."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from launching import Run

STREAM = (
    'kind = "synthetic"\nrate = 1000\ntuples = 40_000\ndomain = 300\nwindow = "5 s"\ndisorder = "20 ms"\nlateness = "10'
    ' ms"\n'
)
JOB = f"""
[left]
{STREAM}
[right]
{STREAM}seed = 2
[cluster]
partitions = 6
distribution_epoch = "500 ms"
reorganization_epoch = "1 s"
buffer = "64 KiB"
master_buffer = "64 KiB"
[checkpoint]
path = "saved"
[output]
path = "out"
part = "64 KB"
"""
ENDLESS = JOB.replace("tuples = 40_000", "tuples = 100_000_000")
END_S = 120  # the first may have to compile
NAMES = {"foreign.txt", "rank-notes.state", "20241122.json"}


def started(folder, *options, text=JOB, ranks=None):
    """On threads, or under mpirun on so many processes."""
    here = () if ranks else ("--ranks", "2")
    return Run(folder, text, ranks, (*here, "--set", "checkpoint.epochs=3", *options))


def locks(folder):
    return sorted(path.relative_to(folder).as_posix() for path in Path(folder).rglob("lock-*"))


def beside(folder):
    """A folder for a job file that is not told from the first run's by its processes' environment."""
    other = folder / "beside"
    other.mkdir(exist_ok=True)
    return other


def paths(folder, out):
    return "--set", f"output.path={folder / out}", "--set", f"checkpoint.path={folder / 'saved'}"


def checkpoints(folder):
    return sorted((Path(folder) / "saved").glob("0*.json"))


@pytest.fixture(autouse=True, scope="module")
def compiled(tmp_path_factory):
    """So that nothing below waits for more than a run."""
    with started(tmp_path_factory.mktemp("compiled"), "--set", "left.tuples=10", "--set", "right.tuples=10") as run:
        assert run.finish(END_S).code == 0, run.err


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that a signal has stopped at a checkpoint, with late rows and parts of results."""
    folder = tmp_path_factory.mktemp("stopped")
    with started(folder) as run:
        run.wait_for(lambda: len(checkpoints(folder)) > 1, "second checkpoint")
        run.process.send_signal(signal.SIGUSR1)
        run.finish(END_S)
    assert run.code == 75 and locks(folder) == []
    return folder


def cut(path):
    os.truncate(path, path.stat().st_size - 1)


def zero(path):
    path.write_bytes(bytes(path.stat().st_size))


def empty(path):
    os.truncate(path, 0)


@pytest.mark.parametrize(("damage", "part"), [(cut, "results"), (zero, "results"), (empty, "results"), (zero, "late")])
def test_damaged_parts_are_never_committed(stopped, tmp_path, damage, part):
    folder = tmp_path / "copy"
    shutil.copytree(stopped, folder)
    damage(min((folder / "out" / part / ".open").glob("*.parquet")))  # the oldest, which all checkpoints count on
    with started(folder, "--resume") as run:
        run.finish(END_S)
    assert run.code == 3 and run.failed["exit_code"] == 3 and locks(folder) == []
    assert "no checkpoint can be used; begin anew with --overwrite" in run.messages[-1]


def test_a_run_that_goes_on_is_as_if_it_had_never_stopped(stopped, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(stopped, folder)
    for name in NAMES:
        (folder / "saved" / name).write_text("mine")
    with started(folder, "--resume") as run:
        assert run.finish(END_S).code == 0, run.err
    summary = json.loads((folder / "out/summary.json").read_text())
    with started(
        tmp_path, "--set", f"output.path={tmp_path}/again", "--set", f"checkpoint.path={tmp_path}/none"
    ) as run:
        assert run.finish(END_S).code == 0, run.err
    again = json.loads((tmp_path / "again/summary.json").read_text())
    assert [summary[name] for name in ("results", "certificate", "streams")] == [
        again[name] for name in ("results", "certificate", "streams")
    ]
    assert {path.name for path in (folder / "saved").iterdir()} == NAMES, "and what others have there stays"
    assert locks(folder) == locks(tmp_path) == [] and not (tmp_path / "none").exists()


def test_two_runs_do_not_share_a_folder(tmp_path):
    with started(tmp_path, text=ENDLESS) as first:
        first.wait_for(lambda: checkpoints(tmp_path), "first checkpoint")
        assert locks(tmp_path) == ["out/lock-00001.json", "saved/lock-00001.json"]
        used_by = f"is in use by process {first.process.pid} on {os.uname().nodename} since "
        output, checkpoint = f"[output] path: {tmp_path}/out", f"[checkpoint] path: {tmp_path}/saved"
        for out, options, named in (
            ("out", (), (output, checkpoint)),
            ("out", ("--overwrite",), (output,)),
            ("other", ("--resume",), (checkpoint,)),
        ):
            with started(beside(tmp_path), *paths(tmp_path, out), *options, text=ENDLESS) as second:
                assert second.finish(END_S).code == 2
            assert [second.err.count(f"{path} {used_by}") for path in named] == [1] * len(named), second.err
            assert second.err.count(used_by) == len(named), second.err
        assert not (tmp_path / "other").exists()
        first.process.send_signal(signal.SIGTERM)
        assert first.finish(END_S).code == 75
    assert locks(tmp_path) == [] and first.failed["exit_code"] == 75


@pytest.mark.mpi
def test_under_mpirun_rank_0_has_the_lock_and_a_killed_run_loses_it(tmp_path):
    text = ENDLESS.replace('path = "saved"', "")
    with started(tmp_path, text=text, ranks=3) as first:
        first.wait_for(lambda: any(first.out.glob("checkpoint/0*.json")), "first checkpoint")
        with started(beside(tmp_path), *paths(tmp_path, "out")[:2], "--resume", text=text) as second:
            assert second.finish(END_S).code == 2
        assert f"in use by process {first.pid_of(0)} on" in second.messages[0]
        os.kill(first.pid_of(0), signal.SIGKILL)
        assert first.finish(END_S).code != 0
    assert locks(tmp_path) == ["out/checkpoint/lock-00001.json", "out/lock-00001.json"]
    with started(tmp_path, "--resume", text=text) as again:
        again.wait_for(lambda: "goes on from checkpoint" in (again.out / "logs/rank-0.log").read_text(), "resumption")
        assert locks(tmp_path) == ["out/checkpoint/lock-00002.json", "out/lock-00002.json"]
        again.process.send_signal(signal.SIGTERM)
        assert again.finish(END_S).code == 75
    assert locks(tmp_path) == []


def test_a_run_that_fails_leaves_no_lock(tmp_path):
    with started(tmp_path, "--set", "inject.fail={1=3}") as run:
        assert run.finish(END_S).code == 3
    assert locks(tmp_path) == [] and run.failed["exit_code"] == 3


def test_a_job_that_is_refused_touches_no_folder_of_others(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/thesis.tex").write_text("mine")
    before = (tmp_path / "out").stat().st_mtime_ns
    for option in ("--overwrite", "--resume"):
        with started(tmp_path, option) as run:
            assert run.finish(END_S).code == 2
    assert (tmp_path / "out").stat().st_mtime_ns == before and not (tmp_path / "saved").exists()
