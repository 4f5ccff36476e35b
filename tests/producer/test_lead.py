"""How far one producer runs ahead of the others, and what the coordinator tells them of each other."""

import math

import pytest

from mpijoin.config.check import resolve
from mpijoin.config.load import load_job
from mpijoin.coordinator.producers import FLOOR_S, Producers
from mpijoin.errors import ProtocolError
from mpijoin.producer.events import Begin, BeginsAt, Floor, SlotEnded
from mpijoin.producer.lead import AHEAD_TICKS, MANY, Lead
from mpijoin.producer.pacing import TIME_MAX, TIME_MIN
from mpijoin.simulate.cluster import Manner, simulate
from mpijoin.simulate.costs import load_costs
from pacings import new_pacing

TICK, SHARE = 10, 100


def begun(start=0):
    """Returns the lead of a producer whose first tick is ready, while the slowest stands at 0."""
    lead = Lead()
    lead.begin(start, start + TICK)
    lead.others(0)
    return lead


def test_nobody_sends_before_all_know_where_they_begin():
    lead = Lead()
    assert lead.is_bounded(True) and lead.is_bounded(False)
    lead.begin(0, TICK)
    assert lead.is_bounded(True), "another one may begin much earlier"
    lead.others(0)
    assert not lead.is_bounded(True)
    assert begun(SHARE).is_bounded(True), "its first share is not the first one"


def test_all_may_begin_at_the_earliest_time_that_there_is():
    lead = Lead()
    lead.begin(TIME_MIN, TIME_MIN + TICK)
    assert lead.is_bounded(True) and not lead.may_prepare(TIME_MIN + TICK)
    lead.others(TIME_MIN)
    assert not lead.is_bounded(True) and lead.may_prepare(TIME_MIN + TICK)


def test_a_few_ticks_are_always_allowed():
    lead = begun()
    for border in range(TICK, SHARE, TICK):
        lead.tick_ended(border, border)
        assert lead.is_bounded(True) == lead.is_bounded(False) == (border > AHEAD_TICKS * TICK)


def test_a_part_of_a_window_is_always_allowed_however_short_the_shares_are():
    """Many producers with shares of 1: each has the next one long before it hears that the others have theirs."""
    for producers, allowed in ((MANY, SHARE), (2 * MANY, SHARE), (MANY // 2, SHARE // 2)):
        lead = Lead(producers, always=SHARE)
        lead.begin(0, 1)
        lead.others(0)
        for position in range(10, 3 * SHARE, 10):
            lead.tick_ended(position - 9, position)
            assert lead.is_bounded(has_room=True) == (position > allowed + 1)
    assert new_pacing(windows=(600, 60)).lead == 200 and new_pacing(windows=(0, 0)).lead == 0


def test_who_has_ended_a_share_waits_until_the_others_come_to_the_next_or_until_it_has_no_room_to_prepare_it():
    """Two producers take turns at shares of 100: the first has 0 to 100 and 200 to 300."""
    lead = begun()
    for border in range(TICK, SHARE, TICK):
        lead.tick_ended(border, border)
    lead.tick_ended(SHARE, 2 * SHARE)
    lead.others(SHARE)
    assert lead.is_bounded(has_room=True)
    assert not lead.is_bounded(has_room=False), "the other has come as far, in a share of its own"
    for border in (2 * SHARE + TICK, 2 * SHARE + 2 * TICK):
        lead.tick_ended(border, border)
    assert lead.is_bounded(has_room=False)
    lead.others(SHARE + 2 * TICK)
    assert lead.is_bounded(has_room=True) and not lead.is_bounded(has_room=False)
    lead.others(2 * SHARE + TICK)
    assert not lead.is_bounded(has_room=True)


def test_what_it_hears_never_goes_back_and_at_its_end_it_waits_for_nobody():
    lead = begun()
    lead.tick_ended(TICK, 40 * TICK)
    lead.others(39 * TICK)
    lead.others(TIME_MIN)
    assert not lead.is_bounded(True)
    lead.tick_ended(TIME_MAX, TIME_MAX)
    assert not lead.is_bounded(True)


def ended(producer, slots, position, due=None):
    return SlotEnded(producer, slots, due or {}, position)


def test_the_run_is_as_old_as_its_foremost_producer_and_its_floor_is_the_slowest():
    own, now_s = Producers(2), 1.0
    assert own.slot_ended(ended(1, 1, 50, {3: 10})) and own.floor(now_s) == [], "the first has not been heard"
    assert not own.slot_ended(ended(0, 1, 20, {3: 5})), "the same slot of another producer"
    assert own.floor(now_s) == [Floor(20)] and own.floor(now_s + 1) == []
    assert own.slot_ended(ended(0, 2, 70, {4: 1}))
    assert own.floor(now_s) == [], "they hear of it only now and then"
    assert own.floor(now_s + 3 * FLOOR_S) == [Floor(50)]
    assert own.due == {3: 10, 4: 1}


def test_the_coordinator_wakes_up_to_tell_where_the_slowest_stands():
    """All producers may wait for that, and then nothing else wakes it."""
    own = Producers(2)
    assert own.floor_due_s == math.inf
    for producer in range(2):
        own.slot_ended(ended(producer, 1, 20))
    assert own.floor(1.0) == [Floor(20)] and own.floor_due_s == math.inf
    own.slot_ended(ended(0, 2, 30))
    assert own.floor_due_s == math.inf, "the slowest stands where it stood"
    own.slot_ended(ended(1, 2, 40))
    assert own.floor_due_s == 1.0 + 2 * FLOOR_S and own.floor(own.floor_due_s) == [Floor(30)]
    assert Producers(1).floor_due_s == math.inf


def test_many_producers_are_not_held_up_by_waiting_for_each_other():
    """In virtual time: 31 ms; 44 without the part of a window that is always allowed, and 500 when the coordinator
    slept on while all waited for its word."""
    stream = {"kind": "synthetic", "rate": 1500, "tuples": 300_000, "window": "60 s"}
    values = {"left": {**stream, "seed": 1}, "right": {**stream, "seed": 2}, "cluster": {"producers": 32}}
    job = load_job(values | {"output": {"results": "count"}})
    assert simulate(job, resolve(job), 4, Manner(load_costs("this_machine"))).summary["wall_s"] < 0.036


def test_when_the_foremost_has_ended_the_slots_of_the_next_one_count():
    own = Producers(2)
    assert own.slot_ended(ended(0, 50, 5)) and not own.slot_ended(ended(1, 20, 5))
    own.input_ended(0, 1.0)
    assert own.slot_ended(ended(1, 21, 6)), "else no checkpoint would come due for 30 slots"


def test_event_time_begins_to_pass_once_all_know_where_they_begin_or_have_nothing():
    own = Producers(3)
    assert own.begins(BeginsAt(2, 700, 0.5), 1.0) == [] == own.begins(BeginsAt(0, 400, 0.6), 1.5)
    assert own.input_ended(1, 2.0) == [Begin(400, 2.0)]
    assert own.input_ended(2, 3.0) == [] and not own.all_ended
    assert own.input_ended(0, 4.0) == [Floor(TIME_MAX)] and own.all_ended
    with pytest.raises(ProtocolError, match="producer 0 has come to its end twice"):
        own.input_ended(0, 5.0)


def test_where_a_producer_begins_counts_as_where_it_stands():
    """One that begins late waits for the others, and has no slot before they have come there."""
    own = Producers(2)
    own.begins(BeginsAt(0, 10, 0.5), 1.0)
    assert own.begins(BeginsAt(1, 700, 0.5), 1.0) == [Begin(10, 1.0)]
    own.slot_ended(ended(0, 1, 300))
    assert own.floor(2.0) == [Floor(300)]
    own.slot_ended(ended(0, 2, 900))
    assert own.floor(3.0) == [Floor(700)]


def test_one_producer_is_told_nothing():
    own = Producers(1)
    assert own.slot_ended(ended(0, 1, 5)) and own.floor(9.0) == [] == own.begins(BeginsAt(0, 1, 1.0), 1.0)
