"""Policy "threshold": what WSJ leaves open, and what is done there. The paper's own sentences:
tests/paper/test_wsj_policies.py."""

import pytest

from cluster_model import idle_view, slave_view
from mpijoin.config.job import Balance
from mpijoin.errors import JobError
from mpijoin.policy.chance import chance
from mpijoin.policy.choose import make_policy
from mpijoin.policy.plan import Plan
from mpijoin.policy.view import ClusterView

POLICY = make_policy(Balance(policy="threshold"))


def view(*slaves, slaves_min=None, **others):
    return ClusterView(others.pop("period", 3), slaves, slaves_min or len(slaves), **others)


def test_no_policy_and_an_unknown_one():
    assert make_policy(Balance()) is None
    with pytest.raises(JobError, match="got 'best', wanted one of none, threshold, balance, lazy-disk, .*flux-hybrid"):
        make_policy(Balance(policy="best"))


def test_partners_meet_in_the_order_of_their_ranks():
    slaves = [
        slave_view(1, 0.9, groups=(10, 11)),
        slave_view(2, 0.0, groups=(20, 21)),
        slave_view(3, 0.2, groups=(30, 31)),
        slave_view(4, 0.0, groups=(40, 41)),
        slave_view(5, 0.6, groups=(50, 51)),
        slave_view(6, 0.7, groups=(60, 61)),
    ]
    moves = POLICY(view(*slaves)).moves
    assert [(move.supplier, move.consumer) for move in moves] == [(1, 2), (5, 4)]


def test_thresholds_themselves_are_neutral():
    assert POLICY(view(slave_view(1, 0.5, groups=(1, 2)), slave_view(2, 0.01, groups=(3, 4)))) == Plan()
    assert len(POLICY(view(slave_view(1, 0.51, groups=(1, 2)), slave_view(2, 0.009, groups=(3, 4)))).moves) == 1


def test_thresholds_are_the_jobs():
    policy = make_policy(Balance("threshold", supplier_threshold=0.2, consumer_threshold=0.1))
    slaves = view(slave_view(1, 0.25, groups=(1, 2)), slave_view(2, 0.05, groups=(3, 4)))
    assert len(policy(slaves).moves) == 1 and POLICY(slaves) == Plan()


def test_a_supplier_keeps_its_last_group():
    assert POLICY(view(slave_view(1, 2.0, groups=(1,)), slave_view(2, groups=(2,)))).moves == ()
    # It takes no consumer away from the next supplier either.
    slaves = (slave_view(1, 2.0, groups=(1,)), slave_view(2, groups=(2,)), slave_view(3, 2.0, groups=(3, 4)))
    assert [move.supplier for move in POLICY(view(*slaves)).moves] == [3]


def test_a_random_choice_is_a_function_of_seed_period_and_slave():
    groups = tuple(range(20))

    def chosen(seed, period):
        slaves = (slave_view(1, 0.9, groups=groups), slave_view(2, groups=(30,)))
        return POLICY(view(*slaves, seed=seed, period=period)).moves[0].group

    assert chosen(1, 1) == chosen(1, 1)
    assert len({chosen(1, period) for period in range(200)}) == 20  # every group has its turn
    assert [chosen(1, period) for period in range(9)] != [chosen(2, period) for period in range(9)]


def test_chance_is_uniform():
    counts = [0] * 10
    for period in range(10_000):
        counts[chance(7, period, 3) % 10] += 1
    assert sum((count - 1000) ** 2 / 1000 for count in counts) < 27.9  # chi-squared, 9 degrees of freedom, 0.1 %


def test_the_slave_with_the_least_load_leaves_and_its_groups_go_to_the_least_loaded():
    slaves = (
        slave_view(1, 0.3, load=0.4, groups=(1, 2)),
        slave_view(2, 0.1, load=0.3, groups=(3, 4, 5)),
        slave_view(3, 0.4, load=0.25, groups=(6, 7)),
    )
    plan = POLICY(view(*slaves, slaves_min=1))
    assert plan.active == (1, 2)
    assert [(move.group, move.consumer) for move in plan.moves] == [(6, 2), (7, 1)]  # 2 is at 0.425 by then


def test_one_with_59_of_60_groups_is_not_the_one_that_leaves():
    """Though its buffer is a little emptier than that of the other, and be it that nothing was joined yet."""
    for loads in ((0.45, 0.01), (0.0, 0.0)):
        many = slave_view(1, 0.0, loads[0], tuple(range(59)))
        plan = POLICY(view(many, slave_view(2, 0.02, loads[1], (59,)), slaves_min=1))
        assert plan.active == (1,) and [move.group for move in plan.moves] == [59]


def test_of_slaves_with_equal_loads_the_one_with_the_fewest_groups_leaves_then_the_last():
    loads = ((1, 0.2), (2, 0.1), (3, 0.1), (4, 0.3))
    slaves = [slave_view(slave, 0.0, load, groups=(slave,)) for slave, load in loads]
    assert POLICY(view(*slaves, slaves_min=2)).active == (1, 2, 4)  # 2 and 3 are equal: the last
    slaves[2] = slave_view(3, 0.0, 0.1, (3, 13))
    assert POLICY(view(*slaves, slaves_min=2)).active == (1, 3, 4)


def test_the_degree_stays_between_its_bounds():
    at_least = view(slave_view(1, groups=(1, 2)), slave_view(2, groups=(3,)), idle_view(3), slaves_min=2)
    assert POLICY(at_least) == Plan()
    at_most = view(slave_view(1, 0.9, groups=(1, 2)), slave_view(2, 0.9, groups=(3, 4)), slaves_min=1)
    assert POLICY(at_most) == Plan()


def test_a_new_slave_surely_gets_a_group():
    slaves = (slave_view(1, 0.9, groups=(1, 2)), slave_view(2, 0.0, groups=(3,)), idle_view(3), idle_view(4))
    plan = POLICY(view(*slaves, slaves_min=1))
    assert plan.active == (1, 2, 3)
    assert [(move.supplier, move.consumer) for move in plan.moves] == [(1, 3)]


def test_idle_slaves_are_no_consumers_unless_the_degree_grows():
    policy = make_policy(Balance("threshold", growth=0.99))
    slaves = (slave_view(1, 0.9, groups=(1, 2)), slave_view(2, groups=(3,)), slave_view(3, groups=(4,)), idle_view(4))
    plan = policy(view(*slaves, slaves_min=1))
    assert plan.active is None and [move.consumer for move in plan.moves] == [2]
