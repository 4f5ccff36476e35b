"""What a slave joins with, as the job wants it: the operator, room for what it finds, and what is dropped of that."""

from __future__ import annotations

from mpijoin.config.job import MAX, Job
from mpijoin.data.record import RecordLayout
from mpijoin.data.schema import UNIT_NS, JoinSchema
from mpijoin.join.results import EqualKeys
from mpijoin.join.tuning import mean_tuple_bytes, theta_bytes
from mpijoin.join.window_join import WindowJoin, window_join
from mpijoin.operators.base import Filter, Keep, Out
from mpijoin.store.read import KeyWords


def new_operator(job: Job, schema: JoinSchema, memory_bytes: int, group_tuples: int | None = None) -> WindowJoin:
    """The join as the job wants it. group_tuples: what was measured for `theta = "auto"` on this machine, None:
    nothing."""
    layouts = [RecordLayout(stream) for stream in schema.streams]
    streams = [
        (layout.record_words, layout.has_blob, schema.ticks(stream.window_ns))
        for layout, stream in zip(layouts, job.streams)
    ]
    block = job.tuning.block_bytes
    theta = theta_bytes(job.tuning.theta, mean_tuple_bytes(schema), block, group_tuples, len(streams))
    return window_join(job.cluster.partitions, memory_bytes, block, theta, streams)


def new_out(job: Job, schema: JoinSchema) -> Out:
    """Room for as much of the results as somebody wants to look at."""
    hashed = schema.streams[0].hashed
    keep = Keep.SLOT_IDS
    if job.output.results == "count" and not hashed:
        keep = Keep.NOTHING if job.run.speed == MAX else Keep.LATEST_TIMES
    return Out(len(schema.streams), job.tuning.result_buffer, keep, certifies=not hashed)


def wall_s_per_unit(job: Job, schema: JoinSchema) -> float:
    """Wall seconds in which one unit of event time passes in a paced run; 0.0 at speed "max"."""
    return 0.0 if isinstance(job.run.speed, str) else UNIT_NS[schema.unit] / 1e9 / job.run.speed


def key_filters(schema: JoinSchema) -> list[Filter]:
    """What drops results whose keys have but equal hashes."""
    layout = RecordLayout(schema.streams[0])
    key = KeyWords(layout.key_words, layout.key_fixed_words, layout.key_count_var)
    return [EqualKeys(key)] if schema.streams[0].hashed else []
