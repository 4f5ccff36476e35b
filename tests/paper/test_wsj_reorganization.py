"""Sentences of "Parallelizing Windowed Stream Joins in a Shared-Nothing Cluster" on repartitioning, section IV-C, each
with what checks it in the master. What the policies make of the loads is in test_wsj_policies.py."""

import random

import pytest

from master_harness import Cluster
from mpijoin.config.job import Balance
from mpijoin.coordinator.events import Ask, Decided, Moved
from mpijoin.coordinator.reorganization import Loaded, Reorganization
from mpijoin.partitioning.table import PartitionTable
from mpijoin.policy.threshold import threshold
from mpijoin.producer.events import Command, Deliver, Hold, Serve
from pacings import new_pacing

BALANCE = Balance(policy="threshold", supplier_threshold=0.5, consumer_threshold=0.01, growth=0.5)
BUFFER = 1_000_000  # of which the occupancy is a share
SLOTS = 10


def new_cluster(slaves=4, active=None, slaves_min=None, subgroups=1, groups=12, slots=SLOTS):
    """A paced run with the paper's policy; the slaves answer what the test says."""
    ranks = tuple(range(1, slaves + 1))
    table = PartitionTable.even(groups, ranks[: active or slaves])
    own = Reorganization(threshold(BALANCE), slots, slaves_min or slaves, 1, BUFFER)
    return Cluster(random.Random(3), table, ranks, 0.0, subgroups=subgroups, pacing=new_pacing(), reorganization=own)


def ticks(cluster, count, rows=24):
    """So many slots with rows of all groups; returns what the master did."""
    before, first = len(cluster.told), getattr(cluster, "time", 0)
    groups = cluster.table.partitions
    for tick in range(first, first + count):
        cluster.ingest([row % groups for row in range(rows)], tick, True)
    cluster.time = first + count
    return cluster.told[before:]


def answer(cluster, occupancy):
    """All active slaves answer: slave -> f. Returns what the master did."""
    before = len(cluster.told)
    period = next(action.period for action in reversed(cluster.told) if isinstance(action, Ask))
    for slave in cluster.core.active:
        cluster.network[0, slave, "control"].clear()
        cluster.do(Loaded(slave, period, BUFFER * occupancy[slave], 0.5, 0.1, ()))
    return cluster.told[before:]


def kinds(actions, kind):
    return [action for action in actions if isinstance(action, kind)]


def test_the_protocol_starts_at_the_end_of_every_reorganization_epoch():
    """ "The processing nodes in the system (master and the slaves) start the repartitioning protocol periodically at
    the end of an interval called reorganization epoch, which is a order of magnitude larger than the distribution
    epoch" """
    cluster = new_cluster()
    for period in range(3):
        assert kinds(ticks(cluster, SLOTS - 1), Ask) == []
        assert kinds(ticks(cluster, 1), Ask) == [Ask(slave, period) for slave in (1, 2, 3, 4)]
        answer(cluster, dict.fromkeys((1, 2, 3, 4), 0.1))


def test_the_master_classifies_by_the_average_buffer_size_over_the_total():
    """ "The average buffer occupancy metric is obtained by dividing the calculated average buffer size by the total
    buffer size (i.e., memory allotted to the buffer)" """
    cluster = new_cluster()
    ticks(cluster, SLOTS)
    occupancy = {1: 0.6, 2: 0.0, 3: 0.3, 4: 1.5}
    (decided,) = kinds(answer(cluster, occupancy), Decided)
    assert {slave.slave: slave.occupancy for slave in decided.view.slaves} == pytest.approx(occupancy)


def test_each_supplier_yields_one_group_to_a_consumer():
    """ "While reorganizing the placement of partition-groups across the nodes, each supplier yield only one randomly
    selected partition-group to a consumer. For each consumer, the master node selects a supplier, and sends messages to
    the participating nodes to initiate transferring the window states of the partition-groups to move." """
    cluster = new_cluster()
    ticks(cluster, SLOTS)
    orders = kinds(answer(cluster, {1: 0.6, 2: 0.0, 3: 0.9, 4: 0.005}), Command)
    assert [(order.step, order.slave, order.peer) for order in orders] == [("ship", 1, 2), ("ship", 3, 4)]
    assert all(cluster.table.owner_of(order.group) == order.slave for order in orders)


def test_the_consumer_processes_the_subsequent_tuples_of_the_group():
    """ "A supplier yields a partition-group to a consumer node, which installs the partition-group in its join module
    and processes the subsequent tuples arriving within the partition-group." """
    cluster = new_cluster()
    ticks(cluster, SLOTS)
    (order,) = kinds(answer(cluster, {1: 0.6, 2: 0.0, 3: 0.2, 4: 0.2}), Command)
    cluster.settle()
    assert [moved.outcome for moved in kinds(cluster.told, Moved)] == ["moved"]
    joined = len(cluster.joined_rows[order.group])
    ticks(cluster, 2)
    cluster.settle()
    assert (
        cluster.joined_rows[order.group] == cluster.sent_rows[order.group]
        and len(cluster.joined_rows[order.group]) > joined
    )
    assert [slave.number for slave in cluster.slaves.values() if order.group in slave.groups] == [order.peer]


def test_the_mapping_follows_the_move():
    """ "The master node makes necessary changes in the mapping between the stream partitions and the slave nodes." """
    cluster = new_cluster()
    before = {slave: cluster.table.groups_of(slave).tolist() for slave in (1, 2, 3, 4)}
    ticks(cluster, SLOTS)
    (order,) = kinds(answer(cluster, {1: 0.6, 2: 0.0, 3: 0.2, 4: 0.2}), Command)
    cluster.settle()
    before[1].remove(order.group)
    assert {slave: cluster.table.groups_of(slave).tolist() for slave in (1, 2, 3, 4)} == {
        **before,
        2: sorted([*before[2], order.group]),
    }


def act_until(cluster, wanted):
    """Lets things happen until the master has done something of this kind."""
    for _ in range(10_000):
        if kinds(cluster.told, wanted):
            return
        act, *words = cluster.chance.choice(cluster.possible())
        act(*words)
    raise AssertionError(f"no {wanted.__name__} ever")


def test_pending_tuples_are_transferred_when_the_consumer_has_acknowledged():
    """ "After finishing the state movement, the participating nodes send acknowledgement to the master indicating the
    completion of the task, upon which the master node transfers the pending tuples (in its buffer) to be
    processed." """
    cluster = new_cluster()
    ticks(cluster, SLOTS)
    (order,) = kinds(answer(cluster, {1: 0.6, 2: 0.0, 3: 0.2, 4: 0.2}), Command)
    act_until(cluster, Hold)
    serves = kinds(ticks(cluster, 2), Serve)
    assert len(serves) == 8
    pending = cluster.sent_rows[order.group][-8:]  # four a tick
    on_the_way = [row for messages in cluster.network.values() for one in messages for row in rows_in(one, order.group)]
    waiting = [row for slave in cluster.slaves.values() for one in slave.queue for row in rows_in(one, order.group)]
    assert not set(pending) & {*on_the_way, *waiting}, "a pending tuple was sent while the group was on its way"
    assert kinds(cluster.told, Deliver) == []
    act_until(cluster, Deliver)
    message = cluster.network[0, order.peer, "data"][-1]
    assert list(message.rows) == [order.group] and message.rows[order.group][-8:] == pending


def rows_in(message, group):
    return getattr(message, "rows", {}).get(group, [])


def test_slaves_that_take_no_part_are_served_before_the_acknowledgements():
    """ "Note that the slaves not participating in the state movement receives the pending tuples before the master
    receives an acknowledgement from every node participating in the state movement." Here the participants do, too, of
    other groups."""
    cluster = new_cluster()
    ticks(cluster, SLOTS)
    answer(cluster, {1: 0.6, 2: 0.0, 3: 0.2, 4: 0.2})
    act_until(cluster, Hold)
    serves = kinds(ticks(cluster, 1), Serve)
    assert {serve.slave for serve in serves} == {1, 2, 3, 4}
    assert kinds(cluster.told, Moved) == []


def test_a_supplier_s_state_and_buffer_go_together():
    """ "To transfer a state, the state-mover in a slave node (supplier) extracts the tuples from both the stream
    windows and the buffer (at the join module), and sends to the consumer." What it did not join is joined by the
    consumer, in order."""
    cluster = new_cluster()
    ticks(cluster, SLOTS)
    for slave in cluster.slaves.values():  # all has arrived, nothing is joined
        while messages := cluster.network[0, slave.number, "data"]:
            slave.take(messages.popleft())
    (order,) = kinds(answer(cluster, {1: 0.6, 2: 0.0, 3: 0.2, 4: 0.2}), Command)
    supplier, consumer = cluster.slaves[order.slave], cluster.slaves[order.peer]
    supplier.take(cluster.network[0, order.slave, "data"].popleft())
    while supplier.giving[order.move][1] == "shipping":
        supplier.go_on_shipping(order.move)
    cluster.arrive((order.slave, 0, "control"))
    cluster.arrive((0, order.slave, "data"))
    assert cluster.joined_rows[order.group] == []
    final = cluster.network[order.slave, order.peer, "state"][-1]
    assert final.input.rows[order.group] == cluster.sent_rows[order.group]
    cluster.settle()
    assert cluster.joined_rows[order.group] == cluster.sent_rows[order.group] and order.group in consumer.groups


def test_without_a_supplier_a_slave_less_without_input():
    """Section V-A: "If all the nodes are either neutral or consumer, the master node decreases the degree of
    declustering." """
    cluster = new_cluster(slaves_min=2)
    ticks(cluster, SLOTS)
    answer(cluster, {1: 0.2, 2: 0.3, 3: 0.1, 4: 0.2})
    cluster.settle()
    assert cluster.core.active == (1, 2, 4) and cluster.slaves[3].groups == set()
    assert 3 not in {serve.slave for serve in kinds(ticks(cluster, 2), Serve)}


def test_with_many_suppliers_a_slave_more():
    """Section V-A: "the master node increases the degree of declustering when the number of supplier in the system is
    greater than [beta] times the number of consumers in the system" """
    cluster = new_cluster(active=2, slaves_min=2)
    ticks(cluster, SLOTS)
    answer(cluster, {1: 0.7, 2: 0.6})
    cluster.settle()
    assert cluster.core.active == (1, 2, 3)
    assert {serve.slave for serve in kinds(ticks(cluster, 1), Serve)} == {1, 2, 3}
