"""What a slave works with, as the job wants it: the operator, room for what it finds, and what is dropped of that."""

from __future__ import annotations

from mpijoin.config.job import COUNT, INNER, MAX, MWAY, Job
from mpijoin.data.record import RecordLayout
from mpijoin.data.schema import UNIT_NS, JoinSchema
from mpijoin.join.marks import MARKS
from mpijoin.join.results import EqualKeys
from mpijoin.join.tuning import mean_tuple_bytes, theta_bytes
from mpijoin.join.window_join import window_join
from mpijoin.operators.base import Filter, Keep, Operator, Out
from mpijoin.operators.stored import TableOperator
from mpijoin.slave.wants import is_kept, key_of


def new_operator(job: Job, schema: JoinSchema, memory_bytes: int, group_tuples: int | None = None) -> TableOperator:
    """The operator as the job wants it. group_tuples: what was measured for `theta = "auto"` on this machine, None:
    nothing."""
    layouts = [RecordLayout(stream) for stream in schema.streams]
    streams = [
        (layout.record_words, layout.has_blob, schema.ticks(stream.window_ns))
        for layout, stream in zip(layouts, job.streams)
    ]
    block = job.tuning.block_bytes
    theta = theta_bytes(job.tuning.theta, mean_tuple_bytes(schema), block, group_tuples, len(streams))
    if job.aggregate.is_on or job.queries or job.join.answers_rows or job.join.plan != MWAY:
        from mpijoin.slave.rarer import rarer_operator

        return rarer_operator(job, schema, streams, memory_bytes, theta)
    where = None
    if job.join.where:
        from mpijoin.join.where import kernel_of

        where = kernel_of(job.join.where, schema)
    sizes = (job.cluster.partitions, memory_bytes, block, theta)
    return window_join(*sizes, streams, marks=MARKS.get(job.join.type), where=where, tracks=job.has_tracks)


def new_out(job: Job, schema: JoinSchema) -> Out:
    """Room for as much of the results as somebody wants to look at."""
    if job.aggregate.is_on:  # Each result has its answers, and a word that says which of them are null.
        return Out(1, job.tuning.result_buffer, answers=len(job.aggregate.columns) + 1)
    if job.queries or job.join.answers_rows:
        functions = max(len(one.join.reduce) for one in job.each)
        looks = any(map(is_kept, job.each)) or job.join.answers_rows
        keep, answers = Keep.SLOT_IDS if looks else Keep.NOTHING, functions + 1 if functions else 0
        return Out(len(schema.streams), job.tuning.result_buffer, keep, not job.queries, answers)
    hashed = schema.streams[0].hashed
    keep = Keep.SLOT_IDS
    certifies = not hashed
    if job.output.results == COUNT and certifies:
        times = Keep.LATEST_TIMES if job.join.type == INNER else Keep.SLOT_IDS  # Some are due after their time.
        keep = Keep.NOTHING if job.run.speed == MAX else times
    return Out(len(schema.streams), job.tuning.result_buffer, keep, certifies)


def wall_s_per_unit(job: Job, schema: JoinSchema) -> float:
    """Wall seconds in which one unit of event time passes in a paced run; 0.0 at speed "max"."""
    return 0.0 if isinstance(job.run.speed, str) else UNIT_NS[schema.unit] / 1e9 / job.run.speed


def filters_of(job: Job, schema: JoinSchema, operator: Operator) -> list[Filter]:
    """What drops pairs that are no results: their keys have but equal hashes, or the type of join does not want them.
    Where there is none, the operator itself certifies the results. An aggregate, a join that answers each row once, and
    several queries compare the keys themselves."""
    if job.aggregate.is_on or job.queries or job.join.answers_rows:
        return []
    filters: list[Filter] = [EqualKeys(key_of(schema))] if schema.streams[0].hashed else []
    return [*filters, operator.marker] if filters and operator.marker else filters
