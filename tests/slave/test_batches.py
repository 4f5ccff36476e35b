"""A slot's message on its way through the join.

What is inserted, and what leaves with a frozen group, is together all that came, and each row only once.
"""

import random

import numpy as np
import pytest

import oracle
from join_harness import Stream, encode, groups_of, numbered
from mpijoin.data.batch import Batch
from mpijoin.messages import Columns, Piece, Slot, encode_message, parse
from mpijoin.operators.base import Progress, Taken
from mpijoin.partitioning.buffers import MiniBuffers
from mpijoin.partitioning.scatter import scatter
from mpijoin.partitioning.table import PartitionTable
from mpijoin.slave import events
from mpijoin.slave.batches import Batches, unjoined
from mpijoin.slave.core import SlaveCore

PARTITIONS = 5
LAYOUTS = [
    (Stream(), Stream()),
    (Stream(0, 1, True), Stream(0, 2)),
    (Stream(0, 0, True), Stream(0, 1, True)),
    (Stream(0, 2), Stream(), Stream(0, 1, True)),
]


def parts_of(message):
    return [(stream, part) for piece in message.pieces for stream, part in enumerate(piece)]


def piece_of(groups, sides, layout):
    """Returns one piece as the master sends it, with its streams laid out by group."""
    encoded = [encode(groups, rows, stream, PARTITIONS) for rows, stream in zip(sides, layout)]
    counts = np.stack([bounds[:, 1] - bounds[:, 0] for _, bounds in encoded])
    return Piece(counts, tuple(Columns(*fresh) for fresh, _ in encoded))


def drawn(chance, layout, first_row, rows_max=30, keys=40):
    """Draws rows of all streams. Those of each stream have numbers of their own."""
    sides = []
    for at, stream in enumerate(layout):
        pairs = [(chance.randrange(9), chance.randrange(keys)) for _ in range(chance.randint(0, rows_max))]
        sides.append(numbered(pairs, stream, (0, 3, 70), first_row + 1_000_000 * at))
    return sides


def slot_of(chance, layout, epoch, groups, pieces=None):
    """Returns (Slot, its rows by (group, stream)). It has no rows of other groups than these."""
    own, sent = [], {(group, stream): [] for group in groups.tolist() for stream in range(len(layout))}
    for part in range(chance.randint(0, 3) if pieces is None else pieces):
        sides = drawn(chance, layout, 10_000 * epoch + 100 * part)
        own.append(piece_of(groups, sides, layout))
        for stream, rows in enumerate(sides):
            for row in rows:
                key = (oracle.partition(row.key, PARTITIONS), stream)
                if key in sent:
                    sent[key].append(row)
    return Slot(0, epoch, (epoch,) * len(layout), groups, tuple(own)), sent


def decoded(tuples, blob, stream):
    """Reads rows word by word, in the form of `numbered`. Payloads are read where the addresses say."""
    found, first = [], 5 if stream.has_blob else 3
    for words in tuples.tolist():
        payload = blob[words[3] : words[3] + words[4]].tobytes() if stream.has_blob else b""
        found.append((words[1], words[0], words[2], tuple(words[first:]), payload))
    return found


def rows_of_message(message, layout):
    """Returns {(group, stream): the rows that the kernels would insert of the message}."""
    found = {(group, stream): [] for group in message.groups.tolist() for stream in range(len(layout))}
    for stream, (fresh, bounds) in parts_of(message):
        assert bounds.shape == (len(message.groups), 2)
        for group, (low, high) in zip(message.groups.tolist(), bounds.tolist()):
            found[group, stream] += decoded(fresh.tuples[low:high], fresh.blob, layout[stream])
    return found


def rows_of_pieces(pieces, layout):
    """Returns for each stream the rows in pieces of one group. Checks that the pieces are as a Slot wants them."""
    found = [[] for _ in layout]
    for piece in pieces:
        assert piece.counts.shape == (len(layout), 1) and piece.counts.sum() > 0
        for stream, columns in enumerate(piece.columns):
            assert len(columns.tuples) == piece.counts[stream, 0]
            sizes = columns.tuples[:, 4].sum() if layout[stream].has_blob else 0
            assert len(columns.blob) == sizes
            found[stream] += decoded(*columns, layout[stream])
    return found


@pytest.mark.parametrize("layout", LAYOUTS, ids=["plain", "blob left", "blobs", "three"])
@pytest.mark.parametrize("seed", range(5))
def test_parts_are_the_rows_of_each_group_and_stream_in_their_order(layout, seed):
    chance = random.Random(seed)
    slot, sent = slot_of(chance, layout, seed, groups_of(3, 0, 4))
    message = Batches(slot)
    assert rows_of_message(message, layout) == sent
    for stream in range(len(layout)):
        assert message.rows()[stream] == sum(len(rows) for (_, own), rows in sent.items() if own == stream)
    assert [len(piece) for piece in message.pieces] == [len(layout)] * len(slot.pieces)


@pytest.mark.parametrize("layout", LAYOUTS, ids=["plain", "blob left", "blobs", "three"])
@pytest.mark.parametrize("seed", range(5))
def test_taking_groups_out_one_after_the_other_takes_all_and_leaves_the_others_alone(layout, seed):
    chance = random.Random(100 + seed)
    slot, sent = slot_of(chance, layout, 1, groups_of(*chance.sample(range(PARTITIONS), 4)), pieces=3)
    message = Batches(slot)
    left = dict(sent)
    while len(message.groups):
        at = chance.randrange(len(message.groups))
        group = int(message.groups[at])
        wanted = [left.pop((group, stream)) for stream in range(len(layout))]
        assert rows_of_pieces(message.take_out(at), layout) == wanted
        assert group not in message.groups
        assert rows_of_message(message, layout) == left


@pytest.mark.parametrize("layout", LAYOUTS, ids=["plain", "blob left", "blobs", "three"])
def test_the_slot_that_was_received_keeps_its_groups_and_what_is_taken_is_a_copy(layout):
    chance = random.Random(7)
    slot, _ = slot_of(chance, layout, 1, groups_of(0, 1, 2, 3, 4), pieces=2)
    before = slot.frame().tobytes()
    message = Batches(slot)
    for piece in message.take_out(2):
        for columns in piece.columns:
            columns.tuples[:] = -1
            columns.blob[:] = 0
    assert slot.frame().tobytes() == before and slot.groups.tolist() == [0, 1, 2, 3, 4]


def test_a_group_without_rows_is_taken_out_as_well_and_gives_no_piece():
    sides = [numbered([(0, key) for key in range(40) if oracle.partition(key, PARTITIONS) != 2])] * 2
    slot = Slot(0, 0, (0, 0), groups_of(0, 1, 2, 3, 4), (piece_of(groups_of(0, 1, 2, 3, 4), sides, LAYOUTS[0]),))
    message = Batches(slot)
    assert message.take_out(2) == []
    assert message.groups.tolist() == [0, 1, 3, 4]
    assert message.rows().tolist() == [len(sides[0])] * 2


def test_a_message_without_pieces_or_without_groups_has_no_rows():
    empty = Batches(Slot(0, 0, (0, 0), groups_of(1, 2), ()))
    assert empty.pieces == [] and empty.rows().tolist() == [0, 0]
    assert empty.take_out(0) == [] and empty.groups.tolist() == [2]
    assert Batches(Slot(0, 0, (0, 0), groups_of(), (), last=True)).groups.tolist() == []


@pytest.mark.parametrize("layout", LAYOUTS, ids=["plain", "blob left", "blobs", "three"])
def test_what_was_taken_out_travels_as_a_slot_of_its_one_group(layout):
    slot, sent = slot_of(random.Random(5), layout, 6, groups_of(0, 1, 2, 3, 4), pieces=3)
    pieces = Batches(slot).take_out(3)
    arrived = parse(encode_message(Slot(1, 6, (6,) * len(layout), groups_of(3), tuple(pieces))))
    assert rows_of_message(Batches(arrived), layout) == {(3, stream): sent[3, stream] for stream in range(len(layout))}
    assert arrived.rows.tolist() == [sum(len(sent[3, stream]) for stream in range(len(layout)))]


@pytest.mark.parametrize("layout", LAYOUTS, ids=["plain", "blob left", "blobs", "three"])
@pytest.mark.parametrize("low", [0, 1, 3, 4])
def test_of_a_stop_amid_messages_each_group_that_is_not_joined_is_one_slot_with_all_its_rows(layout, low):
    """The first `low` groups of the oldest of three messages are joined."""
    chance = random.Random(low)
    orders = [chance.sample(range(PARTITIONS), count) for count in (4, 5, 2)]
    slots = [slot_of(chance, layout, epoch, groups_of(*groups), pieces=2) for epoch, groups in enumerate(orders)]
    wanted = {}
    for at, (_, sent) in enumerate(slots):
        for (group, stream), rows in sent.items():
            if at > 0 or group not in orders[0][:low]:
                wanted.setdefault(group, [[] for _ in layout])[stream].extend(rows)
    messages = [Batches(slot) for slot, _ in slots]
    found = unjoined(messages, (low, 0, 0), 2)
    assert all((slot.watermarks, slot.producer) == ((0,) * len(layout), 2) for slot in found)
    assert {int(slot.groups[0]): rows_of_pieces(slot.pieces, layout) for slot in found} == wanted
    assert len(found) == len(wanted) and [len(own.groups) for own in messages] == [low, 0, 0]


def batch_of(keys, first_row):
    """Returns a batch of these keys. Some rows have no payload."""
    rows = np.arange(first_row, first_row + len(keys))
    blobs = [oracle.mix(row).to_bytes(8, "little") * (row % 3) for row in rows.tolist()]
    size = np.array([len(blob) for blob in blobs], np.int64)
    record = np.empty((len(keys), 0), np.int64)
    return Batch(np.array(keys, np.int64), rows, rows, record, size, np.frombuffer(b"".join(blobs), np.uint8))


def payload_of(row):
    return oracle.mix(row).to_bytes(8, "little") * (row % 3)


@pytest.mark.parametrize("seed", range(6))
def test_it_takes_rows_out_of_what_the_master_really_sends(seed):
    """Rows are scattered, pass through the mini-buffers of two slaves and go over the wire.

    Payloads have all lengths, and some are empty.
    """
    random_keys = np.random.default_rng(seed)
    table = PartitionTable.even(PARTITIONS, (1, 2))
    buffers = MiniBuffers(table, (1, 2))
    for part in range(3):
        keys = [random_keys.integers(0, 50, random_keys.integers(0, 60)) for _ in range(2)]
        both = [
            scatter([batch_of(own, 1000 * part + 500 * side)], table.place, 0, True) for side, own in enumerate(keys)
        ]
        buffers.add(tuple(both))
    groups, pieces, _ = buffers.take(1 + seed % 2, 3)
    slot = parse(encode_message(Slot(0, 0, (0, 0), groups, tuple(pieces))))
    message, layout = Batches(slot), (Stream(0, 0, True),) * 2
    whole = rows_of_message(message, layout)
    at = seed % len(groups)
    group = int(groups[at])
    taken = rows_of_pieces(message.take_out(at), layout)
    assert taken == [whole.pop((group, stream)) for stream in range(len(layout))] and sum(map(len, taken)) > 0
    assert rows_of_message(message, layout) == whole
    for _, key, row, _, payload in taken[0] + taken[1]:
        assert oracle.partition(key, PARTITIONS) == group and payload == payload_of(row)


class Joining:
    """SlaveCore and the messages it decides about, without an operator. It notes the rows joined and the rows taken."""

    def __init__(self, layout, slice_rows, joint_max):
        self.core, self.layout = SlaveCore(slice_rows=slice_rows, joint_max=joint_max), layout
        self.joint_max = 0  # so many messages were joined together at most
        self.messages, self.actions = [], []
        self.joined, self.taken = {}, {}

    def arrive(self, slot):
        self.messages.append(Batches(slot))
        self.do(events.Arrived(slot.epoch, slot.octets, slot.groups, slot.rows, slot.last, joint=True))

    def do(self, event):
        self.actions += self.core.step(event)

    def act(self):
        match self.actions.pop(0):
            case events.Insert(low, high, _, messages):
                self.joint_max = max(self.joint_max, messages)
                for message in self.messages[:messages]:
                    self.insert(message, low, high)
                self.do(events.Inserted(Taken(high - low)))
            case events.Probe():
                self.do(events.Probed(Progress.DONE))
            case events.Expire():
                self.do(events.Expired(Progress.DONE))
            case events.EndMessage():
                self.messages.pop(0)
            case events.Carry(_, _, group, places):
                self.carry_out(group, places)

    def insert(self, message, low, high):
        for stream, (fresh, bounds) in parts_of(message):
            for group, (first, end) in zip(message.groups[low:high].tolist(), bounds[low:high].tolist()):
                assert group not in self.taken, "a frozen group was joined"
                own = self.joined.setdefault((group, stream), [])
                own += decoded(fresh.tuples[first:end], fresh.blob, self.layout[stream])

    def carry_out(self, group, places):
        own = self.taken.setdefault(group, [[] for _ in self.layout])
        for index, at in places:
            assert self.messages[index].groups[at] == group
            for stream, rows in enumerate(rows_of_pieces(self.messages[index].take_out(at), self.layout)):
                own[stream] += rows


@pytest.mark.parametrize("seed", range(60))
def test_at_any_point_of_progress_rows_joined_and_rows_taken_are_the_rows_received(seed):
    chance = random.Random(seed)
    layout = chance.choice(LAYOUTS)
    joining = Joining(layout, chance.choice([1, 5, 20, 1000]), joint_max=1 + seed % 3)
    received, epoch = {}, 0
    to_freeze, here = chance.sample(range(PARTITIONS), chance.randint(1, 3)), list(range(PARTITIONS))
    while epoch < 6 or joining.actions or to_freeze:
        kind = chance.choice(["arrive", "freeze", "act", "act", "act", "act"])
        if kind == "arrive" and epoch < 6:
            slot, sent = slot_of(chance, layout, epoch, groups_of(*here))
            for key, rows in sent.items():
                received.setdefault(key, []).extend(rows)
            joining.arrive(slot)
            epoch += 1
        elif kind == "freeze" and to_freeze:
            group = to_freeze.pop()
            here.remove(group)  # The master holds it back from now on.
            joining.do(events.Ordered(group, "freeze", group))
        elif joining.actions:
            joining.act()
    assert joining.joint_max <= 1 + seed % 3
    assert joining.messages == [] and not joining.core.busy and joining.core.backlog_bytes == 0
    for (group, stream), rows in received.items():
        taken = joining.taken.get(group, [[] for _ in layout])[stream]
        # Rows keep the order of arrival, none is lost, and none comes twice.
        assert joining.joined.get((group, stream), []) + taken == rows
    assert joining.taken.keys() == set(range(PARTITIONS)) - set(here)
