"""Policy "balance" on made-up histories: what it estimates, when it moves, what it never does."""


import pytest

from cluster_model import idle_view, slave_view
from mpijoin.policy import balance as policy
from mpijoin.policy.estimate import ideal_level, speeds
from mpijoin.policy.memory import MovingPace, learn
from mpijoin.policy.plan import Plan
from mpijoin.policy.view import ClusterView, Moving


def balance(one, periods=2):
    """What it wants when it has seen this for so many periods; until then nothing may move."""
    memory = one.memory
    for _ in range(periods - 1):
        plan = policy.balance(one._replace(memory=memory))
        assert plan == Plan()
        memory = plan.memory
    return policy.balance(one._replace(memory=memory))


def nodes(one):
    return learn(one).nodes(one)


def view(*slaves, slaves_min=None, memory_bytes=None, **others):
    slaves = tuple(slave._replace(memory_bytes=memory_bytes) for slave in slaves)
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
    idle = view(slave_view(1, load=1.0, groups=(1,)), slave_view(2, load=0.1, groups=(2,)), idle_view(3), slaves_min=1)
    assert balance(idle).moves == ()  # it would be as loaded there, as far as is known


def test_an_only_group_goes_to_an_idle_slave_that_is_faster():
    slow = slave_view(1, load=0.9, groups=(1,), speed=1 / 3)
    others = [slave_view(slave, load=0.5, groups=(10 * slave, 10 * slave + 1)) for slave in (2, 3)]
    for slaves_min in (1, 3):
        plan = balance(view(slow, *others, idle_view(4), idle_view(5), slaves_min=slaves_min))
        assert [(move.group, move.supplier, move.consumer) for move in plan.moves] == [(1, 1, 4)]
        assert plan.active == (2, 3, 4)
    calm = slave_view(1, load=0.2, groups=(1,), speed=1 / 3)
    assert balance(view(calm, *others, idle_view(4))).moves == ()  # it keeps up: what for?
    # One that was slow itself when it had groups is no better.
    before = balance(view(slow, *others, idle_view(4)))
    back = view(
        slave_view(4, load=0.9, groups=(1,), speed=1 / 3), *others, idle_view(1), memory=before.memory, period=20
    )
    assert (
        policy.balance(back).moves == ()
        and policy.balance(back._replace(memory=policy.balance(back).memory)).moves == ()
    )


def test_one_that_none_can_relieve_does_not_keep_others_from_getting_even():
    plan = balance(view(slave_view(4, load=1.0, groups=(99,)), *uneven().slaves))
    assert len(plan.moves) == 4 and {move.supplier for move in plan.moves} == {1}


def test_consumers_keep_room_in_their_memory():
    assert balance(uneven(memory_bytes=3 << 20)).moves == ()  # three groups of 1 MiB, of 0.8 * 3 MiB
    plan = balance(uneven(memory_bytes=5 << 20))  # one more fits 0.8 * 5 MiB
    assert sorted(move.consumer for move in plan.moves) == [2, 3]


def test_so_much_is_under_way_as_is_done_in_half_a_period():
    """Until it was measured: 64 groups, and half of the state unless that is little. Then what it took decides."""
    supplier = slave_view(1, load=0.9, groups=tuple(range(300)), state_bytes=1 << 20)
    consumers = [slave_view(slave, load=0.1, groups=(1000 + slave,)) for slave in (2, 3)]
    plan = balance(view(supplier, *consumers))
    assert len(plan.moves) == 64
    for periods, wanted in ((0.5, 64), (0.1, 128), (1.0, 32), (2.0, 16)):
        moved = view(supplier, *consumers, memory=plan.memory, moving=Moving(64, 64 << 20, periods))
        assert len(policy.balance(moved).moves) == wanted, periods
    heavy = slave_view(1, load=0.9, groups=tuple(range(12)), state_bytes=100 << 20)
    moves = balance(view(heavy, *consumers)).moves
    assert len(moves) == 6


def test_moves_that_ask_for_little_say_nothing_of_what_could_be_asked_for():
    pace = MovingPace(64, 0.5)
    assert pace.after(Moving(3, 10, 0.05), 1000) == MovingPace(64, 0.5, 0.05 / 3)
    assert pace.after(Moving(3, 300, 0.05), 1000) == MovingPace(128, 1.0, 0.05 / 3)
    assert pace.after(Moving(1, 500, 2.0), 1000) == MovingPace(1.0, 0.125, 2.0)  # the first move may be of any size


def test_a_gain_must_make_up_for_the_time_that_groups_are_under_way():
    slaves = uneven().slaves
    known = balance(view(*slaves)).memory
    for periods, moves in ((0.5, True), (3.0, False)):
        cost = known._replace(pace=MovingPace(64, 0.5, periods), has_moved=False)
        assert bool(policy.balance(view(*slaves, memory=cost)).moves) == moves


def test_speed_is_work_per_busy_second():
    true = {1: 1.0, 2: 1 / 3, 3: 0.9, 4: 2.0}
    slaves = [slave_view(slave, load=0.5, groups=(slave,), speed=speed) for slave, speed in true.items()]
    assert speeds(slaves) == pytest.approx(true)
    # Only one that is clearly slow is taken for slow, and none for fast.
    assert [node.speed for node in nodes(view(*slaves))] == [1.0, pytest.approx(1 / 3), 1.0, 1.0]


def test_a_slave_without_work_is_taken_for_as_fast_as_others():
    slaves = [slave_view(slave, load=load, groups=(slave,)) for slave, load in ((1, 0.5), (2, 0.0), (3, 0.5))]
    assert speeds(slaves) == {1: 1.0, 2: None, 3: 1.0}
    assert speeds(slaves[:1]) == {1: None}
    assert [node.speed for node in nodes(view(*slaves))] == [1.0, 1.0, 1.0]
    unmeasured = [slave._replace(groups=tuple(group._replace(work=0.0) for group in slave.groups)) for slave in slaves]
    assert speeds(unmeasured) == dict.fromkeys((1, 2, 3))


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


FALLS = [(0.98, 1.5, True), (0.98, 1.0, False), (0.98, 0.8, False), (0.6, 2.5, True), (0.3, 4.0, False)]


@pytest.mark.parametrize("load, inflow, acts", FALLS)
def test_one_that_falls_behind_is_relieved_at_once(load, inflow, acts):
    """What came asks for more than all its time, though it is busy: that is seen within one period. One that catches
    up, or stood still, must wait for the next."""
    others = [slave_view(slave, 0.0, 0.3, tuple(range(10 * slave, 10 * slave + 5))) for slave in (2, 3, 4)]
    plan = policy.balance(view(slave_view(1, 2.0, load, tuple(range(8)), inflow), *others))
    assert bool(plan.moves) == acts


def test_what_was_there_for_one_period_moves_nothing():
    even = view(*(slave_view(slave, load=0.5, groups=tuple(range(10 * slave, 10 * slave + 9))) for slave in (1, 2, 3)))
    off = even._replace(slaves=(even.slaves[0], slave_view(2, load=0.1, groups=tuple(range(20, 29))), even.slaves[2]))
    known, seen = balance(even, 4).memory, []
    for one in (off, even, off, even, even):
        plan = policy.balance(one._replace(memory=known))
        seen.append(plan)
        known = plan.memory
    assert seen == [Plan()] * 5
    assert known.noise > 0.2  # and it has learned from it
    quiet = balance(even, 4).memory
    first = policy.balance(off._replace(memory=quiet))
    # twice, and it is a change
    assert first == Plan() and policy.balance(off._replace(memory=first.memory)).moves != ()


def test_while_a_load_is_suspect_nothing_moves():
    """What it turns out to be may change where a group should go."""
    first, second, _third = uneven().slaves
    odd = view(first, second, slave_view(3, load=0.6, groups=(20, 21, 22)))
    known = None
    for _ in range(4):
        known = learn(uneven(memory=known))
    seen = policy.balance(odd._replace(memory=known))
    assert seen == Plan() and seen.memory.is_suspect(odd)
    assert policy.balance(uneven(memory=seen.memory)).moves != ()


def test_one_group_more_than_slaves_does_not_go_round():
    groups = {1: (1, 2), 2: (3,), 3: (4,)}
    slaves = [slave_view(slave, load=0.3 * len(own) + 0.002 * slave, groups=own) for slave, own in groups.items()]
    assert balance(view(*slaves), 12) == Plan()


def test_a_saturated_slave_asks_for_what_comes_not_for_what_it_manages():
    level = {inflow: nodes(view(slave_view(1, 2.0, 0.98, (1, 2), inflow)))[0].level for inflow in (0.8, 1.0, 1.5)}
    assert level == {0.8: pytest.approx(0.784), 1.0: pytest.approx(0.98), 1.5: pytest.approx(1.47)}
    assert nodes(view(slave_view(1, 0.0, 0.5, (1, 2), 1.5)))[0].level == pytest.approx(0.5)  # it has time left: jitter


def test_one_slave_that_falls_behind_is_relieved_at_smaller_differences():
    def plan(occupancy, inflow):
        groups = tuple(range(30))
        others = [slave_view(slave, 0.0, 0.9, tuple(range(100 * slave, 100 * slave + 30))) for slave in (2, 3, 4)]
        known = balance(view(slave_view(1, 0.0, 0.9, groups), *others), 8).memory
        return policy.balance(
            view(slave_view(1, occupancy, 0.99, groups, inflow), *others, memory=known._replace(settled=0))
        )

    assert plan(0.3, 1.12) == Plan()
    assert {move.supplier for move in plan(1.5, 1.12).moves} <= {1}


def test_one_slave_fewer_when_those_who_stay_have_time():
    slaves = [slave_view(slave, load=0.4, groups=tuple(range(10 * slave, 10 * slave + 4))) for slave in (1, 2, 3)]
    plan = balance(view(*slaves, slaves_min=1), 3)
    assert plan.active == (1, 2)
    assert sorted((move.group, move.consumer) for move in plan.moves) == [(30, 1), (31, 2), (32, 1), (33, 2)]
    assert balance(view(*slaves, slaves_min=3)) == Plan()


@pytest.mark.parametrize("change", [{"load": 0.47}, {"communication": 0.15}, {"occupancy": 1.5, "communication": 0.6}])
def test_no_slave_fewer_when_those_who_stay_would_be_busy(change):
    """Three at 0.4 become two at 0.6; 0.7 is the bound, communication included, and nobody may have fallen behind."""
    figures = {"load": 0.4, "communication": 0.0, "occupancy": 0.0} | change
    slaves = [slave_view(slave, groups=tuple(range(10 * slave, 10 * slave + 4)), **figures) for slave in (1, 2, 3)]
    assert balance(view(*slaves, slaves_min=1), 4).active is None


@pytest.mark.parametrize("ago, shrinks", [(1, False), (2, False), (3, True)])
def test_no_slave_fewer_soon_after_the_last_change(ago, shrinks):
    slaves = [slave_view(slave, load=0.2, groups=(slave, 10 + slave)) for slave in (1, 2, 3)]
    memory = balance(view(*slaves, slaves_min=1, resized=7), 2).memory
    plan = policy.balance(view(*slaves, slaves_min=1, resized=10 - ago, memory=memory))
    assert (plan.active is not None) == shrinks


def test_no_slave_fewer_without_memory_for_its_groups():
    slaves = [slave_view(slave, load=0.2, groups=(slave, 10 + slave)) for slave in (1, 2)]
    assert balance(view(*slaves, slaves_min=1, memory_bytes=4 << 20)) == Plan()
    assert balance(view(*slaves, slaves_min=1, memory_bytes=5 << 20), 3).active == (1,)


def test_the_slowest_leaves_with_the_least_work():
    true = {1: 1.0, 2: 0.4, 3: 1.0}
    slaves = [slave_view(slave, load=0.2, groups=(slave, 10 + slave), speed=speed) for slave, speed in true.items()]
    assert balance(view(*slaves, slaves_min=1), 3).active == (1, 3)


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
    plan = balance(view(*slaves, *(idle_view(slave) for slave in range(3, 9)), slaves_min=1), 1)
    assert plan.active == (1, 2, 3, 4, 5)


def test_between_the_bounds_the_degree_stays():
    """Two at 0.75: one would be overloaded, three are not needed."""
    slaves = [slave_view(slave, load=0.75, groups=tuple(range(10 * slave, 10 * slave + 10))) for slave in (1, 2)]
    assert balance(view(*slaves, idle_view(3), slaves_min=1)) == Plan()
