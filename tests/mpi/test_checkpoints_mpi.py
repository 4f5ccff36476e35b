"""Runs under mpirun that are killed or stopped by a signal, and go on with other ranks.

Each must give the same certificate as an undisturbed run.
"""

import json
import os
import random
import re
import shutil
import signal
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mpijoin
from launching import ROOT, Run, mpirun_path
from mpijoin.checkpoint.manifest import read_manifest

# `Run.pids` knows by this word which processes belong to a run.
RANDOM_MOVES = [sys.executable, "-X", "mpijoin", "-m", "mpi4py", str(ROOT / "tests/harness/run_with_random_moves.py")]
STREAM = """
[{name}]
kind = "synthetic"
rate = 2000
bias = 0.6
domain = 5000
tuples = {tuples}
window = "1 s"
payload_bytes = 24
disorder = "100 ms"
lateness = "50 ms"
seed = {seed}
"""
REST = """
[cluster]
partitions = 13
distribution_epoch = "100 ms"
reorganization_epoch = "200 ms"
[memory]
limit = "64 MiB"
[output]
path = "out"
part = "64 KB"
"""
TUPLES, LONG_TUPLES = 60_000, 250_000
EPOCHS = 200  # The short job has about so many epochs.
KILLS = 7
# With these, there is still input to be read while slaves join. After the end of the input a signal comes too late.
SMALL_BUFFERS = ['cluster.buffer="64 KiB"', 'cluster.master_buffer="64 KiB"']
END_S = 150.0  # A run takes two seconds if nobody else uses the cores.

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.slow,
    pytest.mark.skipif(not mpirun_path(), reason="there is no mpirun"),
]


def job(tuples):
    return (
        "".join(STREAM.format(name=name, seed=seed, tuples=tuples) for name, seed in (("left", 1), ("right", 2))) + REST
    )


def undisturbed(tuples, folder):
    path = folder / "job.toml"
    path.write_text(job(tuples))
    return mpijoin.run(path, [f'output.path="{folder}/out"', 'output.results="count"'], slaves=1).summary


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    return undisturbed(TUPLES, tmp_path_factory.mktemp("short"))


@pytest.fixture(scope="module")
def wanted_of_long(tmp_path_factory):
    return undisturbed(LONG_TUPLES, tmp_path_factory.mktemp("long"))


@pytest.fixture(scope="module")
def resumed():
    """The checkpoints from which killed runs went on."""
    return []


def launched(folder, ranks, *settings, text, resume=False, seed=0):
    options = [word for setting in settings for word in ("--set", setting)] + ["--resume"] * resume
    return Run(folder, text, ranks, options, program=[*RANDOM_MOVES, str(seed)])


def check(folder, wanted, results):
    summary = json.loads((folder / "out/summary.json").read_text())
    for name in ("results", "certificate", "streams"):
        assert summary[name] == wanted[name], name
    if results != "count":
        rows = pq.read_table(folder / "out/results", columns=["left_row", "right_row"])
        assert rows.num_rows == rows.group_by(["left_row", "right_row"]).aggregate([]).num_rows == wanted["results"]
    assert pq.read_table(folder / "out/late/left.parquet").num_rows == wanted["streams"]["left"]["late"] > 0
    return summary


@pytest.mark.parametrize("seed", range(KILLS))
def test_a_killed_run_goes_on_on_other_ranks(wanted, resumed, tmp_path, seed):
    chance = random.Random(seed)
    producers, then = chance.randint(1, 2), chance.randint(1, 3)
    ranks, again = producers + chance.randint(2, 3), then + chance.randint(1, 3)
    results = chance.choice(["parquet", "collect", "count"])
    # The collector only gets epochs if there are results. A slave and the master always get them.
    rank = chance.randrange(ranks - (results == "collect"))
    epoch = chance.randint(EPOCHS // 3, EPOCHS - 10)
    policy = chance.choice(["none", "balance"])
    settings = [f'output.results="{results}"', f'balance.policy="{policy}"', "checkpoint.epochs=2"]
    first = [*settings, f"cluster.producers={producers}", f"inject.kill={{{rank}={epoch}}}"]
    with launched(tmp_path, ranks, *first, text=job(TUPLES), seed=seed) as run:
        assert run.finish(END_S).code not in (0, 75)
    assert not (run.out / "summary.json").exists() and not list(run.out.glob("results/*.parquet"))
    settings = [*settings, f"cluster.producers={then}"]
    with launched(tmp_path, again, *settings, text=job(TUPLES), resume=True, seed=seed + 1) as run:
        assert run.finish(END_S).code == 0, run.err
    summary = check(tmp_path, wanted, results)
    assert (summary["ranks"], summary["producers"]) == (again, then)
    resumed.append(summary["checkpoints"]["resumed_from"])


def test_most_of_the_killed_runs_had_a_checkpoint(resumed):
    if len(resumed) < KILLS:
        pytest.skip("not all kills of this file were tried")
    assert sum(number is not None for number in resumed) > KILLS / 2, resumed


@pytest.mark.parametrize(
    "number, rank, results",
    [(signal.SIGTERM, None, "parquet"), (signal.SIGINT, None, "collect"), (signal.SIGUSR1, 2, "count")],
)
def test_a_signal_stops_at_a_checkpoint(wanted_of_long, tmp_path, number, rank, results):
    """rank: the only rank that gets the signal, or None if the launcher gets it."""
    settings = [f'output.results="{results}"', 'checkpoint.every="200 ms"', *SMALL_BUFFERS]
    with launched(tmp_path, 4, *settings, text=job(LONG_TUPLES)) as run:
        run.wait_for(lambda: any(run.out.glob("checkpoint/0*.json")), "first checkpoint")
        run.process.send_signal(number) if rank is None else os.kill(run.pid_of(rank), number)
        run.finish(END_S)
    assert run.code == 75, run.err
    (message,) = run.messages
    assert message.startswith("mpijoin: stopped at checkpoint ") and message.endswith(f": {number.name}")
    first, last = run.resume_commands
    assert first == last == run.failed["go_on"] and run.failed["exit_code"] == 75
    assert last.startswith("mpirun -n 4 python ") and last.endswith(" --resume")
    with launched(tmp_path, 3, *settings, text=job(LONG_TUPLES), resume=True) as run:
        assert run.finish(END_S).code == 0, run.err
    assert check(tmp_path, wanted_of_long, results)["checkpoints"]["restarts"] == 1
    shutil.rmtree(run.out)


def test_a_signal_without_other_checkpoints_stops_at_one(wanted_of_long, tmp_path):
    """SIGUSR1 has no other use, so it always asks for a checkpoint."""
    with launched(tmp_path, 3, *SMALL_BUFFERS, text=job(LONG_TUPLES)) as run:
        log = run.out / "logs/rank-0.log"
        def decided():
            return re.search(r"reorganization ([5-9]|\d\d)", log.read_text())  # Some are skipped while groups move.
        run.wait_for(lambda: log.exists() and decided(), "fifth reorganization epoch")
        run.process.send_signal(signal.SIGUSR1)
        assert run.finish(END_S).code == 75, run.err
    with launched(tmp_path, 5, text=job(LONG_TUPLES), resume=True) as run:
        assert run.finish(END_S).code == 0, run.err
    check(tmp_path, wanted_of_long, "parquet")


# So many rows of one key in each stream make 9 million pairs. A slave at 3 % of its speed takes ten seconds.
HOT_ROWS = 3_000
HOT_JOB = """
[left]
path = "rows.parquet"
time_unit = "s"
window = "2 h"
[right]
path = "rows.parquet"
time_unit = "s"
window = "2 h"
[output]
path = "out"
columns = ["left_row", "right_row"]
[tuning]
block = "512 B"
"""
# The slave that has the key is asked to stop so long after the kernels are ready. A stop that waited for the end of the
# join would leave nothing to find.
BEGUN_S = 2.0


def test_a_run_stops_though_a_hot_key_is_being_joined(tmp_path):
    """What was found before the stop stays found, and other ranks find the rest.

    The block of fresh tuples that is being joined is joined to its end. Blocks are small here because slaves are slow.
    """
    rows = pa.table({"ts": pa.array(range(HOT_ROWS)), "key": pa.array([7] * HOT_ROWS)})
    pq.write_table(rows, tmp_path / "rows.parquet")
    slow = ["--set", "inject.slow=[{rank = 1, share = 0.03}, {rank = 2, share = 0.03}]"]
    with Run(tmp_path, HOT_JOB, 3, slow) as run:
        run.stop_while_joining(BEGUN_S, END_S)
    assert 0 < read_manifest(run.out / "checkpoint", 1).before.results < HOT_ROWS**2
    with Run(tmp_path, HOT_JOB, 2, ["--resume"]) as run:
        assert run.finish(END_S).code == 0, run.err
    found = pq.read_table(run.out / "results")
    assert found.num_rows == found.group_by(["left_row", "right_row"]).aggregate([]).num_rows == HOT_ROWS**2
