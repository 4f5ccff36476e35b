"""This module compiles every kernel of a role, or loads it from the cache, before the clock starts."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING, Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mpijoin.config.columns import synthetic_schema
from mpijoin.config.job import (
    AUTO,
    FULL,
    GENERATIONS,
    MAX,
    MWAY,
    ROTATE,
    Aggregate,
    FileSource,
    Function,
    History,
    Job,
    Join,
    StreamJob,
    SyntheticSource,
    TableSource,
)
from mpijoin.data.arrow import array_of, text_array
from mpijoin.data.batch import read_only
from mpijoin.data.files import CSV, expand_files, file_format
from mpijoin.data.record import RecordLayout
from mpijoin.data.schema import Column, JoinSchema, StreamSchema
from mpijoin.join.marks import MARKS
from mpijoin.join.results import CountRows, EqualKeys, latest_times
from mpijoin.join.tuning import mean_tuple_bytes, remember, width_of
from mpijoin.join.window_join import WindowJoin, window_join
from mpijoin.launch.sharing import KernelSet, prepare
from mpijoin.metrics.delay import DelayHistogram
from mpijoin.metrics.write import schema_of
from mpijoin.named import NamedTuple
from mpijoin.operators.base import Out, Progress
from mpijoin.operators.stored import TableOperator
from mpijoin.slave.joining import new_operator, new_out
from mpijoin.spill.owed import Owed
from mpijoin.store.insert import Fresh
from mpijoin.store.pool import new_pool
from mpijoin.store.read import KeyWords, gather_columns
from mpijoin.store.rows import PLACES, between, rows_of
from mpijoin.store.state import FOREVER, SIZE, TIME_MAX_VALUE

if TYPE_CHECKING:
    from mpijoin.aggregate.operator import WindowAggregate

# An operator that is made for its kernels has so many pages.
PAGES = 128


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
    tasks: list[Callable[[Use], None]] = []
    if role in ("master", "producer"):
        tasks = [_read_and_scatter]
    elif role == "slave":
        moving = use.moves or (use.stops and not _set_of(_hand_over, use).is_compiled)
        moves = [_hand_over] if moving else []
        tasks = [_find, *moves, _insert, _finish] if use.aggregate else [_probe, *moves, _insert, _expire]
    tasks = [_write_metrics, *(tasks[::-1] if backwards else tasks)]
    if role == "slave" and use.spills:
        tasks.append(_spill)
    if role == "slave" and use.paced:
        tasks.append(_delay)
    return [_set_of(task, use) for task in tasks]


def _set_of(task: Callable[[Use], None], use: Use) -> KernelSet:
    kind = "".join(f"_{name}" for name in ("text", "rows", "symmetric", "marks", "aggregate") if getattr(use, name))
    return KernelSet(task.__name__.strip("_") + kind, partial(task, use))


def warm_up_sources(job: Job) -> float:
    """Prepares the kernels that make the job's synthetic streams, and those that read CSV files. Returns the seconds
    that this took."""
    sets = [KernelSet("csv", _split_text)] if any(map(_reads_csv, job.streams)) else []
    sources = [stream.source for stream in job.streams if isinstance(stream.source, SyntheticSource)]
    if sources:
        kinds = sorted({_kernels_of(source) for source in sources})
        sets.append(KernelSet("_".join(["synthetic", *kinds]), lambda: _make_two(sources)))
    return prepare(sets)


def _reads_csv(stream: StreamJob) -> bool:
    return isinstance(stream.source, FileSource) and file_format(expand_files(stream.source.path)[0]) == CSV


def _split_text() -> None:
    from mpijoin.data.csv_records import first_padded, may_be_padded, split

    split(bytearray(b'"a"\n'))
    may_be_padded(memoryview(bytearray(b"\n\n01\n")))
    first_padded(b"01\n", np.array([True]))


def _kernels_of(source: SyntheticSource) -> str:
    """Returns a name made of everything that decides which kernels make the stream."""
    parts = {"payload": source.payload_bytes > 0, "disorder": source.disorder_ns > 0}
    return "-".join([source.arrivals, source.keys, *(name for name, used in parts.items() if used)])


def _make_two(sources: Sequence[SyntheticSource]) -> None:
    from mpijoin.sources.synthetic import SyntheticReader

    for source in sources:
        few = source._replace(tuples=2, duration_ns=None, permute=0)
        columns = [Column(field.name, field.type) for field in synthetic_schema(few)]
        list(SyntheticReader(few, 0, 0, columns).blocks())


def warm_up_condition(job: Job, schema: JoinSchema) -> float:
    """Prepares the kernels that only jobs with this condition, or with results of this kind, need. Returns the seconds
    that this took."""
    if not (job.queries or job.join.where or job.join.answers_rows or job.join.plan != MWAY):
        return 0.0
    digest = hashlib.sha256(repr((job.join, job.queries, schema)).encode()).hexdigest()[:16]

    def make() -> None:
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

    return prepare([KernelSet(f"where_{digest}", make)])


def measure_theta(job: Job, schema: JoinSchema) -> float:
    """Makes sure that this machine knows which theta suits the job's tuples, if the job leaves the choice to it and
    joins. Returns the seconds that this took."""
    if job.tuning.theta != AUTO or job.aggregate.is_on:
        return 0.0
    width = width_of(mean_tuple_bytes(schema))
    return prepare([KernelSet(f"theta_{width}", lambda: remember(width))])


def _tiny_stream(name: str, use: Use) -> StreamSchema:
    """Returns a stream whose tuples pass through every kernel of this use."""
    time = Column("ts", pa.int64())
    if not use.text:
        return StreamSchema(name, time, 1, (Column("key", pa.int64()),), False, ())
    return StreamSchema(name, time, 1, (Column("key", pa.string()),), True, (Column("text", pa.string()),))


def _tiny_table(use: Use) -> pa.Table:
    times = array_of(np.array([1, 2, 2, 0]))
    if not use.text:
        return pa.table({"ts": times, "key": times})
    return pa.table({"ts": times, "key": text_array(["a", "b", "b", "a"]), "text": text_array(["x", None, "y", "z"])})


def _read_and_scatter(use: Use) -> None:
    from mpijoin.partitioning.scatter import scatter
    from mpijoin.producer.pacing import pace_of
    from mpijoin.producer.ticks import Tick, TickReader
    from mpijoin.sources import open_source

    streams = (_tiny_stream("left", use), _tiny_stream("right", use))
    schema = JoinSchema(streams, "ns")
    # The first table is out of order, and the second one is in order.
    tables = _tiny_table(use), _tiny_table(use).slice(0, 2)
    pairs = zip(streams, map(TableSource, tables))
    job = Job(tuple(StreamJob(stream.name, source, time_unit="ns", lateness_ns=2) for stream, source in pairs))
    sources = tuple(open_source(job, index, schema, lambda table: None) for index in range(2))
    tick = TickReader(sources, (0, 0), pace_of(1, (1, 1), 1), 4).next()
    # These sources never wait, and they are not empty.
    assert isinstance(tick, Tick)
    layout = RecordLayout(streams[0])
    scatter(tick.batches[0], np.arange(3), layout.record_words, layout.has_blob)


def _write_metrics(use: Use) -> None:
    """Writes a first Parquet file. Nothing is compiled, but the first file of a process takes 12 ms, which is more than
    any later one takes."""
    pq.ParquetWriter(pa.BufferOutputStream(), schema_of(["left", "right"])).close()


def _one_tuple(use: Use) -> tuple[RecordLayout, np.ndarray, Fresh]:
    """Returns the layout, the payload bytes and the rows of a message that holds one tuple of `_tiny_stream`."""
    layout = RecordLayout(_tiny_stream("left", use))
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
