"""One to five streams between MPI processes.

The answer must be the oracle's on any number of ranks, while groups move at random, after kills and stops, and when a
run stops while it joins a hot key.
"""

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mpijoin
from engine_harness import Expected, Stream, check_answer, check_late, expect, section
from launching import ROOT, Run, mpirun_path
from mpijoin.checkpoint.manifest import read_manifest

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.slow,
    pytest.mark.skipif(not mpirun_path(), reason="there is no mpirun"),
]

# `Run.pids` knows by this word which processes belong to a run.
RANDOM_MOVES = [sys.executable, "-X", "mpijoin", "-m", "mpi4py", str(ROOT / "tests/harness/run_with_random_moves.py")]
END_S = 90.0  # A run takes two seconds if nobody else uses the cores.
NAMES = ("picks", "right", "left", "S_2", "e")
# These settings depend on the number of streams.
WINDOWS_MS = {1: (9,), 2: (1500, 0), 3: (1500, 0, None), 4: (400, 0, 900, None), 5: (300, 90, 0, 600, None)}
LATENESS_MS = (20, 0, 7, 1000, 20)
# How many files each stream has, and how many rows each file has.
FILES = {1: (1, 8000), 2: (2, 3000), 3: (2, 2500), 4: (1, 2000), 5: (1, 1500)}
KEYS = {1: 500, 2: 300, 3: 3000, 4: 800, 5: 600}
REST = """
[cluster]
partitions = 13
distribution_epoch = "100 ms"
reorganization_epoch = "100 ms"
[memory]
limit = "64 MiB"
[tuning]
theta = "2 KB"
block = "256 B"
[output]
path = "out"
part = "16 KB"
"""


class Work(NamedTuple):
    """The text of a job, its streams, and the result that it must give."""

    text: str
    streams: list
    wanted: Expected

    @property
    def rows(self):
        return [f"{stream.name}_row" for stream in self.streams]


def rows_of(chance, count, keys, start):
    """Returns rows out of order by a few ms, and some by more. They have ties, null keys and a few null times."""
    times = start + np.cumsum(chance.integers(0, 5, count)) - 60 * (chance.random(count) < 0.01)
    times -= chance.integers(0, 3, count)
    drawn = (chance.random(count) ** 2 * keys).astype(int)  # Low keys come often.
    lost = chance.random((2, count)) < 0.01
    return [
        (None if no_time else time, (None if no_key else f"key {key}",), (number,))
        for number, (time, key, no_time, no_key) in enumerate(zip(times.tolist(), drawn.tolist(), *lost.tolist()))
    ]


@pytest.fixture(scope="module")
def works(tmp_path_factory):
    """Gives a function from a number of streams to the work, which is made once. Keys are text, so they are hashed."""
    made = {}

    def work(count):
        if count not in made:
            made[count] = lay_out(count, tmp_path_factory.mktemp(f"streams-{count}"))
        return made[count]

    return work


def lay_out(count, folder):
    chance, (files, rows) = np.random.default_rng(count), FILES[count]
    streams = [
        Stream(
            name=name,
            files=tuple(rows_of(chance, rows, KEYS[count], 37 * number) for number in range(files)),
            unit="ms",
            time_type=pa.int64(),
            key_types=(pa.string(),),
            payload_types=(pa.int64(),),
            window_ns=None if window is None else window * 10**6,
            lateness_ns=late * 10**6,
            form="ipc" if name == "right" else "parquet",
        )
        for name, window, late in list(zip(NAMES, WINDOWS_MS[count], LATENESS_MS))
    ]
    tables = [
        "\n".join([f"[streams.{stream.name}]", *(f"{name} = {json.dumps(value)}" for name, value in own.items())])
        for stream in streams
        for own in [section(stream, folder)]
    ]
    work = Work("\n".join([*tables, REST]), streams, expect(*streams))
    assert work.wanted.pairs.total() > 5000 and max(work.wanted.pairs.values()) == 1
    assert all(one["late"] and one["null_key"] for one in work.wanted.counts.values())
    return work


def launched(folder, work, ranks, *settings, resume=False, seed=0):
    options = [word for setting in settings for word in ("--set", setting)] + ["--resume"] * resume
    return Run(folder, work.text, ranks, options, program=[*RANDOM_MOVES, str(seed)])


def check(work, out, results):
    summary = json.loads((out / "summary.json").read_text())
    assert list(summary["streams"]) == [stream.name for stream in work.streams]
    check_answer(summary, work.wanted)
    for stream in work.streams:
        check_late(out, stream, work.wanted)
    if results != "count":
        table = pq.read_table(out / "results", columns=work.rows)
        assert Counter(zip(*(column.to_pylist() for column in table.columns))) == work.wanted.pairs
    return summary


# Each case has the number of streams, the number of ranks, and where results go.
RUNS = [
    (3, 1, "parquet"),
    (3, 2, "collect"),
    (3, 3, "count"),
    (3, 5, "collect"),
    (1, 3, "parquet"),
    (2, 4, "collect"),
    (4, 3, "parquet"),
    (5, 5, "parquet"),
]


@pytest.fixture(scope="module")
def moved():
    """Collects how many groups moved in each run of several slaves."""
    return []


@pytest.mark.parametrize("count, ranks, results", RUNS)
def test_the_answer_is_the_oracles_on_any_number_of_ranks_while_groups_move(
    works, moved, tmp_path, count, ranks, results
):
    work = works(count)
    settings = [f'output.results="{results}"', 'balance.policy="balance"', f"cluster.subgroups={1 + ranks // 4}"]
    with launched(tmp_path, work, ranks, *settings, "inject.hash_bits=9", seed=count) as run:
        assert run.finish(END_S).code == 0, run.err
    summary = check(work, run.out, results)
    # A single process runs threads instead, as many as there are cores.
    if ranks > 1:
        slaves = ranks - 1 - (results == "collect" and ranks > 2)
        assert (summary["ranks"], summary["slaves"]) == (ranks, slaves)
        moved.append(summary["moves"] if slaves > 1 else None)


def test_groups_did_move_in_these_runs(moved):
    if len(moved) < len(RUNS) - 1:
        pytest.skip("not all runs of this file were made")
    counts = [count for count in moved if count is not None]
    assert sum(counts) > 20 and sum(count > 0 for count in counts) > len(counts) / 2, moved


KILLS = 4


@pytest.fixture(scope="module")
def resumed():
    """The checkpoints from which killed runs went on."""
    return []


@pytest.mark.parametrize("seed", range(KILLS))
def test_a_run_of_many_streams_that_is_killed_goes_on_on_other_ranks(works, resumed, tmp_path, seed):
    """A SIGKILL comes from outside at any time after the first checkpoint. The run is paced, to leave time for it."""
    chance = random.Random(seed)
    work, ranks, again = works(3 + seed % 3), chance.randint(3, 5), chance.randint(1, 5)
    results = chance.choice(["parquet", "collect", "count"])
    settings = [f'output.results="{results}"', 'balance.policy="balance"', "checkpoint.epochs=2"]
    with launched(tmp_path, work, ranks, *settings, "run.speed=2", seed=seed) as run:
        run.wait_for(lambda: any(run.out.glob("checkpoint/0*.json")), "first checkpoint")
        time.sleep(chance.uniform(0, 0.5))
        os.kill(run.pid_of(chance.randrange(ranks)), signal.SIGKILL)
        assert run.finish(END_S).code not in (0, 75)
    assert not (run.out / "summary.json").exists() and not list(run.out.glob("results/*.parquet"))
    with launched(tmp_path, work, again, *settings, resume=True, seed=seed + 1) as run:
        assert run.finish(END_S).code == 0, run.err
    resumed.append(check(work, run.out, results)["checkpoints"]["resumed_from"])


def test_most_of_the_killed_runs_had_a_checkpoint(resumed):
    if len(resumed) < KILLS:
        pytest.skip("not all kills of this file were tried")
    assert sum(number is not None for number in resumed) > KILLS / 2, resumed


def test_a_signal_stops_a_run_of_three_streams_again_and_again(works, tmp_path):
    """Each time other ranks go on with it, and each run but the last is stopped after a part of the input."""
    work, asked = works(3), []
    for seed, ranks in enumerate((4, 2, 5, 3)):
        last = ranks == 3
        paced = [] if last else ["run.speed=2"]
        with launched(tmp_path, work, ranks, 'balance.policy="balance"', *paced, resume=seed > 0, seed=seed) as run:
            if not last:
                log = run.out / "logs/rank-0.log"
                begun = log.stat().st_size if log.exists() else 0
                run.wait_for(lambda: log.exists() and b"reorganization" in log.read_bytes()[begun:], "reorganization")
                run.process.send_signal(signal.SIGUSR1)
            assert run.finish(END_S).code == (0 if last else 75), run.err
        if not last:
            asked.append(max(int(path.stem) for path in run.out.glob("checkpoint/0*.json")))
    assert asked == sorted(set(asked)) and len(asked) == 3
    assert check(work, run.out, "parquet")["checkpoints"]["restarts"] == 3


# So many rows of one key, all at one time, in each of three streams make 336 million results. A slave at a fifth of its
# speed joins them for some ten seconds, a fifth of them at a time.
HOT_ROWS = (600, 700, 800)
HOT_JOB = """
[streams.{name}]
path = "{name}.parquet"
time_unit = "s"
window = "unbounded"
"""
HOT_REST = """
[output]
path = "out"
results = "count"
[tuning]
block = "512 B"
"""
# A stop is asked for so long after the kernels are ready.
BEGUN_S = 1.0


def test_a_run_stops_amid_a_hot_key_of_three_streams_and_goes_on_elsewhere(tmp_path):
    names, text = ("a", "b", "c"), ""
    for name, rows in zip(names, HOT_ROWS):
        pq.write_table(pa.table({"ts": [0] * rows, "key": [7] * rows}), tmp_path / f"{name}.parquet")
        text += HOT_JOB.format(name=name)
    text += HOT_REST
    with Run(tmp_path, text, 3, ["--set", "inject.slow=[{rank = 1, share = 0.2}, {rank = 2, share = 0.2}]"]) as run:
        run.stop_while_joining(BEGUN_S, END_S)
    wanted = int(np.prod(HOT_ROWS))
    assert 0 < read_manifest(run.out / "checkpoint", 1).before.results < wanted
    with Run(tmp_path, text, 4, ["--resume"]) as run:
        assert run.finish(END_S).code == 0, run.err
    summary = json.loads((run.out / "summary.json").read_text())
    undisturbed = mpijoin.run(tmp_path / "job.toml", [f'output.path="{tmp_path}/undisturbed"'], slaves=1)
    assert summary["results"] == undisturbed.results == wanted
    assert summary["certificate"] == undisturbed.summary["certificate"]
