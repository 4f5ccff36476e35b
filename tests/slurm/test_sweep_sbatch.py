"""slurm/sweep.sbatch on a real Slurm: a sweep as a job array."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from slurm_jobs import slurm, wait_for

ROOT = Path(__file__).parents[2]
JOB = """
[left]
kind = "synthetic"
tuples = 3000
domain = 50
window = "1 s"
[right]
kind = "synthetic"
tuples = 3000
domain = 50
[output]
path = "out"
results = "count"
"""
SWEEP = """
job = "job.toml"
output = "sweep"
ranks = 3
[grid]
"cluster.partitions" = [5, 50]
"inject.fail" = [{}, {"1" = 0}]
"""

pytestmark = pytest.mark.slow


def sweep(folder, *arguments):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "mpijoin", "sweep", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def wait_until_done():
    wait_for(lambda: not slurm("squeue", "-h").strip(), "end of the array")


def test_an_array_runs_the_points_and_a_second_one_those_that_failed(tmp_path):
    (tmp_path / "job.toml").write_text(JOB)
    (tmp_path / "sweep.toml").write_text(SWEEP)
    submitted = sweep(tmp_path, "submit", "sweep.toml", "--throttle", "2", "--", "-t", "5")
    assert submitted.returncode == 0 and "--array=0,1,2,3%2" in submitted.stdout, submitted.stderr
    assert "when they have ended: mpijoin sweep table sweep.toml\n" in submitted.stdout
    wait_until_done()
    assert sweep(tmp_path, "table", "sweep.toml").returncode == 0
    logs = "".join(path.read_text() for path in tmp_path.glob("mpijoin-sweep-*.log"))
    rows = pq.read_table(tmp_path / "sweep/table.parquet").to_pylist()
    assert [row["state"] for row in rows] == ["done", "failed", "done", "failed"], logs
    assert rows[0]["results"] == rows[2]["results"] > 0 and "epoch 0 has come" in rows[1]["reason"]
    done = next((tmp_path / "sweep/points").glob("*/run/summary.json"))
    assert json.loads(done.read_text())["ranks"] == 3
    again = sweep(tmp_path, "submit", "sweep.toml")
    assert "--array=1,3%8" in again.stdout
    wait_until_done()
