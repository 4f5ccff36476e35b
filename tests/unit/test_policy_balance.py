"""Policy "balance" on made-up histories: what it estimates, when it moves, what it never does."""

import pytest
from cluster_model import idle_view, slave_view

from mpijoin.policy.balance import balance
from mpijoin.policy.estimate import ideal_level, nodes, speeds
from mpijoin.policy.plan import Plan
from mpijoin.policy.view import ClusterView


def view(*slaves, slaves_min=None, **others):
    return ClusterView(others.pop("period", 10), slaves, slaves_min or len(slaves), **others)


def uneven(**others):
    """One slave at 0.9 with nine groups, two at 0.3 with three: 0.5 each would be even."""
    return view(
        slave_view(1, load=0.9, groups=tuple(range(9))),
        slave_view(2, load=0.3, groups=(10, 11, 12)),
        slave_view(3, load=0.3, groups=(20, 21, 22)),
        **others,
    )


def test_even_loads_stay():
    assert balance(view(*(slave_view(slave, load=0.5, groups=(slave, 10 + slave)) for slave in (1, 2, 3)))) == Plan()
    assert balance(ClusterView(0, (), 0)) == Plan()


def test_as_many_groups_move_as_the_loads_ask_for():
    plan = balance(uneven())
    assert plan.active is None
    assert sorted((move.supplier, move.consumer) for move in plan.moves) == [(1, 2), (1, 2), (1, 3), (1, 3)]
    assert [move.gain for move in plan.moves] == pytest.approx([0.1] * 4)


def test_differences_of_noise_move_nothing():
    loads = (0.55, 0.5, 0.45, 0.52, 0.47)
    slaves = [slave_view(n, load=load, groups=tuple(range(9 * n, 9 * n + 9))) for n, load in enumerate(loads, 1)]
    assert balance(view(*slaves)) == Plan()


def test_small_loads_are_left_alone():
    assert balance(view(slave_view(1, load=0.09, groups=(1, 2, 3)), slave_view(2, load=0.01, groups=(4,)))) == Plan()


def test_the_group_that_evens_out_best_goes_first():
    """A supplier at 0.8 with groups of different weight, a consumer at 0.2: 0.3 evens out exactly."""
    supplier = slave_view(1, load=0.8, groups=(1, 2, 3, 4))
    weights = (0.1, 0.3, 0.05, 0.35)
    groups = tuple(group._replace(load=load, work=load) for group, load in zip(supplier.groups, weights))
    consumer = slave_view(2, load=0.2, groups=(5,))
    consumer = consumer._replace(groups=(consumer.groups[0]._replace(work=0.2),))
    plan = balance(view(supplier._replace(groups=groups), consumer))
    assert [(move.group, move.gain) for move in plan.moves] == [(2, pytest.approx(0.3))]


@pytest.mark.parametrize("ago, moves", [(0, False), (1, False), (2, False), (3, True)])
def test_a_group_that_moved_rests_for_two_periods(ago, moves):
    plan = balance(uneven(moved=dict.fromkeys(range(9), 10 - ago)))
    assert bool(plan.moves) == moves


def test_the_last_group_stays():
    """It is what shows how fast the slave is."""
    plan = balance(view(slave_view(1, load=1.0, groups=(1,)), slave_view(2, load=0.1, groups=(2,))))
    assert plan == Plan()


def test_one_that_none_can_relieve_does_not_keep_others_from_getting_even():
    plan = balance(view(slave_view(4, load=1.0, groups=(99,)), *uneven().slaves))
    assert len(plan.moves) == 4 and {move.supplier for move in plan.moves} == {1}


def test_consumers_keep_room_in_their_memory():
    assert balance(uneven(memory_bytes=3 << 20)).moves == ()  # three groups of 1 MiB, of 0.8 * 3 MiB
    plan = balance(uneven(memory_bytes=5 << 20))  # one more fits 0.8 * 5 MiB
    assert sorted(move.consumer for move in plan.moves) == [2, 3]


def test_at_most_half_of_the_groups_and_of_their_bytes_move_at_once():
    supplier = slave_view(1, load=0.9, groups=tuple(range(12)))
    consumers = [slave_view(slave, load=0.001, groups=(20 + slave,)) for slave in (2, 3, 4, 5)]
    plan = balance(view(supplier, *consumers))
    assert 6 <= len(plan.moves) <= 8
    heavy = tuple(group._replace(state_bytes=100 << 20 if group.group < 6 else 1) for group in supplier.groups)
    groups = {group.group: group.state_bytes for group in heavy}
    plan = balance(view(supplier._replace(groups=heavy), *consumers))
    assert plan.moves and sum(groups[move.group] for move in plan.moves) <= sum(groups.values()) / 2 + (4 << 20)


def test_speed_is_work_per_busy_second():
    true = {1: 1.0, 2: 1 / 3, 3: 0.9, 4: 2.0}
    slaves = [slave_view(slave, load=0.5, groups=(slave,), speed=speed) for slave, speed in true.items()]
    assert speeds(slaves) == {1: 1.0, 2: pytest.approx(1 / 3), 3: 1.0, 4: 1.0}


def test_a_slave_without_work_is_taken_for_as_fast_as_others():
    slaves = [slave_view(slave, load=load, groups=(slave,)) for slave, load in ((1, 0.5), (2, 0.0), (3, 0.5))]
    assert speeds(slaves) == {1: 1.0, 2: 1.0, 3: 1.0}
    assert speeds(slaves[:1]) == {1: 1.0}
    unmeasured = [slave._replace(groups=tuple(group._replace(work=0.0) for group in slave.groups)) for slave in slaves]
    assert speeds(unmeasured) == {1: 1.0, 2: 1.0, 3: 1.0}


def test_one_light_group_is_enough_to_see_that_a_slave_is_fast_again():
    others = [slave_view(1, load=0.6, groups=(1, 2, 3)), slave_view(3, load=0.6, groups=(5, 6))]
    assert speeds([*others, slave_view(2, load=0.009, groups=(4,), speed=1 / 3)])[2] == pytest.approx(1 / 3)
    assert speeds([*others, slave_view(2, load=0.003, groups=(4,))])[2] == 1.0


def test_work_is_counted_in_what_it_takes_of_the_consumer():
    """Slave 1 at a third of its speed: what takes 0.1 of its time takes 0.033 of another's."""
    slow = slave_view(1, load=0.9, groups=tuple(range(9)), speed=1 / 3)
    others = [slave_view(slave, load=0.5, groups=(10 * slave, 10 * slave + 1)) for slave in (2, 3, 4)]
    pool = nodes(view(slow, *others))
    assert ideal_level(pool) == pytest.approx((0.9 / 3 + 1.5) / (1 / 3 + 3))
    moves = balance(view(slow, *others)).moves
    assert 3 <= len(moves) <= 4 and {move.supplier for move in moves} == {1}
    # The same loads of equal slaves: fewer groups go, for they are as heavy elsewhere.
    assert len(balance(view(slave_view(1, load=0.9, groups=tuple(range(9))), *others)).moves) < len(moves)


def test_a_saturated_slave_asks_for_what_comes_not_for_what_it_manages():
    level = {inflow: nodes(view(slave_view(1, 2.0, 0.98, (1, 2), inflow)))[0].level for inflow in (0.8, 1.0, 1.5)}
    assert level == {0.8: pytest.approx(0.784), 1.0: pytest.approx(0.98), 1.5: pytest.approx(1.47)}
    assert nodes(view(slave_view(1, 0.0, 0.5, (1, 2), 1.5)))[0].level == pytest.approx(0.5)  # it has time left: jitter


def test_one_slave_that_falls_behind_is_relieved_at_smaller_differences():
    def plan(occupancy, high):
        groups = tuple(range(30))
        others = [slave_view(slave, 0.0, 0.82, tuple(range(100 * slave, 100 * slave + 30))) for slave in (2, 3, 4)]
        return balance(view(slave_view(1, occupancy, high, groups), *others))

    assert plan(0.3, 0.97) == Plan()
    assert {move.supplier for move in plan(1.5, 0.97).moves} == {1}


def test_one_slave_fewer_when_those_who_stay_have_time():
    slaves = [slave_view(slave, load=0.4, groups=tuple(range(10 * slave, 10 * slave + 4))) for slave in (1, 2, 3)]
    plan = balance(view(*slaves, slaves_min=1))
    assert plan.active == (1, 2)
    assert sorted((move.group, move.consumer) for move in plan.moves) == [(30, 1), (31, 2), (32, 1), (33, 2)]
    assert balance(view(*slaves, slaves_min=3)) == Plan()


@pytest.mark.parametrize("change", [{"load": 0.47}, {"communication": 0.15}, {"occupancy": 1.5, "communication": 0.6}])
def test_no_slave_fewer_when_those_who_stay_would_be_busy(change):
    """Three at 0.4 become two at 0.6; 0.7 is the bound, communication included, and nobody may have fallen behind."""
    figures = {"load": 0.4, "communication": 0.0, "occupancy": 0.0} | change
    slaves = [slave_view(slave, groups=tuple(range(10 * slave, 10 * slave + 4)), **figures) for slave in (1, 2, 3)]
    assert balance(view(*slaves, slaves_min=1)).active is None


@pytest.mark.parametrize("ago, shrinks", [(1, False), (2, False), (3, True)])
def test_no_slave_fewer_soon_after_the_last_change(ago, shrinks):
    slaves = [slave_view(slave, load=0.2, groups=(slave, 10 + slave)) for slave in (1, 2, 3)]
    assert (balance(view(*slaves, slaves_min=1, resized=10 - ago)).active is not None) == shrinks


def test_no_slave_fewer_without_memory_for_its_groups():
    slaves = [slave_view(slave, load=0.2, groups=(slave, 10 + slave)) for slave in (1, 2)]
    assert balance(view(*slaves, slaves_min=1, memory_bytes=4 << 20)) == Plan()
    assert balance(view(*slaves, slaves_min=1, memory_bytes=5 << 20)).active == (1,)


def test_the_slowest_leaves_with_the_least_work():
    true = {1: 1.0, 2: 0.4, 3: 1.0}
    slaves = [slave_view(slave, load=0.2, groups=(slave, 10 + slave), speed=speed) for slave, speed in true.items()]
    assert balance(view(*slaves, slaves_min=1)).active == (1, 3)


def test_a_new_slave_gets_its_fair_share_at_once():
    slaves = [slave_view(slave, load=0.9, groups=tuple(range(10 * slave, 10 * slave + 10))) for slave in (1, 2)]
    plan = balance(view(*slaves, idle_view(3), idle_view(4), slaves_min=1))
    assert plan.active == (1, 2, 3)
    assert sorted(move.supplier for move in plan.moves) == [1] * 3 + [2] * 3
    assert {move.consumer for move in plan.moves} == {3}
    assert balance(view(*slaves, slaves_min=1)) == Plan()  # there is none


def test_as_many_slaves_more_as_it_takes():
    """Twice what two can do needs five at 0.85."""
    slaves = [slave_view(slave, 3.0, 1.0, tuple(range(20 * slave, 20 * slave + 20)), inflow=2.0) for slave in (1, 2)]
    plan = balance(view(*slaves, *(idle_view(slave) for slave in range(3, 9)), slaves_min=1))
    assert plan.active == (1, 2, 3, 4, 5)


def test_between_the_bounds_the_degree_stays():
    """Two at 0.75: one would be overloaded, three are not needed."""
    slaves = [slave_view(slave, load=0.75, groups=tuple(range(10 * slave, 10 * slave + 10))) for slave in (1, 2)]
    assert balance(view(*slaves, idle_view(3), slaves_min=1)) == Plan()
