"""Groups that move between MPI processes, as fast as possible and paced.

The answer must be that of one slave that keeps all groups.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import mpijoin

ROOT = Path(__file__).parents[2]
MPIRUN = Path(sys.executable).with_name("mpirun")
STREAM = """
[{name}]
kind = "synthetic"
rate = 20000
bias = 0.6
domain = 50000
duration = "9 s"
window = "1500 ms"
payload_bytes = 24
seed = {seed}
"""
REST = """
[cluster]
partitions = 13
distribution_epoch = "50 ms"
reorganization_epoch = "100 ms"
[memory]
limit = "256 MiB"
[balance]
policy = "balance"
[output]
columns = ["left_row", "right_row"]
"""

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.slow,
    pytest.mark.skipif(not MPIRUN.exists(), reason="no mpirun beside this Python"),
]


@pytest.fixture(scope="module")
def job(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("job") / "job.toml"
    path.write_text("".join(STREAM.format(name=name, seed=seed) for name, seed in (("left", 1), ("right", 2))) + REST)
    return path


@pytest.fixture(scope="module")
def wanted(job, tmp_path_factory) -> dict:
    out = tmp_path_factory.mktemp("local") / "run"
    return mpijoin.run(
        job, [f'output.path="{out}"', 'balance.policy="none"', 'output.results="count"'], slaves=1
    ).summary


def mpi_run(job: Path, out: Path, seed: int, ranks: int, *settings: str) -> dict:
    command = [
        str(MPIRUN),
        "-n",
        str(ranks),
        sys.executable,
        "-m",
        "mpi4py",
        str(ROOT / "tests/harness/run_with_random_moves.py"),
    ]
    command += [str(seed), "run", str(job), "--set", f'output.path="{out}"']
    command += [word for setting in settings for word in ("--set", setting)]
    done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((out / "summary.json").read_text())


def check(summary: dict, wanted: dict, out: Path) -> None:
    assert (summary["results"], summary["certificate"]) == (wanted["results"], wanted["certificate"])
    moves = pq.read_table(out / "metrics" / "moves.parquet").to_pylist()
    changes = summary["moves"] + summary["spread"] + summary["gathered"]
    assert sum(move["outcome"] == "moved" for move in moves) == changes > 3
    records = pa.concat_tables([pq.read_table(file) for file in (out / "metrics").glob("rank-*.parquet")])
    for name in set(records.column_names) - {"role"}:
        assert pc.min(records[name]).as_py() >= 0, (
            f"{name}: what is counted only grows, so no epoch has less than none of it"
        )
    for move in moves:
        if move["outcome"] == "moved":
            assert move["begun_us"] <= move["frozen_us"] <= move["delivered_us"] <= move["closed_us"]
            has_bytes = move["bytes"] > 0 or move["kind"] == "gather"  # A part may be empty.
            assert has_bytes and move["supplier"] != move["consumer"]


@pytest.mark.parametrize(
    "seed, results, producers", [(1, "parquet", 1), (1, "collect", 3), (2, "parquet", 2), (2, "collect", 1)]
)
def test_random_moves_change_nothing(job, wanted, tmp_path, seed, results, producers):
    settings = [f'output.results="{results}"', "cluster.subgroups=2", f"cluster.producers={producers}"]
    summary = mpi_run(job, tmp_path / "run", seed, 4 + producers, *settings)
    check(summary, wanted, tmp_path / "run")
    assert summary["spread"] > 0  # Whether one leaves again depends on how often the policy is asked.
    assert pq.read_table(tmp_path / "run" / "results").num_rows == wanted["results"]


@pytest.mark.parametrize("move, producers, paced", [("mslb", 1, False), ("ptlb", 1, False), ("ptlb", 2, True)])
def test_random_moves_of_each_kind_change_nothing(job, wanted, tmp_path, move, producers, paced):
    settings = [f'balance.move="{move}"', f"cluster.producers={producers}", *["run.speed=3"] * paced]
    summary = mpi_run(job, tmp_path / "run", 1, 3 + producers, *settings, 'output.results="collect"')
    check(summary, wanted, tmp_path / "run")


@pytest.mark.parametrize("kind, producers", [("full", 1), ("anti", 2)])
def test_marks_of_tuples_move_with_their_groups(job, tmp_path, kind, producers):
    """A tuple that had its partner at one slave does not leave alone at another."""
    local = ['balance.policy="none"', 'output.results="count"', f'output.path="{tmp_path / "local"}"']
    wanted = mpijoin.run(job, [*local, f'join.type="{kind}"'], slaves=1).summary
    settings = ['output.results="collect"', f'join.type="{kind}"', f"cluster.producers={producers}"]
    settings += ['output.columns=["left_row"]']
    summary = mpi_run(job, tmp_path / "run", 5, 4 + producers, *settings)
    check(summary, wanted, tmp_path / "run")


@pytest.mark.parametrize("producers", [1, 2])
def test_random_moves_in_a_paced_run_change_nothing(job, wanted, tmp_path, producers):
    slow = "inject.slow=[{rank = 2, share = 0.3, from = '1 s', to = '2 s'}]"
    late = "inject.delay=[{rank = 3, by = '30 ms'}]"
    settings = ['output.results="count"', "run.speed=3", "cluster.slaves_min=1", slow, late]
    summary = mpi_run(job, tmp_path / "run", 3, 3 + producers, *settings, f"cluster.producers={producers}")
    check(summary, wanted, tmp_path / "run")
    assert summary["declustering"]["max"] == 3
    assert 0 < summary["delay_s"]["p50"] <= summary["delay_s"]["p99"] <= summary["delay_s"]["max"]
