"""Compiles, or loads from the cache, every kernel of a role before the clock starts.

One process at a time compiles: the others wait, asleep on a lock file, and then load what it has left in the cache.
Without this, N ranks of a first run would all compile the same code at once.
"""

from __future__ import annotations

import fcntl
import time
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import IO, Callable, NamedTuple, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mpijoin.compiled import cache_folder
from mpijoin.config.columns import synthetic_schema
from mpijoin.config.job import AUTO, MAX, FileSource, Job, StreamJob, SyntheticSource, TableSource
from mpijoin.data.arrow import array_of, text_array
from mpijoin.data.batch import read_only
from mpijoin.data.files import CSV, expand_files, file_format
from mpijoin.data.record import RecordLayout
from mpijoin.data.schema import Column, JoinSchema, StreamSchema
from mpijoin.join.results import CountRows, EqualKeys, latest_times
from mpijoin.join.tuning import mean_tuple_bytes, remember, width_of
from mpijoin.join.window_join import WindowJoin, window_join
from mpijoin.metrics.delay import DelayHistogram
from mpijoin.metrics.write import schema_of
from mpijoin.operators.base import Out
from mpijoin.store.insert import Fresh
from mpijoin.store.read import KeyWords, gather_columns
from mpijoin.store.state import SIZE

LOCK_S = 120.0  # longer than one process compiles, also on a busy machine
LOCK_STEP_S = 0.05


class Use(NamedTuple):
    """What a run does with its tuples, as far as that decides which kernels it needs."""

    text: bool = True  # keys are hashed, or tuples have columns of variable size
    rows: bool = True  # results are written or sent, not only counted
    moves: bool = False  # groups may be read out or taken over
    paced: bool = False  # delays are counted
    symmetric: bool = False  # there are not two streams, which have a probe of their own


def use_of(job: Job, schema: JoinSchema, moves: bool) -> Use:
    """moves: whether groups may be read out or taken over."""
    text = schema.streams[0].hashed or any(RecordLayout(stream).has_blob for stream in schema.streams)
    return Use(text, job.output.results != "count", moves, job.run.speed != MAX, len(job.streams) != 2)


def warm_up(role: str, number: int = 0, use: Use = Use()) -> float:
    """Makes the kernels of a role ("master", "slave" or "collector") ready; returns the seconds it took.

    Ranks of odd and even `number` begin with different kernels, so that two of them share the work of a first start.
    """
    tasks = {"master": [_read_and_scatter], "slave": [_insert, _probe_and_expire], "collector": []}[role]
    tasks = [*tasks, _write_metrics]
    if use.moves and role == "slave":
        tasks.insert(1, _hand_over)
    if use.paced and role == "slave":
        tasks.append(_delay)
    ordered = tasks[::-1] if number % 2 else tasks
    kind = "".join(f"_{name}" for name in ("text", "rows", "symmetric") if getattr(use, name))
    return sum(compiled_once(task.__name__.strip("_") + kind, partial(task, use)) for task in ordered)


def warm_up_sources(job: Job) -> float:
    """Makes ready what the job's synthetic streams are made with, and what CSV files are read with; returns the seconds
    it took."""
    csv_s = compiled_once("csv", _split_text) if any(map(_reads_csv, job.streams)) else 0.0
    sources = [stream.source for stream in job.streams if isinstance(stream.source, SyntheticSource)]
    if not sources:
        return csv_s
    kinds = sorted({_kernels_of(source) for source in sources})
    return csv_s + compiled_once("_".join(["synthetic", *kinds]), lambda: _make_two(sources))


def _reads_csv(stream: StreamJob) -> bool:
    return isinstance(stream.source, FileSource) and file_format(expand_files(stream.source.path)[0]) == CSV


def _split_text() -> None:
    from mpijoin.data.csv_records import first_padded, may_be_padded, split

    split(bytearray(b'"a"\n'))
    may_be_padded(memoryview(bytearray(b"\n\n01\n")))
    first_padded(b"01\n", np.array([True]))


def _kernels_of(source: SyntheticSource) -> str:
    """Names all that decides which kernels make the stream."""
    parts = {"payload": source.payload_bytes > 0, "disorder": source.disorder_ns > 0}
    return "-".join([source.arrivals, source.keys, *(name for name, used in parts.items() if used)])


def _make_two(sources: Sequence[SyntheticSource]) -> None:
    from mpijoin.sources.synthetic import SyntheticReader

    for source in sources:
        few = source._replace(tuples=2, duration_ns=None, permute=0)
        columns = [Column(field.name, field.type) for field in synthetic_schema(few)]
        list(SyntheticReader(few, 0, 0, columns).blocks())


def measure_theta(job: Job, schema: JoinSchema) -> float:
    """Sees to it that this machine knows which theta suits the job's tuples, if it is to choose; returns the seconds it
    took."""
    if job.tuning.theta != AUTO:
        return 0.0
    width = width_of(mean_tuple_bytes(schema))
    return compiled_once(f"theta_{width}", lambda: remember(width))


def compiled_once(name: str, compile_all: Callable[[], None]) -> float:
    """Runs `compile_all`, alone on this machine if that has never been done; returns the seconds it took.

    `name` tells one set of kernels from another. A stamp in the cache folder remembers that it is there; where the
    folder cannot be written, ranks compile side by side: slower, not wrong.
    """
    start = time.perf_counter()
    folder = cache_folder()
    stamp = folder / f"{name}.done"
    with ExitStack() as held:
        if not stamp.exists():
            _lock(folder / f"{name}.lock", held)
        compile_all()
    with suppress(OSError):
        stamp.touch()
    return time.perf_counter() - start


def _lock(path: Path, held: ExitStack) -> None:
    """Waits, at most for LOCK_S, until no other process has the lock; it is this one's as long as `held` is open."""
    with suppress(OSError):
        file = held.enter_context(open(path, "w"))
        deadline_s = time.monotonic() + LOCK_S
        while not _locked(file) and time.monotonic() < deadline_s:
            time.sleep(LOCK_STEP_S)


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _tiny_stream(name: str, use: Use) -> StreamSchema:
    """A stream whose tuples go through every kernel of this use."""
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
    from mpijoin.master.pacing import pace_of
    from mpijoin.master.ticks import Tick, TickReader
    from mpijoin.partitioning.scatter import scatter
    from mpijoin.sources import open_source

    streams = (_tiny_stream("left", use), _tiny_stream("right", use))
    schema = JoinSchema(streams, "ns")
    tables = _tiny_table(use), _tiny_table(use).slice(0, 2)  # one in disorder, and one in order
    pairs = zip(streams, map(TableSource, tables))
    job = Job(tuple(StreamJob(stream.name, source, time_unit="ns", lateness_ns=2) for stream, source in pairs))
    sources = tuple(open_source(job, index, schema, lambda table: None) for index in range(2))
    tick = TickReader(sources, (0, 0), pace_of(1, (1, 1), 1), 4).next()
    assert isinstance(tick, Tick)  # tables neither wait nor are they empty
    layout = RecordLayout(streams[0])
    scatter(tick.batches[0], np.arange(3), layout.record_words, layout.has_blob)


def _write_metrics(use: Use) -> None:
    """Nothing is compiled, but the first Parquet file that a process writes takes 12 ms, more than all others."""
    pq.ParquetWriter(pa.BufferOutputStream(), schema_of(["left", "right"])).close()


def _one_tuple(use: Use) -> tuple[RecordLayout, np.ndarray, Fresh]:
    """Layout, payload bytes and rows of a message of one tuple of `_tiny_stream`."""
    layout = RecordLayout(_tiny_stream("left", use))
    record, size, blob = layout.pack([text_array("a"), text_array("x")] if use.text else [], 1)
    tuples = np.zeros((1, SIZE + use.text + layout.record_words), np.int64)
    if use.text:
        tuples[0, SIZE], tuples[:, SIZE + 1 :] = size[0], record
    return layout, size, Fresh(read_only(tuples), read_only(blob))


def _new_operator(layout: RecordLayout, use: Use) -> WindowJoin:
    streams = [(layout.record_words, layout.has_blob, 1)] * 2
    return window_join(1, 1 << 20, 4096, 64, streams, use.symmetric)


def _insert(use: Use) -> None:
    layout, _, fresh = _one_tuple(use)
    operator = _new_operator(layout, use)
    for stream in range(2):
        operator.insert(np.zeros(1, np.int64), stream, fresh, np.array([[0, 1]]))


def _hand_over(use: Use) -> None:
    layout, _, fresh = _one_tuple(use)
    supplier, consumer, groups = (*(_new_operator(layout, use) for _ in range(2)), np.zeros(1, np.int64))
    supplier.insert(groups, 0, fresh, np.array([[0, 1]]))
    supplier.probe(groups, 1 << 20, Out(2, 16))
    consumer.install(supplier.get(0, 0))
    supplier.drop(0)


def _delay(use: Use) -> None:
    from mpijoin.metrics.delay_kernels import delays_of

    layout, _, _ = _one_tuple(use)
    times = np.zeros(0, np.int64)
    latest_times(_new_operator(layout, use).words, Out(2, 0).slots, times)
    delays_of(times, 0, 0.0, 1.0, 0.0, times)
    DelayHistogram().add(times, times)


def _probe_and_expire(use: Use) -> None:
    """Of no groups: what is compiled depends on types alone."""
    layout, size, _ = _one_tuple(use)
    operator, groups = _new_operator(layout, use), np.zeros(0, np.int64)
    out = Out(2, 16)
    operator.probe(groups, 1 << 20, out)
    operator.expire(groups, (10, 10), out)
    if layout.schema.hashed:
        EqualKeys(KeyWords(layout.key_words, layout.key_fixed_words, layout.key_count_var)).keep(out, operator)
        CountRows().consume(out, operator, 0)
    if not use.rows:
        return
    found = out.filled[0]
    stored = np.empty((layout.record_words, 0), np.int64)
    gather_columns(operator.words, found, np.arange(layout.record_words), stored, 0)
    if use.text:
        octets = np.empty(0, np.uint8)
        operator.copy_blobs(found, np.zeros(0, np.int64), octets)
        layout.unpack_words(stored, size[:0], octets)
