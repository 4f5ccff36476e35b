"""The whole engine under a real mpirun: the same answer on any number of ranks, even shares, and large messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import mpijoin

ROOT = Path(__file__).parents[2]
MPIRUN = Path(sysconfig.get_path("scripts")) / "mpirun"  # It belongs to the MPI library that mpi4py loads.
# This is the value in transport/mpi.py. To import it from there would make this process an MPI rank.
PIECE_BYTES = 8 << 20
SYNTHETIC = """
[{name}]
kind = "synthetic"
rate = 2000
bias = {bias}
domain = 3000
tuples = 12_000
seed = {seed}
payload_bytes = {payload_bytes}
window = "2 s"
"""
REST = """
[cluster]
partitions = 60
distribution_epoch = "500 ms"
subgroups = {subgroups}
[memory]
limit = "256 MiB"
[output]
part = "64 KB"
"""

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.slow,
    pytest.mark.skipif(not MPIRUN.exists(), reason="no mpirun beside this Python"),
]


def write_job(path: Path, bias: float = 0.5, payload_bytes: int = 0, subgroups: int = 2) -> Path:
    streams = [
        SYNTHETIC.format(name=name, bias=bias, seed=seed, payload_bytes=payload_bytes)
        for name, seed in (("left", 1), ("right", 2))
    ]
    path.write_text("".join(streams) + REST.format(subgroups=subgroups))
    return path


def mpi_run(ranks: int, job: Path, out: Path, *settings: str, timeout_s: float = 120.0) -> dict:
    """Runs the job on so many ranks. Returns its summary."""
    environ = dict(os.environ, PYTHONPATH=str(ROOT))
    command = [str(MPIRUN), "-n", str(ranks), sys.executable, "-m", "mpijoin", "run", str(job)]
    for setting in (f'output.path="{out}"', *settings):
        command += ["--set", setting]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((out / "summary.json").read_text())


def pairs_of(out: Path) -> list[tuple[int, int]]:
    table = pq.read_table(out / "results")
    return sorted(zip(table["left_row"].to_pylist(), table["right_row"].to_pylist()))


@pytest.fixture(scope="module")
def job(tmp_path_factory) -> Path:
    return write_job(tmp_path_factory.mktemp("job") / "job.toml")


@pytest.fixture(scope="module")
def local(job, tmp_path_factory) -> Path:
    """Runs the same job with one slave, on threads of this process."""
    out = tmp_path_factory.mktemp("local") / "run"
    mpijoin.run(job, [f'output.path="{out}"'], slaves=1)
    return out


@pytest.mark.parametrize("results", ["count", "parquet", "collect"])
@pytest.mark.parametrize("ranks", [2, 4, 5])
def test_any_number_of_ranks_gives_the_same(job, local, tmp_path, ranks, results):
    wanted = json.loads((local / "summary.json").read_text())
    summary = mpi_run(ranks, job, tmp_path / "run", f'output.results="{results}"')
    slaves = ranks - 1 - (results == "collect" and ranks > 2)
    assert (summary["ranks"], summary["slaves"]) == (ranks, slaves)
    for field in ("results", "certificate", "streams"):
        assert summary[field] == wanted[field], field
    if results != "count":
        assert pairs_of(tmp_path / "run") == pairs_of(local)


@pytest.mark.parametrize("ranks", [4, 5])
def test_on_uniform_keys_no_slave_has_more_than_twice_the_mean(job, tmp_path, ranks):
    summary = mpi_run(ranks, job, tmp_path / "run", 'output.results="count"')
    for figure in ("results", "comparisons", "window_bytes_max"):
        shares = [slave[figure] for slave in summary["per_slave"].values()]
        assert len(shares) == ranks - 1
        assert max(shares) <= 2 * sum(shares) / len(shares), (figure, shares)


def test_skew_and_every_setting_leave_the_answer_alone(tmp_path):
    job = write_job(tmp_path / "job.toml", bias=0.8)
    plain = mpi_run(3, job, tmp_path / "plain", 'output.results="count"')
    settings = [
        'output.results="count"',
        'tuning.theta="2 KB"',
        'tuning.block="256 B"',
        "tuning.result_buffer=100",
        "cluster.partitions=7",
        'cluster.distribution_epoch="37 ms"',
        'cluster.buffer="64 KiB"',
        'cluster.master_buffer="64 KiB"',
    ]
    other = mpi_run(4, job, tmp_path / "other", *settings)
    assert plain["results"] > 100_000
    assert (other["results"], other["certificate"]) == (plain["results"], plain["certificate"])
    assert other["splits"] > 0


def test_messages_above_the_size_of_a_piece_arrive_whole(tmp_path):
    """One epoch has 24,000 tuples of 4 KB, or 100 MB, so a slave's message is larger than the transport's pieces."""
    job = write_job(tmp_path / "job.toml", payload_bytes=4000)
    windows = ['left.window="1 ms"', 'right.window="1 ms"']
    settings = ['cluster.distribution_epoch="9 h"', "cluster.subgroups=1", 'memory.limit="512 MiB"', *windows]
    columns = 'output.columns=["left_row", "right_row", "left_payload", "right_payload"]'
    summary = mpi_run(2, job, tmp_path / "run", columns, *settings)
    assert summary["epochs"] == 1
    assert summary["peak_master_buffer_bytes"] > 8 * PIECE_BYTES
    assert 10 < summary["results"] == pq.read_table(tmp_path / "run" / "results").num_rows


def test_the_slave_is_told_by_its_own_rank_in_a_stalled_run(job, tmp_path):
    settings = [
        'output.results="count"',
        "inject.slow={2 = 0.05}",
        'cluster.buffer="64 KiB"',
        'cluster.master_buffer="128 KiB"',
    ]
    summary = mpi_run(3, job, tmp_path / "run", *settings, 'cluster.distribution_epoch="50 ms"')
    assert list(summary["held_back_by"]) == ["2"]


LOADED = """
import atexit, os, sys
from mpijoin.__main__ import process

def tell():
    names = {".".join(name.split(".")[1:3]) for name in sys.modules if name.startswith("mpijoin.")}
    with open(os.environ["LOADED"] + "/" + os.environ["PMI_RANK"], "w") as file:
        file.write("\\n".join(sorted(names)))

atexit.register(tell)
process()
"""
LEADS = {"coordinator.core", "producer.core", "sources.screen", "policy.balance", "config.check", "launch.setup"}
JOINS = {"slave.core", "store.insert", "join.window_join", "operators.stored"}
RARE = {"spill.spiller", "spill.rotator", "checkpoint.restore", "sinks.table", "queries.pairs"}


def test_each_role_loads_only_what_it_is_made_of(tmp_path):
    """Every rank pays for what it loads, all of them at once, before anything is joined."""
    job, out = write_job(tmp_path / "job.toml"), tmp_path / "out"
    (tmp_path / "loaded").mkdir()
    command = [str(MPIRUN), "-n", "4", sys.executable, "-c", LOADED, "run", str(job), "--quiet"]
    settings = ["cluster.producers=2", "output.results='count'", f"output.path='{out}'"]
    command += [word for setting in settings for word in ("--set", setting)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "LOADED": str(tmp_path / "loaded")}
    for options in ([], ["--overwrite"]):  # A first start compiles, and then the master helps the slaves.
        subprocess.run(command + options, env=environ, check=True, timeout=120)
    master, producer, *slaves = (set((tmp_path / "loaded" / str(rank)).read_text().split()) for rank in range(4))
    assert LEADS <= master and not master & (JOINS | RARE)
    assert "producer.core" in producer and not producer & {*RARE, "coordinator.core"}
    for slave in slaves:
        assert JOINS <= slave and not slave & (LEADS | RARE)
