"""The Java process behind a Spark session. The terminal's signals do not reach it, and it never outlives the
session."""

from __future__ import annotations

import logging
import os
import signal
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Iterator

NAMED = ("functions", "PythonUtils", "PythonSQLUtils", "SparkSession", "org")  # by pyspark, again and again
END_S = 20.0  # for Java to end after it was asked to, which takes away its files


@contextmanager
def java_process(conf: Any) -> Iterator[Any]:
    """Starts Spark's Java with this SparkConf and yields pyspark's gateway to it; at the end the process is gone.

    Raises what pyspark raises where Java does not start.
    """
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    before = _children()
    with _no_log_of_what_is_raised():
        try:
            # In a session of their own, Java and its Python workers do not see Ctrl-C. We end them ourselves, in order.
            yield launch_gateway(conf, {"start_new_session": True})
        finally:
            # If pyspark was interrupted while it started a process, it does not say which one.
            for process in _children() - before:
                _end(process)
            SparkContext._gateway = SparkContext._jvm = None


def keep_names(jvm: Any) -> None:
    """Lets this view of Java ask only once what the name of a class, a package or a static method means.

    pyspark names some of each with every expression that it makes, and Java looks through all its archives for a class.
    """
    from py4j.java_gateway import JavaClass, JavaMember, JavaPackage

    class KeptClass(JavaClass):
        def __getattr__(self, name: str) -> Any:
            return keep(self, name, super().__getattr__(name))

    class KeptPackage(JavaPackage):
        def __getattr__(self, name: str) -> Any:
            return keep(self, name, super().__getattr__(name))

    def keep(place: Any, name: str, found: Any) -> Any:
        if type(found) is JavaClass:
            found = KeptClass(found._fqn, found._gateway_client)
        elif type(found) is JavaPackage:
            found = KeptPackage(found._fqn, found._gateway_client, found._jvm_id)
        elif not isinstance(found, JavaMember):
            return found  # a value, which may change
        setattr(place, name, found)
        return found

    for name in NAMED:
        keep(jvm, name, getattr(jvm, name))


def _children() -> set[int]:
    """The processes that this one has started and that have not been waited for."""
    found = set()
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # the thread has just ended
            found |= set(map(int, path.read_text().split()))
    return found


def _end(process: int) -> None:
    """Ends a process that leads a group, and all processes in the group. It asks first, and kills them after END_S."""
    for number, patience_s in ((signal.SIGTERM, END_S), (signal.SIGKILL, END_S)):
        with suppress(ProcessLookupError):
            os.killpg(process, number)
        if _ends_within(process, patience_s):
            return


def _ends_within(process: int, patience_s: float) -> bool:
    deadline_s = time.monotonic() + patience_s
    while time.monotonic() < deadline_s:
        try:
            if os.waitpid(process, os.WNOHANG)[0]:
                return True
        except ChildProcessError:  # somebody else has waited for it
            return True
        time.sleep(0.02)
    return False


@contextmanager
def _no_log_of_what_is_raised() -> Iterator[None]:
    """Keeps quiet what py4j logs when a command ends or is stopped. It may then be waiting for Java, or Java may be
    gone already; py4j raises both errors and also logs them with their tracebacks. The command says itself that it was
    stopped, and what Java no longer answers at the end is only about objects that Python drops."""
    from py4j.protocol import Py4JError

    def is_news(record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], KeyboardInterrupt | Py4JError))

    root, py4j = logging.getLogger(), logging.getLogger("py4j")  # it logs some errors with the root's own functions
    before = py4j.level
    root.addFilter(is_news)
    py4j.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        root.removeFilter(is_news)
        py4j.setLevel(before)
