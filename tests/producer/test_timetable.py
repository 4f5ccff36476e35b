"""A paced run's input. From the time that it is told, the core decides what is read and handed out when.

It also knows how far the run is behind.
"""

import math

import pytest

from mpijoin.checkpoint.schedule import Schedule
from mpijoin.config.job import Checkpoint
from mpijoin.coordinator.events import Spent, StopAsked, Weigh
from mpijoin.coordinator.master import MasterCore
from mpijoin.coordinator.reorganization import Reorganization
from mpijoin.coordinator.setup import MasterSetup
from mpijoin.errors import ProtocolError
from mpijoin.partitioning.table import PartitionTable
from mpijoin.policy.plan import Plan
from mpijoin.producer.events import (
    CloseInput,
    Consumed,
    HandedOver,
    HandOver,
    Ingested,
    PartReady,
    Read,
    Repace,
    SourceEnded,
    SourceWaits,
)
from mpijoin.producer.pacing import ADVICE_EPOCHS
from mpijoin.producer.timetable import PREPARE_AHEAD
from mpijoin.time_events import Rest, Ticked
from pacings import SECOND_NS, new_pacing

END = (999, 999)


def new_core(pacing=None, master_buffer=1000, **settings):
    """Returns a core with one slave. By default epochs take one second, in which one second of event time passes."""
    table = PartitionTable.even(4, (1,))
    return MasterCore(MasterSetup(table, (1,), 1000, master_buffer, pacing=pacing or new_pacing(), **settings))


def at(core, now_s):
    """Returns what is to be done about the input at this second."""
    core.step(Ticked(now_s))
    return core.next_input()


def prepare(core, border, read_s=0.0, took_s=0.0, completes=True, octets=10):
    assert core.step(PartReady(border, completes, octets, read_s, took_s)) == []


def hand_over(core, watermark=None, octets=10):
    core.step(HandedOver())
    return core.step(Ingested({1: octets}, {}, watermark and (watermark, watermark)))


def test_the_first_tick_is_due_an_epoch_after_it_was_read_and_the_next_ones_as_event_time_passes():
    core = new_core()
    assert at(core, 0.0) == Read(ahead=True)
    prepare(core, 101, read_s=2.0)
    assert at(core, 2.5) == Rest(pytest.approx(0.5))
    assert at(core, 3.0) == HandOver(3.0)
    hand_over(core, 101)
    core.step(Consumed(1, 10))
    prepare(core, 106)
    assert at(core, 3.5) == Rest(pytest.approx(4.5)) and at(core, 8.0) == HandOver(8.0)


def test_one_tick_is_prepared_at_a_time_and_its_parts_while_there_is_room():
    core = new_core(master_buffer=100)
    prepare(core, 1, completes=False, octets=60)
    assert at(core, 0.1) == Read(ahead=True)
    prepare(core, 1, completes=False, octets=40)
    assert at(core, 0.2) == Rest(pytest.approx(0.8)), "no room"
    hand_over(core, octets=0)
    assert at(core, 0.3) == Read(ahead=True)
    prepare(core, 1)
    assert at(core, 0.4) == Rest(pytest.approx(0.6)), "the tick is whole"


def test_what_is_due_waits_while_the_master_s_buffer_is_full():
    core = new_core(master_buffer=100)
    prepare(core, 1)
    hand_over(core, octets=2000)  # The slave has less credit than this, so the second message waits.
    core.step(Ingested({1: 100}, {}, (1, 1)))
    prepare(core, 2)
    assert not core.wants_input and at(core, 5.0) == Rest(math.inf)
    core.step(Consumed(1, 2000))
    assert at(core, 5.0) == HandOver(2.0)


def test_while_slaves_join_the_next_tick_is_prepared_just_before_it_is_due():
    core = new_core()
    prepare(core, 1, took_s=0.05, completes=False)
    prepare(core, 1, took_s=0.05)
    assert at(core, 1.0) == HandOver(1.0)
    hand_over(core, 1, octets=0)
    hand_over(core, 1)
    assert at(core, 1.2) == Rest(pytest.approx(2.0 - PREPARE_AHEAD * 0.1 - 1.2)), "a slave may need this core"
    assert at(core, 1.71) == Read(ahead=True)
    core.step(Consumed(1, 0))
    assert at(core, 1.2) == Rest(pytest.approx(0.5)), "it has joined the empty part only"


def test_once_all_is_joined_the_next_tick_is_prepared_at_once():
    core = new_core()
    prepare(core, 1, took_s=0.1)
    core.step(Ticked(1.0))
    hand_over(core, 1)
    assert isinstance(at(core, 1.2), Rest)
    core.step(Consumed(1, 10))
    assert at(core, 1.2) == Read(ahead=True)


@pytest.mark.parametrize("pacing", [new_pacing(), None])
def test_sources_that_have_nothing_are_not_asked_before_their_time(pacing):
    core = MasterCore(MasterSetup(PartitionTable.even(1, (1,)), (1,), 1000, 1000, pacing=pacing))
    core.step(SourceWaits(4.0))
    assert at(core, 1.5) == Rest(pytest.approx(2.5)) and at(core, 4.0) == Read(ahead=pacing is not None)


def test_a_part_that_is_due_does_not_wait_for_a_source():
    core = new_core()
    prepare(core, 1, completes=False)
    core.step(SourceWaits(9.0))
    assert at(core, 0.25) == Rest(pytest.approx(0.75)) and at(core, 1.0) == HandOver(1.0)
    hand_over(core)
    assert at(core, 1.0) == Rest(pytest.approx(8.0))


def test_the_end_comes_after_what_is_prepared_has_been_handed_out():
    core = new_core()
    prepare(core, 1)
    assert core.step(SourceEnded(END)) == [] and not core.ended
    with pytest.raises(ProtocolError, match="the end of the source twice"):
        core.step(SourceEnded(END))
    assert core.step(Ticked(0.5)) == []
    assert at(core, 1.0) == HandOver(1.0)
    hand_over(core, 1)
    assert core.next_input() == Rest(math.inf)
    assert core.step(Ticked(1.1))[0] == CloseInput() and core.ended
    assert core.step(Ticked(1.2)) == [] and core.next_input() == Rest(math.inf)


def test_with_nothing_prepared_the_end_comes_at_once():
    assert new_core().step(SourceEnded(END))[0] == CloseInput()


def test_how_far_a_run_is_behind_follows_from_the_time_alone():
    core = new_core()
    prepare(core, 1)
    core.step(Ticked(1.75))
    hand_over(core, 1)
    assert core.backlog.lag_s == pytest.approx(0.75), "it was handed out late"
    core.step(Ticked(4.0))
    core.step(Consumed(1, 10))
    assert core.backlog.behind_s == {1: pytest.approx(3.0)}, "due at second 1, joined at second 4"


def paced_ticks(core, count, first=1):
    """Hands out so many ticks, each when it is due, and joins each at once. Returns the last one's actions."""
    for border in range(first, first + count):
        prepare(core, border)
        core.step(Ticked(float(border)))
        actions = hand_over(core, border)
        core.step(Consumed(1, 10))
    return actions


def test_automatic_epochs_get_longer_where_communication_takes_too_much_and_all_that_counts_slots_follows():
    pacing = new_pacing(epoch_ns=None, reorganization_ns=10 * SECOND_NS)
    own = Reorganization(lambda view: Plan(), pacing.slots, 1)
    core = new_core(pacing, reorganization=own, schedule=Schedule(Checkpoint(epochs=1), pacing.slots, 0.0, None))
    assert pacing.slots == own.slots == 20
    assert Weigh() not in paced_ticks(core, ADVICE_EPOCHS // 2 - 1)
    assert paced_ticks(core, 1, first=ADVICE_EPOCHS // 2)[-1] == Weigh()
    assert core.step(Spent({1: (4.0, 0.5)})) == [Repace(pacing.pace, SECOND_NS)]
    assert own.slots == core.coordinator._saves.schedule.slots_per_epoch == pacing.slots == 10
    assert core.step(Spent({1: (4.0, 0.5)})) == [], "the next look comes after as many epochs again"


def test_epochs_of_a_stated_length_are_never_weighed():
    assert Weigh() not in paced_ticks(new_core(), 40)


def test_as_fast_as_possible_the_input_is_read_while_a_slave_is_hungry_and_the_clock_says_nothing():
    core = MasterCore(MasterSetup(PartitionTable.even(1, (1,)), (1,), 1000, 1000))
    assert at(core, 0.0) == at(core, 1e9) == Read()
    for time in range(2):
        core.step(Ingested({1: 500}, {}, (time, time)))
    assert at(core, 0.0) == Rest(math.inf)
    for event in (PartReady(1, True, 0, 0.0, 0.0), HandedOver()):
        with pytest.raises(ProtocolError, match="in a run that is not paced"):
            core.step(event)
    with pytest.raises(ProtocolError, match="nobody asked"):
        core.step(Spent({}))


def test_a_run_that_stops_hands_out_nothing_after_its_last_checkpoint():
    core = new_core()
    prepare(core, 1)
    core.step(StopAsked("SIGUSR1"))
    hand_over(core, 1)
    prepare(core, 2)
    assert at(core, 9.0) == Rest(math.inf)
