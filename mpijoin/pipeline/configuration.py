"""The settings that Spark starts with. Our defaults come first; spark-defaults.conf wins over them, --conf wins over
both, and what a command relies on wins over all."""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path
from typing import Mapping, Sequence

from mpijoin.config.units import show
from mpijoin.errors import JobError
from mpijoin.progress import QUIET

LOCAL = "local[*]"
DRIVER_MEMORY = "2g"
# Answers would be different without these.
NEEDED = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.legacy.parquet.nanosAsLong": "true",  # Spark's own timestamps end at microseconds
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# Java's optimizing compiler waits for this many times its usual number of calls and rounds of a loop. It is costly, and
# what Spark runs a few thousand times to start and to plan never pays for it. Code that runs for each row gets there at
# once all the same.
LATER = 10
TIER_4 = {"InvocationThreshold": 5_000, "MinInvocationThreshold": 600, "CompileThreshold": 15_000}
TIER_4 |= {"BackEdgeThreshold": 40_000}  # as in Java 17
COMPILING = " ".join(
    ["-XX:+IgnoreUnrecognizedVMOptions", *(f"-XX:Tier4{name}={LATER * count}" for name, count in TIER_4.items())]
)
LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = spark: %p %c{1}: %m%n%throwable{short}
# Spark would say on every start that the level of the shell's logger is not that of the root.
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = error
# Every attempt at a stage would log its failing row. The error that the driver raises says it once.
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
logger.util.name = org.apache.spark.util.Utils
logger.util.level = off
"""


def add_spark_arguments(parser: argparse._ActionsContainer) -> None:
    """Adds the arguments of every command that starts Spark."""
    parser.add_argument("--quiet", action="store_true", help=QUIET)
    master = f"of Spark (default: spark.master in spark-defaults.conf, else {LOCAL}, all cores of this machine)"
    parser.add_argument("--master", metavar="URL", help=master)
    conf = "a setting of Spark, as often as needed, such as spark.driver.memory=8g; wins over spark-defaults.conf"
    parser.add_argument("--conf", metavar="KEY=VALUE", action="append", default=[], help=conf)


def given_settings(conf: Sequence[str], master: str | None, needed: Mapping[str, str] = {}) -> dict[str, str]:
    """The settings that --conf and --master give. Raises JobError with all texts that are no settings, and all settings
    that the command needs to be different.

    >>> given_settings(["spark.driver.memory=8g"], "local[2]")
    {'spark.driver.memory': '8g', 'spark.master': 'local[2]'}
    """
    faults, found = [], {}
    for text in conf:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            faults.append(
                f"--conf: got {show(text)}, wanted KEY=VALUE with a key of Spark, such as spark.driver.memory=8g"
            )
        elif name in needed and value != needed[name]:
            faults.append(f"--conf: got {show(text)}, which must be {needed[name]} here: leave it out")
        found[name] = value
    if faults:
        raise JobError(faults)
    return found | ({"spark.master": master} if master else {})


def all_settings(name: str, given: Mapping[str, str], needed: Mapping[str, str], folder: Path) -> dict[str, str]:
    """All settings of one session. Spark reads spark-defaults.conf itself, so it only keeps our own defaults back here.

    name: of the application · given: by the user for this call · needed: by the command · folder: for files that live
    no longer than the session.
    """
    defaults = spark_defaults(os.environ)
    told = {**defaults, **given}
    master = told.get("spark.master", LOCAL)
    ours = {"spark.app.name": f"mpijoin {name}", "spark.driver.memory": DRIVER_MEMORY}
    ours |= {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower()}
    ours |= {"spark.sql.execution.arrow.maxRecordsPerBatch": "65536", "spark.local.dir": str(folder)}
    # To compress the rows that are kept for several passes would cost more CPU time than the passes do. Rows that do
    # not fit into memory go to disk.
    ours["spark.sql.inMemoryColumnarStorage.compressed"] = "false"
    if master.startswith("local"):
        ours |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
        ours |= {"spark.sql.shuffle.partitions": str(2 * _local_cores(master))}
    ours = {key: value for key, value in ours.items() if key not in told}
    settings = {**ours, **given, **NEEDED, **needed}
    settings["spark.master"] = master
    logging = folder / "log4j2.properties"
    logging.write_text(LOGGING)
    own_options = f"{COMPILING} -Dlog4j2.configurationFile=file:{logging} -Djava.io.tmpdir={folder}"
    settings[JAVA_OPTIONS] = f"{own_options} {told.get(JAVA_OPTIONS, '')}".strip()
    return settings


def spark_defaults(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings of the spark-defaults.conf that Spark will read; {} where there is none."""
    import pyspark

    home = environment.get("SPARK_HOME") or pyspark.__path__[0]
    path = Path(environment.get("SPARK_CONF_DIR") or Path(home, "conf"), "spark-defaults.conf")
    return defaults_of(path.read_text(encoding="utf-8", errors="replace")) if path.exists() else {}


def defaults_of(text: str) -> dict[str, str]:
    """The settings in a text, read as Java reads properties. Lines that go on in the next one are left out.

    >>> defaults_of("# ours" + chr(10) + "spark.master  yarn" + chr(10) + "spark.x = 1=2")
    {'spark.master': 'yarn', 'spark.x': '1=2'}
    """
    found = (re.match(r"\s*([^#!\s=:][^\s=:]*)\s*[=:\s]\s*(.*?)\s*$", line) for line in text.splitlines())
    return {match[1]: match[2] for match in found if match}


def _local_cores(master: str) -> int:
    """The number of cores that local, local[N] or local[*] means.

    >>> _local_cores("local[3]"), _local_cores("local")
    (3, 1)
    """
    found = re.fullmatch(r"local\[(\d+|\*)(,\d+)?\]", master)
    if found is None:
        return 1
    return len(os.sched_getaffinity(0)) if found[1] == "*" else int(found[1])
