"""Scratch folders: found where the job says, of one rank, and gone when the rank is, however it ended."""

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

import mpijoin
from mpijoin.disk import lies_in_memory
from mpijoin.errors import EXIT_FAILED, ScratchError
from mpijoin.spill import scratch as scratch_module
from mpijoin.spill.scratch import choose_root, open_scratch, remove_leftovers

ROOT = Path(__file__).parents[2]
MEMORY = Path("/dev/shm")
HOLD = "import sys, time; from mpijoin.spill.scratch import open_scratch\n"
HOLD += "held = open_scratch(sys.argv[1], 'rank-7'); (held.folder / 'some.run').write_bytes(bytes(1 << 20))\n"
HOLD += "print(held.folder, flush=True); time.sleep(60)"
needs_memory = pytest.mark.skipif(not MEMORY.is_dir() or not lies_in_memory(MEMORY), reason="/dev/shm is no tmpfs")


@pytest.fixture
def holder(tmp_path):
    """Starts processes that hold scratch below a root and have written to it; gives each with its folder."""
    begun = []

    def start(root=tmp_path):
        environ = dict(os.environ, PYTHONPATH=str(ROOT))
        command = [sys.executable, "-c", HOLD, str(root)]
        begun.append(subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True))
        return begun[-1], Path(begun[-1].stdout.readline().strip())

    yield start
    for process in begun:
        process.kill()
        process.wait()
        process.stdout.close()


def test_it_is_private_named_for_the_rank_and_gone_when_it_is_closed(tmp_path):
    with open_scratch(str(tmp_path), "rank-2") as scratch:
        assert scratch.folder.parent == tmp_path and ",rank-2-" in scratch.folder.name
        assert stat.S_IMODE(scratch.folder.stat().st_mode) == 0o700
        (scratch.folder / "deep").mkdir()
        (scratch.folder / "deep" / "file").write_bytes(b"some")
        assert scratch.told == f"scratch is {scratch.folder} ([memory] path)"
    assert list(tmp_path.iterdir()) == []
    scratch.close()


def test_a_folder_that_is_missing_is_made(tmp_path):
    with open_scratch(str(tmp_path / "not" / "yet"), "rank-1") as scratch:
        assert scratch.folder.is_dir()


def test_auto_takes_what_the_scheduler_gives_then_what_the_user_says(tmp_path):
    slurm, user = tmp_path / "slurm", tmp_path / "user"
    slurm.mkdir(), user.mkdir()
    environ = {"SLURM_TMPDIR": str(slurm), "TMPDIR": str(user)}
    assert choose_root(None, environ) == (slurm, "SLURM_TMPDIR")
    assert choose_root(None, {**environ, "SLURM_TMPDIR": ""}) == (user, "TMPDIR")
    slurm.rmdir()
    assert choose_root(None, environ) == (user, "TMPDIR")
    assert choose_root(None, {}).why == "the system's temporary folder"
    assert choose_root(str(user), environ) == (user, "[memory] path")


@needs_memory
def test_auto_leaves_memory_for_a_disk_and_a_setting_in_memory_is_warned_of(tmp_path, monkeypatch):
    monkeypatch.setattr(scratch_module, "ON_DISK", tmp_path)
    root = choose_root(None, {"TMPDIR": str(MEMORY)})
    assert root == (tmp_path, "because /dev/shm, TMPDIR, lies in memory")
    assert "LIES IN MEMORY" in choose_root(str(MEMORY)).why
    monkeypatch.setattr(scratch_module, "ON_DISK", tmp_path / "missing")
    root = choose_root(None, {"TMPDIR": str(MEMORY)})
    assert root.path == MEMORY and "LIES IN MEMORY" in root.why


def test_what_a_killed_process_left_is_removed_at_the_next_opening_and_not_before_it_is_dead(tmp_path, holder):
    process, folder = holder()
    with open_scratch(str(tmp_path), "rank-1") as scratch:
        assert scratch.removed == 0 and (folder / "some.run").exists()
    process.send_signal(signal.SIGSTOP)  # it does nothing any more, but it lives
    assert remove_leftovers(tmp_path) == 0
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert folder.exists()
    with open_scratch(str(tmp_path), "rank-1") as scratch:
        assert not folder.exists() and scratch.removed == 1
        assert "removed what 1 dead run" in scratch.told
        assert list(tmp_path.iterdir()) == [scratch.folder]


def test_only_what_is_ours_by_name_owner_and_kind_is_removed(tmp_path):
    with open_scratch(str(tmp_path), "rank-1") as scratch:
        mark = scratch.folder.name.partition(",")[0]
    elsewhere = mark.replace("@", "@not-") + ",rank-1-abcdefgh"
    others = [tmp_path / name for name in (elsewhere, "mpijoin", "data")]
    for folder in others:
        folder.mkdir()
    target = tmp_path / "data" / "precious"
    target.mkdir()
    (target / "file").write_text("some")
    link, file = tmp_path / f"{mark},link", tmp_path / f"{mark},file"
    link.symlink_to(target)
    file.write_text("some")
    before = sorted(tmp_path.rglob("*"))
    assert remove_leftovers(tmp_path) == 0
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
def test_a_folder_of_another_user_stays_whatever_its_name(tmp_path):
    with open_scratch(str(tmp_path), "rank-1") as scratch:
        name = scratch.folder.name
    other = tmp_path / name
    other.mkdir(mode=0o777)
    os.chown(other, 12345, 12345)
    assert remove_leftovers(tmp_path) == 0 and other.exists()


def test_a_rank_that_was_killed_before_it_took_its_lock_leaves_nothing(tmp_path, monkeypatch):
    def killed(folder):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(scratch_module, "_locked", killed)
        open_scratch(str(tmp_path), "rank-1")
    assert len(list(tmp_path.iterdir())) == 1
    open_scratch(str(tmp_path), "rank-2").close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("moment", ["open", "flock"])
def test_a_folder_that_another_rank_removes_before_it_is_locked_is_made_again(tmp_path, monkeypatch, moment):
    """It may be removed before it is opened, or between that and the lock."""
    owner, lost = scratch_module.os if moment == "open" else scratch_module.fcntl, []
    original = getattr(owner, moment)

    def overtaken(what, *how):
        if not lost:
            monkeypatch.setattr(owner, moment, original)
            lost.extend(tmp_path.iterdir())
            assert remove_leftovers(tmp_path) == 1
        return original(what, *how)

    monkeypatch.setattr(owner, moment, overtaken)
    with open_scratch(str(tmp_path), "rank-1") as scratch:
        assert len(lost) == 1 and list(tmp_path.iterdir()) == [scratch.folder] and scratch.folder not in lost


def test_many_that_open_and_are_killed_at_the_same_moment_never_hurt_a_living_one(tmp_path):
    """Each thread opens, looks whether its file stays, and closes or is forgotten like one that was killed."""
    harmed, end = [], time.monotonic() + 1.5

    def opening(number):
        turn = 0
        while time.monotonic() < end:
            turn += 1
            scratch = open_scratch(str(tmp_path), f"rank-{number}")
            file = scratch.folder / "file"
            file.write_bytes(b"some")
            time.sleep(0.001)
            if not file.exists():
                harmed.append(scratch.folder)
            if turn % 2:
                os.close(scratch._lock)  # as the kernel does for the dead
            else:
                scratch.close()

    threads = [threading.Thread(target=opening, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert harmed == []
    open_scratch(str(tmp_path), "rank-0").close()
    assert list(tmp_path.iterdir()) == []


def test_processes_that_begin_together_keep_their_folders(tmp_path, holder):
    folders = [holder()[1] for _ in range(3)]
    assert len(set(folders)) == 3 and all((folder / "some.run").exists() for folder in folders)


def test_a_child_that_outlives_its_parent_does_not_keep_the_folder(tmp_path):
    """A program that the process has started does not inherit the lock."""
    scratch = open_scratch(str(tmp_path), "rank-1")
    with subprocess.Popen(["sleep", "30"]) as child:
        os.close(scratch._lock)
        assert remove_leftovers(tmp_path) == 1
        child.kill()


@pytest.mark.parametrize("name, said", [("file/below", "Not a directory"), ("file", "File exists")])
def test_what_cannot_be_a_folder_is_named_with_what_to_do(tmp_path, name, said):
    (tmp_path / "file").write_text("some")
    with pytest.raises(ScratchError, match=f"{said}.*choose another folder with \\[memory\\] path") as caught:
        open_scratch(str(tmp_path / name), "rank-1")
    assert str(tmp_path / "file") in str(caught.value) and caught.value.exit_code == EXIT_FAILED


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a file system that refuses")
def test_a_disk_that_may_only_be_read_is_named(tmp_path):
    command = ["mount", "-t", "tmpfs", "-o", "size=64k,ro", "tmpfs", str(tmp_path)]
    if subprocess.run(command, capture_output=True, timeout=10).returncode:
        pytest.skip("no mounting here")
    try:
        with pytest.raises(ScratchError, match=f"Read-only file system: 65,536 bytes are free in {tmp_path}:"):
            open_scratch(str(tmp_path), "rank-1")
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], timeout=10)


def test_going_on_with_a_run_that_is_done_removes_what_its_killed_ranks_have_left(tmp_path, holder):
    """A kill after the summary is written leaves scratch, though no rank starts in that run again."""
    rows = pa.table({"ts": [1], "key": ["a"]})
    stream = {"table": rows, "time": "ts", "time_unit": "s", "key": "key", "window": "5 s"}
    memory = {"spill": "generations", "path": str(tmp_path / "scratch")}
    job = {"left": stream, "right": stream, "memory": memory, "output": {"path": str(tmp_path / "out")}}
    done = mpijoin.run(job, slaves=1).summary
    (dead, left), (_, held) = holder(tmp_path / "scratch"), holder(tmp_path / "scratch")
    dead.kill()
    dead.wait()
    assert left.is_dir()
    assert mpijoin.run(job, slaves=1, resume=True).summary == done
    assert list((tmp_path / "scratch").iterdir()) == [held]
