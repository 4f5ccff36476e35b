"""Members of a group that is spread come and go by the coordinator's word: beside answers that are on their way, before
and after a checkpoint, and at the end."""

import pytest

from mpijoin.checkpoint.schedule import Schedule
from mpijoin.config.job import LARGEST, Checkpoint
from mpijoin.coordinator.core import CoordinatorCore
from mpijoin.coordinator.events import Ask, Chosen, GoesOn, SaveEnded, Stepped, StopAsked, Stopping, Tell
from mpijoin.coordinator.reorganization import Loaded, Reorganization
from mpijoin.coordinator.setup import MasterSetup
from mpijoin.coordinator.spreads import Spreads
from mpijoin.errors import ProtocolError
from mpijoin.partitioning.table import Copy, PartitionTable
from mpijoin.policy.plan import Gather, Plan, Relocate, Spread
from mpijoin.policy.view import GroupView
from mpijoin.producer.events import Align, Close, CutAsked, InputEnded, SlotEnded, ToMembers

SLAVES = (1, 2, 3, 4)
OCTETS = 1000


class Master:
    """A coordinator whose policy wants what a list says. Slots end and slaves answer when a test says so."""

    def __init__(self, plans=()):
        plans, self.slots, self.moves = list(plans), 0, 0
        self.reorganization = Reorganization(lambda _: plans.pop(0) if plans else Plan(), 1, 4, may_spread=True)
        schedule = Schedule(Checkpoint(), 1, 0.0, None)
        own = {"reorganization": self.reorganization, "schedule": schedule}
        self.core = CoordinatorCore(MasterSetup(PartitionTable.even(8, SLAVES), SLAVES, 1000, 10_000, **own))

    def slot(self):
        self.slots += 1
        return self.core.step(SlotEnded(0, self.slots, {}, self.slots))

    def answer(self, slaves, period):
        groups = (GroupView(0, 0.4, OCTETS, 0.4),)
        return [action for slave in slaves for action in self.core.step(Loaded(slave, period, 0.0, 0.5, 0.0, groups))]

    def spread(self, member):
        """One more member comes, as the policy wants it."""
        while not (asked := asks(self.slot())):
            pass
        self.answer(SLAVES, asked[0].period)
        actions = self.comes(member)
        self.answer(SLAVES, self.reorganization.period)
        return actions

    def comes(self, member, dealt=0):
        self.moves += 1
        self.core.step(Stepped(self.moves - 1, member, "installed"))
        return self.core.step(Stepped(self.moves - 1, 1, "dealt", dealt))

    def leaves(self, member):
        self.moves += 1
        self.core.step(Stepped(self.moves - 1, member, "dropped"))
        return self.core.step(Stepped(self.moves - 1, 1, "installed"))

    def members(self):
        return [copy.slave for copy in self.core.table.copies_of(0)] or [self.core.table.owner_of(0)]


def told(actions, kind):
    return [action.directive for action in actions if isinstance(action, Tell) and isinstance(action.directive, kind)]


def asks(actions):
    return [action for action in actions if isinstance(action, Ask)]


def shared(*members):
    """A master with group 0 shared by slave 1 and these."""
    master = Master([Plan((Spread(0, 1, (one,)),)) for one in members])
    for one in members:
        master.spread(one)
    assert master.members() == [1, *members]
    return master


def test_rows_are_dealt_among_those_who_have_joined_all_before():
    master = Master([Plan((Spread(0, 1, (2,)),)), Plan((Gather(0, 2),))])
    actions = master.spread(2)
    assert told(actions, ToMembers) == [ToMembers(0, 0, (1, 2), 0)]
    assert master.core.table.copies_of(0) == (Copy(1, dealt=0), Copy(2, dealt=0))
    asked = asks(master.slot())
    actions = master.answer(SLAVES, asked[0].period)
    assert told(actions, Align) == [Align(1, 0, 2, 1, ((2, "give"), (1, "take")), 0)]
    assert told(master.leaves(2), ToMembers) == [ToMembers(1, 0, (1,), 0)]
    assert master.core.table.owner_of(0) == 1 and master.core.table.copies_of(0) == ()


def test_a_member_that_has_no_room_does_not_come_and_the_first_one_keeps_all():
    master = Master([Plan((Spread(0, 1, (2,)),))])
    master.answer(SLAVES, asks(master.slot())[0].period)
    master.core.step(Stepped(0, 2, "refused"))
    actions = master.core.step(Stepped(0, 1, "restored"))
    assert told(actions, ToMembers) == [ToMembers(0, 0, (1,), -1)] and master.core.table.owner_of(0) == 1


def test_a_change_counts_once_among_those_under_way_with_its_bytes():
    master = shared(2)
    plans = [Plan((Gather(0, 2),))]
    master.reorganization._policy = lambda _: plans.pop()
    master.answer(SLAVES, asks(master.slot())[0].period)
    assert master.reorganization._under_way[:2] == (1, OCTETS)


def test_an_answer_that_comes_after_a_gather_is_thrown_away_and_all_are_asked_anew():
    """A checkpoint may gather while slaves are asked for their loads. It must not ask those who have not answered yet
    a second time, or the first answer is taken for a wrong one."""
    master = shared(2)
    period = asks(master.slot())[0].period
    master.answer((1, 2, 3), period)
    master.core.step(StopAsked("signal"))
    actions = master.leaves(2)
    assert told(actions, CutAsked) and not asks(actions)
    assert [one.slave for one in asks(master.answer((4,), period))] == [1, 2, 3, 4]
    assert master.answer(SLAVES, master.reorganization.period) == []


def test_an_answer_during_a_gather_decides_nothing():
    master = shared(2)
    period = asks(master.slot())[0].period
    master.answer((1, 2, 3), period)
    master.core.step(StopAsked("signal"))
    assert master.answer((4,), period) == []
    assert len(asks(master.leaves(2))) == len(SLAVES)


def test_a_stop_gathers_and_is_cut_as_soon_as_each_group_has_one_slave():
    master = shared(2, 3, 4)
    stopping, *gathers = master.core.step(StopAsked("signal"))
    assert isinstance(stopping, Stopping) and len(told(gathers, Align)) == 1
    for member in (4, 3):
        actions = master.leaves(member)
        assert len(told(actions, Align)) == 1 and not told(actions, CutAsked)
    actions = master.leaves(2)
    assert told(actions, CutAsked) == [CutAsked("signal", True)] and master.members() == [1]
    assert not told(master.core.step(SaveEnded()), Align), "nothing follows a checkpoint that ends the run"


def test_members_that_left_for_a_checkpoint_come_back_behind_it_in_their_order():
    master = shared(2, 3)
    master.core._saves.wanted = True
    assert len(told(master.slot(), Align)) == 1
    master.leaves(3)
    actions = master.leaves(2)
    assert told(actions, CutAsked) == [CutAsked("", False)] and master.members() == [1]
    master.answer(SLAVES, asks(actions)[0].period)
    master.slot()
    actions = master.core.step(SaveEnded())
    assert told(actions, Align) == [Align(4, 0, 1, 2, ((1, "spread"),), -1)]
    actions = master.comes(2, dealt=1)
    assert told(actions, Align) == [Align(5, 0, 1, 3, ((1, "spread"),), 1)] and not asks(actions)
    assert len(asks(master.comes(3))) == len(SLAVES), "once all are back, loads are measured anew"
    assert master.members() == [1, 2, 3] and master.core.step(SaveEnded()) == []


def test_several_come_one_after_the_other_and_one_who_has_not_come_does_so_behind_a_checkpoint():
    master = Master([Plan((Spread(0, 1, (4, 2, 3)),))])
    master.answer(SLAVES, asks(master.slot())[0].period)
    actions = master.comes(4)
    assert told(actions, Align) == [Align(1, 0, 1, 2, ((1, "spread"),), 0)] and not asks(actions)
    master.core._saves.wanted = True
    assert not told(master.comes(2), CutAsked)
    master.leaves(2)
    assert told(master.leaves(4), CutAsked)
    master.core.step(SaveEnded())
    for member in (4, 2, 3):
        master.comes(member)
    assert master.members() == [1, 4, 2, 3] and not master.core.moves


def test_after_one_that_has_no_room_no_other_comes_back():
    master = shared(2, 3)
    master.core._saves.wanted = True
    master.slot()
    master.leaves(3), master.leaves(2)
    master.core.step(SaveEnded())
    master.core.step(Stepped(4, 2, "refused"))
    actions = master.core.step(Stepped(4, 1, "restored"))
    assert not told(actions, Align) and master.members() == [1]


def test_a_stop_that_comes_when_the_end_has_gone_out_to_all_is_told_that_it_is_too_late():
    master = shared(2)
    assert told(master.core.step(InputEnded(0)), Close)
    assert master.core.step(StopAsked("signal")) == [GoesOn("signal")]


def test_a_policy_may_spread_only_where_the_job_may():
    master = Master([Plan((Spread(0, 1, (2,)),))])
    master.reorganization._may_spread = False
    with pytest.raises(ProtocolError, match="wanted none, for the job does not allow it"):
        master.answer(SLAVES, asks(master.slot())[0].period)


def test_the_last_wish_says_who_is_to_come():
    spreads = Spreads(PartitionTable.even(8, SLAVES))
    for consumers in ((2, 3), (3,)):
        assert spreads.spread(Spread(0, 1, consumers, "")).consumer == consumers[0]
    assert spreads.come_next() == []


def test_what_waits_for_moves_goes_on_when_the_last_one_was_a_relocation():
    master = Master([Plan((Relocate(1, 2, OCTETS, LARGEST),))])
    master.answer(SLAVES, asks(master.slot())[0].period)
    master.core._saves.wanted = True
    assert told(master.core.step(Chosen(0, 1, ())), CutAsked)
