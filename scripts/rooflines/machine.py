"""Measures what this machine can do: the rates of one pinned core at each kind of work, and of MPI between two."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numba import njit

from benching.data import Data
from benching.launch import ROOT, command, environment, pin
from mpijoin.compiling import OPTIONS
from mpijoin.data.batch import read_only
from mpijoin.data.schema import Column
from mpijoin.join.probe import probe_groups, start_probe
from mpijoin.join.state import CURSOR_WORDS, FILTER
from mpijoin.join.window_join import window_join
from mpijoin.operators.base import Out
from mpijoin.partitioning.hashing import hash_keys
from mpijoin.sinks.parts import encoding_options
from mpijoin.sources.base import BLOCK_ROWS
from mpijoin.sources.files import open_file
from mpijoin.store.pool import reserve_words
from rooflines import kernels

# The blocks of workload A's window take so much: 1.8 M tuples of 24 bytes, and what is empty in the blocks.
STATE_BYTES = 64 << 20
MEMORY_BYTES_MAX = 1 << 30
TICK_ROWS = 65_536  # A stream has so many rows in an automatic epoch.
PARTITIONS = (60, 120, 240, 480)
BUCKETS = 32  # A partition has so many: 60 x 32 is what theta makes of A's window.
RESULTS = 8192  # The engine's result buffer holds so many.
ENOUGH_S, QUICK_S = 0.6, 0.05  # Each rate is measured for so long.
MPI_MIB = (1, 8)
MPI_BYTES = 2 << 30
MPI_TIMEOUT_S = 120


@dataclass(frozen=True)
class Rate:
    """A rate that was measured.

    per_s: how many of `unit` in a second · octets: the bytes of one of them, or 0 where these say nothing · note: how
    the rate was measured.
    """

    per_s: float
    unit: str
    octets: float = 0.0
    note: str = ""


Rates = dict[str, Rate]


def fastest_s(work: Callable[[], Any], enough_s: float) -> float:
    """Returns the seconds of the fastest of as many calls as fit, which is what the core can do undisturbed.

    The first call compiles.
    """
    work()
    best, end = float("inf"), time.perf_counter() + enough_s
    while time.perf_counter() < end or best == float("inf"):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def cache_bytes() -> dict[str, int]:
    """Returns the sizes of the first core's data caches, by level ("L1", …).

    They are what the system says, and usual ones where it says nothing.
    """
    found = {"L1": 32 << 10, "L2": 1 << 20, "L3": 32 << 20}
    for folder in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        if (folder / "type").read_text().strip() != "Instruction":
            size = (folder / "size").read_text().strip()
            found["L" + (folder / "level").read_text().strip()] = int(size.rstrip("KM")) << {"K": 10, "M": 20}[size[-1]]
    return found


def measure(data: Data, cores: list[int], enough_s: float) -> Rates:
    """Measures all rates. This process is pinned to the first core meanwhile."""
    os.sched_setaffinity(0, cores[:1])
    try:
        rates = {}
        for part in (scan_rates, load_rates, copy_rates, scatter_rates, append_rates, result_rates):
            rates |= part(enough_s)
        rates |= parquet_rates(data, enough_s)
    finally:
        os.sched_setaffinity(0, cores)
    return rates | mpi_rates(cores)


def engine_registers() -> str:
    """Returns the widest registers in which the engine's own probe compares tags.

    They are found in its machine code, as it is compiled for this processor.
    """
    join = window_join(1, 1 << 20, 4096, 1 << 16, [(0, False, 1)] * 2)
    groups, cursor, out = (
        read_only(np.zeros(1, np.int64)),
        np.zeros(CURSOR_WORDS, np.int64),
        np.zeros((2, 16), np.int64),
    )
    join.probe(groups, 1, Out(2, 16))  # makes the group
    start_probe(cursor)
    fresh = njit(**OPTIONS)(probe_groups.py_func)  # what comes from the cache has no machine code to show
    fresh(join._probe._state, groups, cursor, 1, out)
    return kernels.widest(fresh, "vpcmpeqw")


def scan_rates(enough_s: float) -> Rates:
    """Measures tags and keys compared per second, from an array of half of each cache, and from one beyond them."""
    caches = cache_bytes()
    memory = min(4 * caches["L3"], MEMORY_BYTES_MAX)
    # Half a large shared last-level cache is seldom one's own: what counts is the size of the state.
    sizes = {"L1": caches["L1"] // 2, "L2": caches["L2"] // 2, "state": STATE_BYTES, "memory": memory}
    rates, engine = {}, engine_registers()
    for name, size in sizes.items():
        words = reserve_words(size // 512 * 64)
        words[:] = 7
        tags, rounds = words.view(np.uint16), max(1, (64 << 20) // size)
        tags_s = fastest_s(lambda: kernels.scan_tags(tags, np.uint16(1), rounds), enough_s) / rounds
        keys_s = fastest_s(lambda: kernels.scan_keys(words, 1 << 40, rounds), enough_s) / rounds
        registers = kernels.widest(kernels.scan_tags, "vpcmpeqw"), kernels.widest(kernels.scan_keys, "vpcmpeqq")
        kib = f"{size >> 10:,} KiB, in"
        rates[f"tags, {name}"] = Rate(
            len(tags) / tags_s, "tags", 2, f"{kib} {registers[0]} (the engine's probe: {engine})"
        )
        rates[f"keys, {name}"] = Rate(len(words) / keys_s, "keys", 8, f"{kib} {registers[1]}")
    return rates | {"tags, looked up": _look_up_rate(enough_s)}


def _look_up_rate(enough_s: float) -> Rate:
    """Measures how many tags of blocks are looked up per second in a filter that a few of them pass."""
    generator = np.random.default_rng(7)
    tags, marks = generator.integers(0, 1 << 16, 64 * kernels.SLOTS).astype(np.uint16), np.zeros(FILTER, np.uint8)
    marks[generator.integers(0, FILTER, 64)] = 1
    listed = np.empty(kernels.SLOTS + 1, np.int64)
    seconds = fastest_s(lambda: kernels.look_up_blocks(tags, marks, listed), enough_s)
    return Rate(len(tags) / seconds, "tags", 2, f"block by block, in {FILTER >> 10} KiB")


def load_rates(enough_s: float) -> Rates:
    """Measures cache lines per second from scattered places of the state: single ones, and tags of whole blocks."""
    words, generator = reserve_words(STATE_BYTES // 8), np.random.default_rng(1)
    words[:] = 7
    lines = generator.permutation(STATE_BYTES // 64).astype(np.int32) * 8
    pages = generator.permutation(STATE_BYTES // 8 // kernels.PAGE_WORDS)
    loads_s = fastest_s(lambda: kernels.load_lines(words, lines), enough_s)
    blocks_s = fastest_s(lambda: kernels.scan_blocks(words.view(np.uint16), pages, np.uint16(1)), enough_s)
    return {
        "lines": Rate(len(lines) / loads_s, "lines", 64, f"independent loads, {STATE_BYTES >> 20} MiB in random order"),
        "block lines": Rate(
            len(pages) * kernels.TAG_LINES / blocks_s,
            "lines",
            64,
            f"{kernels.TAG_LINES} a block, blocks in random order",
        ),
    }


def copy_rates(enough_s: float) -> Rates:
    """Measures bytes copied per second, within the caches (blocks of the size that the engine reads) and beyond."""
    rates = {}
    for name, size in (("cached", 8 * BLOCK_ROWS), ("memory", MEMORY_BYTES_MAX // 2)):
        source, target = reserve_words(size // 8), reserve_words(size // 8)
        source[:] = target[:] = 1
        seconds = fastest_s(lambda: np.copyto(target, source), enough_s)
        rates[f"copy, {name}"] = Rate(size / seconds, "bytes", 1, f"{size >> 10:,} KiB, read and written")
    return rates


def scatter_rates(enough_s: float) -> Rates:
    """Measures tuples per second from columns into buffers, by the hash of their keys and the faster of two ways."""
    ticks = np.random.default_rng(2).integers(0, 1 << 40, (12, 3, TICK_ROWS))
    rates = {}
    for partitions in PARTITIONS:
        tuples = np.zeros((partitions, 2 * TICK_ROWS // partitions * kernels.TUPLE_WORDS), np.int64)
        staged, filled = np.zeros((partitions, kernels.STAGED_WORDS), np.int64), np.zeros(partitions, np.int64)

        def run(kernel: Callable, *scratch: np.ndarray) -> None:
            for tick in ticks:
                filled[:] = 0
                kernel(*tick, tuples, filled, *scratch)

        ways = {
            "plain stores": fastest_s(lambda: run(kernels.scatter_plain), enough_s),
            "write-combining buffers": fastest_s(lambda: run(kernels.scatter_combined, staged), enough_s),
        }
        way = min(ways, key=ways.get)
        other = " and ".join(f"{name} {12 * TICK_ROWS / seconds / 1e6:.0f} M/s" for name, seconds in ways.items())
        rates[f"scatter, {partitions}"] = Rate(12 * TICK_ROWS / ways[way], "tuples", 24, other)
    return rates


def append_rates(enough_s: float) -> Rates:
    """Measures tuples per second, with their tags, into the blocks of a state's buckets, one epoch at a time."""
    generator = np.random.default_rng(3)
    tuples = generator.integers(0, 1 << 40, (TICK_ROWS, kernels.TUPLE_WORDS))
    partition = (hash_keys(tuples[:, 0]) >> np.uint64(32)) * np.uint64(PARTITIONS[0]) >> np.uint64(32)
    order = np.argsort(partition, kind="stable")
    tuples, starts = tuples[order], np.searchsorted(partition[order], np.arange(PARTITIONS[0] + 1, dtype=np.uint64))
    words = reserve_words(STATE_BYTES // 8)
    words[:] = 0
    pages = generator.permutation(len(words) // kernels.PAGE_WORDS)
    count = PARTITIONS[0] * BUCKETS
    last, filled = pages[:count].copy(), np.zeros(count, np.int64)
    arguments = (tuples, starts, BUCKETS, last, filled, words, words.view(np.uint16), pages[count:])
    seconds = fastest_s(lambda: kernels.append(*arguments), enough_s)
    return {
        "append": Rate(
            TICK_ROWS / seconds, "tuples", 26, f"{count:,} buckets, blocks of 4 KiB in {STATE_BYTES >> 20} MiB"
        )
    }


def result_rates(enough_s: float) -> Rates:
    """Measures pairs per second written to a result buffer, and mixed into a certificate."""
    generator = np.random.default_rng(4)
    mine, theirs = generator.integers(0, 1 << 40, (2, RESULTS))
    out = np.zeros((2, RESULTS), np.int64)
    emit_s = (
        fastest_s(lambda: [kernels.emit(mine, theirs, np.ones(RESULTS, np.bool_), out) for _ in range(64)], enough_s)
        / 64
    )
    certify_s = fastest_s(lambda: [kernels.certify(mine, theirs) for _ in range(64)], enough_s) / 64
    registers = kernels.widest(kernels.certify, "vpmullq")
    return {
        "emit": Rate(RESULTS / emit_s, "pairs", 16, f"{RESULTS:,} at a time, without a branch"),
        "certify": Rate(RESULTS / certify_s, "pairs", 16, f"two rounds of splitmix64, multiplied in {registers}"),
    }


def probe_s(comparisons: float, reread: float, loads: float, pairs: float, enough_s: float) -> float:
    """Returns the seconds per fresh row of the idealised probe, by the faster of its two ways.

    comparisons, loads, pairs: tags compared, cache lines loaded and pairs certified for each row · reread: how many
    rows are compared with the tags of a bucket once these have come from beyond the caches.
    """
    blocks = max(1, round(comparisons / kernels.SLOTS))
    share = blocks * kernels.SLOTS / comparisons  # of a row's work, since blocks are whole
    words, generator = reserve_words(STATE_BYTES // 8), np.random.default_rng(6)
    words[:] = 7
    lines = generator.permutation(STATE_BYTES // 64).astype(np.int32) * 8
    pages = generator.permutation(len(words) // kernels.PAGE_WORDS)[: 2048 // blocks * blocks]
    rows = max(1, round(reread))
    quotas = (round(1024 * loads * share), round(1024 * pairs * share))
    arguments = (words.view(np.uint16), pages, blocks, rows, words, lines, *quotas)
    ways = [np.zeros(size, np.uint8) for size in (0, FILTER)]
    fastest = min(fastest_s(lambda: kernels.probe(*arguments, marks), enough_s) for marks in ways)
    return fastest / (len(pages) // blocks * rows) / share


def parquet_rates(data: Data, enough_s: float) -> Rates:
    """Measures rows per second that pyarrow decodes on one thread, and that it encodes as results are.

    It decodes the whole file at once, or block by block.
    """
    rates = {}
    for names in (["ts", "key"], ["ts", "key", "id"]):
        columns = [Column(name, pa.int64()) for name in names]

        def in_blocks() -> None:
            for _ in open_file(str(data.left), columns).blocks():
                pass

        whole_s = fastest_s(lambda: pq.read_table(data.left, columns=names, use_threads=False), enough_s)
        blocks_s = fastest_s(in_blocks, enough_s)
        ways = {f"blocks of {BLOCK_ROWS:,} rows": blocks_s, "whole file": whole_s}
        note = ", ".join(f"{way} {data.tuples / seconds / 1e6:.0f} M/s" for way, seconds in ways.items())
        rates[f"decode, {len(names)} columns"] = Rate(
            data.tuples / min(whole_s, blocks_s), "rows", 8 * len(names), note
        )
    return rates | {"encode, 2 columns": _encode_rate(enough_s)}


def _encode_rate(enough_s: float) -> Rate:
    rows = np.random.default_rng(5).integers(0, 1 << 22, (2, 1 << 20))
    fields = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("left_row", "right_row")])
    table = pa.table(list(rows), schema=fields)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.parquet")
        seconds = fastest_s(
            lambda: pq.write_table(table, file, write_statistics=False, **encoding_options(table)), enough_s
        )
    return Rate(table.num_rows / seconds, "rows", 16, "delta-packed row numbers to a file, as results are written")


def mpi_rates(cores: list[int]) -> Rates:
    """Measures bytes per second from one rank to another, each on its own core where there are two."""
    sizes = [str(mebibytes << 20) for mebibytes in MPI_MIB]
    line = [*script_command(2, "rooflines/bandwidth.py"), str(MPI_BYTES), *sizes]
    done = subprocess.run(
        line,
        env=environment(),
        preexec_fn=pin(cores[:2]),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=MPI_TIMEOUT_S,
    )
    said = json.loads(done.stdout.splitlines()[-1])
    names = {size: f"{int(size) >> 20} MiB" for size in sizes}
    return {
        f"MPI, {name}": Rate(said[size], "bytes", 1, f"mpirun -n 2, messages of {name}") for size, name in names.items()
    }


def script_command(ranks: int, script: str) -> list[str]:
    """Returns the command of a script of this folder on so many ranks, started as `mpijoin` would be."""
    return [*command(ranks)[: -len(("-m", "mpijoin"))], str(ROOT / "scripts" / script)]
