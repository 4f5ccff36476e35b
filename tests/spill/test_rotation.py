"""Rotation (Flux, section 6.1): which group leaves memory, which is activated, and when; and pending input comes in its
order, before anything newer."""

import math
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest

import mpijoin
from mpijoin.checkpoint.restore import install
from mpijoin.checkpoint.saver import Saver
from mpijoin.errors import CheckpointError
from mpijoin.join.window_join import window_join
from mpijoin.messages import Columns, Piece, Slot
from mpijoin.operators.base import Out, Progress, Taken
from mpijoin.slave.batches import Batches
from mpijoin.slave.core import PROBE_BUDGET, SLICE_ROWS
from mpijoin.slave.events import (
    Arrived,
    Consume,
    Divert,
    Diverted,
    EndInput,
    EndMessage,
    Expire,
    Expired,
    Insert,
    Inserted,
    Marked,
    Ordered,
    Probe,
    Probed,
    Rotate,
    Rotated,
    Save,
    SaveDone,
)
from mpijoin.slave.inserting import Inserter
from mpijoin.slave.rotating import RotatingCore
from mpijoin.slave.rule import SpillRule
from mpijoin.spill import rotator
from mpijoin.spill.rotation import Rotation
from mpijoin.spill.rotator import Rotator
from mpijoin.spill.runs import Runs
from mpijoin.spill.scratch import open_scratch
from mpijoin.time_events import Rest, Ticked

RULE = SpillRule(0.9, 0.3, "largest", 64, True, rotates=True)
DONE = Progress.DONE
STREAMS = ((1, False, 1000), (1, True, 1000))


def rotation_of(*groups, gap_s=None, on_disk=()):
    rotation = Rotation(gap_s)
    rotation.holds(groups)
    for group in on_disk:
        rotation.wrote(group)
        rotation.has_pending(group)
    return rotation


def test_both_queues_are_first_in_first_out():
    """ "The first partition in the in-memory queue is extracted via getPartitionState(), written to disk, and added to
    bottom of the on-disk queue. Then, the first on-disk partition is read, added to the bottom of the in-memory queue,
    and then installed or activated" """
    rotation, order = rotation_of(1, 2, 3, 4, on_disk=(1, 2)), []
    for turn in range(4):
        leaving = next(rotation.victims(()))
        rotation.wrote(leaving)
        rotation.has_pending(leaving)
        coming = rotation.due(float(turn), at_once=True)
        rotation.activated(coming, turn, turn)
        order.append((leaving, coming))
    assert order == [(3, 1), (4, 2), (1, 3), (2, 4)]


def test_a_group_is_activated_once_the_gap_is_over():
    """ "If the most recently activated partition has been active for longer than time t_gap, then the policy initiates
    a swap" """
    rotation = rotation_of(1, 2, gap_s=5.0, on_disk=(1, 2))
    assert rotation.due(0.0) == 1  # none was activated before
    rotation.activated(1, 0.0, 2.0)
    assert rotation.due(7.0) is None and rotation.due(7.01) == 2 and rotation.due(2.0, at_once=True) == 2


def test_the_gap_is_the_time_that_the_last_activation_took():
    """ "we set t_gap equal to the time taken to read in the previously activated partition" """
    rotation = rotation_of(1, 2, 3, on_disk=(1, 2, 3))
    rotation.activated(1, 10.0, 13.0)
    assert rotation.due(16.0) is None and rotation.due(16.1) == 2
    rotation.activated(2, 20.0, 20.5)
    assert rotation.due(20.9) is None and rotation.due(21.1) == 3


def test_fixed_groups_stay_and_those_without_input_are_passed_over():
    rotation = rotation_of(1, 2, 3)
    rotation.wrote(1)
    assert list(rotation.victims({2})) == [3] and rotation.due(0.0, at_once=True) is None
    rotation.wrote(3)
    rotation.has_pending(3)
    assert rotation.due(0.0) == 3 and rotation.is_inactive(1)
    rotation.holds([1, 3, 5])  # 2 has moved away, 5 has come
    assert list(rotation.victims(())) == [5]


def core_at_rest():
    return RotatingCore(False, RULE)


def arrived(*groups, last=False):
    return Arrived(0, 24, np.array(groups), np.full(len(groups), 3), last)


def test_pending_input_is_joined_before_the_message():
    core = core_at_rest()
    assert core.step(arrived(4, 7)) == [Rotate()]
    assert core.step(Rotated(True)) == [Rotate(begins=False)]
    assert core.step(Rotated(True, 1, np.array([7]), np.array([5]))) == [Insert(0, 1)]
    assert core.step(Inserted(Taken(1))) == [Probe(0, 1, PROBE_BUDGET)]
    assert core.step(Probed(DONE)) == [Consume(), Expire(0, 1)]
    assert core.step(Expired(DONE)) == [EndInput(), Rotate(begins=False)]
    assert core.step(Rotated(False)) == [Divert(0)]
    assert core.step(Diverted((0,), 1)) == [Insert(0, 1)]


def test_what_is_pending_is_joined_before_the_last_message_ends():
    core = core_at_rest()
    core.step(arrived(4, last=True))
    core.step(Rotated(False))
    assert core.step(Diverted((0,), open_groups=1)) == [Rotate(at_once=True)]
    assert core.step(Rotated(True, 0, np.array([4]), np.array([3]))) == [Insert(0, 1)]


def test_a_group_is_activated_before_it_is_shipped():
    core = core_at_rest()
    assert core.step(Ordered(1, "ship", 9)) == [Rotate(9)]
    assert core.step(Rotated(False, is_blocked=True)) == []  # no room now
    core.step(arrived(4))
    core.step(Rotated(False))
    assert core.step(Diverted()) == [Insert(0, 1)]
    core.step(Inserted(Taken(1)))
    core.step(Probed(DONE))
    assert core.step(Expired(DONE)) == [Rotate(9)]
    carry, end = core.step(Rotated(False))
    assert (carry.step, carry.group) == ("ship", 9) and isinstance(end, EndMessage)


def test_an_order_that_came_before_a_message_without_groups_is_carried_out():
    """Nothing else comes after which it could be."""
    core = core_at_rest()
    assert core.step(arrived()) == [Rotate()]
    assert core.step(Ordered(1, "drop", 9)) == []
    core.step(Rotated(False))
    end, carry = core.step(Diverted())
    assert isinstance(end, EndMessage) and (carry.step, carry.group) == ("drop", 9)


def slot(group, times):
    count = len(times)
    left = Columns(np.stack([np.full(count, 5), times, range(count), times], axis=1), np.empty(0, np.uint8))
    octets = np.array(times, np.uint8)
    wide = [np.full(count, 5), times, range(count), range(count), np.ones(count, int), times]
    right = Columns(np.stack(wide, axis=1), octets)
    return Slot(0, 3, (max(times), max(times)), np.array([group]), (Piece(np.full((2, 1), count), (left, right)),))


@contextmanager
def made(folder):
    with open_scratch(str(folder), "rank-1") as scratch:
        operator = window_join(4, 1 << 16, 256, 1 << 14, STREAMS)
        yield operator, Rotator(operator, Runs(scratch), 0.0)


@pytest.fixture
def rotating(tmp_path):
    with made(tmp_path) as both:
        yield both


def join(operator, given):
    message, out = Batches(given), Out(2, 1000)
    assert Inserter(operator).insert([message], 0, len(message.groups)).taken.groups == len(message.groups)
    while operator.probe(message.groups, 1 << 20, out) is not DONE:
        pass
    operator.expire(message.groups, given.watermarks, out)
    return out.found


@pytest.mark.parametrize("input_bytes", [1, 1 << 20])
def test_state_and_pending_input_come_back_in_order(rotating, monkeypatch, input_bytes):
    """Whatever a part of the pending input is, its rows come in their order, with their blobs and watermarks."""
    monkeypatch.setattr(rotator, "INPUT_BYTES", input_bytes)
    operator, spiller = rotating
    assert join(operator, slot(2, [1, 2])) == 4
    spiller.begin_spill(1, "", [2])
    assert not spiller.spill_next() and spiller.is_inactive(2) and operator.totals.held == (0, 0)
    for times in ([3, 4], [5], [6, 7]):
        spiller.spool(slot(2, times))
    assert spiller.open_groups == 1 and spiller.disk_bytes(np.array([2, 3]))[1] == 0
    spiller.begin_activation(None, True, [2], 0.0)
    given, found, marks = [], 0, []
    while (turn := spiller.activate((), 1.0)).more:
        if turn.input is not None:
            (piece,) = turn.input.pieces
            given += piece.columns[0].tuples[:, 1].tolist()
            wide = piece.columns[1]
            assert wide.blob[wide.tuples[:, 3]].tolist() == wide.tuples[:, 1].tolist()
            marks.append(turn.input.watermarks)
            found += join(operator, turn.input)
    assert given == [3, 4, 5, 6, 7] and marks[-1] == (7, 7) and found == 49 - 4
    totals = operator.totals
    assert totals.spilled == totals.taken_back == (2, 2) and totals.moved_in == totals.moved_out == (0, 0)
    assert spiller.figures.disk_bytes == spiller.open_groups == 0


def test_a_group_that_is_supplied_never_leaves(rotating):
    operator, spiller = rotating
    join(operator, slot(2, [1, 2]))
    spiller.begin_spill(1 << 20, "", [2], {2})
    assert not spiller.spill_next() and not spiller.is_inactive(2)


def table(rng, rows, keys, disorder):
    times = np.cumsum(rng.integers(0, 20, rows)) + rng.integers(-disorder, disorder + 1, rows)
    payload = ["x" * int(one % 9) for one in times]
    return pa.table({"ts": times, "key": rng.integers(0, keys, rows), "p": payload})


@pytest.mark.parametrize("windows", [("0 ms", "2 s"), ("unbounded", "30 s"), ("30 s", "unbounded", "2 s")])
@pytest.mark.parametrize("gap, threshold, share", [("auto", 0.9, 0.3), ("1 h", 1.0, 0.1), ("0 s", 0.5, 1.0)])
def test_rotation_finds_what_a_join_in_memory_finds(windows, gap, threshold, share):
    rng = np.random.default_rng(len(windows))
    keys, rows = (200, 2500) if len(windows) == 2 else (700, 1200)
    job = {
        "streams": {
            f"s{at}": {"table": table(rng, rows, keys, 30), "time": "ts", "time_unit": "ms", "key": ["key"],
                       "window": window, "lateness": "60 ms"}
            for at, window in enumerate(windows)
        },
        "cluster": {"partitions": 24, "distribution_epoch": "1 s"},
        "tuning": {"block": "256 B", "theta": "1 KB"},
        "output": {"results": "collect"},
    }  # fmt: skip
    whole = mpijoin.run({**job, "memory": {"limit": "1 GiB"}}, slaves=1).summary
    memory = {"limit": "64 KiB", "spill": "rotate", "gap": gap, "threshold": threshold, "share": share}
    got = mpijoin.run({**job, "memory": memory}, slaves=1).summary
    assert got["certificate"] == whole["certificate"] and got["results"] == whole["results"]
    assert got["memory"]["spills"] > 0 or windows == ("0 ms", "2 s")


def save(own, number):
    own.settle()
    own.begin(number, [2])
    while own.save_next():
        pass
    own.finish(lambda: None)
    while (told := own.poll()) is None:
        pass
    return told


def activated(operator, spiller, parts=None):
    """Activates the group, and joins so many parts of what is pending, or all. Returns their times and the results."""
    times, found = [], 0
    spiller.begin_activation(None, True, [2], 0.0)
    while len(times) != parts and (turn := spiller.activate((), 1.0)).more:
        if turn.input is not None:
            times.append(turn.input.pieces[0].columns[0].tuples[:, 1].tolist())
            found += join(operator, turn.input)
    return times, found


def test_a_group_on_disk_goes_through_a_checkpoint_with_its_pending_input(tmp_path, monkeypatch):
    """An activation that is under way is taken back, and nothing is written to a second checkpoint again."""
    monkeypatch.setattr(rotator, "INPUT_BYTES", 1)
    with made(tmp_path / "scratch") as (operator, spiller), made(tmp_path / "other") as (second, other):
        found = join(operator, slot(2, [1, 2]))
        spiller.begin_spill(1, "", [2])
        spiller.spill_next()
        for times in ([3, 4], [5], [6, 7]):
            spiller.spool(slot(2, times))
        times, more = activated(operator, spiller, parts=1)
        assert times == [[3, 4]]
        saver = Saver(operator, 1, tmp_path, spiller)
        told, again = save(saver, 1), save(saver, 2)
        assert spiller.is_inactive(2) and again.octets < told.octets / 4
        install(tmp_path, second, again.groups, other)
        assert other.is_inactive(2) and other.open_groups == 1
        times, rest = activated(second, other)
        assert times == [[5], [6, 7]] and found + more + rest == 49
        with pytest.raises(CheckpointError, match=r'partition 2 has rows on disk .* \[memory\] spill = "rotate"'):
            install(tmp_path, second, again.groups)


def test_a_run_that_has_stopped_joins_nothing_more():
    core = core_at_rest()
    core.step(arrived(4))
    core.step(Rotated(False, open_groups=1))
    assert core.step(Marked(1, False, stops=True)) == []
    assert core.step(Diverted(open_groups=1)) == [Save(1, False, unjoined=(0,))]
    assert core.step(SaveDone()) == [] and core.step(Ticked(9.0)) == [Rest(np.inf)]


def test_pending_input_that_is_being_joined_is_joined_before_the_run_stops():
    core = core_at_rest()
    core.step(arrived(4))
    assert core.step(Rotated(True, 1, np.array([7]), np.array([5]))) == [Insert(0, 1)]
    core.step(Marked(1, False, stops=True))
    assert core.step(Inserted(Taken(1))) == [Probe(0, 1, PROBE_BUDGET)]
    core.step(Probed(DONE))
    assert core.step(Expired(DONE)) == [EndInput(), Save(1, False, unjoined=(0,))]


STREAM = {"time": "ts", "time_unit": "ms", "key": ["key"], "lateness": "60 ms"}
REDUCE = {"n": "count()", "most": "max(s1.v)", "mean": "mean(s1.v - s0.v)", "before": "last(s1.v)"}
COLUMNS = {"n": "count()", "mean": "mean(v)", "least": "min(v)"}


@pytest.mark.parametrize("operator", [
    {"join": {"type": "left", "reduce": REDUCE, "where": "s1.v > s0.v"}},
    {"join": {"type": "left", "match": "nearest"}},
    {"aggregate": {"history": "5 rows", "columns": COLUMNS}},
    {"aggregate": {"history": "700 ms", "columns": COLUMNS, "emit": "200 ms"}},
])  # fmt: skip
def test_whole_rows_are_those_that_are_found_in_memory(operator):
    """Rows are answered when their windows are over, also while their group is on disk and nothing comes for it."""
    rng, is_aggregate = np.random.default_rng(5), "aggregate" in operator
    window = {} if is_aggregate else {"window": "2 s"}
    tables = [table(rng, 2500, 400, 30) for _ in range(1 if is_aggregate else 2)]
    tables = [one.append_column("v", pa.array(rng.random(one.num_rows))) for one in tables]
    job = {
        "streams": {f"s{at}": {"table": one, **STREAM, **window} for at, one in enumerate(tables)},
        "cluster": {"partitions": 24, "distribution_epoch": "1 s"},
        "tuning": {"block": "256 B"},
        **operator,
    }
    whole, got = (
        mpijoin.run({**job, "memory": memory}, slaves=1)
        for memory in ({"limit": "1 GiB"}, {"limit": "64 KiB", "spill": "rotate", "threshold": 0.2, "gap": "0 s"})
    )
    order = [(name, "ascending") for name in whole.table().column_names if name.endswith("_row")]
    assert got.table().sort_by(order).equals(whole.table().sort_by(order)) and whole.results
    assert got.summary["certificate"] == whole.summary["certificate"] and got.summary["memory"]["spills"]


def test_what_others_have_to_leave_for_is_not_inserted():
    """A group of the message that has begun may have to leave for one that is to move."""
    core = core_at_rest()
    core.step(Arrived(0, 24, np.array([4, 7]), np.array([SLICE_ROWS, 3]), False))
    core.step(Rotated(False))
    assert core.step(Diverted()) == [Insert(0, 1)]
    core.step(Ordered(1, "ship", 9))
    core.step(Inserted(Taken(1)))
    core.step(Probed(DONE))
    assert core.step(Expired(DONE)) == [Rotate(9)]
    carry, divert = core.step(Rotated(False))
    assert (carry.step, carry.group) == ("ship", 9) and divert == Divert(1)
    assert isinstance(core.step(Diverted((1,), 1))[0], EndMessage)


def test_a_group_that_must_wait_for_room_keeps_no_other_from_moving():
    """The other holds the memory, and would wait for ever."""
    core = core_at_rest()
    assert core.step(Ordered(1, "ship", 9)) == [Rotate(9)]
    core.step(Ordered(2, "ship", 5))
    assert core.step(Rotated(False, is_blocked=True)) == [Rotate(5)]
    (carry,) = core.step(Rotated(False))
    assert (carry.step, carry.group) == ("ship", 5)
    assert core.step(Ticked(1.0)) == [Rest(math.inf)]
    assert core.step(Ticked(1.5)) == [Rotate(9)]
