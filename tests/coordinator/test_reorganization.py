"""What the policy is shown (f_i, inflow, what moved when), and when nobody is asked."""

import pytest

from mpijoin.coordinator.events import Ask, Decided, Stepped
from mpijoin.coordinator.master import MasterCore
from mpijoin.coordinator.reorganization import INFLOW_MAX, Loaded, Reorganization
from mpijoin.coordinator.setup import MasterSetup
from mpijoin.errors import ProtocolError
from mpijoin.partitioning.table import PartitionTable
from mpijoin.policy.plan import Collect, Move, Plan, Relocate, Resize, Spill
from mpijoin.policy.view import GroupView, Moving
from mpijoin.producer.events import Consumed, Held, Ingested, SourceEnded
from mpijoin.time_events import Ticked
from pacings import new_pacing


class Asked:
    """A policy that keeps what it is shown and answers with the next of its plans."""

    def __init__(self, *plans):
        self.views, self._plans = [], list(plans)

    def __call__(self, view):
        self.views.append(view)
        return self._plans.pop(0) if self._plans else Plan()


def new_core(policy, slots=2, slaves=(1, 2), active=None, subgroups=1, paced=True, buffer=1000, load_buffer=None):
    own = Reorganization(policy, slots, len(slaves), 5, load_buffer, 1 << 20)
    table = PartitionTable.even(4, active or slaves)
    pacing = new_pacing() if paced else None
    return MasterCore(MasterSetup(table, slaves, buffer, 1 << 30, subgroups, pacing=pacing, reorganization=own))


def ticks(core, *octets, first=0):
    """Feeds ticks that bring so many bytes for each active slave. Returns the actions of the last one."""
    for time, own in enumerate(octets, first):
        actions = core.step(Ingested(dict.fromkeys(core.active, own), {}, (time, time)))
    return actions


def answer(core, period=0, backlog=0.0, busy=0.5, groups=()):
    return [core.step(Loaded(slave, period, backlog, busy, 0.1, groups)) for slave in core.active][-1]


def shown(paced=True, octets=(100, 100), backlog=30.0, **settings):
    policy = Asked()
    core = new_core(policy, paced=paced, **settings)
    ticks(core, *octets)
    answer(core, backlog=backlog, busy=0.8)
    return policy.views[0]


def test_the_active_slaves_are_asked_when_the_reorganization_epoch_ends():
    core = new_core(Asked(), slots=3, slaves=(1, 2, 3), active=(1, 2))
    assert not any(isinstance(action, Ask) for action in ticks(core, 10, 10))
    assert ticks(core, 10)[-2:] == [Ask(1, 0), Ask(2, 0)]


def test_a_part_within_a_tick_is_no_slot():
    core = new_core(Asked(), slots=1)
    assert core.step(Ingested({1: 10, 2: 10}, {}, None)) == []
    assert ticks(core, 10)[-1] == Ask(2, 0)


def test_the_number_of_slots_may_change_while_it_runs():
    core = new_core(Asked(), slots=100)
    ticks(core, 1, 1, 1)
    core.coordinator.reorganization.slots = 4
    assert ticks(core, 1)[-1] == Ask(2, 0)


def test_occupancy_is_the_mean_backlog_by_the_load_buffer():
    assert [slave.occupancy for slave in shown(load_buffer=60).slaves] == [0.5, 0.5]


def test_without_a_load_buffer_it_is_the_bytes_of_two_distribution_epochs_of_a_slave():
    # A slave gets 200 bytes in 2 slots. With one sub-group this is two epochs of 100, with two one epoch of 200.
    assert [slave.occupancy for slave in shown().slaves] == [30 / 200] * 2
    assert next(slave.occupancy for slave in shown(subgroups=2).slaves) == 30 / 400


def test_what_is_due_and_lacks_credit_counts_as_backlog():
    # The second and the third message do not fit, so 0, 100 and 200 bytes are overdue after the slots.
    view = shown(octets=(100, 100, 100), slots=3, buffer=150)
    assert [slave.occupancy for slave in view.slaves] == [(30 + 100) / 200] * 2


def test_what_is_not_yet_due_is_no_backlog():
    # Every second slot is slave 2's. What it is sent then had only waited for its turn.
    view = shown(octets=(100, 100), subgroups=2, backlog=0.0)
    assert [slave.occupancy for slave in view.slaves] == [0.0, 0.0]


def test_as_fast_as_possible_the_load_tells():
    assert [slave.occupancy for slave in shown(paced=False).slaves] == [0.8, 0.8]


def test_idle_slaves_are_in_the_view_and_not_active():
    view = shown(slaves=(1, 2, 3), active=(2,))
    assert [(slave.slave, slave.active, slave.occupancy, slave.groups) for slave in view.slaves[::2]] == [
        (1, False, 0.0, ()),
        (3, False, 0.0, ()),
    ]
    assert [slave.slave for slave in view.active] == [2]


def test_the_view_has_what_the_run_is_about():
    view = shown()
    assert (view.period, view.slaves_min, view.seed, dict(view.moved), view.resized, view.now_s) == (0, 2, 5, {}, -1, 0)


def test_a_slave_has_the_memory_that_it_tells_or_else_that_of_the_job():
    policy = Asked()
    core = new_core(policy, slaves=(1, 2, 3), active=(1, 2))
    core.step(Ticked(8.5))
    ticks(core, 1, 1)
    core.step(Loaded(1, 0, 0.0, 0.5, 0.1, (), 700, 900))
    core.step(Loaded(2, 0, 0.0, 0.5, 0.1, ()))
    slaves = [(slave.held_bytes, slave.memory_bytes) for slave in policy.views[0].slaves]
    assert slaves == [(700, 900), (0, 1 << 20), (0, 1 << 20)] and policy.views[0].now_s == 8.5


def test_a_slave_s_groups_are_those_of_the_table_whatever_it_tells():
    policy = Asked()
    core = new_core(policy)
    ticks(core, 1, 1)
    answer(core, groups=(GroupView(2, 0.4, 70, 9.0), GroupView(3, 0.1, 80, 2.0)))
    assert [slave.groups for slave in policy.views[0].slaves] == [
        (GroupView(0, 0.0, 0), GroupView(2, 0.4, 70, 9.0)),
        (GroupView(1, 0.0, 0), GroupView(3, 0.1, 80, 2.0)),
    ]


def test_inflow_is_what_came_by_what_was_joined():
    policy = Asked()
    core = new_core(policy)
    ticks(core, 60)
    core.step(Consumed(1, 60))
    ticks(core, 90, first=1)
    answer(core)
    assert [slave.inflow for slave in policy.views[0].slaves] == [150 / 60, INFLOW_MAX]


def test_nobody_is_asked_while_an_answer_or_a_move_is_open_or_after_the_end():
    core = new_core(Asked(Plan((Move(0, 1, 2),))), slots=1)
    assert ticks(core, 1)[-1] == Ask(2, 0)
    core.step(Loaded(1, 0, 0.0, 0.5, 0.0, ()))
    assert not any(isinstance(action, Ask) for action in ticks(core, 1, 1))
    core.step(Loaded(2, 0, 0.0, 0.5, 0.0, ()))
    assert not any(isinstance(action, Ask) for action in ticks(core, 1, 1))
    core.step(Stepped(0, 2, "refused"))
    assert core.step(Stepped(0, 1, "restored"))[-2:] == [Ask(1, 4), Ask(2, 4)]
    answer(core, 4)
    assert ticks(core, 1)[-1] == Ask(2, 4)
    core.step(Loaded(1, 4, 0.0, 0.5, 0.0, ()))
    core.step(SourceEnded((99, 99)))
    assert core.step(Loaded(2, 4, 0.0, 0.5, 0.0, ())) == []


def test_when_groups_have_changed_hands_a_whole_reorganization_epoch_is_measured_anew():
    """What was measured meanwhile is thrown away, because a slave that got its groups at the end would look idle."""
    policy = Asked(Plan((Move(0, 1, 2), Move(2, 1, 2))))
    core = new_core(policy, slots=3)
    ticks(core, 10, 10, 10)
    answer(core)
    ticks(core, 10, 10)
    moved(core, 0, 0, 1, 2)
    asked = moved(core, 1, 2, 1, 2)
    assert [action for action in asked if isinstance(action, Ask)] == [Ask(2, 2)]
    assert answer(core, 2, busy=0.01) == [] and len(policy.views) == 1
    assert not any(isinstance(action, Ask) for action in ticks(core, 10, 10))
    assert ticks(core, 10)[-1] == Ask(2, 2)
    answer(core, 2, busy=0.6)
    assert [slave.load for slave in policy.views[1].slaves] == [0.0, 0.6]
    assert policy.views[1].moving == Moving(2, 0, pytest.approx(1.5 / 3)) and policy.views[0].moving is None


def asks(core, *seconds, first=10):
    """Feeds a tick at each of these seconds. Returns those at which the slaves are asked for their loads."""
    asked = []
    for tick, second in enumerate(seconds, first):
        core.step(Ticked(second))
        actions = core.step(Ingested(dict.fromkeys(core.active, 1), {}, (tick, tick)))
        asked += [second] * any(isinstance(action, Ask) for action in actions)
    return asked


def test_a_policy_says_how_long_loads_are_measured_next():
    policy = Asked(Plan(collect=Collect(0.75, 0.5)), Plan())
    core = new_core(policy, slots=4)
    assert asks(core, 1.0, 2.0, 3.0, 4.0) == [4.0]  # the first time is as long as the job says
    answer(core)
    assert asks(core, 4.25, 4.5, 4.75, 5.0) == [4.75]
    core.step(Ticked(5.25))
    answer(core, 1)
    assert [view.collected_s for view in policy.views] == [4.0, 1.25]
    assert asks(core, *range(6, 10)) == [9]  # a policy that says nothing leaves it to the job again


def test_however_short_it_is_a_whole_distribution_epoch_is_measured():
    core = new_core(Asked(Plan(collect=Collect(0.01, 0.01))), slots=3, subgroups=3)
    assert asks(core, 1.0, 2.0, 3.0) == [3.0]
    answer(core)
    assert asks(core, 4.0, 5.0, 6.0) == [6.0]


@pytest.mark.parametrize("ended_s, wanted", [(7.0, 10.0), (4.25, 4.75)])
def test_after_moves_loads_are_measured_for_as_long_as_these_took(ended_s, wanted):
    """Flux, section 5.3: "The duration of the next collection phase is set to the length of the previous move phase.
    This heuristic ensures that even if we make poor movement decisions, at most half the time is spent stalling and
    repartitioning." Here they are ordered in second 4."""
    core = new_core(Asked(Plan((Move(0, 1, 2),), collect=Collect(0.1, 0.5))), slots=4)
    asks(core, 1.0, 2.0, 3.0, 4.0)
    answer(core)
    core.step(Ticked(ended_s))
    moved(core, 0, 0, 1, 2)
    answer(core, 2)  # of before the moves had ended
    assert asks(core, *(ended_s + step / 4 for step in range(1, 20)))[0] == wanted


def test_what_a_policy_wants_to_remember_comes_back_to_it():
    policy = Asked(Plan(memory="first"), Plan(memory="second"))
    core = new_core(policy, slots=1)
    for period in range(3):
        ticks(core, 1)
        answer(core, period)
    assert [view.memory for view in policy.views] == [None, "first", "second"]


def moved(core, move, group, supplier, consumer):
    """Goes through the hand-over of a group for which nothing waits. Returns the actions at its end."""
    core.step(Stepped(move, supplier, "shipped"))
    core.step(Held(group, (0,) * len(core.slaves[supplier].waiting)))
    core.step(Stepped(move, consumer, "installed"))
    return core.step(Stepped(move, supplier, "dropped"))


def test_the_policy_learns_which_groups_changed_hands_or_were_refused_and_when():
    policy = Asked(Plan((Move(0, 1, 2), Move(1, 2, 1))))
    core = new_core(policy, slots=1)
    ticks(core, 1)
    assert isinstance(answer(core)[0], Decided)
    moved(core, 0, 0, 1, 2)
    core.step(Stepped(1, 1, "refused"))
    ticks(core, 1)
    core.step(Stepped(1, 2, "restored"))
    answer(core, period=3)
    ticks(core, 1)
    answer(core, period=3)
    assert policy.views[1].moved == {0: 1, 1: 2}
    assert [group.group for group in policy.views[1].slaves[1].groups] == [0, 1, 3]


def test_the_policy_learns_when_it_last_changed_the_degree_of_declustering():
    plans = Plan(), Plan((Move(0, 1, 2), Move(2, 1, 2), Resize((2,)))), Plan((Resize((2,)),)), Plan()
    policy = Asked(*plans)
    core = new_core(policy, slots=1)
    for period in (0, 1, 3, 4):
        ticks(core, 1)
        answer(core, period)
        if period == 1:
            moved(core, 0, 0, 1, 2)
            moved(core, 1, 2, 1, 2)
            answer(core, 3)
    assert [view.resized for view in policy.views] == [-1, -1, 1, 1]
    assert [len(view.active) for view in policy.views] == [2, 2, 1, 1]


@pytest.mark.parametrize(
    "move, owner", [(Move(9, 1, 2), "None"), (Move(0, 2, 1), "1"), (Move(0, 1, 1), "1"), (Move(0, 1, 7), "1")]
)
def test_a_plan_that_cannot_be_carried_out_is_refused_by_name(move, owner):
    core = new_core(Asked(Plan((move,))), slots=1)
    ticks(core, 1)
    with pytest.raises(ProtocolError, match=rf"group {move.group} moved from {move.supplier} to .*\(it is {owner}'s\)"):
        answer(core)


@pytest.mark.parametrize(
    "changes, fault",
    [
        ((Move(0, 1, 2), Spill(1, 4096, "largest")), r"Spill\(slave=1, octets=4096.*, and slave 1 to take part in"),
        ((Relocate(1, 2, 9, "largest"), Spill(2, 9, "largest")), "slave 2 to take part in another change, too"),
        ((Relocate(1, 2, 9, "largest"), Move(1, 2, 1)), "slave 1 to take part in another change, too"),
        ((Relocate(1, 1, 9, "largest"),), r"Relocate\(supplier=1, consumer=1, .*: wanted slaves of \(1, 2\)"),
        ((Relocate(1, 7, 9, "largest"),), r"consumer=7, .*: wanted slaves of \(1, 2\)"),
        ((Spill(1, 0, "largest"),), "octets=0, .* some bytes"),
        ((Spill(1, 9, "newest"),), "ranking='newest'.: wanted .* least productive, most productive, largest, random"),
        ((Relocate(1, 2, 9, "largest"), Resize((1,))), r"slaves \(1,\) active: .* after the plan's moves, \(1, 2\)"),
        ((Resize((1, 7)),), r"slaves \(1, 7\) active: wanted once a choice of \(1, 2\)"),
        ((Move(0, 1, 2), Resize((2,))), r"slaves \(2,\) active: .* after the plan's moves, \(1, 2\)"),
        ((Move(0, 1, 2), Move(2, 1, 2), Resize((1,))), r"slaves \(1,\) active: .* after the plan's moves, \(2,\)"),
        ((Resize((1, 2)), Resize((1, 2))), r"slaves \(1, 2\) active: wanted once"),
    ],
)
def test_a_plan_with_a_change_that_is_not_carried_out_is_refused_whole(changes, fault):
    core = new_core(Asked(Plan(changes)), slots=1)
    ticks(core, 1)
    with pytest.raises(ProtocolError, match=fault):
        answer(core)
    assert core.open_moves == 0


def test_a_plan_is_a_sequence_of_changes_and_what_a_policy_remembers_is_no_part_of_it():
    plan = Plan((Move(0, 1, 2), Resize((2,)), Move(2, 1, 2)), "what it has learned")
    assert plan.moves == (Move(0, 1, 2), Move(2, 1, 2)) and plan.active == (2,)
    assert plan == Plan(plan.changes) != Plan(plan.changes[:2])
    assert Plan().moves == () and Plan().active is None
