"""Policy "balance" spreads a group that alone is too much for a slave, and gathers it when it cools down."""


import pytest

from mpijoin.coordinator.reorganization import check_plan
from mpijoin.errors import ProtocolError
from mpijoin.partitioning.table import Copy, PartitionTable
from mpijoin.policy.balance import balance
from mpijoin.policy.estimate import node_of
from mpijoin.policy.parts import GATHER_BELOW, SPREAD_ABOVE, changes_of_parts
from mpijoin.policy.plan import Gather, Move, Plan, Resize, Spread
from mpijoin.policy.view import ClusterView, GroupView, SlaveView

NOISE = 0.05
HOT = 0


def slave(number, own=(), parts=(), memory=None):
    """own, parts: loads by group."""
    several = [[GroupView(group, load, 1000, load) for group, load in dict(some).items()] for some in (own, parts)]
    load = sum(view.load for some in several for view in some)
    views = [tuple(some) for some in several]
    return SlaveView(number, True, load, load, 0.0, views[0], parts=views[1], memory_bytes=memory)


def view_of(*slaves, spread=(), may_spread=True, period=0, memory=None):
    return ClusterView(period, slaves, len(slaves), spread=dict(spread), may_spread=may_spread, memory=memory)


def wanted(view, fixed=()):
    works = {group.group: group.load for one in view.slaves for group in one.groups}
    pool = [node_of(one, 1.0, works) for one in view.slaves]
    return changes_of_parts(view, pool, fixed, NOISE)


OTHERS = (slave(2, {1: 0.2}), slave(3, {2: 0.1}), slave(4, {3: 0.3}))


def test_a_group_that_alone_is_too_much_gets_the_idlest_slave_and_the_plan_says_why():
    (change,) = wanted(view_of(slave(1, {HOT: 0.95}), *OTHERS))
    assert change == Spread(HOT, 1, (3,), "it asks for 0.95 of a slave's time, and 0.39 is a fair share")


@pytest.mark.parametrize("view, fixed", [
    (view_of(slave(1, {HOT: 0.95}), *OTHERS, may_spread=False), ()),
    (view_of(slave(1, {HOT: 0.95}), *OTHERS), (HOT,)),
    (view_of(slave(1, {HOT: SPREAD_ABOVE - 0.01}), *OTHERS), ()),
    (view_of(slave(1, {HOT: 0.5, 9: 0.5}), *OTHERS), ()),
    (view_of(slave(1, {HOT: 0.95}), slave(2, {1: 0.9}), slave(3, {2: 0.93})), ()),
    (view_of(slave(1, {HOT: 0.95}), slave(2, {1: 0.1}, memory=500)), ()),
], ids=["not allowed", "changed lately", "time to spare", "moves can help", "none is idler", "no room"])  # fmt: skip
def test_otherwise_it_stays_whole(view, fixed):
    assert wanted(view, fixed) == ()


def members(*loads, others=0.05, slaves=4):
    own = [slave(at, {at: others}, {HOT: load}) for at, load in enumerate(loads, 1)]
    rest = [slave(at, {at: others}) for at in range(len(loads) + 1, slaves + 1)]
    return view_of(*own, *rest, spread={HOT: tuple(range(1, len(loads) + 1))})


def test_it_is_spread_further_while_its_parts_are_too_much():
    assert [one[:3] for one in wanted(members(0.85, 0.85))] == [(HOT, 1, (3,))]
    assert wanted(members(0.9, 0.9, 0.9, 0.9)) == ()


def test_no_more_come_than_it_takes_and_no_more_than_there_are():
    """How much a slave lacks that has no time left, nobody knows."""
    assert [one.consumers for one in wanted(members(0.85, 0.85, 0.85, slaves=8))] == [(4,)]
    assert [one.consumers for one in wanted(members(*[0.85] * 5, slaves=16))] == [(6, 7)]
    assert [one.consumers for one in wanted(members(1.0, 1.0, 1.0, slaves=8))] == [(4, 5, 6)]
    assert [one.consumers for one in wanted(members(1.0, 1.0, 1.0, slaves=5))] == [(4, 5)]


def test_it_comes_together_one_by_one_when_all_of_it_fits_one_slave():
    assert wanted(members(0.15, 0.15, 0.15)) == (Gather(HOT, 3, "all of it asks for 0.45 of a slave's time"),)
    assert wanted(members(0.2, 0.2)) == (Gather(HOT, 2, "all of it asks for 0.40 of a slave's time"),)
    assert wanted(members(0.2, 0.2, others=0.4)) == (), "beside what else the first one has"


@pytest.mark.parametrize("whole", [GATHER_BELOW, 0.6, SPREAD_ABOVE - 0.01])
def test_between_the_bounds_nothing_changes_either_way(whole):
    assert wanted(members(whole / 2, whole / 2)) == ()
    assert wanted(view_of(slave(1, {HOT: whole}), *OTHERS)) == ()


def test_balance_spreads_after_the_difference_has_lasted_and_does_not_do_so_for_others():
    memory, plans = None, []
    for period in range(6):
        view = view_of(slave(1, {HOT: 0.95}), *OTHERS, period=period, memory=memory)
        plan = balance(view)
        memory, plans = plan.memory, [*plans, plan]
    spreads = [bool(plan.spreads) for plan in plans]
    assert not spreads[0] and any(spreads)
    quiet = [balance(view_of(slave(1, {HOT: 0.95}), *OTHERS)._replace(may_spread=False)) for _ in range(3)]
    assert not any(plan.spreads for plan in quiet)


TABLE = PartitionTable((1, 1, 2))
TABLE.share(0, Copy(1, dealt=0), Copy(2, dealt=0))


@pytest.mark.parametrize("change", [
    Spread(0, 1, (3,)), Spread(1, 1, (2,)), Spread(1, 1, (3, 2)), Spread(2, 2, (3,)), Gather(0, 2), Move(1, 1, 3),
])  # fmt: skip
def test_plans_that_can_be_carried_out_pass(change):
    check_plan(Plan((change,)), TABLE, (1, 2, 3))


@pytest.mark.parametrize("changes", [
    (Spread(0, 2, (3,)),), (Spread(0, 1, (2,)),), (Spread(1, 2, (3,)),), (Spread(1, 1, (1,)),), (Spread(1, 1, (4,)),),
    (Spread(1, 1, ()),), (Spread(1, 1, (2, 2)),), (Spread(1, 1, (2, 4)),), (Spread(7, 1, (2,)),),
    (Gather(0, 1),), (Gather(0, 3),), (Gather(1, 1),), (Gather(0, 2), Spread(0, 1, (3,))),
    (Move(0, 1, 3),), (Move(1, 1, 3), Spread(1, 1, (2,))), (Resize((1,)),),
])  # fmt: skip
def test_plans_that_cannot_are_refused_by_name(changes):
    with pytest.raises(ProtocolError, match="the policy wants"):
        check_plan(Plan(changes), TABLE, (1, 2, 3))
