"""This module compiles every kernel of a role, or loads it from the cache, before the clock starts."""

from __future__ import annotations

import hashlib
from functools import partial

from mpijoin.config.job import AUTO, MWAY, FileSource, Job, StreamJob, SyntheticSource
from mpijoin.data.files import CSV, expand_files, file_format
from mpijoin.data.schema import JoinSchema
from mpijoin.launch.sharing import KernelSet, prepare
from mpijoin.launch.use import Use

# The names of sets that are not a slave's alone.
METRICS, READ = "write_metrics", "read_and_scatter"


def warm_up(role: str, number: int = 0, use: Use = Use()) -> float:
    """Prepares the kernels of a role ("master", "producer", "slave" or "collector"). Returns the seconds that this
    took.

    Ranks of odd and even `number` begin with different kernels, so that two of them share the work of a first start.
    """
    return prepare(sets_of(role, use, backwards=number % 2 == 1))


def sets_of(role: str, use: Use, backwards: bool = False) -> list[KernelSet]:
    """Returns the kernels of a role in sets, of which each may be compiled by another process.

    Sets that stand beside each other have functions in common, which a process goes through only once. backwards:
    those that are independent come in the opposite order.
    """
    names: list[str] = []
    if role in ("master", "producer"):
        names = [READ]
    elif role == "slave":
        moving = use.moves or (use.stops and not _set_of("hand_over", use).is_compiled)
        moves = ["hand_over"] if moving else []
        names = ["find", *moves, "insert", "finish"] if use.aggregate else ["probe", *moves, "insert", "expire"]
    names = [METRICS, *(names[::-1] if backwards else names)]
    if role == "slave" and use.spills:
        names.append("spill")
    if role == "slave" and use.paced:
        names.append("delay")
    return [_set_of(name, use) for name in names]


def _set_of(name: str, use: Use) -> KernelSet:
    kind = "".join(f"_{name}" for name in ("text", "rows", "symmetric", "marks", "aggregate") if getattr(use, name))
    return KernelSet(name + kind, partial(_run, name, use))


def _run(name: str, use: Use) -> None:
    # Each role loads the modules that it is made of, and no others.
    if name == METRICS:
        from mpijoin.metrics.write import warm_up as write_first

        write_first()
    elif name == READ:
        from mpijoin.launch.warm_producer import read_and_scatter

        read_and_scatter(use)
    else:
        from mpijoin.launch.warm_slave import TASKS

        TASKS[name](use)


def warm_up_sources(job: Job) -> float:
    """Prepares the kernels that make the job's synthetic streams, and those that read CSV files. Returns the seconds
    that this took."""
    from mpijoin.launch.warm_producer import make_two, split_text

    sets = [KernelSet("csv", split_text)] if any(map(_reads_csv, job.streams)) else []
    sources = [stream.source for stream in job.streams if isinstance(stream.source, SyntheticSource)]
    if sources:
        kinds = sorted({_kernels_of(source) for source in sources})
        sets.append(KernelSet("_".join(["synthetic", *kinds]), lambda: make_two(sources)))
    return prepare(sets)


def _reads_csv(stream: StreamJob) -> bool:
    return isinstance(stream.source, FileSource) and file_format(expand_files(stream.source.path)[0]) == CSV


def _kernels_of(source: SyntheticSource) -> str:
    """Returns a name made of everything that decides which kernels make the stream."""
    parts = {"payload": source.payload_bytes > 0, "disorder": source.disorder_ns > 0}
    return "-".join([source.arrivals, source.keys, *(name for name, used in parts.items() if used)])


def warm_up_condition(job: Job, schema: JoinSchema) -> float:
    """Prepares the kernels that only jobs with this condition, or with results of this kind, need. Returns the seconds
    that this took."""
    if not (job.queries or job.join.where or job.join.answers_rows or job.join.plan != MWAY):
        return 0.0
    from mpijoin.launch.warm_slave import condition

    digest = hashlib.sha256(repr((job.join, job.queries, schema)).encode()).hexdigest()[:16]
    return prepare([KernelSet(f"where_{digest}", partial(condition, job, schema))])


def measure_theta(job: Job, schema: JoinSchema) -> float:
    """Makes sure that this machine knows which theta suits the job's tuples, if the job leaves the choice to it and
    joins. Returns the seconds that this took."""
    if job.tuning.theta != AUTO or job.aggregate.is_on:
        return 0.0
    from mpijoin.join.tuning import mean_tuple_bytes, remember, width_of

    width = width_of(mean_tuple_bytes(schema))
    return prepare([KernelSet(f"theta_{width}", lambda: remember(width))])
