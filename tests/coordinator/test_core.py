"""The master's decisions: turns, credits, pauses of the source, and reports that it refuses to believe."""

import numpy as np
import pytest

from mpijoin.checkpoint.schedule import Schedule
from mpijoin.config.job import Checkpoint
from mpijoin.coordinator.events import Complete, RankFinished, SaveEnded, Stepped, StopAsked, Stopping
from mpijoin.coordinator.master import MasterCore
from mpijoin.coordinator.reorganization import Loaded, Reorganization
from mpijoin.coordinator.setup import MasterSetup
from mpijoin.errors import ProtocolError
from mpijoin.partitioning.table import TIME_MAX, PartitionTable, Waited
from mpijoin.policy.plan import Move, Plan
from mpijoin.producer.events import (
    CloseInput,
    Command,
    Consumed,
    Cut,
    Deliver,
    Delivered,
    Held,
    Ingested,
    Resumed,
    Serve,
    SourceEnded,
)
from mpijoin.producer.views import AHEAD_BYTES, AHEAD_SLOTS, AHEAD_SLOTS_MAX, never
from mpijoin.time_events import Ticked
from pacings import new_pacing

END = (99, 99)
SECOND_NS = 1_000_000_000


def new_core(slaves=(1, 2), subgroups=1, buffer=1000, master_buffer=10_000, finishing=(), active=None, **settings):
    table = PartitionTable.even(8, active or slaves)
    return MasterCore(MasterSetup(table, slaves, buffer, master_buffer, subgroups, finishing, **settings))


def kinds(actions):
    return {type(action) for action in actions}


def even(core, octets, watermarks):
    return Ingested(dict.fromkeys(core.active, octets), {}, watermarks)


def test_with_one_subgroup_every_slot_serves_every_slave():
    core = new_core()
    assert core.step(even(core, 10, (5, 6))) == [Serve(1, 1, 0, (5, 6), False), Serve(2, 1, 0, (5, 6), False)]
    assert core.step(even(core, 10, (7, 8))) == [Serve(1, 1, 1, (7, 8), False), Serve(2, 1, 1, (7, 8), False)]


def test_with_two_subgroups_slots_take_turns_and_bring_all_that_waits():
    core = new_core(slaves=(1, 2, 3), subgroups=2)
    served = [core.step(even(core, 10, (time, time))) for time in range(4)]
    assert served == [
        [Serve(1, 1, 0, (0, 0), False), Serve(3, 1, 0, (0, 0), False)],
        [Serve(2, 2, 0, (1, 1), False)],
        [Serve(1, 2, 1, (2, 2), False), Serve(3, 2, 1, (2, 2), False)],
        [Serve(2, 2, 1, (3, 3), False)],
    ]


def test_a_part_within_a_tick_waits_and_gives_no_watermark():
    core = new_core(slaves=(1,))
    assert core.step(even(core, 10, None)) == []
    assert core.step(even(core, 10, (1, 2))) == [Serve(1, 2, 0, (1, 2), False)]


def test_parts_that_fill_the_buffer_are_sent_with_the_watermarks_that_held_before():
    core = new_core(slaves=(1,), master_buffer=100)
    assert core.step(even(core, 100, None)) == [Serve(1, 1, 0, never(2), False)]
    core.step(Consumed(1, 100))
    assert core.step(even(core, 10, (1, 2))) == [Serve(1, 1, 0, (1, 2), False)]
    assert core.step(even(core, 100, None)) == [Serve(1, 1, 1, (1, 2), False)]


def test_a_message_is_at_most_the_credit_but_never_nothing_for_an_idle_slave():
    core = new_core(slaves=(1,), buffer=100)
    core.step(even(core, 60, None))
    core.step(even(core, 60, None))
    assert core.step(even(core, 60, (1, 1))) == [Serve(1, 1, 0, never(2), False)]
    assert core.step(Consumed(1, 60)) == [Serve(1, 1, 1, never(2), False)]  # It only lacked credit.
    assert core.step(even(core, 500, (2, 2))) == []
    assert core.step(Consumed(1, 60)) == [Serve(1, 1, 2, (1, 1), False)]
    assert core.step(SourceEnded(END)) == [CloseInput()]
    assert core.step(Consumed(1, 60)) == [Serve(1, 1, 2, (2, 2), False)]  # These 500 bytes are five times its buffer.
    assert core.step(Consumed(1, 500)) == [Serve(1, 1, 2, END, True)]


def test_the_source_is_read_while_any_slave_is_hungry():
    core = new_core(buffer=AHEAD_BYTES * 4, master_buffer=AHEAD_BYTES * 1000)
    for _ in range(AHEAD_SLOTS):
        assert core.wants_input
        core.step(even(core, AHEAD_BYTES, (1, 1)))
    assert not core.wants_input
    core.step(Consumed(2, AHEAD_BYTES))
    assert core.wants_input


def test_small_messages_may_be_more_but_not_without_end():
    core = new_core(slaves=(1,))
    for slot in range(AHEAD_SLOTS_MAX):
        assert core.wants_input, slot
        core.step(even(core, 0, (slot, slot)))
    assert not core.wants_input


def test_idle_slaves_are_not_hungry_and_get_nothing_but_the_end():
    core = new_core(slaves=(1, 2, 3), active=(2,), buffer=AHEAD_BYTES * 4, master_buffer=AHEAD_BYTES * 1000)
    for _ in range(AHEAD_SLOTS):
        assert [action.slave for action in core.step(even(core, AHEAD_BYTES, (1, 1)))] == [2]
    assert core.active == (2,) and not core.wants_input
    assert [action.slave for action in core.step(SourceEnded(END))[1:]] == [1, 2, 3]


def moving_core(paced=False, **settings):
    """Returns a core in which group 0, the only one of slave 1, is being handed to slave 2."""
    reorganization = Reorganization(lambda view: Plan((Move(0, 1, 2),)), 1, 1)
    settings = {"buffer_bytes": 1000, "master_buffer_bytes": 10_000, **settings}
    settings["pacing"] = new_pacing() if paced else None
    core = MasterCore(MasterSetup(PartitionTable.even(1, (1,)), (1, 2), reorganization=reorganization, **settings))
    core.step(even(core, 900, (1, 1)))
    core.step(Loaded(1, 0, 0.0, 0.5, 0.0, ()))
    return core


def test_the_source_is_read_on_while_all_groups_are_held_until_the_buffer_is_full():
    core = moving_core()
    core.step(even(core, 0, (2, 2)))
    assert not core.wants_input  # Slave 1 has two messages to join.
    core.step(Stepped(0, 1, "shipped"))
    core.step(Held(0, ()))
    assert core.active == () and core.wants_input
    assert core.step(Ingested({}, {0: 9_999}, (3, 3))) == [] and core.wants_input
    assert core.step(Ingested({}, {0: 1}, None)) == [] and not core.wants_input


def test_what_was_held_is_sent_before_what_waits_and_alone():
    core = moving_core()
    core.step(Stepped(0, 1, "shipped"))
    core.step(Held(0, ()))
    core.step(Ingested({}, {0: 30}, (7, 8)))
    core.step(Ingested({}, {0: 40}, None))
    assert core.step(Stepped(0, 2, "installed")) == [Deliver(0, 0, 2), Command(0, "drop", 1, 0, 2)]
    assert core.step(Delivered(0, (Waited(2, 50, (6, 9)), Waited(2, 20, ())))) == [
        Serve(2, 1, 2, (6, 8), False),
        Serve(2, 1, 2, (7, 8), False),
    ]
    assert core.slaves[2].unconsumed_bytes == 70


@pytest.mark.parametrize("paced", [False, True])
def test_after_the_end_nobody_waits_for_a_turn_although_a_move_is_open(paced):
    core = moving_core(paced, subgroups=2, master_buffer_bytes=100_000)
    core.step(Stepped(0, 1, "shipped"))
    core.step(Held(0, ()))
    core.step(Stepped(0, 2, "installed"))
    core.step(Delivered(0, (Waited(2, 0, ()),)))
    core.step(Consumed(2, 0))
    core.step(Ingested({2: 50}, {}, (2, 2)))  # Slot 1 is slave 2's, slot 2 is not.
    assert core.step(Ingested({2: 60}, {}, (3, 3))) == []
    core.step(SourceEnded(END))
    assert core.step(Consumed(2, 50)) == [Serve(2, 1, 1, (3, 3), False)]


def test_paced_the_source_is_read_as_time_passes_however_much_the_slaves_have_to_join():
    core = new_core(pacing=new_pacing())
    for slot in range(AHEAD_SLOTS_MAX + 1):
        core.step(even(core, 0, (slot, slot)))
        assert core.wants_input


def test_paced_what_lacked_credit_follows_and_what_is_not_due_waits_for_its_slot():
    core = new_core(pacing=new_pacing(), subgroups=2, buffer=100)
    assert core.step(even(core, 80, (1, 1))) == [Serve(1, 1, 0, (1, 1), False)]
    assert core.step(even(core, 80, (2, 2))) == [Serve(2, 1, 0, (1, 1), False)]  # Two wait, and one fits.
    assert core.step(Consumed(1, 80)) == []  # The second is due in slot 2.
    assert core.step(Consumed(2, 80)) == [Serve(2, 1, 1, (2, 2), False)]
    assert core.step(even(core, 80, (3, 3))) == [Serve(1, 1, 1, (2, 2), False)]


def test_a_full_buffer_pauses_the_source_and_names_the_slave_that_holds_most():
    core = new_core(buffer=10, master_buffer=100)
    core.step(Ingested({1: 5, 2: 10}, {}, (1, 1)))
    assert core.step(Ingested({1: 5, 2: 60}, {}, (2, 2))) == [Serve(1, 1, 1, (2, 2), False)]
    assert core.wants_input and core.held_back_by == {1: 0, 2: 0}
    core.step(Consumed(1, 5))
    assert core.step(Ingested({1: 5, 2: 60}, {}, (3, 3))) == [Serve(1, 1, 2, (3, 3), False)]
    assert not core.wants_input and core.held_back_by == {1: 0, 2: 1}
    assert core.step(Consumed(2, 10)) == [Serve(2, 1, 3, (2, 2), False)]
    assert core.wants_input


def test_a_full_buffer_gives_every_subgroup_its_turn_at_once():
    core = new_core(slaves=(1, 2, 3), subgroups=3, master_buffer=30)
    actions = core.step(even(core, 10, None))
    assert [action.slave for action in actions] == [1, 2, 3]


def test_what_a_slave_consumes_while_the_source_pauses_is_followed_at_once():
    core = new_core(slaves=(1, 2), subgroups=2, buffer=10, master_buffer=40)
    core.step(even(core, 10, (1, 1)))  # Slot 0 is that of slave 1.
    core.step(even(core, 10, (2, 2)))  # In slot 1 slave 2 gets one piece, which fills its buffer.
    core.step(even(core, 10, (3, 3)))
    assert not core.wants_input
    assert core.step(Consumed(2, 10)) == [Serve(2, 1, 1, (2, 2), False)]


def test_the_end_comes_to_every_slave_once():
    core = new_core(slaves=(1, 2, 3), subgroups=3)
    core.step(even(core, 10, (1, 1)))
    first, *ends = core.step(SourceEnded(END))
    assert first == CloseInput()
    assert ends == [Serve(1, 1, 0, END, True), Serve(2, 2, 0, END, True), Serve(3, 2, 0, END, True)]
    assert not core.wants_input
    assert [core.step(Consumed(*one)) for one in ((1, 10), (1, 0), (2, 10), (3, 10))] == [[]] * 4


def new_schedule(**wanted):
    """Returns the schedule of a run that begins at second 0 and whose walltime ends after 100 seconds."""
    return Schedule(Checkpoint(**wanted), 1, 0.0, 100.0)


def test_a_checkpoint_that_is_due_is_cut_after_the_next_whole_tick_between_what_was_sent_and_what_waits():
    core = new_core(slaves=(1, 2), schedule=new_schedule(every_ns=10 * SECOND_NS))
    core.step(Ticked(9.9))
    core.step(even(core, 5, (5, 6)))
    assert Cut not in kinds(core.step(even(core, 5, (6, 7)))), "it was not due when the last tick ended"
    core.step(Ticked(10.0))
    assert Cut not in kinds(core.step(even(core, 5, (7, 8)))), "it is due from here on"
    assert core.step(Ingested({1: 5, 2: 5}, {}, None)) == []
    assert core.step(even(core, 5, (8, 9)))[-1] == Cut(4, (8, 9))
    core.step(Ticked(30.0))
    assert core.wants_input
    for time in (10, 11):
        assert Cut not in kinds(core.step(even(core, 5, (time, time)))), "one at a time"
    core.step(SaveEnded())
    core.step(even(core, 5, (12, 12)))
    assert core.step(even(core, 5, (13, 13)))[-1] == Cut(8, (13, 13))


def test_the_next_checkpoint_is_due_so_long_after_the_last_one_began():
    core = new_core(slaves=(1,), buffer=1 << 20, schedule=new_schedule(every_ns=10 * SECOND_NS))
    cut_s = []
    for now_s in range(35):
        core.step(Ticked(now_s))
        cut_s += [now_s for action in core.step(even(core, 5, (now_s, now_s))) if isinstance(action, Cut)]
        core.step(SaveEnded())
    assert cut_s == [11, 22, 33], "each is cut a tick after it was due, and the time counts from there"


def test_the_metrics_are_cut_with_the_first_checkpoint_after_ten_minutes():
    core = new_core(slaves=(1,), buffer=1 << 20, schedule=new_schedule(epochs=1))
    cuts = []
    for time in range(8):
        core.step(Ticked(200.0 * time))
        cuts += [action for action in core.step(even(core, 5, (time, time))) if isinstance(action, Cut)]
        core.step(SaveEnded())
    assert [cut.slots for cut in cuts] == [2, 4, 6, 8] and [cut.metrics for cut in cuts] == [False, True, False, True]


def test_a_run_whose_walltime_ends_within_the_margin_stops_at_a_checkpoint():
    core = new_core(slaves=(1, 2), buffer=10, schedule=new_schedule(margin_ns=60 * SECOND_NS))
    core.step(even(core, 10, (1, 1)))
    assert core.step(Ticked(39.9)) == []
    reason = "the walltime ends soon"
    assert core.step(Ticked(40.0)) == [Stopping(reason), Cut(1, (1, 1), reason, metrics=True)]
    assert core.step(Ticked(40.1)) == [] == core.step(StopAsked("SIGUSR1")), "it is said once"


def test_nothing_follows_a_checkpoint_that_stops_the_run():
    core = new_core(slaves=(1, 2), buffer=10)
    core.step(even(core, 10, (1, 1)))
    core.step(even(core, 10, None))
    assert core.step(StopAsked("SIGUSR1")) == [Stopping("SIGUSR1")], "a tick is under way"
    assert core.wants_input, "it ends, so that the run can"
    assert core.step(even(core, 10, (2, 2))) == [Cut(2, (2, 2), "SIGUSR1", metrics=True)]
    assert not core.wants_input
    assert core.step(Consumed(1, 10)) == []


def test_a_stop_after_the_end_of_the_input_is_cut_at_once_and_a_mere_checkpoint_never():
    core = new_core(slaves=(1, 2), schedule=new_schedule(every_ns=SECOND_NS))
    core.step(Ticked(5.0))
    core.step(even(core, 10, (1, 1)))
    assert Cut in kinds(core.step(SourceEnded(END))), "it was due before the end went out"
    core.step(SaveEnded())
    assert core.step(Ticked(50.0)) == []
    assert core.step(StopAsked("SIGUSR1")) == [Stopping("SIGUSR1"), Cut(1, (1, 1), "SIGUSR1", metrics=True)]


def test_a_stop_that_is_asked_for_while_a_checkpoint_is_open_is_cut_when_that_one_has_ended():
    core = new_core(slaves=(1, 2), schedule=new_schedule(every_ns=SECOND_NS))
    core.step(Ticked(5.0))
    core.step(even(core, 10, (1, 1)))
    assert Cut in kinds(core.step(SourceEnded(END)))
    assert core.step(StopAsked("SIGTERM")) == [Stopping("SIGTERM")], "one at a time"
    assert core.step(SaveEnded()) == [Cut(1, (1, 1), "SIGTERM", metrics=True)], "no slot is to come that would bring it"
    assert core.step(SaveEnded()) == []


def test_a_stop_while_a_checkpoint_is_open_and_no_input_is_wanted_needs_no_further_slot():
    core = new_core(slaves=(1, 2), buffer=10, schedule=new_schedule(every_ns=SECOND_NS))
    core.step(Ticked(5.0))
    core.step(even(core, 10, (1, 1)))
    while core.wants_input:
        core.step(even(core, 1000, (2, 2)))
    assert core.step(StopAsked("SIGTERM")) == [Stopping("SIGTERM")]
    assert Cut in kinds(core.step(SaveEnded()))


def test_when_all_have_finished_there_is_nothing_to_save():
    core = new_core(slaves=(1, 2))
    core.step(SourceEnded(END))
    for slave in (1, 2):
        core.step(Consumed(slave, 0))
        core.step(RankFinished(slave))
    assert core.step(StopAsked("SIGUSR1")) == []


def test_what_waited_at_a_checkpoint_goes_first_each_item_with_the_watermarks_that_what_waits_behind_it_allows():
    core = MasterCore(MasterSetup(PartitionTable((1, 2, 1)), (1, 2), 45, 10_000, slots=4, complete=(5, 6)))
    sent = core.step(Resumed((Waited(1, 30, (2, TIME_MAX)), Waited(2, 7, ()), Waited(1, 20, (TIME_MAX, 3)))))
    serves = [action for action in sent if isinstance(action, Serve)]
    assert [one[:4] for one in serves] == [(1, 1, 4, (2, 6)), (2, 1, 4, (5, 6))]
    assert core.step(Consumed(1, 30)) == [Serve(1, 1, 4, (5, 3), False)], "as far as credit goes"


def test_an_input_without_rows_still_ends():
    core = new_core()
    assert core.step(SourceEnded(END)) == [CloseInput(), Serve(1, 1, 0, END, True), Serve(2, 1, 0, END, True)]


def finished_core():
    core = new_core(finishing=(3,))
    core.step(SourceEnded(END))
    for slave in (1, 2):
        core.step(Consumed(slave, 0))
    return core


def test_the_run_is_complete_when_slaves_and_collector_have_finished_in_any_order():
    for order in ((1, 2, 3), (2, 3, 1)):
        core = finished_core()
        assert [core.step(RankFinished(rank)) for rank in order] == [[], [], [Complete()]]


def described(thing):
    """Returns all that the thing holds, as text."""
    if isinstance(thing, np.ndarray):
        return str(thing.tolist())
    if hasattr(thing, "__dict__") and not callable(thing):
        return described(vars(thing))
    if isinstance(thing, dict):
        return str({str(key): described(value) for key, value in thing.items()})
    return str(thing)


def ended(core):
    core.step(SourceEnded(END))
    return core


def busy(core):
    core.step(even(core, 10, (1, 1)))
    return core


def half_finished():
    core = finished_core()
    core.step(RankFinished(1))
    return core


@pytest.mark.parametrize(
    "core, event, message",
    [
        (ended(new_core()), Ingested({1: 1, 2: 1}, {}, None), "producer got input after the source had ended"),
        (ended(new_core()), SourceEnded(END), "producer got the end of the source twice"),
        (busy(new_core()), Consumed(1, 11), "slave 1 reports 11 bytes consumed, but it was sent 10 in 1 messages"),
        (new_core(), Consumed(2, 0), "slave 2 reports 0 bytes consumed, but it was sent 0 in 0 messages"),
        (new_core(), RankFinished(1), "slave 1 finished before it had joined all its input"),
        (ended(busy(new_core())), RankFinished(2), "slave 2 finished before it had joined all its input"),
        (half_finished(), RankFinished(1), "rank 1 finished twice, or takes no part"),
        (new_core(), Complete(), "coordinator got Complete, which is no event of its own"),
        (new_core(), RankFinished(7), "rank 7 finished twice, or takes no part"),
    ],
)
def test_an_illegal_event_is_refused_by_name_and_changes_nothing(core, event, message):
    before = described(core)
    with pytest.raises(ProtocolError) as error:
        core.step(event)
    assert message in str(error.value)
    assert described(core) == before
