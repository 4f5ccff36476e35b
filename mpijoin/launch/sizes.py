"""What a launch chooses where the job says "auto": how many ranks produce, in how many sub-groups slaves are served."""

from __future__ import annotations

from contextlib import suppress
from math import ceil
from typing import Iterator

from mpijoin.config.job import AUTO, MAX, FileSource, Job, StreamJob, SyntheticSource
from mpijoin.data.files import CSV, PARQUET, expand_files, file_format
from mpijoin.errors import InputError, JobError
from mpijoin.policy.epoch import AUTO_ROWS
from mpijoin.policy.sizes import Choice, producers_of, ranks_with, subgroups_of

UNIT_ROWS = 1 << 16  # of what is shared out of tables and synthetic streams (sources/shares.py)
TUPLE_BYTES = 64  # of a tuple on its way, with a few columns


def sized(job: Job, size: int) -> tuple[Job, tuple[str, ...]]:
    """Returns the job with a number for each "auto" that a run on so many ranks has, and a line about each."""
    cluster, told = job.cluster, []
    if cluster.producers_asked is None:
        chosen = producers_of(_working(job, size), shares_of(job))
        told.append(_line("producers", chosen))
        cluster = cluster._replace(producers_asked=chosen.value)
    if cluster.subgroups_asked is None:
        slaves = max(1, _working(job, size) - cluster.producers)
        chosen = subgroups_of(slaves, _epoch_bytes(job), cluster.master_buffer_bytes // 2)
        told.append(_line("subgroups", chosen))
        cluster = cluster._replace(subgroups_asked=chosen.value)
    return job._replace(cluster=cluster), tuple(told)


def size_for(job: Job, slaves: int) -> int:
    """The number of ranks of a run with so many slaves: with its producers, and a collector if the job wants one."""
    producers = job.cluster.producers_asked
    working = ranks_with(slaves, shares_of(job)) if producers is None else producers + slaves
    return working + (job.output.results == "collect")


def auto_lines(job: Job) -> Iterator[str]:
    """What `mpijoin check` says of everything that is "auto" and depends on the ranks."""
    if job.cluster.producers_asked is None:
        numbers = ", ".join(f"{producers_of(ranks, shares_of(job)).value} of {ranks}" for ranks in (3, 4, 8, 16))
        yield f"ranks   producers auto: {numbers} ranks; {producers_of(16, shares_of(job)).why}"
    if job.cluster.subgroups_asked is None:
        chosen = subgroups_of(16, _epoch_bytes(job), job.cluster.master_buffer_bytes // 2)
        yield f"slots   subgroups auto: {chosen.value} with 16 slaves; {chosen.why}"
    if job.cluster.distribution_epoch_ns is None and job.run.speed == MAX:
        yield f"epochs  auto: about {AUTO_ROWS:,} rows; with a quarter less, runs took a twentieth longer"


def shares_of(job: Job) -> int:
    """The parts that the inputs can be shared out in among producers. One, if they cannot be read: others say why."""
    with suppress(InputError, JobError, OSError, ValueError):
        return sum(map(_shares, job.streams))
    return 1


def _shares(stream: StreamJob) -> int:
    source = stream.source
    if isinstance(source, FileSource):
        return sum(map(_shares_of_file, expand_files(source.path)))
    if not isinstance(source, SyntheticSource):
        return max(1, ceil(source.table.num_rows / UNIT_ROWS))
    if source.disorder_ns:
        return 1
    rows = source.rate * (source.duration_ns or 0) / 1e9 if source.tuples is None else source.tuples
    return max(1, ceil(rows / UNIT_ROWS))


def _shares_of_file(path: str) -> int:
    form = file_format(path)
    if form == CSV:
        return 1
    if form == PARQUET:
        import pyarrow.parquet

        return int(pyarrow.parquet.read_metadata(path).num_row_groups)
    import pyarrow.ipc

    with pyarrow.memory_map(path) as file:
        return int(pyarrow.ipc.open_file(file).num_record_batches)


def _working(job: Job, size: int) -> int:
    """The ranks that produce or join."""
    return size - (job.output.results == "collect" and size > 2)


def _epoch_bytes(job: Job) -> float:
    """What all streams bring in a distribution epoch. The rate of files is not known before they are read, so they
    count like epochs of automatic length."""
    epoch_ns, speed = job.cluster.distribution_epoch_ns, job.run.speed
    sources = [stream.source for stream in job.streams]
    made = [source for source in sources if isinstance(source, SyntheticSource)]
    if epoch_ns is None or len(made) < len(sources):
        return float(AUTO_ROWS * TUPLE_BYTES)
    pace = 1.0 if isinstance(speed, str) else speed
    return sum(source.rate * (TUPLE_BYTES + source.payload_bytes) for source in made) * pace * epoch_ns / 1e9


def _line(field: str, chosen: Choice) -> str:
    return f"[cluster] {field} = {AUTO}: {chosen.value}, because {chosen.why}"
