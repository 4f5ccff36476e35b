"""What a run does with its tuples, as far as this decides which kernels it needs."""

from __future__ import annotations

from mpijoin.config.job import GENERATIONS, MAX, MWAY, ROTATE, Job, Join
from mpijoin.data.record import RecordLayout
from mpijoin.data.schema import JoinSchema
from mpijoin.named import NamedTuple


class Use(NamedTuple):
    """What a run does with its tuples, as far as this decides which kernels it needs."""

    # Keys are hashed, or tuples have columns of variable size.
    text: bool = True
    # Results are written or sent, not only counted.
    rows: bool = True
    # Groups may be read out or taken over.
    moves: bool = False
    # A signal may stop the run, and then groups are read out. Few runs are stopped, so the kernels for it are compiled
    # beforehand, because a stop must not wait for the compiler, but are loaded only when it happens.
    stops: bool = False
    # What does not fit into memory is spilled by generations, and cleaned up.
    spills: bool = False
    # Delays are counted.
    paced: bool = False
    # The number of streams is not two. Two streams have a probe of their own.
    symmetric: bool = False
    # Not all pairs are results, or not only pairs. Tuples that have partners may be marked.
    marks: bool = False
    # There is one stream, and statistics of it instead of a join.
    aggregate: bool = False


def use_of(job: Job, schema: JoinSchema, moves: bool, stops: bool) -> Use:
    """Returns the use of a job. `moves` says whether groups may move, `stops` whether a signal may stop the run."""
    text = schema.streams[0].hashed or any(RecordLayout(stream).has_blob for stream in schema.streams)
    rows, paced, symmetric = not job.counts_only, job.run.speed != MAX, len(job.streams) != 2
    form = job.memory.spill
    several = (form == GENERATIONS, paced, symmetric, job.join._replace(plan=MWAY) != Join(), job.aggregate.is_on)
    return Use(text, rows, moves or form == ROTATE, stops, *several)
