"""What is spilled: the rows of a group as frames, the group emptied for its next generation, and what comes back."""

import numpy as np
import pytest

import oracle
from join_harness import EVER, NEVER, Harness, Stream, check_accounts, groups_of, numbered
from mpijoin.data.codec import decode, encode
from mpijoin.errors import CodecError, ProtocolError
from mpijoin.operators.base import Progress
from mpijoin.store import state as st
from mpijoin.store.pool import StreamSpec
from mpijoin.store.rows import PLACES, ROWS_KIND, between, key_places, rows_of
from mpijoin.store.transfer import FRAME_BYTES

STREAM = Stream(1000, 1, True, True)
SPECS_WITHOUT_BLOBS = (StreamSpec(0, False, 9),) * 2
SPECS = (StreamSpec(1, True, 1000, True), StreamSpec(1, True, 1000, True))


def filled(tuples=400, keys=60):
    """A holder of one group with a directory, and the rows of its streams."""
    harness = Harness([STREAM, STREAM], 1, 1 << 24, 256, 600)
    rows = numbered([(time, time % keys) for time in range(tuples)], STREAM, (0, 7, 300))
    harness.round(groups_of(0), rows, rows[::2], (NEVER, NEVER))
    return harness, rows


def frames_of(batches):
    """All frames of batches that have no more than one."""
    return [frame for batch in batches for frame in batch.frames]


def first_frame():
    return frames_of(filled()[0].operator.rows(groups_of(0)))[0]


def test_frames_hold_all_rows_once_and_say_what_they_hold():
    harness, rows = filled()
    (found,) = [rows_of(frame.data, SPECS) for frame in frames_of(harness.operator.rows(groups_of(0)))]
    assert (found.group, found.generation) == (0, 0)
    for (tuples, blob), span, own in zip(found.fresh, found.spans.tolist(), (rows, rows[::2])):
        assert span == [len(own), 0, own[-1].time]
        assert read_of(tuples, blob) == {row.row: (row.time, row.key, row.record, row.blob) for row in own}


def test_a_frame_is_what_the_codec_makes_of_its_parts_whatever_was_in_its_memory_before():
    operator = filled()[0].operator
    (before,) = operator.rows(groups_of(0))
    before.data[:] = 255
    (found,) = frames_of(operator.rows(groups_of(0)))
    assert found.data.tobytes() == encode(ROWS_KIND, {}, decode(found.data).buffers, checksum=True).tobytes()


def read_of(tuples, blob):
    return {
        row: (time, key, (record,), blob[at : at + size].tobytes())
        for key, time, row, at, size, record in tuples.tolist()
    }


def test_rows_of_which_fresh_ones_lie_in_the_same_block_have_their_own_blobs_and_times():
    """A clean-up writes what it has joined, after rows of another class did not all find room."""
    harness = Harness([STREAM, STREAM], 1, 1 << 24, 4096)
    old = [numbered([(time, 1) for time in (20, 30, 40)], STREAM, (0, 5, 70), first_row=10 * side) for side in range(2)]
    fresh = [numbered([(time, 1) for time in (10, 50)], STREAM, (9, 8), first_row=10 * side + 5) for side in range(2)]
    for side in range(2):
        harness.insert(groups_of(0), side, old[side])
    harness.operator.settle(groups_of(0))
    for side in range(2):
        harness.insert(groups_of(0), side, fresh[side])
    (found,) = [rows_of(frame.data, SPECS) for frame in harness.operator.joined_rows(0, 3)]
    assert found.spans.tolist() == [[3, 20, 40]] * 2
    assert len(found.blob) == sum(len(row.blob) for rows in old for row in rows)
    for (tuples, blob), own in zip(found.fresh, old):
        assert read_of(tuples, blob) == {row.row: (row.time, row.key, row.record, row.blob) for row in own}


def test_frames_are_cut_at_about_a_mebibyte_and_come_one_at_a_time():
    harness = Harness([Stream(9), Stream(9)], memory=1 << 24)
    sides = numbered([(0, key) for key in range(90_000)]), numbered([(0, -1)] * 10_000)
    harness.round(groups_of(0), *sides, (0, 0))
    batches = harness.operator.rows(groups_of(0))
    found = [rows_of(frame.data.copy(), SPECS_WITHOUT_BLOBS) for batch in batches for frame in batch.frames]
    assert len(found) == 3 and max(len(one.data) for one in found) < FRAME_BYTES + 8192
    assert sum(one.spans[:, 0] for one in found).tolist() == [90_000, 10_000]
    assert [one.spans[1].tolist() for one in found[:2]] == [[0, EVER, NEVER]] * 2
    assert next(batches, None) is None


def test_an_emptied_group_keeps_its_shape_and_statistics_and_begins_a_generation():
    harness, rows = filled()
    harness.expire(groups_of(0), (50, 60))
    before = harness.operator.info(groups_of(0))
    assert before.outputs == before.results == harness.out.found > 0
    harness.operator.empty(groups_of(0))
    after = harness.operator.info(groups_of(0))
    assert check_accounts(harness, [0])[0].tuples == ([], []) and harness.operator.memory().held == 0
    assert after.buckets == before.buckets > 8 and after.depth == before.depth
    assert after.watermarks.tolist() == [[50, 60]] and after.results == before.results
    assert after.generations == 1 and after.outputs == 0
    assert harness.operator.totals.spilled == (len(rows), len(rows) // 2) == harness.operator.totals.joined
    harness.round(groups_of(0), rows, [], (NEVER, NEVER))
    assert harness.operator.info(groups_of(0)).buckets >= before.buckets, "nothing is merged before something expires"
    assert [frame.generation for frame in frames_of(harness.operator.rows(groups_of(0)))] == [1]


def test_directories_of_emptied_groups_never_take_all_buckets():
    harness = Harness([Stream(9), Stream(9)], 40, 300 * 64, 64, 1)
    for group in range(40):
        keys = [key for key in range(2000) if oracle.partition(key, 40) == group]
        harness.round(groups_of(group), numbered([(0, key) for key in keys]), [], (NEVER, NEVER))
        harness.operator.empty(groups_of(group))
    buckets = harness.operator.info(groups_of(*range(40))).buckets
    assert buckets[0] > 20 and buckets[-1] == 1
    assert buckets.sum() <= harness.state.counters[st.UNUSED_BUCKET] <= 2 * len(harness.state.buckets) // 3
    check_accounts(harness, range(40))


def test_the_generation_s_outputs_go_along_with_a_group():
    harness, rows = filled()
    harness.operator.empty(groups_of(0))
    harness.round(groups_of(0), rows[:20], rows[:20], (NEVER, NEVER))
    other, _ = filled(0)
    other.operator.install(harness.operator.get(0, 0))
    for one in (harness, other):
        info = one.operator.info(groups_of(0))
        assert 0 < info.outputs < info.results and info.generations == 1
    assert other.operator.info(groups_of(0)).outputs == harness.operator.info(groups_of(0)).outputs


def test_settled_tuples_are_old_and_meet_what_comes_after():
    harness = Harness([Stream(9), Stream(9)])
    for stream in range(2):
        harness.insert(groups_of(0), stream, numbered([(1, 1)]))
    harness.operator.settle(groups_of(0))
    harness.probe(groups_of(0))
    assert not harness.pairs
    harness.insert(groups_of(0), 1, numbered([(2, 1)], first_row=5))
    harness.probe(groups_of(0))
    assert harness.row_pairs() == {(0, 5): 1}
    check_accounts(harness, [0])


def test_a_group_with_fresh_tuples_or_under_a_probe_is_not_spilled():
    harness = Harness([Stream(10**6), Stream(10**6)], 1, 1 << 22, 64)
    for stream in range(2):
        harness.insert(groups_of(0), stream, numbered([(time, 7) for time in range(60)]))
    calls = (lambda: harness.operator.rows(groups_of(0)), lambda: harness.operator.empty(groups_of(0)))
    for call in calls:
        with pytest.raises(ProtocolError, match="partition 0 holds fresh tuples: wanted it probed"):
            call()
    assert harness.operator.probe(groups_of(0), 100, harness.out) is Progress.BUDGET
    for call in (*calls, lambda: harness.operator.settle(groups_of(0))):
        with pytest.raises(ProtocolError, match="while a probe is under way"):
            call()


def test_a_block_that_expires_is_kept_if_it_begins_in_time():
    harness, rows = filled()
    operator, blocks = harness.operator, harness.operator.info(groups_of(0)).blocks[0]
    assert len(operator.kept()) == 0
    operator.keep_until(groups_of(0), np.array([[100, NEVER]]))
    harness.expire(groups_of(0), (1 << 40, 1 << 40))
    assert operator.kept().tolist() == [0]
    (found,) = [rows_of(frame.data, SPECS) for frame in frames_of(operator.kept_rows(groups_of(0)))]
    kept = set(found.fresh[0].tuples[:, st.ROW].tolist())
    assert found.spans[1, 0] == 0 and {row.row for row in rows if row.time <= 100} <= kept
    assert operator.totals.held == (len(kept), 0) and operator.totals.expired == (400 - len(kept), 200)
    info = operator.info(groups_of(0))
    assert info.tuples.tolist() == [[0, 0]] and 0 < info.blocks[0] < blocks
    assert operator.memory().held == info.blocks[0] * harness.operator._pool.page_bytes
    check_accounts(harness, [0])
    operator.drop_kept(groups_of(0))
    assert operator.totals.spilled == (len(kept), 0) and operator.totals.held == (0, 0)
    assert operator.memory().held == 0 and len(operator.kept()) == 0
    check_accounts(harness, [0])


@pytest.mark.parametrize("until, kept", [(99, 0), (100, 1), (NEVER, 0)])
def test_a_bound_is_the_last_time_that_is_kept(until, kept):
    harness = Harness([Stream(9), Stream(9)])
    harness.round(groups_of(0), numbered([(100, 1)]), [], (NEVER, NEVER))
    harness.operator.keep_until(groups_of(0), np.array([[until, EVER]]))
    harness.expire(groups_of(0), (EVER, EVER))
    assert len(harness.operator.kept()) == kept and harness.operator.totals.held == (kept, 0)


def test_kept_blocks_are_of_the_generation_in_which_they_came():
    harness, rows = filled(200)
    harness.operator.keep_until(groups_of(0), np.array([[150, 150]]))
    harness.expire(groups_of(0), (1100, 1100))
    harness.operator.empty(groups_of(0))
    harness.round(groups_of(0), rows[:50], [], (EVER, EVER))
    first, second = [rows_of(frame.data, SPECS) for frame in frames_of(harness.operator.kept_rows(groups_of(0)))]
    assert (first.generation, second.generation) == (0, 1)
    assert first.spans[:, 0].all() and second.spans[:, 0].tolist() == [50, 0]
    assert harness.operator.totals.spilled[0] + first.spans[0, 0] == 200


def test_a_group_with_kept_blocks_neither_moves_nor_goes():
    harness, rows = filled(200)
    frames = harness.operator.get(0, 0)
    harness.operator.keep_until(groups_of(0), np.array([[150, 150]]))
    harness.expire(groups_of(0), (EVER, EVER))
    for call in (lambda: harness.operator.get(0, 0), lambda: harness.operator.drop(0)):
        with pytest.raises(ProtocolError, match="partition 0 has kept blocks: wanted them on a disk"):
            call()
    with pytest.raises(ProtocolError, match="tuples of it are held here"):
        harness.operator.install(frames)
    harness.operator.drop_kept(groups_of(0))
    other, _ = filled(0)
    other.operator.install(harness.operator.get(0, 0))
    other.insert(groups_of(0), 0, rows[100:103])
    other.probe(groups_of(0))
    other.expire(groups_of(0), (EVER, EVER))
    assert other.operator.kept().tolist() == [0], "the times until which blocks are kept went along"


def test_every_key_has_its_place_whatever_its_partition():
    """The keys of one of 1,000 partitions are spread over all places, as if they were of all."""
    keys = [key for key in range(400_000) if oracle.partition(key, 1000) == 3]
    tuples = np.array([[key, 0, key] for key in keys])
    places = key_places(tuples)
    assert ((0 <= places) & (places < PLACES)).all()
    counts = np.bincount(places // (PLACES // 4), minlength=4)
    assert counts.min() > 0.7 * len(keys) / 4
    middle = sorted(places.tolist())[len(keys) // 2]  # This is some key's own place.
    halves = [between(tuples, *part) for part in ((0, middle), (middle, PLACES))]
    assert sorted(np.concatenate(halves)[:, 0].tolist()) == sorted(keys) and min(map(len, halves)) > 100
    assert between(tuples, 0, PLACES) is tuples


def same(array):
    return array


def edited(frame, head=same, words=same, blob=same, kind=ROWS_KIND):
    """The frame with its parts changed, or of another kind."""
    changes = zip((head, words, blob), decode(frame.data).buffers)
    return encode(kind, {}, [change(part.copy()) for change, part in changes])


def poke(word, value):
    """Changes a word of the second tuple of stream 1, which is behind 400 tuples of stream 0."""

    def change(words):
        words.reshape(-1, SPECS[0].tuple_words)[401, word] = value
        return words

    return change


@pytest.mark.parametrize(
    "change, error, says",
    [
        (dict(kind=16), ProtocolError, f"kind 16, wanted {ROWS_KIND}"),
        (dict(head=lambda head: head[:2]), ProtocolError, "rows of 1 streams, wanted 2"),
        (dict(head=lambda head: head[:, :3].copy()), ProtocolError, "rows of 2 streams, wanted 2 with 4 words each"),
        (dict(head=lambda head: head.reshape(-1)), ProtocolError, "streams, wanted 2 with 4 words each"),
        (dict(words=lambda words: words[:-1]), CodecError, "3599 words and .* its streams 3600"),
        (dict(words=lambda words: words.reshape(-1, 6)), CodecError, "parts of 2, 2 and 1 dimensions"),
        (dict(blob=lambda blob: blob[1:]), CodecError, "bytes of blobs, but its streams"),
        (dict(head=lambda head: -head), CodecError, "says that it has .*-400"),
        (dict(head=lambda head: head - [0, 1, 0, 0]), CodecError, "times from 0 to 399, but says -1 to 399"),
        (dict(words=poke(st.SIZE, -1)), CodecError, "blobs beyond"),
        (dict(words=poke(st.SIZE, 1 << 62)), CodecError, "blobs beyond"),
        (dict(words=poke(st.ADDRESS, (1 << 63) - 1)), CodecError, "blobs beyond"),
    ],
)
def test_what_is_no_frame_of_rows_of_this_join_is_refused(change, error, says):
    frame = first_frame()
    with pytest.raises(error, match=says):
        rows_of(edited(frame, **change), SPECS)


def test_a_flipped_bit_is_noticed():
    frame = first_frame().data
    frame[-1] ^= 1
    with pytest.raises(CodecError, match="checksum"):
        rows_of(frame, SPECS)
