"""Which pairs belong together, by SQL over the loaded inputs; their count and certificate."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mpijoin.verify.inputs import JOINS, Stream

BATCH_ROWS = 1 << 17


class Totals(NamedTuple):
    """Number of pairs and their certificate, the sum of their hashes modulo 2^64."""

    results: int
    certificate: int


def pairs_sql(streams: tuple[Stream, Stream]) -> str:
    """A query of all wanted pairs as (left_row, right_row), each once.

    Plain SQL would try every pair of equal keys in all of history. Here a left row joins only the buckets that its
    span touches: two copies at most, of which each right row meets one.
    """
    left, right = streams
    keys = list(zip(map(left.column, left.job.key), map(right.column, right.job.key)))
    names = ", ".join(["row", "low", "high", *dict.fromkeys(mine for mine, _ in keys)])
    equal = " AND ".join(f"l.{mine} = r.{theirs}" for mine, theirs in keys)
    return f"""
        SELECT l.row AS left_row, r.row AS right_row
        FROM (SELECT {names}, bucket FROM left_in WHERE fate = {JOINS}
              UNION ALL
              SELECT {names}, bucket_high FROM left_in WHERE fate = {JOINS} AND bucket_high <> bucket) l
        JOIN right_in r ON {equal} AND l.bucket = r.bucket
        WHERE r.fate = {JOINS} AND r.time BETWEEN l.low AND l.high"""


def totals_of(database: Any, query: str) -> Totals:
    """Count and certificate of the first two columns of a query, read in bounded pieces."""
    results = certificate = 0
    for batch in database.sql(query).to_arrow_reader(BATCH_ROWS):
        left, right = (np.asarray(batch.column(side)).astype(np.uint64) for side in (0, 1))
        results += batch.num_rows
        certificate += int(_pair_hash(left, right).sum(dtype=np.uint64))
    return Totals(results, certificate % 2**64)


def _pair_hash(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """h(l, r) = mix(mix(l + 9e3779b97f4a7c15) + r), modulo 2^64; uint64[n] each."""
    return _mix(_mix(left + np.uint64(0x9E3779B97F4A7C15)) + right)


def _mix(word: np.ndarray) -> np.ndarray:
    """The finalizer of splitmix64 on uint64[n]; numpy's arrays wrap around silently."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))
