"""Mini-buffers: first in, first out for each slave, every byte counted; and how much of the input they hold."""

import numpy as np
import pytest

from mpijoin.data.batch import Batch
from mpijoin.master.core import Consumed, Ingested, MasterCore, Serve
from mpijoin.master.ticks import TickReader, pace_of
from mpijoin.partitioning.buffers import MiniBuffers
from mpijoin.partitioning.scatter import scatter
from mpijoin.partitioning.table import PartitionTable
from mpijoin.sources.base import TIME_MAX, Chunk, SourceCounts

NONE = np.empty(0, np.int64)


def batch_of(keys, first=0, blobs=()):
    rows = np.arange(first, first + len(keys))
    size, blob = np.array([len(one) for one in blobs], np.int64), np.frombuffer(b"".join(blobs), np.uint8)
    return Batch(np.array(keys, np.int64), rows, rows, np.empty((len(keys), 0), np.int64), size, blob)


def scattered(table, keys, first=0, blobs=()):
    return scatter([batch_of(keys, first, blobs)], table.place, 0, bool(blobs))


def test_each_slave_gets_its_rows_once_and_in_order():
    table = PartitionTable.even(7, (1, 2, 3))
    buffers = MiniBuffers(table, (1, 2, 3))
    for first in (0, 50):
        buffers.add((scattered(table, range(50), first), scattered(table, range(0), first)))
        buffers.settle()
    rows = []
    for slave in (1, 2, 3):
        pieces = buffers.take(slave, 1) + buffers.take(slave, 1)
        for piece, low in zip(pieces, (0, 50)):
            own = piece.columns[0].tuples[:, 2].tolist()
            assert all(low <= row < low + 50 for row in own)
            assert piece.counts[0].sum() == len(own) and piece.counts.shape == (2, len(table.groups_of(slave)))
            rows += own
    assert sorted(rows) == list(range(100))
    assert buffers.held_bytes == 0


def test_bytes_held_and_their_peak_are_those_of_tuples_and_blobs():
    table = PartitionTable.even(4, (1, 2))
    buffers = MiniBuffers(table, (1, 2))
    octets = buffers.add((scattered(table, range(10), 0, [b"abc"] * 10), scattered(table, range(5))))
    assert sum(octets.values()) == buffers.held_bytes == 10 * (5 * 8 + 3) + 5 * 3 * 8
    buffers.take(1, 1)
    assert buffers.held_bytes == octets[2]
    buffers.take(2, 1)
    assert (buffers.held_bytes, buffers.held_bytes_max) == (0, sum(octets.values()))


def test_blob_addresses_count_from_the_piece_s_own_blob_also_after_settling():
    table = PartitionTable.even(6, (1, 2, 3))
    buffers = MiniBuffers(table, (1, 2, 3))
    blobs = [bytes([65 + key]) * (key + 1) for key in range(20)]
    buffers.add((scattered(table, range(20), 0, blobs), scattered(table, range(0))))
    taken = {1: buffers.take(1, 1)}
    buffers.settle()
    for slave in (2, 3):
        taken[slave] = buffers.take(slave, 1)
        assert taken[slave][0].columns[0].tuples.base is None  # it keeps nobody else's memory alive
    for (piece,) in taken.values():
        tuples, blob = piece.columns[0]
        for key, _, _, address, size in tuples.tolist():
            assert blob[address : address + size].tobytes() == blobs[key]


class Uniform:
    """A tuple at every time from 0 on, keys in turn."""

    def __init__(self, rows):
        self.counts, self._at, self._rows = SourceCounts(), 0, rows

    def read(self, rows):
        if self._at == self._rows:
            return None
        low, self._at = self._at, min(self._rows, self._at + min(rows, 1000))
        batch = batch_of(range(low, self._at), low)
        return Chunk(batch, batch.time, self._at if self._at < self._rows else TIME_MAX)


@pytest.mark.parametrize("subgroups", [1, 2, 4])
def test_peak_of_the_master_s_buffer_is_half_an_epoch_and_a_share_of_the_other_half(subgroups):
    """WSJ, section V-B: "Such a communication in sub-group also minimizes the total storage or memory required to buffer the
    pending tuples at the master node. Let us consider a stream with a uniform rate, and assume that the master distributes
    an equal number of tuples to every slaves." Then it is (r t_d / 2) (1 + 1 / n_g) tuples at most."""
    epoch, slaves = 4000, (1, 2, 3, 4)
    table = PartitionTable.even(60, slaves)
    buffers = MiniBuffers(table, slaves)
    core = MasterCore(slaves, subgroups, 1 << 40, 1 << 40)
    reader = TickReader((Uniform(40_000), Uniform(40_000)), (0, 0), pace_of(epoch, (9, 9), subgroups))
    while (tick := reader.next()) is not None:
        parts = tuple(scatter(side, table.place, 0, False) for side in tick.batches)
        octets = buffers.add(parts)
        for action in core.step(Ingested(octets, tick.watermarks)):
            assert isinstance(action, Serve)
            taken = buffers.take(action.slave, action.pieces)
            core.step(Consumed(action.slave, sum(piece.octets for piece in taken)))
    epoch_bytes = 2 * epoch * 24
    assert buffers.held_bytes_max == pytest.approx(epoch_bytes / 2 * (1 + 1 / subgroups), rel=0.1)
