"""Who is compared, and how each is started.

The last line that a peer's program prints is that of `measured.py`. Each peer runs in an environment of its own
(`environments.py`), with as many threads as it has cores. mpijoin, DuckDB and Polars read the same files; each of the
others reads the format that it reads fastest. None keeps checkpoints.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from benching.launch import command
from peers.environments import environment, flink_classpath, java
from peers.sql import THREE_FORMS
from peers.watch import machine_memory_bytes
from peers.workloads import SIDES, Workload

HERE = Path(__file__).parent
# A JVM's heap may take this share of the machine's memory, so that garbage collection is not what is measured.
HEAP_SHARE = 0.6
# Flink reaches into these packages on Java 17 and newer.
OPENED = ("lang", "lang.invoke", "net", "nio", "time", "util", "util.concurrent")
STREAM = """\
[streams.{side}]
path = {path}
time = "ts"
time_unit = "us"
key = "key"
window = "{window_us} us"
"""


@dataclass(frozen=True)
class Start:
    """What a command line is made of.

    environments: the folder of the peers' environments · scratch: an empty folder for state, shuffles and output.
    """

    workload: Workload
    cores: int
    environments: Path
    scratch: Path

    def inputs(self, form: str = "") -> list[str]:
        return [*map(str, self.workload.files(form)), str(self.workload.window_us)]

    @property
    def heap_gb(self) -> int:
        return max(1, int(HEAP_SHARE * machine_memory_bytes() / 2**30))


@dataclass(frozen=True)
class Peer:
    """A system that is compared.

    line: makes its command line; Absent: it cannot be had here · counts: whether it takes part where results are
    counted · writes: whether it takes part where they are written · streams: how many there may be · ranks: how many
    mpijoin has under mpirun; 0: it runs without mpirun, None: this is not mpijoin.
    """

    name: str
    title: str
    family: str
    line: Callable[[Start], list[str]]
    counts: bool = True
    writes: bool = False
    streams: tuple[int, ...] = (2,)
    ranks: int | None = None

    def runs(self, workload: Workload, cores: int) -> bool:
        """Whether the peer takes part. On one core mpijoin runs only without mpirun: its ranks would take turns."""
        takes_part = (self.writes if workload.writes else self.counts) and len(workload.streams) in self.streams
        return takes_part and not (self.ranks and cores == 1)


def mpijoin(name: str, title: str, ranks: int) -> Peer:
    return Peer(
        name, title, "mpijoin", lambda start: mpijoin_line(start, ranks), writes=True, streams=(2, 3), ranks=ranks
    )


def of_three(engine: str, title: str, form: str, threads: bool = False) -> Peer:
    """Returns a system's join of three streams. threads: whether its program must be told how many threads to use."""

    def line(start: Start) -> list[str]:
        program = str(HERE / f"{engine}_three.py")
        further = (str(start.cores),) if threads else ()
        return [str(environment("sql", start.environments)), program, form, *start.inputs(), *further]

    return Peer(f"{engine}-three-{form}", f"{title}, {form}", title, line, streams=(3,))


def mpijoin_line(start: Start, ranks: int) -> list[str]:
    """Returns the command line of mpijoin, and writes its job file."""
    workload, job = start.workload, start.scratch / "job.toml"
    files = {side: json.dumps(str(path)) for side, path in zip(workload.streams, workload.files())}
    streams = (STREAM.format(side=side, path=path, window_us=workload.window_us) for side, path in files.items())
    job.write_text("\n".join(streams))
    settings = [f"output.path={json.dumps(str(start.scratch / 'run'))}", 'output.results="count"']
    if workload.writes:
        names = [f"{side}_{column}" for column in ("time", "id", *workload.columns) for side in SIDES]
        settings[1:] = ['output.results="parquet"', f"output.columns={json.dumps(['key', *names])}"]
    slaves = () if ranks else ("--ranks", str(start.cores))
    options = [part for setting in settings for part in ("--set", setting)]
    return command(ranks, "run", str(job), *slaves, *options, python=environment("mpijoin", start.environments))


def sql(start: Start, engine: str, form: str, *further: str, inputs: str = "") -> list[str]:
    program = str(HERE / f"{engine}_join.py")
    return [str(environment("sql", start.environments)), program, form, *start.inputs(inputs), *further]


def datafusion(start: Start, form: str, inputs: str = "parquet") -> list[str]:
    return sql(start, "datafusion", form, str(start.cores), inputs=inputs)


def duckdb(start: Start, form: str, *options: str) -> list[str]:
    output = ("--output", str(start.scratch / "pairs")) if start.workload.writes else ()
    return sql(start, "duckdb", form, str(start.cores), *output, *options)


def flink(start: Start, program: str) -> list[str]:
    heap = (f"-Xms{start.heap_gb}g", f"-Xmx{start.heap_gb}g", "-XX:+UseParallelGC")
    opens = (f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in OPENED)
    classpath = flink_classpath(start.environments)
    return [str(java()), *heap, *opens, "-cp", classpath, program, *start.inputs("binary"), str(start.cores)]


def spark(start: Start, form: str) -> list[str]:
    java()  # There must be one, and Spark finds it by itself.
    program = str(HERE / "spark_join.py")
    own = (form, *start.inputs("split"), str(start.cores), str(start.heap_gb), str(start.scratch))
    return [str(environment("spark", start.environments)), program, *own]


def pathway(start: Start) -> list[str]:
    return [str(environment("pathway", start.environments)), str(HERE / "pathway_join.py"), *start.inputs("csv")]


PEERS = (
    mpijoin("mpijoin-local", "mpijoin, local", 0),
    mpijoin("mpijoin-2", "mpijoin, mpirun -n 2", 2),
    mpijoin("mpijoin-3", "mpijoin, mpirun -n 3", 3),
    Peer("duckdb-bucketed", "DuckDB, bucketed", "DuckDB", lambda start: duckdb(start, "bucketed"), writes=True),
    Peer("duckdb-plain", "DuckDB, plain", "DuckDB", lambda start: duckdb(start, "plain"), writes=True),
    Peer(
        "duckdb-plain-encoding", "DuckDB, bucketed, no dictionaries in the files", "DuckDB",
        lambda start: duckdb(start, "bucketed", "--no-dictionary"), counts=False, writes=True,
    ),
    Peer("polars-bucketed", "Polars, bucketed", "Polars", lambda start: sql(start, "polars", "bucketed")),
    Peer("polars-plain", "Polars, join and filter", "Polars", lambda start: sql(start, "polars", "plain")),
    Peer(
        "datafusion-symmetric", "DataFusion, symmetric hash join", "DataFusion streaming",
        lambda start: datafusion(start, "symmetric", inputs="csv"),
    ),
    Peer("datafusion-bucketed", "DataFusion, bucketed", "DataFusion", lambda start: datafusion(start, "bucketed")),
    Peer("datafusion-plain", "DataFusion, plain", "DataFusion", lambda start: datafusion(start, "plain")),
    Peer("flink-datastream", "Flink, DataStream interval join", "Flink", lambda start: flink(start, "DataStreamJoin")),
    Peer("flink-sql", "Flink, SQL interval join", "Flink", lambda start: flink(start, "SqlJoin")),
    Peer("spark-batch", "Spark, batch, bucketed", "Spark batch", lambda start: spark(start, "bucketed")),
    Peer("spark-streaming", "Spark Structured Streaming", "Spark streaming", lambda start: spark(start, "streaming")),
    Peer("pathway", "Pathway, interval join", "Pathway", pathway),
    *(of_three("duckdb", "DuckDB", form, threads=True) for form in THREE_FORMS),
    *(of_three("polars", "Polars", form) for form in THREE_FORMS),
)
