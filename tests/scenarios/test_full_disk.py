"""A checkpoint that does not fit on its disk: the run goes on without it, and the ones before stay usable."""

import json
import os
import re
import signal
import subprocess

import pytest

from launching import Run

STREAM = 'kind = "synthetic"\nrate = 1000\ntuples = 60_000\ndomain = 3000\nwindow = "40 s"\n'
JOB = f"""
[left]
{STREAM}
[right]
{STREAM}
[cluster]
partitions = 6
distribution_epoch = "500 ms"
reorganization_epoch = "5 s"
buffer = "64 KiB"
master_buffer = "64 KiB"
[checkpoint]
epochs = 1
path = "disk"
[output]
path = "out"
results = "count"
"""
NONE_KIB, ONE_KIB, MANY_KIB = 64, 800, 64 << 10  # the first checkpoints take 0.4 to 0.7 MB: how many fit
KILL = ("--set", "inject.kill={1=110}")  # near the end


@pytest.fixture
def small_disk(tmp_path):
    """Mounts a file system of so many KiB at `disk`."""
    disk = tmp_path / "disk"

    def mount(size_kib):
        disk.mkdir(exist_ok=True)
        how = ["mount", "-t", "tmpfs", "-o", f"size={size_kib}k", "tmpfs", str(disk)]
        if os.geteuid() or subprocess.run(how, capture_output=True, timeout=10).returncode:
            pytest.skip("only root can mount a small file system")
        return disk

    yield mount
    subprocess.run(["umount", "-l", str(disk)], capture_output=True, timeout=10)


def run(folder, *options):
    with Run(folder, JOB, options=("--ranks", "2", *options)) as run:
        return run.finish(within_s=120)  # the first may have to compile


def summary_of(run):
    return json.loads((run.out / "summary.json").read_text())


def failed_in(folder):
    """Numbers of the checkpoints that were not whole, by the master's log. The kill may have met a further one half
    done."""
    return re.findall(r"checkpoint (\d+) is not whole", (folder / "out/logs/rank-0.log").read_text())


def left_of(numbers, disk):
    """Files there of these checkpoints; the lock of the run that was killed is none."""
    names = [path.name for number in numbers for path in disk.glob(f"*{number:0>5}.*")]
    return [name for name in names if not name.startswith("lock-")]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    done = run(tmp_path_factory.mktemp("undisturbed"), "--set", "checkpoint.epochs=off")
    assert done.code == 0, done.err
    return summary_of(done)["certificate"]


def test_a_run_goes_on_without_checkpoints_that_do_not_fit(tmp_path, small_disk, undisturbed):
    disk = small_disk(NONE_KIB)
    done = run(tmp_path)
    assert done.code == 0, done.err
    summary = summary_of(done)
    assert summary["certificate"] == undisturbed
    assert summary["checkpoints"]["written"] == 0 < summary["checkpoints"]["failed"]
    log = (done.out / "logs/rank-0.log").read_text()
    assert "WARNING checkpoint 1 is not whole" in log and "No space left on device" in log
    assert not list(disk.iterdir())


def test_checkpoints_that_do_not_fit_leave_nothing_behind(tmp_path, small_disk):
    disk = small_disk(NONE_KIB)
    assert run(tmp_path, *KILL).code == -signal.SIGKILL
    failed = failed_in(tmp_path)
    assert failed and not left_of(failed, disk) and not list(disk.glob("0*.json"))


def test_what_did_fit_stays_usable_when_later_ones_do_not(tmp_path, small_disk, undisturbed):
    disk = small_disk(ONE_KIB)
    assert run(tmp_path, *KILL).code == -signal.SIGKILL
    failed = failed_in(tmp_path)
    assert failed[0] == "2" and (disk / "00001.json").exists()
    assert not [name for name in left_of(failed, disk) if not name.endswith(".state")]
    done = run(tmp_path, "--resume")
    assert done.code == 0, done.err
    summary = summary_of(done)
    assert summary["certificate"] == undisturbed and summary["checkpoints"]["resumed_from"] >= 1


def test_a_checkpoint_that_is_not_whole_gives_its_space_back(tmp_path, small_disk):
    disk = small_disk(ONE_KIB)
    assert run(tmp_path, *KILL).code == -signal.SIGKILL
    assert not left_of(failed_in(tmp_path), disk)


def test_space_that_comes_back_is_used(tmp_path, small_disk, undisturbed):
    """The disk is full at first, and is made larger for the run that goes on."""
    disk = small_disk(ONE_KIB)
    assert run(tmp_path, *KILL).code == -signal.SIGKILL
    subprocess.run(["mount", "-o", f"remount,size={MANY_KIB}k", str(disk)], check=True, timeout=10)
    done = run(tmp_path, "--resume")
    assert done.code == 0, done.err
    checkpoints = summary_of(done)["checkpoints"]
    assert checkpoints["written"] > 0 == checkpoints["failed"] and summary_of(done)["certificate"] == undisturbed
    assert not list(disk.iterdir())
