"""Runs under mpirun that hold far more than their memory, and are killed or find the scratch disk full.

Whatever happens, the next start on the node finds scratch as if nothing had happened, and the answer is that of a run
in memory.
"""

import json
import os
import signal
import time

import pytest

import mpijoin
from launching import Run, mpirun_path
from small_disk import make_larger

STREAM = 'kind = "synthetic"\nrate = 1000\ntuples = 60_000\ndomain = 3000\nwindow = "40 s"\nseed = {seed}\n'
JOB = f"""
[left]
{STREAM.format(seed=1)}
[right]
{STREAM.format(seed=2)}
[cluster]
partitions = 6
distribution_epoch = "500 ms"
buffer = "64 KiB"
master_buffer = "64 KiB"
[memory]
limit = "256 KiB"
spill = "generations"
path = "scratch"
cleanup = "end"
[output]
path = "out"
results = "count"
"""
SLAVES = 2
EPOCHS = 120  # about so many
CHECKPOINTS = ("--set", "checkpoint.epochs=1", "--set", 'cluster.reorganization_epoch="2 s"')
END_S = 120.0  # the first run may have to compile

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(not mpirun_path(), reason="there is no mpirun"),
]


def certificate_in_memory(folder, *settings):
    (folder / "job.toml").write_text(JOB)
    own = [f'output.path="{folder}/out"', 'memory.spill="off"', 'memory.limit="64 MiB"', *settings]
    return mpijoin.run(folder / "job.toml", own, slaves=1).summary["certificate"]


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    """The certificate of a run in memory."""
    return certificate_in_memory(tmp_path_factory.mktemp("in-memory"))


def start(folder, *options, slaves=SLAVES):
    return Run(folder, JOB, ranks=1 + slaves, options=options)


def run(folder, *options, slaves=SLAVES):
    with start(folder, *options, slaves=slaves) as run:
        return run.finish(END_S)


def summary_of(run):
    assert run.code == 0, run.err
    return json.loads((run.out / "summary.json").read_text())


def left_in(folder):
    """Folders of ranks on the scratch disk, each with the bytes in it."""
    root = folder / "scratch"
    return {path.name: sum(file.stat().st_size for file in path.iterdir()) for path in root.glob("mpijoin-*")}


def spilled(folder):
    return sum(left_in(folder).values())


def figure(summary, name):
    return sum(slave[name] for slave in summary["per_slave"].values())


def kill_all(run):
    """Kills the launcher and every rank at once."""
    for pid in [run.process.pid, *run.pids()]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def look_up(path):
    try:
        return sum(file.stat().st_size for file in path.rglob("*.run"))
    except FileNotFoundError:  # a file that goes while it is looked at
        return None


def killed_while(run, folder, ready):
    """Kills everything as soon as `ready(bytes on disk)`; returns whether the run still went on then."""
    deadline_s = time.monotonic() + END_S
    while run.process.poll() is None and time.monotonic() < deadline_s:
        held = look_up(folder / "scratch")
        if held is not None and ready(held):
            kill_all(run)
            run.process.communicate()
            return True
        time.sleep(0.001)
    return False


def check_next_start(folder, wanted):
    """The next start gives the right answer, and leaves nothing of its own or of the dead behind."""
    summary = summary_of(run(folder, "--overwrite"))
    assert summary["certificate"] == wanted and figure(summary, "spilled_bytes")
    assert left_in(folder) == {}


def test_a_run_with_a_fraction_of_its_state_gives_the_same_answer_and_leaves_nothing(tmp_path, wanted):
    summary = summary_of(run(tmp_path))
    assert summary["certificate"] == wanted
    assert figure(summary, "spilled_bytes") > 4 * SLAVES * (256 << 10) and figure(summary, "read_back_bytes") > 0
    assert left_in(tmp_path) == {}


@pytest.mark.parametrize("epoch", [EPOCHS // 4, EPOCHS - 10])
def test_a_killed_slave_leaves_scratch_that_the_next_start_removes(tmp_path, wanted, epoch):
    killed = run(tmp_path, "--set", f"inject.kill={{1={epoch}}}")
    assert killed.code not in (0, 2), killed.err
    assert any(",rank-1-" in name for name in left_in(tmp_path))
    check_next_start(tmp_path, wanted)


def has_checkpoint(folder):
    return any(folder.glob("out/checkpoint/[0-9]*.json"))


def check_resumed(folder, wanted, slaves, *options):
    """Going on from a checkpoint, on so many slaves, gives the right answer and leaves nothing on the disk."""
    summary = summary_of(run(folder, *CHECKPOINTS, *options, "--resume", slaves=slaves))
    assert summary["certificate"] == wanted and summary["checkpoints"]["resumed_from"]
    assert left_in(folder) == {}
    return summary


@pytest.mark.parametrize("settings", [
    ['join.type="full"', 'join.where="right.time - left.time < \'30 s\'"', 'memory.cleanup="idle"'],
    ['join.match="nearest"', 'memory.spill="rotate"', "cluster.partitions=40"],
])  # fmt: skip
def test_a_whole_job_that_is_killed_while_it_spills_goes_on_with_another_number_of_slaves(tmp_path, settings):
    own, least = [word for one in settings for word in ("--set", one)], 1 << 19
    (tmp_path / "in-memory").mkdir()
    wanted = certificate_in_memory(tmp_path / "in-memory", *settings, 'memory.spill="off"')
    with start(tmp_path, *CHECKPOINTS, *own) as job:
        assert killed_while(job, tmp_path, lambda held: held > least and has_checkpoint(tmp_path))
    # a file may have gone between the look that decided and the end of its slave
    assert len(left_in(tmp_path)) == SLAVES and spilled(tmp_path) > least // 2
    summary = check_resumed(tmp_path, wanted, 3, *own)
    assert figure(summary, "spilled_bytes")


def test_a_whole_job_that_is_killed_in_its_clean_up_goes_on_with_one_slave(tmp_path, wanted):
    with start(tmp_path, *CHECKPOINTS) as job:
        logs = [job.out / "logs" / f"rank-{rank}.log" for rank in range(1, 1 + SLAVES)]

        def cleans_up(held):
            return any(log.exists() and "clean-up of" in log.read_text() for log in logs)

        assert killed_while(job, tmp_path, cleans_up), "the clean-up was over before it was seen"
    assert spilled(tmp_path) > 0
    summary = check_resumed(tmp_path, wanted, slaves=1)
    assert summary["memory"]["cleanup_results"]


def test_two_runs_on_one_node_do_not_touch_each_others_scratch(tmp_path, wanted):
    """One begins, and ends, while the other has spilled state on disk."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir(), second.mkdir()
    where = ("--set", f'memory.path="{tmp_path / "scratch"}"')
    with start(first, *where, "--set", "run.speed=8") as slow:
        slow.wait_for(lambda: len(left_in(tmp_path)) == SLAVES and spilled(tmp_path), "a spill", END_S)
        before = set(left_in(tmp_path))
        assert summary_of(run(second, *where))["certificate"] == wanted
        assert set(left_in(tmp_path)) == before
        assert summary_of(slow.finish(END_S))["certificate"] == wanted
    assert left_in(tmp_path) == {}


def test_a_full_scratch_disk_ends_the_run_with_what_to_do(tmp_path, small_disk, wanted):
    full = run(tmp_path)
    assert full.code == 3, full.err
    (message,) = full.messages
    assert f"{small_disk}/mpijoin-" in message and "No space left on device" in message
    assert "bytes were to be written" in message and "[memory] path" in message and "[memory] limit" in message
    assert "No space left on device" in full.failed["reason"]
    assert left_in(tmp_path) == {}
    make_larger(small_disk)
    check_next_start(tmp_path, wanted)
