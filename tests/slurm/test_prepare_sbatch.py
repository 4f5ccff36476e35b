"""slurm/prepare.sbatch: a standalone Spark inside a real Slurm allocation."""

import os
import re
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from slurm_jobs import run_job, slurm, submitted, wait_for

ROOT = Path(__file__).parents[2]
JOB = """
[left]
kind = "synthetic"
tuples = 5000
window = "1 s"
[right]
kind = "synthetic"
tuples = 3000
"""

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def java_for_few_rows(monkeypatch):
    """Six Java processes of a job start side by side on few cores. None lives long enough to be optimized."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def submit(folder, nodes, *arguments):
    """Submits prepare.sbatch from `folder` and waits; returns the exit code and the job's log."""
    return run_job(folder, "-N", str(nodes), "-t", "5", str(ROOT / "slurm/prepare.sbatch"), *arguments)


def processes_with(*words):
    """Processes of this machine in whose command line these words stand side by side."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # gone meanwhile
            found.append(path.read_bytes().decode(errors="replace"))
    return [one for one in found if "\0".join(words) in one]


def test_streams_are_made_on_all_nodes(tmp_path, monkeypatch):
    (tmp_path / "job.toml").write_text(JOB)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/spark-defaults.conf").write_text("spark.executor.memory 600m")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    exit_code, log = submit(tmp_path, 2, "generate", "job.toml", "-o", "streams", "--rows-per-file", "2500")
    assert exit_code == 0, log
    assert nothing_is_left(tmp_path)
    assert len(list((tmp_path / "streams/left").iterdir())) == 2 and "8,000 rows" in log
    assert pq.read_table(tmp_path / "streams/left").num_rows == 5000
    spark_log = next(tmp_path.glob("mpijoin-prepare-*-spark.log")).read_text()
    assert "with 1 core(s) and 600.0 MiB RAM" in spark_log or "600 MB" in spark_log or "-Xmx600M" in spark_log, (
        spark_log
    )
    assert len(set(re.findall(r"Registering worker (\S+)", spark_log))) == 2  # a slow one may ask twice
    assert not processes_with("--port", re.search(r"spark://[^: ]+:(\d+)", spark_log)[1])  # and so is its Spark


def nothing_is_left(folder):
    """Neither the secret nor anything of Spark's on the nodes' disk."""
    return not [*folder.glob(".mpijoin-spark-*"), *Path(os.environ["SLURM_TMPDIR"]).glob("mpijoin-spark-*")]


def test_a_cancelled_job_leaves_nothing(tmp_path):
    (tmp_path / "job.toml").write_text(JOB.replace("5000", "50_000_000"))
    options = ["-N", "2", "-t", "5", "-o", "job.log"]
    arguments = ["generate", "job.toml", "-o", "streams"]
    number = submitted(tmp_path, *options, str(ROOT / "slurm/prepare.sbatch"), *arguments)
    log = tmp_path / "job.log"
    wait_for(lambda: log.exists() and "left: writing" in log.read_text(), "first file")
    slurm("scancel", number)
    wait_for(lambda: number not in slurm("squeue", "-h", "-o", "%i"), "end of the job")
    assert "mpijoin: stopped by SIGTERM" in log.read_text() and not (tmp_path / "streams").exists()
    assert nothing_is_left(tmp_path)
    assert not processes_with(str(tmp_path))


def test_exit_code_and_message_are_handed_on(tmp_path):
    (tmp_path / "job.toml").write_text(JOB.replace("5000", "-5"))
    exit_code, log = submit(tmp_path, 1, "generate", "job.toml", "-o", "streams")
    assert exit_code == 2 and "[left] tuples" in log, log


def test_master_that_does_not_start(tmp_path, monkeypatch):
    spark = tmp_path / "spark/bin/spark-class"
    spark.parent.mkdir(parents=True)
    spark.write_text("#!/bin/sh\necho no heap here\nexit 1\n")
    spark.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    exit_code, log = submit(tmp_path, 1, "generate", "job.toml", "-o", "streams")
    assert exit_code == 1 and "master did not start" in log, log
    assert "no heap here" in next(tmp_path.glob("mpijoin-prepare-*-spark.log")).read_text()
    assert not list(tmp_path.glob(".mpijoin-spark-*"))


def test_without_a_command(tmp_path):
    exit_code, log = submit(tmp_path, 1)
    assert exit_code == 2 and "no command" in log
