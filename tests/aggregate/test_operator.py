"""The operator of the windowed aggregate, where the scratch memory for a bucket's rows is too small at first."""

import numpy as np

import aggregate_oracle as oracle
from aggregate_harness import Case, Holders
from mpijoin.aggregate.operator import ROOM_MIN
from mpijoin.partitioning.hashing import hash_keys

PARTITIONS = 3


def rows_of(group, count, first):
    """So many rows of one key, which belongs to the group."""
    groups = (hash_keys(np.arange(100)) >> np.uint64(32)) % np.uint64(PARTITIONS)
    key = int(np.flatnonzero(groups == group)[0])
    return [oracle.Row(at, key, first + at, dict.fromkeys(("f8", "i8", "f4", "i1", "u8"), 1)) for at in range(count)]


def test_dead_rows_of_one_bucket_go_although_another_one_needs_more_scratch_memory():
    """The list of buckets to be rewritten must outlive the memory, or others are rewritten in their place."""
    history, count = oracle.History(rows=1), 3 * ROOM_MIN
    holders = Holders(Case([], history, (("count", None),), None, False, PARTITIONS, 256, 1 << 40, count, 1, 0))
    holders.insert([*rows_of(0, 1, 0), *rows_of(1, ROOM_MIN // 2, 1000), *rows_of(2, count, 10_000)])
    holders.expire(2 * count)
    holders.check()
    assert len(holders.found) == 1 + ROOM_MIN // 2 + count
    assert holders.operators[0].totals.held == (1,), "no row needs another one, and a single row is not worth a rewrite"
    holders.expire(2 * count + 1)
    holders.check()
