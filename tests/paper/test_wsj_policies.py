"""Sentences of "Parallelizing Windowed Stream Joins in a Shared-Nothing Cluster", sections IV-C and V-A, each with what
checks it.

Of IV-C those on who moves what to whom; how a move is carried out: test_wsj_reorganization.py.
"""

from cluster_model import ClusterModel, idle_view, slave_view
from mpijoin.config.job import Balance
from mpijoin.policy.choose import make_policy
from mpijoin.policy.plan import Plan
from mpijoin.policy.view import ClusterView

SETTINGS = Balance(policy="threshold")
POLICY = make_policy(SETTINGS)


def plan_of(*slaves, slaves_min=None, policy=POLICY):
    return policy(ClusterView(7, slaves, slaves_min or len(slaves), seed=3))


def of_occupancies(*occupancies, groups=5):
    """Slaves 1, 2 ... with five groups each."""
    return [slave_view(n, f, groups=tuple(range(10 * n, 10 * n + groups))) for n, f in enumerate(occupancies, 1)]


def test_the_defaults_are_those_of_table_2():
    """ "0.01 | Consumer Threshold", "0.5 | Supply Threshold" """
    assert (SETTINGS.consumer_threshold, SETTINGS.supplier_threshold) == (0.01, 0.5)
    assert 0 < SETTINGS.growth < 1  # beta: "a granularity parameter"


def test_load_is_the_mean_buffer_occupancy_and_nothing_else():
    """ "We use an average buffer occupancy metric, over the current reorganization epoch, at a slave as the indication
    of the load applied to the slave." """
    busy = [slave_view(1, 0.6, 0.1, (10, 11)), slave_view(2, 0.0, 0.9, (20, 21))]
    assert [(move.supplier, move.consumer) for move in plan_of(*busy).moves] == [(1, 2)]


def test_three_categories():
    """ "A supplier has an average buffer occupancy above a threshold value, whereas a consumer is a slave with the
    average buffer occupancy below ...; the rest of the nodes, which are neither supplier nor consumer, are classified
    as the neutrals." """
    moves = plan_of(*of_occupancies(0.51, 0.5, 0.2, 0.01, 0.009, 0.8, 0.0)).moves
    assert {move.supplier for move in moves} == {1, 6}
    assert {move.consumer for move in moves} == {5, 7}


def test_a_supplier_yields_to_a_consumer_what_it_has():
    """ "A supplier yields a partition-group to a consumer node" """
    (move,) = plan_of(*of_occupancies(0.9, 0.0)).moves
    assert move.group in range(10, 15) and (move.supplier, move.consumer) == (1, 2)


def test_each_supplier_yields_one_group():
    """ "each supplier yield only one randomly selected partition-group to a consumer" """
    moves = plan_of(*of_occupancies(9.0, 9.0, 0.0, 0.0, 0.0, 0.0)).moves
    assert sorted(move.supplier for move in moves) == [1, 2]
    assert len({move.consumer for move in moves}) == 2
    groups = {POLICY(ClusterView(period, tuple(of_occupancies(9.0, 0.0)), 2)).moves[0].group for period in range(100)}
    assert groups == set(range(10, 15))


def test_each_consumer_has_its_own_supplier():
    """ "For each consumer, the master node selects a supplier ... The supplier-consumer pairs can be identified by a
    single scan over the list of the slave nodes." """
    policy = make_policy(Balance(policy="threshold", growth=0.99))
    more_consumers = plan_of(*of_occupancies(0.0, 0.9, 0.0, 0.9, 0.0), policy=policy).moves
    assert [(move.supplier, move.consumer) for move in more_consumers] == [(2, 1), (4, 3)]
    more_suppliers = plan_of(*of_occupancies(0.9, 0.9, 0.0, 0.9), policy=policy).moves
    assert [(move.supplier, move.consumer) for move in more_suppliers] == [(1, 3)]


def test_neither_without_a_consumer_nor_without_a_supplier_does_anything_move():
    """The same sentence: a move needs both."""
    assert plan_of(*of_occupancies(0.9, 0.9, 0.2)).moves == ()
    assert plan_of(*of_occupancies(0.0, 0.0, 0.2)).moves == ()


def test_no_supplier_one_slave_fewer():
    """ "If all the nodes are either neutral or consumer, the master node decreases the degree of declustering." """
    for occupancies in ((0.0, 0.0, 0.0), (0.3, 0.3, 0.3), (0.0, 0.3, 0.5)):
        slaves = of_occupancies(*occupancies)
        plan = plan_of(*slaves, slaves_min=1)
        assert len(plan.active) == 2
        (leaving,) = {1, 2, 3} - set(plan.active)
        assert sorted(move.group for move in plan.moves) == [10 * leaving + n for n in range(5)]
        assert {move.consumer for move in plan.moves} <= set(plan.active)


def test_at_least_one_supplier():
    """ "Our approach keeps the system minimally overloaded by ensuring at least one supplier in the system." """
    model = ClusterModel([0.02] * 60, slaves=8, slaves_min=1)  # 1.2 in all: too much for one slave
    model.run(POLICY, 60)
    assert min(model.degrees) == 1  # it went on until there was one, and came back
    plan = plan_of(*of_occupancies(0.6, 0.3, 0.3, 0.3, 0.3), slaves_min=1)
    assert plan == Plan()  # with one it stays


def test_many_suppliers_one_slave_more():
    """ "the master node increases the degree of declustering when the number of supplier in the system is greater than
    [beta] times the number of consumers in the system" """
    idle = (idle_view(8), idle_view(9))
    cases = ((1, 2, 0.5, False), (1, 1, 0.5, True), (2, 3, 0.5, True), (2, 3, 0.7, False), (1, 0, 0.9, True))
    for suppliers, consumers, growth, grows in cases:
        slaves = of_occupancies(*[0.9] * suppliers, *[0.0] * consumers)
        policy = make_policy(Balance(policy="threshold", growth=growth))
        plan = plan_of(*slaves, *idle, slaves_min=1, policy=policy)
        assert (plan.active is not None) == grows, (suppliers, consumers, growth)
        if grows:
            assert plan.active == (*range(1, suppliers + consumers + 1), 8)


def test_in_a_stable_system_consumers_outnumber_suppliers():
    """ "As outlined in section V, in a stable system, the number of consumers is higher than that of suppliers." """
    for consumers in range(9):
        suppliers = [0.9] * (1 + int(SETTINGS.growth * consumers))
        plan = plan_of(*of_occupancies(*suppliers, *[0.0] * consumers), idle_view(99), slaves_min=1)
        assert plan.active is not None, f"{len(suppliers)} suppliers and {consumers} consumers were left as they are"
