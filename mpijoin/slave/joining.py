"""What a slave works with, as the job wants it: the operator, room for what it finds, and what is dropped of that."""

from __future__ import annotations

from typing import Sequence

from mpijoin.aggregate.functions import rules_of
from mpijoin.aggregate.operator import Setup, WindowAggregate
from mpijoin.config.job import AUTO, COUNT, INNER, MAX, MWAY, NO_POLICY, Job
from mpijoin.config.moves import PTLB
from mpijoin.config.plan import parse_plan
from mpijoin.data.record import RecordLayout
from mpijoin.data.schema import UNIT_NS, JoinSchema
from mpijoin.join.marks import MARKS
from mpijoin.join.results import EqualKeys
from mpijoin.join.tuning import mean_tuple_bytes, theta_bytes
from mpijoin.join.where import kernel_of as condition_kernel
from mpijoin.join.window_join import Setup as JoinSetup
from mpijoin.join.window_join import window_join
from mpijoin.matching import operator as matching
from mpijoin.matching.answers import NO_KEY, Question
from mpijoin.matching.functions import calls_of, functions_of
from mpijoin.matching.kernels import kernel_of
from mpijoin.matching.operator import MatchingJoin
from mpijoin.matching.state import NO_FUNCTIONS
from mpijoin.operators.base import Filter, Keep, Operator, Out
from mpijoin.operators.stored import TableOperator
from mpijoin.plans.kernels import MEMBERS
from mpijoin.plans.operator import PlannedJoin
from mpijoin.queries.operator import Query, SharedJoin
from mpijoin.store.pool import StreamSpec, new_pool
from mpijoin.store.read import KeyWords

# A node of a tree finds so many pairs at a time, which stay in the caches until tuples are made of them.
TREE_PAIRS = 4096


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
    if job.aggregate.is_on:
        return _aggregate(job, schema, layouts[0], memory_bytes, theta)
    if job.queries:
        return _shared(job, schema, streams, memory_bytes, theta)
    if job.join.answers_rows:
        return _matching(job, schema, streams, memory_bytes, theta)
    if job.join.plan != MWAY:
        return _planned(job, streams, memory_bytes, theta)
    where = condition_kernel(job.join.where, schema) if job.join.where else None
    sizes = (job.cluster.partitions, memory_bytes, block, theta)
    return window_join(*sizes, streams, marks=MARKS.get(job.join.type), where=where, tracks=_has_tracks(job))


def _aggregate(job: Job, schema: JoinSchema, layout: RecordLayout, memory_bytes: int, theta: int) -> WindowAggregate:
    names = tuple(f"{one.result} = {one.text}" for one in job.aggregate.columns)
    own = (layout.record_words, layout.has_blob, rules_of(job.aggregate, schema), names)
    setup = Setup(job.cluster.partitions, theta, *own)
    return WindowAggregate(setup, new_pool(memory_bytes, job.tuning.block_bytes, setup.stream.tuple_words))


def _matching(
    job: Job, schema: JoinSchema, streams: Sequence[tuple[int, bool, int]], memory_bytes: int, theta: int
) -> MatchingJoin:
    left, right = (StreamSpec(*stream) for stream in streams)
    setup = matching.Setup(job.cluster.partitions, theta, (left, right), _question_of(job, schema))
    words = max(spec.tuple_words for spec in setup.streams)
    return MatchingJoin(setup, new_pool(memory_bytes, job.tuning.block_bytes, words))


def _question_of(job: Job, schema: JoinSchema) -> Question:
    calls = calls_of(job.join.reduce, schema)
    return Question(
        bool(job.join.alone), kernel_of(job.join.where, calls, schema), match=job.join.match,
        functions=functions_of(calls) if calls else NO_FUNCTIONS,
        names=tuple(f"{one.result} = {one.text}" for one in job.join.reduce),
        key=_key_of(schema) if schema.streams[0].hashed else NO_KEY,
    )  # fmt: skip


def _planned(job: Job, streams: Sequence[tuple[int, bool, int]], memory_bytes: int, theta: int) -> PlannedJoin:
    specs = tuple(StreamSpec(*stream, flagged=_has_tracks(job)) for stream in streams)
    plan = None if job.join.plan == AUTO else parse_plan(job.join.plan, [stream.name for stream in job.streams])
    words = max(MEMBERS + len(specs) - 1, *(spec.tuple_words for spec in specs))
    pool = new_pool(memory_bytes, job.tuning.block_bytes, words)
    setup = JoinSetup(job.cluster.partitions, theta, specs, tracks=_has_tracks(job))
    return PlannedJoin(setup, plan, pool, TREE_PAIRS)


def _has_tracks(job: Job) -> bool:
    """Whether two slaves may join a group side by side."""
    return job.balance.policy != NO_POLICY and job.balance.move == PTLB


def _shared(
    job: Job, schema: JoinSchema, streams: Sequence[tuple[int, bool, int]], memory_bytes: int, theta: int
) -> SharedJoin:
    specs = tuple(StreamSpec(*stream) for stream in streams)
    queries = [_query_of(one, schema) for one in job.each]
    pool = new_pool(memory_bytes, job.tuning.block_bytes, max(spec.tuple_words for spec in specs))
    key = _key_of(schema) if schema.streams[0].hashed else None
    return SharedJoin(JoinSetup(job.cluster.partitions, theta, specs), queries, pool, job.tuning.result_buffer, key)


def _query_of(job: Job, schema: JoinSchema) -> Query:
    """The query that the job asks."""
    left, right = (schema.ticks(stream.window_ns) for stream in job.streams)
    if job.join.answers_rows:
        return Query((left, right), question=_question_of(job, schema))
    where = condition_kernel(job.join.where, schema) if job.join.where else None
    return Query((left, right), MARKS.get(job.join.type), where, is_kept=_is_kept(job))


def _is_kept(job: Job) -> bool:
    """Whether anybody looks at the results, and does not only count them."""
    return job.output.results != COUNT or job.run.speed != MAX


def _key_of(schema: JoinSchema) -> KeyWords:
    layout = RecordLayout(schema.streams[0])
    return KeyWords(layout.key_words, layout.key_fixed_words, layout.key_count_var)


def new_out(job: Job, schema: JoinSchema) -> Out:
    """Room for as much of the results as somebody wants to look at."""
    if job.aggregate.is_on:  # Each result has its answers, and a word that says which of them are null.
        return Out(1, job.tuning.result_buffer, answers=len(job.aggregate.columns) + 1)
    if job.queries or job.join.answers_rows:
        functions = max(len(one.join.reduce) for one in job.each)
        is_kept = any(map(_is_kept, job.each)) or job.join.answers_rows
        keep, answers = Keep.SLOT_IDS if is_kept else Keep.NOTHING, functions + 1 if functions else 0
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
    filters: list[Filter] = [EqualKeys(_key_of(schema))] if schema.streams[0].hashed else []
    return [*filters, operator.marker] if filters and operator.marker else filters
