"""The lock of a folder: who has it is told, who is dead loses it, and of several that want it exactly one gets it."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mpijoin import lock
from mpijoin.errors import JobError, OutputError
from mpijoin.launch.roles import RunSetup
from mpijoin.lock import take, this_owner

ROOT = Path(__file__).parents[1]
OUTSIDE = {"PATH": "/usr/bin:/bin"}  # of Slurm
HOLD = """
import sys, time
from pathlib import Path
from mpijoin.errors import JobError
from mpijoin.lock import take

go = Path(sys.argv[2])
print("ready", flush=True)
while not go.exists():
    time.sleep(0.0005)
try:
    held = take(Path(sys.argv[1]), "output.path", wait_s=0)
    print("got", held.path.name, flush=True)
except JobError as error:
    print("refused", error, flush=True)
sys.stdin.read()
"""


def taken(folder, environ=OUTSIDE, **options):
    return take(folder, "output.path", environ, **{"wait_s": 0, **options})


def left(folder, owner, age_s=0.0):
    """A lock of somebody else's."""
    folder.mkdir(exist_ok=True)
    path = folder / "lock-00003.json"
    path.write_text(json.dumps(owner._asdict()) if owner else "")
    at_s = time.time() - age_s
    os.utime(path, (at_s, at_s))
    return path


def elsewhere(**fields):
    return this_owner(OUTSIDE)._replace(host="node7", machine="another boot pid:[1]", pid=4321, token="t", **fields)


class Holder:
    """A process that takes the lock once `go` is there, and keeps it."""

    def __init__(self, folder, go):
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", HOLD, str(folder), str(go)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ)
        assert self.process.stdout.readline() == "ready\n"

    def said(self):
        return self.process.stdout.readline().split(maxsplit=1)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def go(tmp_path):
    path = tmp_path / "go"
    path.touch()
    return path


def test_it_makes_the_folder_and_leaves_nothing(tmp_path):
    held = taken(tmp_path / "a" / "b")
    assert held.is_held and [path.name for path in (tmp_path / "a/b").iterdir()] == ["lock-00001.json"]
    held.release()
    held.release()
    assert not held.is_held and not (tmp_path / "a/b").exists()


def test_other_files_stay(tmp_path):
    (tmp_path / "mine.txt").write_text("")
    taken(tmp_path).release()
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_process_that_lives_is_named_and_one_that_was_killed_loses_it(tmp_path, go):
    with Holder(tmp_path / "run", go) as holder:
        assert holder.said()[0] == "got"
        with pytest.raises(
            JobError, match=rf"output.path: .*/run is in use by process {holder.process.pid} on \S+ since 20"
        ) as caught:
            taken(tmp_path / "run")
        assert caught.value.exit_code == 2 and "remove" in str(caught.value)
        holder.process.send_signal(signal.SIGKILL)
        while Path(f"/proc/{holder.process.pid}/stat").read_text().split()[2] != "Z":
            time.sleep(0.01)  # a zombie: this process, its parent, has not waited for it yet
        held = taken(tmp_path / "run")
        assert held.path.name == "lock-00002.json" and not (tmp_path / "run/lock-00001.json").exists()
        held.release()


def test_who_is_dying_is_waited_for(tmp_path, go):
    with Holder(tmp_path / "run", go) as holder:
        assert holder.said()[0] == "got"
        subprocess.Popen(["sh", "-c", f"sleep 0.3; kill -9 {holder.process.pid}"])
        taken(tmp_path / "run", wait_s=20).release()


@pytest.mark.parametrize("before", ["nothing", "a dead one"])
def test_of_several_that_want_it_at_once_exactly_one_gets_it(tmp_path, before):
    for turn in range(5):
        folder, go = tmp_path / f"run-{turn}", tmp_path / f"go-{turn}"
        if before == "a dead one":
            left(folder, this_owner(OUTSIDE)._replace(start=1))
        holders = [Holder(folder, go) for _ in range(4)]
        go.touch()
        said = [holder.said() for holder in holders]
        for holder in holders:
            holder.__exit__()
        assert sorted(word for word, _ in said) == ["got", *["refused"] * 3], said
        assert len(list(folder.glob("lock-*"))) == 1


def test_a_number_that_another_process_has_now_does_not_keep_a_dead_owner_alive(tmp_path):
    left(tmp_path, this_owner(OUTSIDE)._replace(pid=1, start=1))
    assert taken(tmp_path).path.name == "lock-00004.json"


def test_a_process_does_not_take_what_it_has_and_knows_what_it_has_not(tmp_path):
    held = taken(tmp_path / "run")
    with pytest.raises(JobError, match=f"process {os.getpid()} on"):
        taken(tmp_path / "run")
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / held.path.name).write_text(held.path.read_text())
    taken(tmp_path / "copy").release()
    held.release()


def test_who_lost_a_lock_is_told_whether_another_has_it_or_the_folder_was_emptied(tmp_path):
    held = taken(tmp_path / "run")
    setup = RunSetup(*[None] * 4, locks=(held,))
    setup.check_locks()
    held.path.rename(tmp_path / "run/lock-00099.json")
    with pytest.raises(OutputError, match="run: another run has it now"):
        setup.check_locks()
    (tmp_path / "run/lock-00099.json").unlink()
    with pytest.raises(OutputError, match=r"run: lock-00001.json in it is gone: the folder was removed or emptied"):
        setup.check_locks()
    held.release()


def test_who_is_elsewhere_lives_as_long_as_its_lock_is_touched(tmp_path):
    path = left(tmp_path, elsewhere(), lock.SILENT_S - 20)
    with pytest.raises(
        JobError,
        match=rf"process 4321 on node7 since .*; seen 2\d\d s ago, counts as dead after 300 s: .*remove {path}",
    ):
        taken(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == [path.name], "a refusal leaves nothing behind"
    left(tmp_path, elsewhere(), lock.SILENT_S + 20)
    taken(tmp_path).release()


def test_a_lock_that_was_never_written_counts_as_of_a_run_that_begins(tmp_path):
    left(tmp_path, None)
    with pytest.raises(JobError, match="in use by a run that has just begun"):
        taken(tmp_path)
    left(tmp_path, None, lock.SILENT_S + 20)
    taken(tmp_path).release()


@pytest.mark.parametrize("text", ["[]", "{}", '{"pid": "x"}', "\x00" * 50])
def test_a_lock_that_makes_no_sense_is_not_believed_for_ever(tmp_path, text):
    path = left(tmp_path, None, lock.SILENT_S + 20)
    path.write_text(text)
    with pytest.raises(JobError, match="in use by a run"):
        taken(tmp_path)
    os.utime(path, (1, 1))
    taken(tmp_path).release()


def test_it_is_touched_while_it_is_held_and_lost_when_another_has_it(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "BEAT_S", 0.02)
    held = taken(tmp_path)
    os.utime(held.path, (1, 1))
    deadline_s = time.monotonic() + 20
    while held.path.stat().st_mtime < 1000 and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert held.path.stat().st_mtime > 1000 and held.is_held
    held.path.rename(tmp_path / "lock-00009.json")
    assert not held.is_held
    held.release()
    assert (tmp_path / "lock-00009.json").exists()


def test_one_that_saw_the_folder_empty_a_moment_ago_gives_way(tmp_path, monkeypatch):
    """Between looking and creating, a lock of a higher number came, and is there to stay."""
    create = lock._create

    def late(path, own):
        monkeypatch.setattr(lock, "_create", create)
        left(tmp_path, elsewhere())
        return create(path, own)

    monkeypatch.setattr(lock, "_create", late)
    with pytest.raises(JobError, match="process 4321 on node7"):
        taken(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["lock-00003.json"]


def squeue(folder, body):
    """A Slurm that says this, and the environment in which it is asked."""
    program = folder / "bin" / "squeue"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return {"PATH": f"{program.parent}:/usr/bin:/bin", "SLURM_CLUSTER_NAME": "c"}


@pytest.mark.parametrize(
    ("body", "lives"),
    [
        ("echo RUNNING", True),
        ("echo COMPLETING", True),
        ("echo PENDING", False),
        ("exit 0", False),
        ("echo slurm_load_jobs error: Invalid job id specified >&2; exit 1", False),
        ("echo Unable to contact slurm controller >&2; exit 1", True),
        ('[ "$2" = --jobs=77 ] && exit 0; echo RUNNING', False),
    ],
)
def test_slurm_knows_whose_job_has_ended(tmp_path, body, lives):
    environ, folder = squeue(tmp_path, body), tmp_path / "run"
    left(folder, elsewhere(job="77", step="0", cluster="c"))
    if lives:
        with pytest.raises(JobError, match=r"process 4321 on node7 \(Slurm job 77, step 0\) since"):
            taken(folder, environ)
    else:
        taken(folder, environ).release()


def test_another_cluster_is_not_asked_and_a_restarted_job_needs_no_asking(tmp_path):
    environ, folder = squeue(tmp_path, "exit 0"), tmp_path / "run"
    left(folder, elsewhere(job="77", cluster="other"))
    with pytest.raises(JobError, match="Slurm job 77"):
        taken(folder, environ)
    again = {**squeue(tmp_path / "run", "echo RUNNING"), "SLURM_JOB_ID": "77", "SLURM_RESTART_COUNT": "2"}
    left(folder, elsewhere(job="77", cluster="c", restarts=2))
    with pytest.raises(JobError, match="Slurm job 77"):
        taken(folder, again)
    left(folder, elsewhere(job="77", cluster="c", restarts=1))
    taken(folder, again).release()


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(JobError, match="output.path: .*file is a file: wanted a folder"):
        taken(tmp_path / "file")


def test_what_the_file_system_refuses_is_an_output_error(tmp_path):
    with pytest.raises(OutputError, match="/proc/nowhere.*No such file"):
        taken(Path("/proc/nowhere/run"))
