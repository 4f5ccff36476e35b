"""The operators that few jobs ask for. They are loaded only then, because to load them takes a tenth of a short run."""

from __future__ import annotations

from typing import Sequence

from mpijoin.aggregate.functions import rules_of
from mpijoin.aggregate.operator import Setup, WindowAggregate
from mpijoin.config.job import AUTO, Job
from mpijoin.config.plan import parse_plan
from mpijoin.data.record import RecordLayout
from mpijoin.data.schema import JoinSchema
from mpijoin.join.marks import MARKS
from mpijoin.join.where import kernel_of as condition_kernel
from mpijoin.join.window_join import Setup as JoinSetup
from mpijoin.matching import operator as matching
from mpijoin.matching.answers import NO_KEY, Question
from mpijoin.matching.functions import calls_of, functions_of
from mpijoin.matching.kernels import asks_of
from mpijoin.matching.operator import MatchingJoin
from mpijoin.matching.state import NO_FUNCTIONS
from mpijoin.operators.stored import TableOperator
from mpijoin.plans.kernels import MEMBERS
from mpijoin.plans.operator import PlannedJoin
from mpijoin.queries.operator import Query, SharedJoin
from mpijoin.slave.wants import is_kept, key_of
from mpijoin.store.pool import StreamSpec, new_pool

# A node of a tree finds so many pairs at a time, which stay in the caches until tuples are made of them.
TREE_PAIRS = 4096


def rarer_operator(
    job: Job, schema: JoinSchema, streams: Sequence[tuple[int, bool, int]], memory_bytes: int, theta: int
) -> TableOperator:
    """The operator of a job that wants another one than a `WindowJoin`. streams: record words, whether it has values of
    variable size, and window, of each."""
    if job.aggregate.is_on:
        return _aggregate(job, schema, memory_bytes, theta)
    if job.queries:
        return _shared(job, schema, streams, memory_bytes, theta)
    if job.join.answers_rows:
        return _matching(job, schema, streams, memory_bytes, theta)
    return _planned(job, streams, memory_bytes, theta)


def _aggregate(job: Job, schema: JoinSchema, memory_bytes: int, theta: int) -> WindowAggregate:
    layout = RecordLayout(schema.streams[0])
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
        bool(job.join.alone), asks_of(job.join.where, calls, schema), match=job.join.match,
        functions=functions_of(calls) if calls else NO_FUNCTIONS,
        names=tuple(f"{one.result} = {one.text}" for one in job.join.reduce),
        key=key_of(schema) if schema.streams[0].hashed else NO_KEY,
    )  # fmt: skip


def _planned(job: Job, streams: Sequence[tuple[int, bool, int]], memory_bytes: int, theta: int) -> PlannedJoin:
    specs = tuple(StreamSpec(*stream, flagged=job.has_tracks) for stream in streams)
    plan = None if job.join.plan == AUTO else parse_plan(job.join.plan, [stream.name for stream in job.streams])
    words = max(MEMBERS + len(specs) - 1, *(spec.tuple_words for spec in specs))
    pool = new_pool(memory_bytes, job.tuning.block_bytes, words)
    setup = JoinSetup(job.cluster.partitions, theta, specs, tracks=job.has_tracks)
    return PlannedJoin(setup, plan, pool, TREE_PAIRS)


def _shared(
    job: Job, schema: JoinSchema, streams: Sequence[tuple[int, bool, int]], memory_bytes: int, theta: int
) -> SharedJoin:
    specs = tuple(StreamSpec(*stream) for stream in streams)
    queries = [_query_of(one, schema) for one in job.each]
    pool = new_pool(memory_bytes, job.tuning.block_bytes, max(spec.tuple_words for spec in specs))
    key = key_of(schema) if schema.streams[0].hashed else None
    return SharedJoin(JoinSetup(job.cluster.partitions, theta, specs), queries, pool, job.tuning.result_buffer, key)


def _query_of(job: Job, schema: JoinSchema) -> Query:
    """The query that the job asks."""
    left, right = (schema.ticks(stream.window_ns) for stream in job.streams)
    if job.join.answers_rows:
        return Query((left, right), question=_question_of(job, schema))
    where = condition_kernel(job.join.where, schema) if job.join.where else None
    return Query((left, right), MARKS.get(job.join.type), where, is_kept=is_kept(job))
