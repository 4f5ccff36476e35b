"""A slave's part of a checkpoint: what is written, what is not written again, and what a failing disk costs."""

import builtins
import errno
import os

import numpy as np
import pytest

import oracle
from join_harness import NEVER, Harness, Stream, groups_of, numbered, walk
from mpijoin.checkpoint.manifest import state_name
from mpijoin.checkpoint.restore import install
from mpijoin.checkpoint.saver import Outcome, Saver
from mpijoin.store import transfer

STREAMS = [Stream(window=1000, has_blob=True), Stream(window=1000)]
PARTITIONS = 3
GROUPS = tuple(range(PARTITIONS))


def holder():
    return Harness(STREAMS, PARTITIONS, block=200)


def join(held, start, stop, expired=NEVER, groups=GROUPS):
    """Both streams' tuples of the times start ... stop - 1."""
    sides = [numbered([(at, at % 7) for at in range(start, stop)], stream, (3, 80), start) for stream in STREAMS]
    held.round(groups_of(*groups), *sides, (expired, expired))


def save(own, number, groups=GROUPS, sync_results=lambda: None):
    """One checkpoint; returns what a `Saved` would say of it."""
    own.begin(number, groups)
    while own.save_next():
        pass
    own.finish(sync_results)
    while (told := own.poll()) is None:
        pass
    return told


def spans_of(told):
    return {group: list(spans) for group, _, spans in told.groups}


def content(held, groups=GROUPS):
    """Per group all tuples of both streams, in any order."""
    return {group: [sorted(side) for side in walk(held.state, group, STREAMS).tuples] for group in groups}


def taken_out(folder, told):
    other = holder()
    install(folder, other.operator, told.groups)
    return other


@pytest.fixture
def held():
    made = holder()
    join(made, 0, 200)
    return made


@pytest.fixture
def own(held, tmp_path):
    return Saver(held.operator, 1, tmp_path)


def test_what_was_saved_is_what_another_takes_out(held, own, tmp_path):
    told = save(own, 1)
    assert content(taken_out(tmp_path, told)) == content(held)
    assert [path.name for path in tmp_path.iterdir()] == [state_name(1, 1)]
    assert told.octets == (tmp_path / state_name(1, 1)).stat().st_size
    assert [alive for _, alive, _ in told.groups] == held.operator.info(np.array(GROUPS)).live_bytes.sum(
        axis=1
    ).tolist()


def test_sealed_blocks_are_written_once(held, own, tmp_path):
    first = save(own, 1)
    again = save(own, 2)
    assert again.octets < first.octets / 3
    join(held, 200, 260)
    third = save(own, 3)
    before, after = spans_of(first), spans_of(third)
    for group in GROUPS:
        assert after[group][: len(before[group]) - 1] == before[group][:-1], (
            "the frames of sealed blocks are those of before"
        )
        assert {span.file for span in after[group][len(before[group]) - 1 :]} == {state_name(1, 3)}
        newer = [transfer.blocks_of(frame) for frame in held.operator.get(group, own._known[group].since)[:-1]]
        assert not newer, "and nothing sealed is left to be written"
    assert content(taken_out(tmp_path, third)) == content(held)


def test_frames_of_which_all_blocks_expired_are_listed_no_more(held, own, tmp_path):
    for number in range(1, 8):
        told = save(own, number)
        join(held, 200 * number, 200 * (number + 1), 200 * number + 800)  # of the last 400 some are alive
    first, last = spans_of(save(own, 8)), spans_of(told)
    for spans in (first, last):
        assert all(span.file != state_name(1, 1) for group in GROUPS for span in spans[group])
    assert content(taken_out(tmp_path, save(own, 9))) == content(held)


def test_a_group_of_which_less_than_half_is_alive_is_written_anew(held, own, tmp_path, monkeypatch):
    # so that one frame holds blocks that live and blocks that do not
    monkeypatch.setattr(transfer, "FRAME_BYTES", 1 << 30)
    save(own, 1)
    join(held, 200, 210, 1060)  # everything before 60 goes, of 200: more than half stays
    told = save(own, 2)
    assert any(span.file == state_name(1, 1) for span in spans_of(told)[0])
    join(held, 210, 220, 1150)
    told = save(own, 3)
    assert {span.file for spans in spans_of(told).values() for span in spans} == {state_name(1, 3)}
    assert content(taken_out(tmp_path, told)) == content(held)
    assert save(own, 4).octets < told.octets, "and from then on the new frames are kept"


def test_a_group_that_left_and_came_back_between_two_checkpoints_is_whole(held, own, tmp_path):
    save(own, 1)
    other = holder()
    for start in (200, 300):
        other.operator.install(held.operator.get(0, 0))
        held.operator.drop(0)
        join(other, start, start + 50, groups=(0,))
        held.operator.install(other.operator.get(0, 0))
        other.operator.drop(0)
        join(held, start + 50, start + 100)
        told = save(own, start)
        assert content(taken_out(tmp_path, told)) == content(held)


def test_a_group_that_is_away_at_a_checkpoint_is_saved_whole_when_it_is_back(held, own, tmp_path):
    save(own, 1)
    away = spans_of(save(own, 2, groups=(1, 2)))
    told = save(own, 3)
    assert set(away) == {1, 2} and {span.file for span in spans_of(told)[0]} == {state_name(1, 3)}
    assert content(taken_out(tmp_path, told)) == content(held)


def test_a_slave_without_groups_saves_none(own, tmp_path):
    assert save(own, 1, ()) == Outcome()


def test_a_group_that_was_never_begun_is_saved_empty(tmp_path):
    empty = holder()
    told = save(Saver(empty.operator, 1, tmp_path), 1)
    other = taken_out(tmp_path, told)
    assert other.operator.totals.held == (0, 0)
    join(other, 0, 50)
    assert other.pairs and all(oracle.partition(left.key, PARTITIONS) in GROUPS for left, _ in other.pairs)


def refuse(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def failing(step, tmp_path, monkeypatch):
    """Lets the disk be full at a step of the next checkpoint."""
    if step == "open":
        real = builtins.open
        monkeypatch.setattr(
            builtins,
            "open",
            lambda path, *args, **named: refuse() if ".state" in str(path) else real(path, *args, **named),
        )
    elif step == "write":
        monkeypatch.setattr("mpijoin.checkpoint.files.write_all", refuse)
    elif step == "sync":
        monkeypatch.setattr("mpijoin.checkpoint.files.os.fsync", refuse)
    else:
        monkeypatch.setattr("mpijoin.checkpoint.files.os.rename", refuse)


@pytest.mark.parametrize("step", ["open", "write", "sync", "rename"])
def test_a_failing_disk_is_told_and_harms_neither_the_checkpoint_before_nor_the_next(
    held, own, tmp_path, monkeypatch, step
):
    before, held_before = save(own, 1), content(held)
    join(held, 200, 250)
    with monkeypatch.context() as patch:
        failing(step, tmp_path, patch)
        told = save(own, 2)
    assert told == Outcome(fault=told.fault)
    assert f"{state_name(1, 2)}: cannot be written: No space left on device" in told.fault
    assert [path.name for path in tmp_path.iterdir()] == [state_name(1, 1)]
    assert content(taken_out(tmp_path, before)) == held_before
    join(held, 250, 300)
    after = save(own, 3)
    assert {span.file for spans in spans_of(after).values() for span in spans} == {state_name(1, 3)}, (
        "it is complete by itself"
    )
    assert content(taken_out(tmp_path, after)) == content(held)


def test_results_are_on_disk_before_the_checkpoint_has_its_name(own, tmp_path):
    synced = []
    save(own, 1, sync_results=lambda: synced.append((tmp_path / state_name(1, 1)).exists()))
    assert synced == [False]


def test_results_that_cannot_be_synced_spoil_the_checkpoint(own, tmp_path):
    told = save(own, 1, sync_results=lambda: os.stat(tmp_path / "gone.parquet"))
    assert "gone.parquet" in told.fault and list(tmp_path.iterdir()) == []
