"""Compiles, or loads from the cache, every kernel of a role before the clock starts.

One process at a time compiles: the others wait, asleep on a lock file, and then load what it has left in the cache. Without
this, N ranks of a first run would all compile the same code at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
import time
from pathlib import Path
from typing import Callable

import llvmlite
import numba
import numpy as np
import pyarrow as pa

import mpijoin
from mpijoin.config.job import Job, StreamJob, SyntheticSource, TableSource
from mpijoin.data.batch import read_only
from mpijoin.data.record import RecordLayout
from mpijoin.data.schema import Column, JoinSchema, StreamSchema


def warm_up(role: str) -> float:
    """Makes the kernels of a role ("master", "slave" or "collector") ready; returns the seconds it took."""
    tasks = {"master": _read_and_scatter, "slave": _join, "collector": lambda: None}
    return compiled_once(role, tasks[role])


def compiled_once(name: str, compile_all: Callable[[], None]) -> float:
    """Runs `compile_all`, alone on this machine if that has never been done; returns the seconds it took.

    `name` tells one set of kernels from another. A stamp in the temporary directory remembers that the cache is warm; where
    it is wrong (the cache was removed), ranks compile side by side: slower, not wrong.
    """
    start = time.perf_counter()
    folder = Path(tempfile.gettempdir()) / f"mpijoin-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    stamp = folder / f"{name}-{_fingerprint()}"
    if stamp.exists():
        compile_all()
        return time.perf_counter() - start
    with open(folder / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        compile_all()
        stamp.touch()
    return time.perf_counter() - start


def _fingerprint() -> str:
    """Changes with anything that makes cached code useless: the sources, the compiler, the processor, the cache's place."""
    root = Path(mpijoin.__file__).parent
    sources = sorted((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in root.rglob("*.py"))
    facts = (sources, numba.__version__, llvmlite.__version__, llvmlite.binding.get_host_cpu_name(), numba.config.CACHE_DIR)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _tiny_stream(name: str) -> StreamSchema:
    """A stream with a hashed key and a variable-size column: its tuples go through every kernel there is."""
    text = pa.string()
    return StreamSchema(name, Column("ts", pa.int64()), 1, (Column("key", text),), True, (Column("text", text),))


def _tiny_table() -> pa.Table:
    return pa.table({"ts": [1, 2, 2, 0], "key": ["a", "b", None, "a"], "text": ["x", None, "y", "z"]})


def _read_and_scatter() -> None:
    from mpijoin.master.ticks import TickReader, pace_of
    from mpijoin.partitioning.scatter import scatter
    from mpijoin.sources import open_source

    streams = (_tiny_stream("left"), _tiny_stream("right"))
    schema = JoinSchema(*streams, "ns")
    job = Job(*(StreamJob(stream.name, TableSource(_tiny_table()), time_unit="ns") for stream in streams))
    sources = tuple(open_source(job, index, schema, lambda table: None) for index in range(2))
    tick = TickReader(sources, (0, 0), pace_of(1, (1, 1), 1)).next()
    layout = RecordLayout(streams[0])
    scatter(tick.batches[0], np.arange(3), layout.record_words, layout.has_blob)
    integers = StreamSchema("left", Column("ts", pa.timestamp("ns")), 1, (Column("key", pa.int64()),), False, ())
    synthetic = Job(*(StreamJob(name, SyntheticSource(tuples=2)) for name in ("left", "right")))
    open_source(synthetic, 0, JoinSchema(integers, integers, "ns"), lambda table: None).read(2)


def _join() -> None:
    from mpijoin.join.gather import certify, gather_blobs, gather_words
    from mpijoin.join.insert import Fresh
    from mpijoin.join.state import ROW, SIZE
    from mpijoin.join.window_join import WindowJoin

    layout = RecordLayout(_tiny_stream("left"))
    record, size, blob = layout.pack([pa.array(["a"]), pa.array(["x"])])
    tuples = np.zeros((1, SIZE + 1 + layout.record_words), np.int64)
    tuples[0, SIZE], tuples[:, SIZE + 1 :] = size[0], record
    operator = WindowJoin(1, 1 << 20, 4096, 64, [(layout.record_words, True, 1)] * 2, 16)
    groups, bounds = np.zeros(1, np.int64), np.array([[0, 1]])
    for stream in range(2):
        operator.insert(groups, stream, Fresh(read_only(tuples), read_only(blob)), bounds)
    operator.probe(groups, 1 << 20)
    operator.keep_equal_keys(layout)
    results = operator.results()
    certify(operator.state.words, *results)
    gather_words(operator.state.words, results.left, ROW, np.empty((len(results.left), 1), np.int64))
    stored = np.empty((len(results.left), layout.record_words), np.int64)
    gather_words(operator.state.words, results.left, SIZE + 1, stored)
    octets = np.empty(int(size.sum()), np.uint8)
    gather_blobs(operator.state, results.left, np.zeros(1, np.int64), octets)
    layout.unpack(stored, size, octets)
    operator.expire(groups, (10, 10))
