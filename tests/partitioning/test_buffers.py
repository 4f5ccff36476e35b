"""Mini-buffers: first in, first out for each slave, every byte counted; groups that are held; how much of the input
they hold."""

import numpy as np
import pytest

from mpijoin.coordinator.master import MasterCore
from mpijoin.coordinator.setup import MasterSetup
from mpijoin.data.batch import Batch
from mpijoin.partitioning import buffers as buffers_file
from mpijoin.partitioning import runs
from mpijoin.partitioning.buffers import MiniBuffers, _columns_of
from mpijoin.partitioning.scatter import scatter
from mpijoin.partitioning.table import HELD, Copy, PartitionTable
from mpijoin.producer.events import Consumed, Ingested, Serve
from mpijoin.producer.pacing import pace_of
from mpijoin.producer.ticks import TickReader
from mpijoin.sources.base import TIME_MAX, Chunk, End, SourceCounts

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
        pieces = [piece for _ in range(2) for piece in buffers.take(slave, 1)[1]]
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
    octets, held, shared = buffers.add((scattered(table, range(10), 0, [b"abc"] * 10), scattered(table, range(5))))
    assert held == {} and shared == () and sum(octets.values()) == buffers.held_bytes == 10 * (5 * 8 + 3) + 5 * 3 * 8
    buffers.take(1, 1)
    assert buffers.held_bytes == octets[2]
    buffers.take(2, 1)
    assert (buffers.held_bytes, buffers.held_bytes_max) == (0, sum(octets.values()))


def test_rows_that_go_to_two_destinations_are_right_at_both_and_nobody_writes_to_what_they_share():
    blobs = [bytes([65 + key]) * (key + 1) for key in range(40)]
    part = scattered(PartitionTable.even(6, (1, 2)), range(40), 0, blobs)
    before = part.tuples.copy()
    for _ in range(2):
        for places in (slice(at, end) for at in range(6) for end in range(at + 1, 7)):
            tuples, blob = _columns_of(part, places)
            for key, _, _, address, size in tuples.tolist():
                assert blob[address : address + size].tobytes() == blobs[key]
    assert np.array_equal(part.tuples, before)


def test_pieces_of_slaves_and_of_groups_held_back_share_the_scattered_rows():
    table = PartitionTable.even(6, (1, 2, 3))
    table.route(4, None)
    batch = batch_of(range(40), 0, [b"ab"] * 40)
    part = scatter([batch], table.place, 0, True, table.firsts)
    held = table.places_of(HELD)
    ranges = [table.places_of(slave) for slave in table.owners] + [
        slice(at, at + 1) for at in range(held.start, held.stop)
    ]
    for places in ranges:
        tuples, _ = _columns_of(part, places)
        assert len(tuples) and np.shares_memory(tuples, part.tuples)


def test_blob_addresses_count_from_the_piece_s_own_blob_also_after_settling():
    table = PartitionTable.even(6, (1, 2, 3))
    buffers = MiniBuffers(table, (1, 2, 3))
    blobs = [bytes([65 + key]) * (key + 1) for key in range(20)]
    buffers.add((scattered(table, range(20), 0, blobs), scattered(table, range(0))))
    taken = {1: buffers.take(1, 1)[1]}
    buffers.settle()
    for slave in (2, 3):
        taken[slave] = buffers.take(slave, 1)[1]
        assert taken[slave][0].columns[0].tuples.base is None  # it keeps nobody else's memory alive
    for (piece,) in taken.values():
        tuples, blob = piece.columns[0]
        for key, _, _, address, size in tuples.tolist():
            assert blob[address : address + size].tobytes() == blobs[key]


def rows_by_group(groups, pieces):
    """group -> row numbers of the left stream in order, of pieces that all are of these groups."""
    found = {group: [] for group in groups.tolist()}
    for piece in pieces:
        tuples, blob = piece.columns[0]
        ends = np.cumsum(piece.counts[0])
        assert piece.counts.shape == (2, len(groups)) and len(tuples) == (ends[-1] if len(ends) else 0)
        for group, low, high in zip(groups.tolist(), ends - piece.counts[0], ends):
            for _, _, row, address, size in tuples[low:high].tolist():
                assert blob[address : address + size].tobytes() == b"%d" % row * (row % 3)
                found[group].append(row)
    return found


def add_rows(buffers, first, count):
    """Some rows with payloads, of no bytes every third time; returns what was added."""
    blobs = [b"%d" % row * (row % 3) for row in range(first, first + count)]
    return buffers.add(
        (scattered(buffers.table, range(first, first + count), first, blobs), scattered(buffers.table, []))
    )


@pytest.fixture
def held():
    """Six groups of slaves 1 and 2. Two parts wait for slave 1 when group 2 is taken from it, a third comes after."""
    table = PartitionTable.even(6, (1, 2))
    buffers = MiniBuffers(table, (1, 2, 3))
    before = [add_rows(buffers, 0, 40), add_rows(buffers, 40, 0)]
    buffers.settle()
    table.route(2, None)
    octets = buffers.hold(2, 1)
    return buffers, before, octets, add_rows(buffers, 100, 40)


def partition(row, slaves=(1, 2)):
    return int(np.flatnonzero(np.diff(scattered(PartitionTable.even(6, slaves), [row]).starts))[0])


def test_what_is_held_is_taken_out_of_all_that_waits_and_bytes_stay_counted(held):
    buffers, before, octets, after = held
    assert len(octets) == 2 and octets[0] > 0 and octets[1] == 0
    assert set(after.octets) == {1, 2} and set(after.held) == {2} and after.held[2] > 0
    total = sum(sum(added.octets.values()) for added in (*before, after)) + after.held[2]
    assert buffers.held_bytes == buffers.held_bytes_max == total
    groups, pieces, _ = buffers.take(1, 3)
    assert groups.tolist() == [0, 4] and len(pieces) == 3
    assert sum(piece.octets for piece in pieces) == sum(added.octets[1] for added in (*before, after)) - sum(octets)
    place = PartitionTable.even(6, (1, 2)).place
    for group, rows in rows_by_group(groups, pieces).items():
        assert rows == [row for row in (*range(40), *range(100, 140)) if partition(row) == place[group]]
    assert buffers.held_bytes == total - sum(piece.octets for piece in pieces)


def test_what_was_held_is_delivered_as_one_item_before_all_that_waits(held):
    buffers, _, octets, after = held
    buffers.table.route(2, 2)
    buffers.deliver(2, 2)
    groups, pieces, _ = buffers.take(2, 1)
    assert groups.tolist() == [2] and sum(piece.octets for piece in pieces) == sum(octets) + after.held[2]
    place = PartitionTable.even(6, (1, 2)).place
    wanted = [row for row in (*range(40), *range(100, 140)) if partition(row) == place[2]]
    assert rows_by_group(groups, pieces) == {2: wanted}
    later = add_rows(buffers, 200, 10)
    assert later.held == {}
    assert [buffers.take(2, 1)[0].tolist() for _ in range(4)] == [[1, 3, 5], [1, 3, 5], [1, 3, 5], [1, 2, 3, 5]]


def test_held_pieces_keep_no_other_memory_alive(held):
    buffers = held[0]
    buffers.deliver(2, 3)
    assert all(one.tuples.base is None and one.blob.base is None for one in buffers.take(3, 1)[1][-1].columns)


def test_a_group_goes_round_while_nothing_of_it_is_sent(held):
    """From 1 to 2, from 2 to 3 and back to 1: what waited for each is taken out again."""
    buffers, _, octets, after = held
    wanted = sum(octets) + after.held[2]
    for slave in (2, 3):
        buffers.table.route(2, slave)
        buffers.deliver(2, slave)
        add_rows(buffers, 300, 0)
        buffers.table.route(2, None)
        assert sum(buffers.hold(2, slave)) == wanted
    buffers.table.route(2, 1)
    buffers.deliver(2, 1)
    groups, pieces, _ = buffers.take(1, 1)
    assert groups.tolist() == [2] and sum(piece.octets for piece in pieces) == wanted


def test_a_slave_without_groups_gets_nothing_but_the_end(held):
    buffers = held[0]
    buffers.close()
    groups, pieces, _ = buffers.take(3, 1)
    assert groups.tolist() == [] and pieces == []
    assert buffers.take(1, 4)[0].tolist() == [0, 4]


def rows_of(piece, stream):
    tuples, blob = piece.columns[stream]
    assert piece.counts[stream].tolist() == [len(tuples)]
    for _, _, row, address, size in tuples.tolist() if stream == 0 else ():
        assert blob[address : address + size].tobytes() == b"%d" % row * (row % 3)
    return tuples[:, 2].tolist()


def test_single_rows_are_dealt_to_each_member_in_turn():
    table = PartitionTable.even(6, (1, 2, 3))
    buffers = MiniBuffers(table, (1, 2, 3))
    place = table.place[2]
    table.share(2, Copy(1, dealt=0), Copy(3, dealt=0))
    rows = [row for row in range(400) if partition(row, (1, 2, 3)) == place][:6]
    assert len(rows) == 6
    for row in rows:
        buffers.add((scattered(table, [row], row), scattered(table, [])))
    got = {slave: [] for slave in (1, 3)}
    for slave, item in buffers.waiting():
        if item.copy:
            got[slave] += [key for piece in item.pieces for key in piece.columns[0].tuples[:, 0].tolist()]
    assert sorted([got[1], got[3]]) == sorted([rows[::2], rows[1::2]])


@pytest.mark.parametrize("members", [1, 2, 3])
@pytest.mark.parametrize("batch_bytes", [1, 3000, 1 << 16])
def test_what_was_held_is_dealt_among_members_behind_all_that_waits(monkeypatch, members, batch_bytes):
    """Each row of the dealt stream goes to one of them, all others to each, in order, and in items of about a size."""
    monkeypatch.setattr(buffers_file, "BATCH_BYTES", batch_bytes)
    table = PartitionTable.even(6, (1, 2, 3))
    buffers = MiniBuffers(table, (1, 2, 3))
    add_rows(buffers, 0, 30)
    table.route(2, None)
    held = 0
    for first in range(100, 600, 50):
        blobs = [b"%d" % row * (row % 3) for row in range(first, first + 50)]
        left, right = (range(first, first + 50), blobs), (range(first, first + 20), ())
        held += buffers.add(tuple(scattered(table, rows, first, some) for rows, some in (left, right))).held[2]
        buffers.settle()
    before = buffers.held_bytes
    if members == 1:
        table.route(2, 3)
    else:
        table.share(2, *(Copy(slave, dealt=0) for slave in (3, 1, 2)[:members]))
    waited = buffers.redeal(2)
    assert len(waited) == {1: 11, 3000: 3, 1 << 16: 2}[batch_bytes] * members
    assert {(one.octets, one.later) for one in waited[-members:]} == {(0, ())}
    place = PartitionTable.even(6, (1, 2, 3)).place
    wanted = [[row for row in range(100, 600) if partition(row, (1, 2, 3)) == place[2]]]
    wanted.append([row for row in wanted[0] if row % 50 < 20])
    found, sent = [[], []], 0
    for slave in (3, 1, 2)[:members]:
        assert len(buffers.take(slave, 1).groups) == 2  # of before, group 2 among them where it was
        buffers.take(slave, 10)
        for one in (one for one in waited if one.slave == slave):
            groups, pieces, copy = buffers.take(slave, 1)
            assert groups.tolist() == [2]
            assert copy == (Copy(slave, dealt=0) if members > 1 else Copy(slave))
            assert sum(piece.octets for piece in pieces) == one.octets
            assert batch_bytes > 1 or len(pieces) <= 1
            sent += sum(piece.octets for piece in pieces)
            own = [[row for piece in pieces for row in rows_of(piece, stream)] for stream in (0, 1)]
            assert own == [sorted(rows) for rows in own]
            found[0] += own[0]
            found[1] += own[1]
    assert sorted(found[0]) == wanted[0] and sorted(found[1]) == sorted(wanted[1] * members)
    assert max(map(len, found)) > 0 and buffers.held_bytes_max == before - held + sent


def test_what_several_producers_had_waiting_comes_in_the_order_of_time():
    """A checkpoint has all of one, then all of the other. In this order nothing could expire before the end."""
    table = PartitionTable((2, 1))
    key = next(key for key in range(100) if np.diff(scattered(table, [key]).starts)[table.place[0]])
    of_one, of_other = MiniBuffers(table, (1, 2)), MiniBuffers(table, (1, 2))
    for time in range(0, 4000, 20):
        of_one.add((scattered(table, [key] * 4, time), scattered(table, [key] * 4, time)))
        of_other.add((scattered(table, [key] * 4, time + 10), scattered(table, [key] * 4, time + 10)))
    after = MiniBuffers(table, (1, 2))
    waited = after.restore(item for one in (of_one, of_other) for _, item in one.waiting())
    later = [min(one.later) for one in waited[:-1]]
    assert len(waited) > 5 and later == sorted(later) and later[0] > 0
    assert later[len(later) // 2] == pytest.approx(2000, rel=0.3)


class Uniform:
    """A tuple at every time from 0 on, keys in turn."""

    def __init__(self, rows):
        self.counts, self._at, self._rows = SourceCounts(), 0, rows

    def read(self, rows):
        if self._at == self._rows:
            return End()
        low, self._at = self._at, min(self._rows, self._at + min(rows, 1000))
        batch = batch_of(range(low, self._at), low)
        return Chunk(batch, batch.time, self._at if self._at < self._rows else TIME_MAX)


@pytest.mark.parametrize("subgroups", [1, 2, 4])
def test_peak_of_the_master_s_buffer_is_half_an_epoch_and_a_share_of_the_other_half(subgroups):
    """WSJ, section V-B: "Such a communication in sub-group also minimizes the total storage or memory required to
    buffer the pending tuples at the master node. Let us consider a stream with a uniform rate, and assume that the
    master distributes an equal number of tuples to every slaves." Then it is (r t_d / 2) (1 + 1 / n_g) tuples at
    most."""
    epoch, slaves = 4000, (1, 2, 3, 4)
    table = PartitionTable.even(60, slaves)
    buffers = MiniBuffers(table, slaves)
    core = MasterCore(MasterSetup(table, slaves, 1 << 40, 1 << 40, subgroups))
    reader = TickReader((Uniform(40_000), Uniform(40_000)), (0, 0), pace_of(epoch, (9, 9), subgroups), 1 << 18)
    while not isinstance(tick := reader.next(), End):
        parts = tuple(scatter(side, table.place, 0, False) for side in tick.batches)
        added = buffers.add(parts)
        for action in core.step(Ingested(added.octets, added.held, tick.watermarks)):
            assert isinstance(action, Serve)
            _, taken, _ = buffers.take(action.slave, action.items)
            core.step(Consumed(action.slave, sum(piece.octets for piece in taken)))
    epoch_bytes = 2 * epoch * 24
    assert buffers.held_bytes_max == pytest.approx(epoch_bytes / 2 * (1 + 1 / subgroups), rel=0.1)


def restored(before):
    after = MiniBuffers(before.table, (1, 2), before._memory_bytes)
    return after, after.restore(item for _, item in before.waiting())


def delivered(before):
    before.table.route(0, None)
    before.hold(0, 2)
    before.table.route(0, 2)
    return before, before.deliver(0, 2)


def dealt_again(before):
    before.table.route(0, None)
    before.hold(0, 2)
    before.table.route(0, 2)
    for _ in range(len(before._waiting[2])):
        before.take(2, 1)
    return before, before.redeal(0)[:-1]  # the last is for what is still to come


@pytest.mark.parametrize("goes_on", [restored, delivered, dealt_again])
@pytest.mark.parametrize(
    "pieces, least, memory, items",
    [(1, 1, 1 << 40, 1), (3, 1, 1 << 40, 3), (3, 1 << 14, 1, 1), (100, 1, 1 << 40, 15), (100, 1, 64 * 240, 50)],
)
def test_what_waited_comes_in_a_few_items_which_say_what_lies_behind_them(
    monkeypatch, goes_on, pieces, least, memory, items
):
    """The times of the first stream rise from piece to piece, and those of the second one fall. An item has 5 rows of
    each piece, of 24 bytes, and is never much of a slave's memory."""
    monkeypatch.setattr(runs, "ITEM_BYTES_MIN", least)
    monkeypatch.setattr(buffers_file, "BATCH_BYTES", max(least, -(-pieces * 5 * 24 // runs.ITEMS_MAX)))
    table = PartitionTable((2, 1))
    key = next(key for key in range(100) if np.diff(scattered(table, [key]).starts)[table.place[0]])
    before = MiniBuffers(table, (1, 2), memory)
    for number in range(pieces):
        before.add((scattered(table, [key] * 3, 10 * number), scattered(table, [key] * 2, 1000 - 5 * number)))
    after, waited = goes_on(before)
    assert len(waited) == items and {one.slave for one in waited} == {2}
    assert sum(one.octets for one in waited) == after.held_bytes == before.held_bytes == pieces * 5 * 24
    firsts = []
    for one in waited:
        groups, taken, _ = after.take(2, 1)
        assert groups.tolist() == [0] and sum(piece.octets for piece in taken) == one.octets
        times = [np.concatenate([piece.columns[stream].tuples[:, 1] for piece in taken]) for stream in range(2)]
        firsts.append([own.min() for own in times])
    later = [tuple(np.min(firsts[index + 1 :], axis=0)) for index in range(items - 1)]
    assert [one.later for one in waited] == [*later, ()]
