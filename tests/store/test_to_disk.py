"""A group goes to a disk as a whole, and comes back as it was: as one frame, or ahead of its tail if it is large."""

import numpy as np
import pytest

import oracle
from join_harness import Harness, Stream, check_accounts, groups_of, numbered, walk
from mpijoin.data.codec import decode, encode, seal
from mpijoin.errors import CodecError, MemoryBudgetError, ProtocolError
from mpijoin.operators.base import Left
from mpijoin.store import state as st
from mpijoin.store import transfer

STREAMS = [Stream(1000, 1, True), Stream(1000, 2, False, True), Stream(500)]


def filled(theta=600):
    """A holder of one group of two, with a directory, and some flags."""
    harness = Harness(STREAMS, 2, 1 << 22, 256, theta)
    parts = [numbered([(time, time % 40) for time in range(300)], stream, (0, 7, 300)) for stream in STREAMS]
    parts = [[row for row in rows if oracle.partition(row.key, 2) == 1] for rows in parts]
    harness.round_of(groups_of(1), parts, (50, 60, 70))
    return harness


def on_disk(harness):
    return [frame.copy() for frame in harness.operator.to_disk(1)]


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("theta", [600, st.THETA_OFF])
@pytest.mark.parametrize("whole_bytes", [0, 1 << 22])
def test_a_group_comes_back_as_it_left(monkeypatch, whole_bytes, theta, own):
    monkeypatch.setattr(transfer, "WHOLE_BYTES", whole_bytes)
    harness = filled(theta)
    before, info = walk(harness.state, 1, STREAMS), harness.operator.info(groups_of(1))
    frames = on_disk(harness)
    assert (len(frames) == 1) == (whole_bytes > 0)
    harness.operator.drop(1, Left.SPILLED)
    assert harness.operator.memory().held == 0
    harness.operator.from_disk(frames, own)
    after = check_accounts(harness, [1])[1]
    assert after.tuples == before.tuples and after.depth == before.depth
    for one, other in zip(info, harness.operator.info(groups_of(1))):
        assert one.tolist() == other.tolist()
    totals = harness.operator.totals
    assert totals.spilled == totals.taken_back == tuple(map(len, before.tuples)) and not any(totals.moved_in)


def test_each_frame_uses_the_memory_of_the_one_before(monkeypatch):
    monkeypatch.setattr(transfer, "WHOLE_BYTES", 0)
    starts = {frame.ctypes.data for frame in filled().operator.to_disk(1)}
    assert len(starts) <= 2  # It is taken anew if a later frame is longer.


def test_what_this_slave_has_not_written_is_checked_as_a_whole():
    harness = filled()
    (frame,) = on_disk(harness)
    kind, meta, buffers = decode(frame)
    order = buffers[transfer.ORDER].copy()
    order[0] += 1 << 40
    other = encode(kind, meta, [*buffers[: transfer.ORDER], order, *buffers[transfer.ORDER + 1 :]], checksum=True)
    harness.operator.drop(1, Left.SPILLED)
    with pytest.raises(ProtocolError, match="1 of .* blocks did not come"):
        harness.operator.from_disk([other], own=False)
    assert not any(harness.operator.totals.taken_back)


@pytest.mark.parametrize("own", [False, True])
def test_damage_on_the_disk_is_noticed(own):
    harness = filled()
    (frame,) = on_disk(harness)
    harness.operator.drop(1, Left.SPILLED)
    frame[-9] ^= 1
    with pytest.raises(CodecError, match="checksum"):
        harness.operator.from_disk([frame], own)
    harness.operator.from_disk([seal(frame)], own=True)


def test_memory_is_checked_before_a_group_comes_back():
    harness = filled()
    frames = on_disk(harness)
    harness.operator.drop(1, Left.SPILLED)
    harness.operator.limit(8 * 256)
    with pytest.raises(MemoryBudgetError, match="partition 1 needs"):
        harness.operator.from_disk(frames, own=True)
    harness.operator.limit(1 << 22)
    harness.operator.from_disk(frames, own=True)
    assert np.array_equal(harness.operator.totals.spilled, harness.operator.totals.taken_back)
