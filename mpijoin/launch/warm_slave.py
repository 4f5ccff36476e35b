"""The kernels of a slave, each run for few tuples or none: only types decide what is compiled."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mpijoin.config.job import FULL, Aggregate, Function, History, Job
from mpijoin.data.arrow import text_array
from mpijoin.data.batch import read_only
from mpijoin.data.record import RecordLayout
from mpijoin.data.schema import JoinSchema
from mpijoin.join.marks import MARKS
from mpijoin.join.results import CountRows, EqualKeys, latest_times
from mpijoin.join.window_join import WindowJoin, window_join
from mpijoin.launch.tiny import tiny_stream
from mpijoin.launch.use import Use
from mpijoin.operators.base import Out, Progress
from mpijoin.operators.stored import TableOperator
from mpijoin.slave.joining import new_operator, new_out
from mpijoin.store.insert import Fresh
from mpijoin.store.pool import new_pool
from mpijoin.store.read import KeyWords, gather_columns
from mpijoin.store.rows import PLACES, between, rows_of
from mpijoin.store.state import FOREVER, SIZE, TIME_MAX_VALUE

if TYPE_CHECKING:
    from mpijoin.aggregate.operator import WindowAggregate

# An operator that is made for its kernels has so many pages.
PAGES = 128


def condition(job: Job, schema: JoinSchema) -> None:
    """The kernels of the job's condition, and of results of its kind."""
    from mpijoin.plans.once import run_once
    from mpijoin.plans.operator import PlannedJoin
    from mpijoin.queries.operator import SharedJoin
    from mpijoin.queries.results import QueryResults

    # No groups at all will do, because only the types decide what is compiled.
    operator, groups = new_operator(job, schema, PAGES * job.tuning.block_bytes), np.zeros(0, np.int64)
    out = new_out(job, schema)
    operator.probe(groups, 1, out)
    operator.expire(groups, (0, 0), out)
    if isinstance(operator, SharedJoin):
        for number in range(len(operator.queries)):
            QueryResults(operator, number).consume(out, operator, 0)
    if isinstance(operator, PlannedJoin):
        run_once(operator, out)


def _one_tuple(use: Use) -> tuple[RecordLayout, np.ndarray, Fresh]:
    """Returns the layout, the payload bytes and the rows of a message that holds one tuple of `tiny_stream`."""
    layout = RecordLayout(tiny_stream("left", use))
    record, size, blob = layout.pack([text_array("a"), text_array("x")] if use.text else [], 1)
    tuples = np.zeros((1, SIZE + use.text + layout.record_words), np.int64)
    if use.text:
        tuples[0, SIZE], tuples[:, SIZE + 1 :] = size[0], record
    return layout, size, Fresh(read_only(tuples), read_only(blob))


def _new_operator(layout: RecordLayout, use: Use) -> WindowJoin:
    streams = [(layout.record_words, layout.has_blob, 1)] * 2
    return window_join(1, 1 << 20, 4096, 64, streams, use.symmetric, MARKS[FULL] if use.marks else None)


def _new_aggregate(layout: RecordLayout) -> WindowAggregate:
    from mpijoin.aggregate.functions import rules_of
    from mpijoin.aggregate.operator import Setup, WindowAggregate

    count = Aggregate(History(rows=1), (Function("n", "count", None),))
    rules = rules_of(count, JoinSchema((layout.schema,), "ns"))
    setup = Setup(1, 64, layout.record_words, layout.has_blob, rules, ("n",))
    return WindowAggregate(setup, new_pool(1 << 20, 4096, setup.stream.tuple_words))


def _insert(use: Use) -> None:
    layout, _, fresh = _one_tuple(use)
    operator = _new_aggregate(layout) if use.aggregate else _new_operator(layout, use)
    for stream in range(len(operator.streams)):
        operator.insert(np.zeros(1, np.int64), stream, fresh, np.array([[0, 1]]))


def _hand_over(use: Use) -> None:
    """Moves an empty group, because only the types decide what is compiled. To insert and probe tuples would take the
    kernels that another process is compiling."""
    layout, _, _ = _one_tuple(use)
    new = partial(_new_aggregate, layout) if use.aggregate else partial(_new_operator, layout, use)
    supplier, consumer = new(), new()
    consumer.install(supplier.get(0, 0))
    consumer.ready_moves(0, Out(2, 16))
    supplier.drop(0)


def _spill(use: Use) -> None:
    from mpijoin.spill.owed import Owed

    layout, _, fresh = _one_tuple(use)
    operator, groups, ever = _new_operator(layout, use), np.zeros(1, np.int64), (TIME_MAX_VALUE,) * 2
    clean, out = operator.beside(1), Out(2, 16)
    clean.expect(0, 1)
    for stream in range(2):
        operator.insert(groups, stream, fresh, np.array([[0, 1]]))
    operator.settle(groups)
    operator.keep_until(groups, np.array([ever]))
    owed = Owed((FOREVER, FOREVER))
    for batch in operator.rows(groups):
        owed.add(batch)
        for stream, own in enumerate(rows_of(next(batch.frames).data, operator.streams).fresh):
            half = Fresh(between(own.tuples, 0, PLACES // 2), own.blob)
            clean.insert(groups, stream, half, np.array([[0, len(half.tuples)]]))
    owed.count({0: -1})
    while operator.expire(groups, ever, out) is not Progress.DONE:
        out.clear()
    assert len(list(operator.kept_rows(groups))) == 1
    operator.limit(0)
    operator.drop_kept(groups)
    operator.empty(groups)
    clean.settle(groups)
    clean.clear(0, 0)
    clean.drop(0)


def _delay(use: Use) -> None:
    from mpijoin.metrics.delay import DelayHistogram
    from mpijoin.metrics.delay_kernels import delays_of

    layout, _, _ = _one_tuple(use)
    times = np.zeros(0, np.int64)
    latest_times(_new_operator(layout, use).words, Out(2, 0).slots, times)
    delays_of(times, 0, 0.0, 1.0, 0.0, times)
    DelayHistogram().add(times, times)


def _find(use: Use) -> None:
    """Finds the results of no groups at all."""
    layout, size, _ = _one_tuple(use)
    operator, nothing, out = _new_aggregate(layout), read_only(np.zeros(0, np.int64)), Out(1, 16, answers=2)
    operator.probe(nothing, 1 << 20, out)
    operator.find(nothing, nothing, out)
    if use.rows:
        _read_rows(layout, size, operator, out, use)


def _finish(use: Use) -> None:
    nothing = read_only(np.zeros(0, np.int64))
    _new_aggregate(_one_tuple(use)[0]).finish(nothing, nothing)


def _expire(use: Use) -> None:
    """Expires no groups at all, because only the types decide what is compiled."""
    operator = _new_operator(_one_tuple(use)[0], use)
    operator.expire(np.zeros(0, np.int64), (10, 10), Out(2, 16))


def _probe(use: Use) -> None:
    """Probes no groups at all, and reads no results."""
    layout, size, _ = _one_tuple(use)
    operator, out = _new_operator(layout, use), Out(2, 16)
    operator.probe(np.zeros(0, np.int64), 1 << 20, out)
    if layout.schema.hashed:
        EqualKeys(KeyWords(layout.key_words, layout.key_fixed_words, layout.key_count_var)).keep(out, operator)
        CountRows().consume(out, operator, 0)
        if operator.marker:
            operator.marker.keep(out, operator)
    if operator.marker:
        CountRows().consume(out, operator, 0)
    if use.rows:
        _read_rows(layout, size, operator, out, use)


def _read_rows(layout: RecordLayout, size: np.ndarray, operator: TableOperator, out: Out, use: Use) -> None:
    """Reads the columns of no rows."""
    found = out.filled[0]
    stored = np.empty((layout.record_words, 0), np.int64)
    gather_columns(operator.words, found, np.arange(layout.record_words), stored, 0)
    if use.text:
        octets = np.empty(0, np.uint8)
        operator.copy_blobs(found, np.zeros(0, np.int64), octets)
        layout.unpack_words(stored, size[:0], octets)


TASKS = {
    "probe": _probe,
    "hand_over": _hand_over,
    "insert": _insert,
    "expire": _expire,
    "find": _find,
    "finish": _finish,
    "spill": _spill,
    "delay": _delay,
}
