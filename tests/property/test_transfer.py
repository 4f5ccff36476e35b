"""A group handed from one WindowJoin to another, at any batch border, in one piece or block by block: the result is the
oracle's."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import oracle
from join_harness import EVER, NEVER, Harness, Stream, check_accounts, fallen_counts, groups_of, numbered, walk
from mpijoin.data.codec import decode, encode
from mpijoin.errors import CodecError, MemoryBudgetError, ProtocolError
from mpijoin.store import state as st
from mpijoin.store import transfer
from mpijoin.store.shipment import BLOCKS_KIND, TAIL_KIND

WINDOWS = some.tuples(some.integers(0, 30), some.integers(0, 30))


class Cluster:
    """Some holders of the same join; each group is with one of them. A copy under way: group -> (to, frames, since)."""

    def __init__(self, holders, streams, partitions, block, theta):
        self.holders = [Harness(streams, partitions, 1 << 22, block, theta, 50) for _ in range(holders)]
        self.counted = [holder.operator.totals for holder in self.holders]
        self.partitions, self.owner = partitions, [group % holders for group in range(partitions)]
        self.copies = {}

    def round(self, left, right, watermarks):
        for group, owner in enumerate(self.owner):
            self.holders[owner].round(groups_of(group), left, right, watermarks)

    def copy(self, group, to):
        """Ships what is sealed and was not shipped yet; the group stays where it is."""
        to, frames, since = self.copies.pop(group, (to, [], 0))
        more = self.holders[self.owner[group]].operator.get(group, since)
        self.copies[group] = to, frames + more[:-1], transfer.newest(more[-1])

    def hand_over(self, group, to):
        to, frames, since = self.copies.pop(group, (to, [], 0))
        supplier, consumer = (self.holders[which].operator for which in (self.owner[group], to))
        rest = supplier.get(group, since)
        if to != self.owner[group]:
            assert consumer.install(frames + rest) == group
            supplier.drop(group)
            self.owner[group] = to

    def check_counts_grow(self):
        """What a slave reports as a difference of two looks never falls, whatever came or went in between."""
        for which, holder in enumerate(self.holders):
            before, self.counted[which] = self.counted[which], holder.operator.totals
            assert fallen_counts(before, self.counted[which]) == [], f"of holder {which}"

    def count(self, first):
        return sum(holder.state.counters[first : first + 2] for holder in self.holders)


STEP = some.tuples(some.sampled_from(["copy", "hand over", "join", "join"]), some.integers(0, 3), some.integers(0, 2))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    data=some.data(),
    windows=WINDOWS,
    steps=some.lists(STEP, max_size=16),
    block=some.sampled_from([64, 128, 1024]),
    theta=some.sampled_from([60, 300, 2000, st.THETA_OFF]),
    layout=some.tuples(some.integers(0, 2), some.booleans()),
)
def test_hand_overs_at_batch_borders_change_nothing(data, windows, steps, block, theta, layout):
    streams = [Stream(window, layout[0] * side, layout[1]) for side, window in enumerate(windows)]
    cluster, sides, now = Cluster(3, streams, 4, block, theta), ([], []), 0
    for kind, group, to in steps:
        if kind == "copy":
            cluster.copy(group, to)
        elif kind == "hand over":
            cluster.hand_over(group, to)
        else:
            batch = some.lists(some.tuples(some.integers(now, now + 9), some.integers(0, 12)), max_size=40)
            parts = data.draw(batch), data.draw(batch)
            rows = [numbered(part, stream, (0, 5, 90), len(side)) for part, stream, side in zip(parts, streams, sides)]
            now += 10
            cluster.round(*rows, (now, now))
            for side, part in zip(sides, rows):
                side.extend(part)
        cluster.check_counts_grow()
    for holder in cluster.holders:
        check_accounts(holder, holder.started())
    check_result(cluster, sides, windows)


def check_result(cluster, sides, windows):
    found = sum((holder.row_pairs() for holder in cluster.holders), Counter())
    assert found == Counter(oracle.join([[(r.time, r.key, r.row) for r in side] for side in sides], windows))
    for left, right in (pair for holder in cluster.holders for pair in holder.pairs):
        assert left == sides[0][left.row] and right == sides[1][right.row]
    for holder in cluster.holders:  # ledger: joined = expired + held + out - in
        operator, counters = holder.operator, holder.state.counters
        held = holder.state.groups[:, st.GROUP_TUPLES :: st.GROUP_STREAM_WORDS].sum(axis=0)
        joined, expired = counters[st.INSERTED : st.INSERTED + 2], counters[st.EXPIRED : st.EXPIRED + 2]
        assert (joined == expired + held + np.subtract(operator.totals.moved_out, operator.totals.moved_in)).all()


def filled(tuples=300, keys=40, theta=600, block=256, stream=Stream(1000, 1, True), memory=1 << 22):
    """A holder of one group of two, with a directory, and the rows that it holds."""
    harness = Harness([stream, stream], 2, memory, block, theta)
    rows = numbered([(time, time % keys) for time in range(tuples)], stream, (0, 7, 300))
    rows = [row for row in rows if oracle.partition(row.key, 2) == 1]
    harness.round(groups_of(1), rows, rows[::2], (50, 60))
    return harness, rows


def empty_like(harness, memory=1 << 22, block=256, streams=None):
    return Harness(streams or harness.streams, 2, memory, block, int(harness.state.counters[st.THETA]))


def test_a_group_arrives_as_it_left():
    supplier, rows = filled()
    before, info = walk(supplier.state, 1, supplier.streams), supplier.operator.info(groups_of(1))
    consumer = empty_like(supplier)
    assert consumer.operator.install(supplier.operator.get(1, 0)) == 1
    after = check_accounts(consumer, [1])[1]
    assert after.tuples == before.tuples and after.depth == before.depth > 1
    assert [bucket._replace(number=0) for bucket in after.buckets] == [
        bucket._replace(number=0) for bucket in before.buckets
    ]
    for one, other in zip(info, consumer.operator.info(groups_of(1))):
        assert one.tolist() == other.tolist()
    supplier.operator.drop(1)
    assert supplier.operator.memory().held == 0 and not supplier.operator.info(groups_of(1)).tuples.any()
    assert supplier.operator.totals.moved_out == consumer.operator.totals.moved_in == (len(rows), len(rows[::2]))


def test_later_reads_bring_only_blocks_that_were_sealed_since():
    supplier, _ = filled(theta=st.THETA_OFF)
    first = supplier.operator.get(1, 0)
    since = transfer.newest(first[-1])
    assert [decode(frame).kind for frame in supplier.operator.get(1, since)] == [TAIL_KIND]
    more = numbered([(2000 + time, time % 40) for time in range(60)], supplier.streams[0], (3,), 1000)
    supplier.round(groups_of(1), more, [], (NEVER, NEVER))
    second = supplier.operator.get(1, since)
    ids = [
        set(np.concatenate([decode(frame).buffers[0] for frame in frames[:-1]]).tolist()) for frames in (first, second)
    ]
    assert ids[1] and not ids[0] & ids[1] and min(ids[1]) > since >= max(ids[0])
    consumer = empty_like(supplier)
    consumer.operator.install(first[:-1] + second)
    assert walk(consumer.state, 1, consumer.streams).tuples == walk(supplier.state, 1, supplier.streams).tuples


def blocks_in(frames):
    """(ids, bytes) of the sealed blocks in frames of a `get`."""
    blocks = [decode(frame).buffers for frame in frames if decode(frame).kind == BLOCKS_KIND]
    numbers = [number for ids, *_ in blocks for number in ids.tolist()]
    return numbers, sum(tuples.nbytes + blob.nbytes for _, _, tuples, blob in blocks)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    data=some.data(),
    block=some.sampled_from([64, 128, 1024]),
    theta=some.sampled_from([60, 300, 2000, st.THETA_OFF]),
    layout=some.tuples(some.integers(0, 2), some.booleans()),
    tuples=some.integers(0, 300),
    is_joined=some.booleans(),
)
def test_any_portions_bring_what_one_get_brings(data, block, theta, layout, tuples, is_joined):
    stream = Stream(1 << 20, *layout)
    supplier, _ = filled(tuples, 40, theta, block, stream)
    frames, since, whole, joined = [], 0, False, 0
    while not whole:
        octets_max = data.draw(some.one_of(some.integers(0, 3000), some.just(1 << 20)))
        portion = supplier.operator.get(1, since, octets_max)
        ids, octets = blocks_in(portion)
        assert octets <= octets_max or len(ids) == 1
        assert all(number > since for number in ids) and len(ids) == len(set(ids))
        since, whole = supplier.operator.reached(portion)
        assert whole == (decode(portion[-1]).kind == TAIL_KIND) and (whole or since == max(ids))
        frames += portion
        if is_joined and not whole and joined < 10:
            joined += 1
            more = numbered([(500 + joined, key) for key in range(12)], stream, (3, 50), 1000 * joined)
            supplier.round(groups_of(1), more, more[::3], (NEVER, NEVER))
    at_once, in_portions = (empty_like(supplier, block=block) for _ in range(2))
    at_once.operator.install(supplier.operator.get(1, 0))
    in_portions.operator.install(frames)
    wanted, found = (check_accounts(holder, [1])[1] for holder in (at_once, in_portions))
    assert found.tuples == wanted.tuples and found.depth == wanted.depth
    assert [one._replace(number=0) for one in found.buckets] == [one._replace(number=0) for one in wanted.buckets]
    infos = [holder.operator.info(groups_of(1)) for holder in (at_once, in_portions)]
    assert [column.tolist() for column in infos[0]] == [column.tolist() for column in infos[1]]


def test_portions_take_the_oldest_blocks_first_and_the_tail_comes_with_the_last():
    supplier, _ = filled(theta=st.THETA_OFF)
    everything, whole_bytes = blocks_in(supplier.operator.get(1, 0))
    ids, since, portions = [], 0, 0
    while True:
        portion = supplier.operator.get(1, since, 1500)
        ids += sorted(blocks_in(portion)[0])
        since, whole = supplier.operator.reached(portion)
        portions += 1
        if whole:
            break
    assert ids == sorted(everything) and portions > 1
    largest = max(blocks_in(supplier.operator.get(1, number - 1, 1))[1] for number in ids)
    assert whole_bytes / 1500 <= portions <= 1 + whole_bytes / (1500 - largest)


def test_blocks_that_expired_after_they_were_shipped_stay_away():
    supplier, rows = filled(theta=st.THETA_OFF)
    shipped = supplier.operator.get(1, 0)
    supplier.expire(groups_of(1), (1200, 1200))
    rest = supplier.operator.get(1, transfer.newest(shipped[-1]))
    consumer = empty_like(supplier)
    consumer.operator.install(shipped[:-1] + rest)
    held = check_accounts(consumer, [1])[1].tuples
    assert held == walk(supplier.state, 1, supplier.streams).tuples
    assert 0 < len(held[0]) < len(rows)


def test_frames_are_cut_at_about_a_mebibyte():
    harness = Harness([Stream(9), Stream(9)], memory=1 << 24)
    harness.round(groups_of(0), numbered([(0, key) for key in range(100_000)]), [], (0, 0))
    sizes = [len(frame) for frame in harness.operator.get(0, 0)]
    assert len(sizes) == 4 and max(sizes) < transfer.FRAME_BYTES + 8192


def test_a_group_that_was_never_used_moves_as_well_and_comes_back():
    supplier, consumer = (Harness([Stream(9), Stream(9)], 2) for _ in range(2))
    consumer.expire(groups_of(0, 1), (5, 5))
    supplier.expire(groups_of(0), (30, 40))
    for one, other in ((supplier, consumer), (consumer, supplier)):
        assert other.operator.install(one.operator.get(0, 0)) == 0
        one.operator.drop(0)
        one.operator.drop(0)
        assert other.operator.info(groups_of(0)).watermarks.tolist() == [[30, 40]]
    supplier.round(groups_of(0), *[numbered([(1, 0), (2, 1)])] * 2, (EVER, EVER))
    assert consumer.operator.get(1, 0) and supplier.operator.get(1, 0)


def test_a_group_takes_its_fresh_tuples_along():
    supplier, consumer = (Harness([Stream(9), Stream(9)]) for _ in range(2))
    for stream in range(2):
        supplier.insert(groups_of(0), stream, numbered([(1, 1)]))
    consumer.operator.install(supplier.operator.get(0, 0))
    supplier.operator.drop(0)
    consumer.probe(groups_of(0))
    assert consumer.row_pairs() == {(0, 0): 1}


def edited(frame, **meta):
    """The frame with other facts, or with buffer i replaced by what `buffer_i` makes of it."""
    kind, facts, buffers = decode(frame)
    changes = {int(name[7:]): meta.pop(name) for name in list(meta) if name.startswith("buffer_")}
    buffers = [changes[i](buffer.copy()) if i in changes else buffer for i, buffer in enumerate(buffers)]
    return encode(meta.pop("kind", kind), {**facts, **meta}, buffers)


def plus(amount, at=0):
    def change(buffer):
        buffer.reshape(-1)[at] += amount
        return buffer

    return change


DAMAGE = {
    "no frame": (lambda frames: [], ProtocolError, "without a frame"),
    "no tail": (lambda frames: frames[:-1], ProtocolError, f"kind {BLOCKS_KIND}, wanted {TAIL_KIND}"),
    "a frame is missing": (lambda frames: frames[1:], ProtocolError, "partition 1: .* blocks did not come"),
    "a frame came twice": (lambda frames: frames[:1] + frames, ProtocolError, "came twice"),
    "cut short": (lambda frames: [frames[0][:-8], *frames[1:]], CodecError, "but it says"),
    "another kind": (lambda frames: [edited(frames[0], kind=3), *frames[1:]], ProtocolError, "kind 3, wanted 16"),
    "another group": (
        lambda frames: [edited(frames[0], group=0), *frames[1:]],
        ProtocolError,
        "partition 0 came among those of 1",
    ),
    "no such group": (
        lambda frames: [*frames[:-1], edited(frames[-1], group=2)],
        ProtocolError,
        "wanted one of 0 to 1",
    ),
    "no group at all": (
        lambda frames: [*frames[:-1], edited(frames[-1], group="1")],
        CodecError,
        "group is '1', wanted an integer",
    ),
    "another stream": (
        lambda frames: [edited(frames[0], stream=1), *frames[1:]],
        ProtocolError,
        "chains of their stream",
    ),
    "no such stream": (
        lambda frames: [edited(frames[0], stream=2), *frames[1:]],
        ProtocolError,
        "stream 2, wanted one of 0 to 1",
    ),
    "half a block": (
        lambda frames: [edited(frames[0], buffer_1=plus(-1), buffer_2=lambda tuples: tuples[1:]), *frames[1:]],
        ProtocolError,
        "blocks of .* tuples, wanted",
    ),
    "counts that do not add up": (
        lambda frames: [edited(frames[0], buffer_1=plus(1)), *frames[1:]],
        CodecError,
        "differ",
    ),
    "blobs that do not add up": (
        lambda frames: [edited(frames[0], buffer_3=lambda blob: blob[1:]), *frames[1:]],
        CodecError,
        "blobs of",
    ),
    "narrower tuples": (
        lambda frames: [edited(frames[0], buffer_2=lambda tuples: tuples[:, 1:]), *frames[1:]],
        ProtocolError,
        "wanted 6 words each",
    ),
    "other buffers": (
        lambda frames: [edited(frames[0], buffer_0=lambda ids: ids.astype(np.int32)), *frames[1:]],
        CodecError,
        "holds",
    ),
    "a wrong depth": (
        lambda frames: [*frames[:-1], edited(frames[-1], depth=1)],
        ProtocolError,
        "do not fill a directory",
    ),
    "a wrong prefix": (
        lambda frames: [*frames[:-1], edited(frames[-1], buffer_0=plus(1 << 16))],
        ProtocolError,
        "do not fill",
    ),
    "a bucket less": (
        lambda frames: [*frames[:-1], edited(frames[-1], buffer_0=lambda some: some[1:])],
        CodecError,
        "chains of",
    ),
    "falling ends": (
        lambda frames: [*frames[:-1], edited(frames[-1], buffer_1=plus(10**6))],
        ProtocolError,
        "wanted rising numbers",
    ),
    "shifted chains": (
        lambda frames: [*frames[:-1], edited(frames[-1], buffer_1=plus(1))],
        ProtocolError,
        "chains of their stream",
    ),
    "a block named twice": (
        lambda frames: [*frames[:-1], edited(frames[-1], buffer_2=lambda order: order[[0, 0, *range(2, len(order))]])],
        ProtocolError,
        "came twice",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_or_missing_frames_are_refused_and_nothing_changes(name):
    damage, error, message = DAMAGE[name]
    supplier, _ = filled()
    consumer = empty_like(supplier)
    consumer.expire(groups_of(0, 1), (3, 4))
    before = [array.copy() for array in (consumer.state.pool, consumer.state.counters, consumer.state.groups)]
    frames = supplier.operator.get(1, 0)
    with pytest.raises(error, match=message):
        consumer.operator.install(damage(frames))
    after = consumer.state.pool, consumer.state.counters, consumer.state.groups
    assert all(np.array_equal(*both) for both in zip(before, after))
    consumer.operator.install(frames)
    check_accounts(consumer, [0, 1])


def test_with_a_checksum_no_bit_may_be_wrong():
    supplier, _ = filled()
    frames = transfer.get(supplier.state, 1, 0, checksum=True)
    empty_like(supplier).operator.install(frames)
    frames[0][-1] ^= 1
    with pytest.raises(CodecError, match="checksum"):
        empty_like(supplier).operator.install(frames)


def test_a_group_that_is_held_here_is_refused():
    supplier, _ = filled()
    with pytest.raises(ProtocolError, match="partition 1 came, but tuples of it are held here"):
        supplier.operator.install(supplier.operator.get(1, 0))


@pytest.mark.parametrize("pages", [1, 40, 200])
def test_memory_is_checked_before_anything_changes(pages):
    supplier, _ = filled()
    consumer = empty_like(supplier, memory=256 * pages)
    with pytest.raises(MemoryBudgetError, match=f"partition 1 needs .* of the {256 * pages} that"):
        consumer.operator.install(supplier.operator.get(1, 0))
    assert consumer.operator.memory().held == 0 and not consumer.state.groups.any()


def test_room_for_the_directory_is_checked_too():
    supplier, _ = filled(tuples=20, theta=30, keys=20, block=1024, stream=Stream(1000))
    consumer = empty_like(supplier, memory=1024 * 40, block=1024)
    consumer.state.counters[st.UNUSED_BUCKET] = len(consumer.state.buckets) - 1
    with pytest.raises(MemoryBudgetError, match="no room for a directory"):
        consumer.operator.install(supplier.operator.get(1, 0))
    consumer.state.counters[st.UNUSED_BUCKET] = 0
    consumer.state.counters[st.UNUSED_ENTRY] = len(consumer.state.directory)
    with pytest.raises(MemoryBudgetError, match="no room for a directory"):
        consumer.operator.install(supplier.operator.get(1, 0))
    assert not consumer.state.groups.any()
