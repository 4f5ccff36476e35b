"""Makes the data of workload A.

It has two streams (ts in us, key, id), Poisson arrivals at 1500/s, keys by the b-model (bias 0.7, 23 bits) over 10^7,
and a window of 600 s. `make_data` makes left.parquet and right.parquet, and the right answer, which DuckDB and numpy
find without mpijoin. With 5,000,000 tuples a stream there are 29,715,319 results. Data that is there already is used
again.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

RATE_PER_S = 1500.0
BIAS = 0.7
KEY_BITS = 23
DOMAIN = 10_000_000
WINDOW_US = 600_000_000
SEED = 7


@dataclass(frozen=True)
class Answer:
    """What a join of the data must give. sum: the sum of left id * 31 + right id · certificate: as in summary.json."""

    results: int
    sum: int
    certificate: str


@dataclass(frozen=True)
class Data:
    tuples: int  # This is how many each stream has.
    left: Path
    right: Path
    answer: Answer


def make_data(folder: Path, tuples: int) -> Data:
    """Returns the data in folder/tuples, and makes it first if it is not there yet."""
    home = folder / str(tuples)
    home.mkdir(parents=True, exist_ok=True)
    files = [home / f"{name}.parquet" for name in ("left", "right")]
    known = home / "answer.json"  # It is written last, so if it is there, everything is.
    if not known.exists():
        for file, table in zip(files, tables(tuples)):
            pq.write_table(table, file)
        known.write_text(json.dumps(asdict(find_answer(files))))
    return Data(tuples, *files, Answer(**json.loads(known.read_text())))


def tables(tuples: int, bias: float = BIAS, streams: int = 2, bits: int = KEY_BITS) -> Iterator[pa.Table]:
    """Yields one stream after the other. All come from one random generator, so that their order matters.

    bias: of the keys, where 0.5 makes them uniform · bits: there are 2^bits keys.
    """
    random = np.random.default_rng(SEED)
    for _ in range(streams):
        times_us = np.cumsum(random.exponential(1e6 / RATE_PER_S, tuples)).astype(np.int64)
        yield pa.table({"ts": times_us, "key": b_model_keys(random, tuples, bias, bits), "id": np.arange(tuples)})


def b_model_keys(random: np.random.Generator, tuples: int, bias: float, bits: int = KEY_BITS) -> np.ndarray:
    """Returns int64[tuples] in [0, DOMAIN). Each bit, from the highest on, is 0 with probability `bias`."""
    position = np.zeros(tuples, np.int64)
    for _ in range(bits):
        position = position * 2 + (random.random(tuples) >= bias)
    return (position * DOMAIN) >> bits


def find_answer(files: list[Path], window_us: int = WINDOW_US) -> Answer:
    """Finds all results of two or three streams with DuckDB, and certifies them with numpy.

    No line of this is mpijoin's.
    """
    import duckdb

    from peers.sql import join, join_three

    names = [f"'{file}'" for file in files]
    if len(files) == 2:
        query = join("bucketed", "duckdb", *names, window_us, "l.id, r.id")
    else:
        query = join_three("plain", (f"'{file}'" for file in files), window_us, "l.id, r.id, m.id")
    results = total = certificate = 0
    for batch in duckdb.connect().sql(query).to_arrow_reader(1 << 20):
        added, *others = (column.to_numpy().astype(np.uint64) for column in batch.columns)
        hashed = added
        for ids in others:
            added, hashed = added * np.uint64(31) + ids, mix(mix(hashed + np.uint64(0x9E3779B97F4A7C15)) + ids)
        results += len(added)
        total += int(added.sum())
        certificate += int(hashed.sum())
    return Answer(results, total, f"{certificate % 2**64:016x}")


def mix(words: np.ndarray) -> np.ndarray:
    """The finalizer of splitmix64, on uint64[n]."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
