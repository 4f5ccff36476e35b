"""The slave's decisions: it joins slices in order, with one action under way at a time."""

import math

import numpy as np
import pytest

from mpijoin.errors import ProtocolError
from mpijoin.operators.base import Memory, Progress, Taken
from mpijoin.slave.core import ALERT_S, IDLE_S, PROBE_BUDGET, TRIES_MAX, SlaveCore
from mpijoin.slave.events import (
    Arrived,
    Carry,
    Cleaned,
    CleanUp,
    Consume,
    EndMessage,
    Expire,
    Expired,
    Finish,
    Handed,
    Insert,
    Inserted,
    Install,
    Marked,
    Ordered,
    Pause,
    Paused,
    Probe,
    Probed,
    RunOut,
    Save,
    SaveDone,
    Spilled,
    SpillOrdered,
    Staged,
)
from mpijoin.slave.rule import SpillRule
from mpijoin.slave.slices import PACED_SLICE_ROWS_MIN, PACED_SLICES, cut_slices
from mpijoin.time_events import Rest, Ticked

ALL_IN = Inserted(Taken(1 << 30))


def message(*rows, epoch=0, octets=24, last=False, own=False):
    """Returns a message that has these numbers of rows of groups 10, 11, ..."""
    return Arrived(epoch, octets, np.arange(10, 10 + len(rows)), np.array(rows, np.int64), last, own)


def core_of(*messages, slice_rows=10, budget=5):
    core = SlaveCore(slice_rows, budget)
    for one in messages:
        core.step(one)
    return core


def test_a_slice_is_inserted_probed_consumed_and_expired():
    core = SlaveCore(slice_rows=10, budget=5)
    assert core.step(message(3, 4, epoch=7, octets=100)) == [Insert(0, 2)]
    assert core.busy and core.backlog_bytes == 100
    assert core.step(ALL_IN) == [Probe(0, 2, 5)]
    assert core.step(Probed(Progress.DONE)) == [Consume(), Expire(0, 2)]
    assert core.step(Expired(Progress.DONE)) == [EndMessage(7, 100, False)]
    assert not core.busy and core.backlog_bytes == 0


def test_a_group_that_lacks_memory_ends_the_run_and_says_how_much():
    core = SlaveCore(slice_rows=10)
    assert core.step(message(3, 4)) == [Insert(0, 2)]
    assert core.step(Inserted(Taken(1, 12))) == [RunOut(12)]
    with pytest.raises(ProtocolError, match="waits for Inserted"):
        core.step(Probed(Progress.DONE))


@pytest.mark.parametrize("progress", [Progress.OUT_FULL, Progress.BUDGET])
def test_what_expiring_finds_is_consumed_before_it_goes_on(progress):
    core = core_of(message(1))
    for event in (ALL_IN, Probed(Progress.DONE)):
        core.step(event)
    for _ in range(2):
        assert core.step(Expired(progress)) == [Consume(), Expire(0, 1)]
        assert core.backlog_bytes > 0, "the slice is not done with"
    assert core.step(Expired(Progress.DONE))[0] == EndMessage(0, 24, False)


def test_a_probe_goes_on_after_its_budget_and_after_its_results_were_taken():
    core = core_of(message(1))
    core.step(ALL_IN)
    assert core.step(Probed(Progress.BUDGET)) == [Probe(0, 1, 5)]
    assert core.step(Probed(Progress.OUT_FULL)) == [Consume(), Probe(0, 1, 5)]
    assert core.step(Probed(Progress.DONE)) == [Consume(), Expire(0, 1)]


def test_slices_of_a_message_follow_each_other():
    core = core_of(message(6, 6, 1))
    done = [ALL_IN, Probed(Progress.DONE), Expired(Progress.DONE)]
    found = [action for event in done * 2 for action in core.step(event)]
    probes_and_expiries = [
        Probe(0, 1, 5),
        Consume(),
        Expire(0, 1),
        Insert(1, 3),
        Probe(1, 3, 5),
        Consume(),
        Expire(1, 3),
    ]
    assert found == [*probes_and_expiries, EndMessage(0, 24, False)]


def test_a_message_that_arrives_meanwhile_waits_for_its_turn():
    core = core_of(message(1))
    assert core.step(message(2, epoch=1, octets=50)) == []
    assert core.backlog_bytes == 74
    core.step(ALL_IN)
    core.step(Probed(Progress.DONE))
    assert core.step(Expired(Progress.DONE)) == [EndMessage(0, 24, False), Insert(0, 1)]
    assert core.backlog_bytes == 50


def test_a_message_without_groups_ends_at_once_and_the_last_one_ends_the_run():
    assert SlaveCore().step(message(epoch=3, octets=0)) == [EndMessage(3, 0, False)]
    assert SlaveCore().step(message(epoch=3, octets=0, last=True)) == [EndMessage(3, 0, False), Finish()]


def test_finish_waits_for_the_messages_before_it():
    core = core_of(message(1), message(epoch=1, octets=0, last=True))
    core.step(ALL_IN)
    core.step(Probed(Progress.DONE))
    assert core.step(Expired(Progress.DONE)) == [EndMessage(0, 24, False), EndMessage(1, 0, False), Finish()]


def test_a_mark_is_reached_when_all_before_it_is_joined_and_nothing_after_it():
    core = core_of(message(1), message(2, epoch=1, last=True))
    fresh = SlaveCore()
    assert fresh.step(Marked(7)) == [Save(7)] and fresh.step(message(1)) == []
    assert fresh.step(SaveDone()) == [Insert(0, 1)]
    assert core.step(Marked(8)) == []
    assert joined(core, 1) == [Probe(0, 1, 5), Consume(), Expire(0, 1), EndMessage(0, 24, False), Insert(0, 1)]
    assert joined(core, 1)[-1] == Save(8)
    assert core.step(SaveDone()) == [Finish()]
    assert core.step(Marked(9)) == [Save(9)] and core.step(SaveDone()) == [], "it finishes once"


DONE = [ALL_IN, Probed(Progress.DONE), Expired(Progress.DONE)]


def joined(core, slices):
    """Returns what the core answers while it joins so many slices."""
    return [action for event in DONE * slices for action in core.step(event)]


def test_backlog_is_what_is_not_joined_yet_slice_by_slice():
    core = core_of(message(10, 10, 20, octets=400), message(1, octets=10))
    assert core.backlog_bytes == 410
    joined(core, 1)
    assert core.backlog_bytes == 310
    joined(core, 1)
    assert core.backlog_bytes == 210


def test_input_that_came_with_a_group_is_marked_as_its_own():
    core = core_of(message(1, own=True))
    assert joined(core, 1)[-1] == EndMessage(0, 24, True)


@pytest.mark.parametrize("step", ["ship", "drop", "restore"])
def test_an_order_is_carried_out_at_once_by_an_idle_slave_and_else_after_the_slice(step):
    assert SlaveCore().step(Ordered(4, step, 11)) == [Carry(4, step, 11, ())]
    core = core_of(message(6, 6))
    assert core.step(Ordered(4, step, 11)) == []
    assert joined(core, 1)[-2:] == [Carry(4, step, 11, ()), Insert(1, 2)]


def test_a_frozen_group_is_taken_out_of_all_that_is_not_joined():
    core = core_of(message(6, 6, 3, 6), message(1, 1, 1, 1, epoch=1))
    core.step(Ordered(4, "freeze", 12))
    found = joined(core, 3)
    assert Carry(4, "freeze", 12, ((0, 2), (1, 2))) in found
    assert [action for action in found if isinstance(action, Insert)] == [Insert(1, 2), Insert(2, 3), Insert(0, 3)]
    assert core.backlog_bytes == 24 * 3 // 4


def test_a_frozen_group_that_the_oldest_message_has_joined_stays_in_it():
    core = core_of(message(6, 6, 6), message(1, 1, 1, epoch=1))
    joined(core, 1)
    core.step(Ordered(4, "freeze", 10))
    assert joined(core, 1)[-2:] == [Carry(4, "freeze", 10, ((1, 0),)), Insert(2, 3)]


def test_a_message_of_nothing_but_the_frozen_group_ends():
    core = core_of(message(6, 6), message(1, epoch=1))
    core.step(Ordered(4, "freeze", 10))
    found = joined(core, 2)
    assert found[2:4] == [Expire(0, 1), Carry(4, "freeze", 10, ((1, 0),))]
    assert found[-2:] == [EndMessage(0, 24, False), EndMessage(1, 24, False)]
    assert not core.busy


def test_thousands_of_messages_with_nothing_to_join_end_one_after_the_other():
    """A slave that is behind keeps them, and a group that left may have been all that they had."""
    core = core_of(message(1), *(message(*[1] * (epoch % 2), epoch=epoch) for epoch in range(1, 5000)))
    core.step(Ordered(4, "freeze", 10))
    assert [one.epoch for one in joined(core, 1) if isinstance(one, EndMessage)] == list(range(5000))
    assert not core.busy


def test_a_group_that_has_come_whole_is_installed_between_slices():
    assert SlaveCore().step(Staged(3)) == [Install(3)]
    core = core_of(message(1))
    assert core.step(Staged(3)) == []
    assert core.between_slices
    core.step(ALL_IN)
    assert not core.between_slices
    core.step(Probed(Progress.DONE))
    assert core.step(Expired(Progress.DONE)) == [Install(3), EndMessage(0, 24, False)]


def test_in_a_paced_run_results_leave_with_every_probe_and_slices_are_small():
    core = SlaveCore(budget=5, paced=True)
    rows = PACED_SLICES * PACED_SLICE_ROWS_MIN
    assert core.step(message(*[1] * 2 * rows)) == [Insert(0, 2 * PACED_SLICE_ROWS_MIN)]
    core.step(ALL_IN)
    assert core.step(Probed(Progress.BUDGET)) == [Consume(), Probe(0, 2 * PACED_SLICE_ROWS_MIN, 5)]
    few = SlaveCore(paced=True)
    assert few.step(message(*[1] * rows)) == [Insert(0, PACED_SLICE_ROWS_MIN)]
    assert SlaveCore(paced=True).step(message(*[1] * 10)) == [Insert(0, 10)]


def after(*events):
    core = core_of(message(1))
    for event in events:
        core.step(event)
    return core


@pytest.mark.parametrize(
    "core, event, text",
    [
        (SlaveCore(), ALL_IN, "slave got Inserted while it waits for a message"),
        (after(), Probed(Progress.DONE), "slave got Probed while it waits for Inserted"),
        (after(ALL_IN), Expired(Progress.DONE), "slave got Expired while it waits for Probed"),
        (after(ALL_IN, Probed(Progress.DONE)), ALL_IN, "slave got Inserted while it waits for Expired"),
        (core_of(message(1, last=True)), message(1), "slave got a message after the last one"),
    ],
)
def test_an_illegal_event_is_refused_by_name_and_changes_nothing(core, event, text):
    before = repr(vars(core))
    with pytest.raises(ProtocolError, match=text):
        core.step(event)
    assert repr(vars(core)) == before


@pytest.mark.parametrize(
    "rows, slices",
    [
        ([], []),
        ([0], [(0, 1)]),
        ([0, 0, 0], [(0, 3)]),
        ([10, 1], [(0, 1), (1, 2)]),
        ([1, 10, 1], [(0, 1), (1, 2), (2, 3)]),
        ([50], [(0, 1)]),
        ([0, 50, 0, 0, 3], [(0, 2), (2, 5)]),
        ([5, 5, 5], [(0, 2), (2, 3)]),
    ],
)
def test_slices_hold_whole_groups(rows, slices):
    assert cut_slices(np.array(rows, np.int64), 10) == slices


STOP = Marked(7, stops=True)


def test_a_mark_that_stops_the_run_pauses_the_probe_and_saves_what_is_not_joined_as_it_is():
    core = core_of(message(6, 6, 6), message(1, 2), slice_rows=6)
    assert core.step(ALL_IN) == [Probe(0, 1, 5)] and core.step(STOP) == []
    assert core.step(Probed(Progress.BUDGET)) == [Consume(), Pause(5)]
    assert core.step(Paused(Progress.OUT_FULL)) == [Consume(), Pause(5)]
    assert core.step(Paused(Progress.DONE)) == [Consume(), Save(7, unjoined=(1, 0))]
    assert core.step(SaveDone()) == [] and not core.busy


@pytest.mark.parametrize(
    "outcome, wanted",
    [
        (Inserted, [Save(7, unjoined=(1, 0))]),  # It is not probed; its tuples are saved as fresh ones.
        (Probed, [Consume(), Expire(0, 1)]),
        (Expired, [Save(7, unjoined=(1, 0))]),
    ],
)
def test_a_run_stops_wherever_its_slice_is(outcome, wanted):
    core = core_of(message(6, 6, 6), message(1, 2), slice_rows=6)
    steps = [ALL_IN, Probed(Progress.DONE), Expired(Progress.DONE)]
    while not isinstance(steps[0], outcome):
        core.step(steps.pop(0))
    core.step(STOP)
    assert core.step(steps[0]) == wanted


def test_a_run_that_has_nothing_to_join_stops_at_once():
    assert core_of().step(STOP) == [Save(7)]


def test_a_message_that_is_joined_to_its_end_is_ended_before_the_run_stops():
    core = core_of(message(6), message(1, 2), slice_rows=6)
    for step in (ALL_IN, Probed(Progress.DONE), STOP):
        core.step(step)
    assert core.step(Expired(Progress.DONE)) == [EndMessage(0, 24, False), Save(7, unjoined=(0,))]


def test_with_nothing_to_do_it_sleeps_until_something_arrives():
    core = SlaveCore()
    assert core.step(Ticked(0.0)) == core.step(Ticked(1e9)) == [Rest(math.inf)]
    core.step(message(3))
    assert core.step(Ticked(2.0)) == [Rest(math.inf)], "nor does it wait awake for a collector that takes nothing"


def test_for_a_moment_after_each_part_of_a_group_it_stays_awake():
    core = SlaveCore()
    assert core.step(Handed(5.0)) == []
    assert [core.step(Ticked(5.0 + after)) for after in (0.0, ALERT_S * 0.99)] == [[Rest(0.0)]] * 2
    assert core.step(Ticked(5.0 + ALERT_S)) == [Rest(math.inf)]
    core.step(Handed(5.01))
    core.step(Handed(7.0))  # Each part begins the moment anew.
    assert core.step(Ticked(7.0 + ALERT_S * 0.99)) == [Rest(0.0)] and core.step(Ticked(8.0)) == [Rest(math.inf)]


def test_time_changes_nothing_of_what_is_under_way():
    core = SlaveCore(slice_rows=10)
    started = core.step(message(4, 9))
    core.step(Handed(1.0))
    core.step(Ticked(2.0))
    assert started == [Insert(0, 1)] and core.step(ALL_IN) == [Probe(0, 1, PROBE_BUDGET)]


def test_a_slave_at_which_a_group_changes_hands_is_ordered_to_spill_in_vain():
    core = SlaveCore(rule=SpillRule(0.9, 0.3, "largest", 64, True))
    assert core.step(SpillOrdered(1000, "largest", is_moving=True)) == []
    assert core.step(message(3)) == [Insert(0, 1)]


def short_of_memory(core, is_moving):
    """The core has tried everything for a slice of which nothing fits. Returns what it does then."""
    lacking = Inserted(Taken(0, 3), False, Memory(1000, 900, 100), is_moving)
    for _ in range(TRIES_MAX):
        assert isinstance(core.step(lacking)[0], Probe)
        core.step(Probed(Progress.DONE))
        core.step(Spilled(False))
    return core.step(lacking)


def test_where_memory_is_short_because_a_group_changes_hands_it_waits_until_it_has():
    """Such a group cannot be spilled, and does not go before its slave carries out an order between two slices."""
    core = SlaveCore(rule=SpillRule(0.9, 0.3, "largest", 64, True))
    core.step(message(3, 4))
    assert short_of_memory(core, is_moving=True) == []
    assert core.step(Ordered(1, "freeze", 11)) == []
    (rest,) = core.step(Ticked(5.0))
    carry, insert = core.step(Ticked(5.0 + rest.seconds))
    assert (carry.step, carry.places) == ("freeze", ((0, 1),)) and insert == Insert(0, 1)
    assert isinstance(short_of_memory(core, is_moving=False)[0], RunOut)


@pytest.mark.parametrize("begin", range(200))
def test_an_idle_slave_that_owes_results_takes_them_up_and_never_waits_for_no_time_at_all(begin):
    """Sums of seconds are rounded. A wait of nothing that is followed by the next one would last for ever."""
    core, now_s = SlaveCore(rule=SpillRule(0.9, 0.3, "largest", 64, True)), 8.0 + begin * 0.0137
    (spill,) = core.step(SpillOrdered(1000, "largest"))
    assert spill.octets == 1000 and core.step(Spilled(False, open_groups=2)) == []
    for _ in range(4):
        (action,) = core.step(Ticked(now_s))
        if isinstance(action, CleanUp):
            return
        assert action.seconds > 0
        now_s += action.seconds
    raise AssertionError("nothing is taken up")


def owing():
    """A slave that owes results of two groups, and the time at which it takes up the first."""
    core = SlaveCore(rule=SpillRule(0.9, 0.3, "largest", 64, True))
    core.step(SpillOrdered(1000, "largest"))
    core.step(Spilled(False, open_groups=2))
    return core, takes_up(core, 8.0)


def takes_up(core, now_s):
    """Lets time pass until the slave takes up what it owes, and returns the time."""
    while not isinstance((action := core.step(Ticked(now_s))[0]), CleanUp):
        now_s += action.seconds
    return now_s


def test_a_slave_to_which_nothing_comes_takes_up_one_group_after_the_other():
    core, begun_s = owing()
    assert begun_s == pytest.approx(8.0 + IDLE_S)
    core.step(Cleaned(True, True, 2, begun_s + 1.5))
    assert takes_up(core, begun_s + 1.5) == begun_s + 1.5


def test_input_that_waited_for_a_group_to_be_cleaned_up_is_joined_for_as_long_before_the_next_one_is_taken_up():
    """Otherwise every stop of a tenth of a second, such as for a checkpoint, lets input wait for a whole group."""
    core, begun_s = owing()
    assert core.step(message(3)) == []
    assert core.step(Cleaned(True, False, 2, begun_s + 1.0)) == [Consume(), CleanUp()]
    done_s = begun_s + 1.5
    assert core.step(Cleaned(True, True, 2, done_s)) == [Consume(), Insert(0, 1)]
    for outcome in (ALL_IN, Probed(Progress.DONE), Expired(Progress.DONE)):
        core.step(outcome)
    assert takes_up(core, done_s + 0.01) == pytest.approx(done_s + 1.5)
