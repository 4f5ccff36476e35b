"""The scatter: every row once, stable within its place, blobs beside their rows."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as some

import oracle
from mpijoin.data.batch import Batch
from mpijoin.partitioning.scatter import FIXED_WORDS, rearranged, scatter
from mpijoin.partitioning.table import PartitionTable


def batch(rows, record_words, has_blob):
    """rows: (key, time, row); record and blob follow from the row."""
    key, time, row = (np.array([one[i] for one in rows], np.int64) for i in range(3))
    record = (row[:, None] * 10 + np.arange(record_words)).astype(np.int64)
    blobs = [blob_of(one[2]) for one in rows] if has_blob else []
    size = np.array([len(blob) for blob in blobs], np.int64)
    return Batch(key, time, row, record, size, np.frombuffer(b"".join(blobs), np.uint8))


def blob_of(row):
    return bytes([row % 256]) * (row % 7)


ROWS = some.lists(some.tuples(some.integers(-3, 3), some.integers(-(1 << 63), (1 << 63) - 1)), max_size=40)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    some.lists(ROWS, min_size=1, max_size=3),
    some.permutations(range(6)),
    some.integers(1, 6),
    some.integers(0, 2),
    some.booleans(),
)
def test_rows_lie_by_place_in_their_order(parts, order, partitions, record_words, has_blob):
    place = np.array([own for own in order if own < partitions], np.int64)
    rows, batches = [], []
    for part in parts:
        numbered = [(key, time, len(rows) + i) for i, (key, time) in enumerate(part)]
        rows += numbered
        batches.append(batch(numbered, record_words, has_blob))
    wanted = [
        [row for row in rows if place[oracle.partition(row[0] & oracle.MASK, partitions)] == own]
        for own in range(partitions)
    ]
    found = scatter(batches, place, record_words, has_blob)
    assert np.diff(found.starts).tolist() == [len(some) for some in wanted]
    assert [tuple(row[:FIXED_WORDS]) for row in found.tuples.tolist()] == [row for some in wanted for row in some]
    assert np.array_equal(
        found.tuples[:, found.tuples.shape[1] - record_words :], found.tuples[:, [2]] * 10 + np.arange(record_words)
    )
    if has_blob:
        for row, address, size in found.tuples[:, 2:5].tolist():
            assert found.blob[address : address + size].tobytes() == blob_of(row)
        octets = [sum(len(blob_of(row[2])) for row in some) for some in wanted]
        assert np.diff(found.blob_starts).tolist() == octets
    else:
        assert len(found.blob) == 0 and found.tuples.shape[1] == FIXED_WORDS + record_words


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    ROWS,
    some.lists(some.integers(1, 3), min_size=6, max_size=6),
    some.lists(some.tuples(some.integers(0, 5), some.sampled_from([None, 1, 2, 3])), max_size=4),
    some.booleans(),
)
def test_rows_that_lie_as_one_table_wants_are_laid_out_anew_as_another_one_does(keys, owners, moves, has_blob):
    table = PartitionTable(owners)
    rows = [batch([(key, time, i) for i, (key, time) in enumerate(keys)], 1, has_blob)]
    found, before = scatter(rows, table.place, 1, has_blob, table.firsts), table.place
    for group, slave in moves:
        table.route(group, slave)
    wanted = scatter(rows, table.place, 1, has_blob, table.firsts)
    for one, other in zip(rearranged(found, before, table.place, table.firsts), wanted):
        assert one.dtype == other.dtype and np.array_equal(one, other)
