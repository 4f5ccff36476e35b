"""MPI over TCP, as between nodes without a fast network: ranks share no memory, and nothing else changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import mpijoin

ROOT = Path(__file__).parents[2]
MPIRUN = Path(sysconfig.get_path("scripts")) / "mpirun"  # It belongs to the MPI library that mpi4py loads.
# MPICH takes its network from libfabric, whose provider is TCP, also between ranks of one node.
TCP = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "MPIR_CVAR_NOLOCAL": "1"}
# Each of two ranks sends 1 MB to the other, and counts its TCP connections that lead to somebody.
COUNT = """
import os
import numpy as np
from mpijoin.transport.mpi import MpiTransport
from mpijoin.transport.base import Channel

ESTABLISHED = "01"
transport = MpiTransport()
transport.send(1 - transport.rank, Channel.DATA, np.full(1 << 20, transport.rank, np.uint8))
messages = []
while not (messages and transport.flush(0)):
    messages += transport.poll()
assert (messages[0].data == 1 - transport.rank).all() and len(messages[0].data) == 1 << 20
files = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
names = {os.readlink(file) for file in files if os.path.islink(file)}
lines = [line.split() for file in ("tcp", "tcp6") for line in open(f"/proc/net/{file}").read().splitlines()[1:]]
count = sum(line[3] == ESTABLISHED and f"socket:[{line[9]}]" in names for line in lines)
os.write(1, f"connections {count}\\n".encode())  # in one piece: the other rank writes there, too
transport.close()
"""
STREAM = 'kind = "synthetic"\nrate = 20_000\nbias = 0.6\ndomain = 2000\ntuples = 60_000\nwindow = "500 ms"\n'
JOB = f'[left]\n{STREAM}seed = 1\n[right]\n{STREAM}seed = 2\n[memory]\nlimit = "128 MiB"\n[output]\npath = "out"\n'

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(not MPIRUN.exists(), reason="no mpirun beside this Python")]


def mpirun(ranks: int, *arguments: str) -> subprocess.CompletedProcess:
    environ = dict(os.environ, **TCP, PYTHONPATH=str(ROOT))
    command = [str(MPIRUN), "-n", str(ranks), sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120.0)


@pytest.fixture(scope="module", autouse=True)
def _has_tcp() -> None:
    """Skips where the MPI library knows no such network. Any other fault is one of the tests."""
    done = mpirun(1, "-c", "from mpi4py import MPI")
    if done.returncode and any(word in done.stderr for word in ("No data available", "NETMOD")):
        pytest.skip("this MPI library has no TCP provider")
    assert done.returncode == 0, done.stderr


def test_ranks_of_one_node_talk_over_tcp():
    done = mpirun(2, "-c", COUNT)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("connections")]
    assert len(counts) == 2 and min(counts) > 0, done.stdout


def test_a_join_over_tcp_gives_the_same(tmp_path):
    job = tmp_path / "job.toml"
    job.write_text(JOB)
    wanted = mpijoin.run(job, ['output.results="count"'], slaves=1).summary
    for results, ranks in (("parquet", 3), ("collect", 4)):
        settings = (f'output.path="{tmp_path / results}"', f'output.results="{results}"')
        options = [part for setting in settings for part in ("--set", setting)]
        done = mpirun(ranks, "-m", "mpijoin", "run", str(job), *options)
        assert done.returncode == 0, done.stdout + done.stderr
        summary = json.loads((tmp_path / results / "summary.json").read_text())
        assert summary["results"] == wanted["results"] > 100_000
        assert summary["certificate"] == wanted["certificate"]
