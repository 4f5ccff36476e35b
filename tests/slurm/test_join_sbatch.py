"""slurm/join.sbatch on a real Slurm."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from slurm_jobs import ended, run_job, submitted

ROOT = Path(__file__).parents[2]


pytestmark = pytest.mark.slow


def submit(folder: Path, *arguments: str) -> tuple[int, str]:
    """Submits join.sbatch from `folder` with four ranks and waits; returns the exit code and the job's log."""
    return run_job(folder, "-n", "4", "-t", "5", str(ROOT / "slurm/join.sbatch"), *arguments)


def write_job(folder: Path, data: str) -> None:
    """The quickstart's job as job.toml, its inputs in the folder `data`, its output in `out`."""
    text = (ROOT / "scripts/jobs/seismic.toml").read_text()
    text = text.replace("../../tests/data/italy_picks", data).replace("../../runs/seismic", "out")
    (folder / "job.toml").write_text(text)


def test_join_sbatch_runs_a_job_on_all_ranks(tmp_path):
    write_job(tmp_path, str(ROOT / "tests/data/italy_picks"))
    exit_code, log = submit(tmp_path, "job.toml", "--set", "cluster.partitions=12")
    assert exit_code == 0, log
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert (summary["ranks"], summary["slaves"], summary["results"]) == (4, 3, 32_799)
    assert "4 ranks on" in log and "32,799 results" in log


def test_nothing_of_the_callers_environment_is_needed(tmp_path):
    """sbatch --export=NONE, as some sites demand: a file of the site says where mpijoin is, and the ranks hear of
    it."""
    write_job(tmp_path, str(ROOT / "tests/data/italy_picks"))
    site = f"export MPIJOIN_ENVIRONMENT={sys.prefix} SLURM_TMPDIR={os.environ['SLURM_TMPDIR']}\n"
    (tmp_path / "mpijoin-site.sh").write_text(site)
    options = ["--export=NONE", "-J", "picks", "-n", "3", "-t", "5"]
    number = submitted(tmp_path, *options, str(ROOT / "slurm/join.sbatch"), "job.toml")
    _, code = ended(number)
    (log,) = tmp_path.glob("picks-*.log")
    assert code == 0 and "site settings from" in log.read_text(), log.read_text()
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert (summary["ranks"], summary["results"]) == (3, 32_799)


def test_join_sbatch_hands_on_the_exit_code(tmp_path):
    write_job(tmp_path, "nowhere")
    exit_code, log = submit(tmp_path, "job.toml")
    assert exit_code == 2, log
    assert "nowhere/left.parquet" in log


def test_join_sbatch_without_a_job_file(tmp_path):
    exit_code, log = submit(tmp_path)
    assert exit_code == 2 and "no job file" in log
