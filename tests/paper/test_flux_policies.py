"""The policies of Flux, sentence by sentence."""

import pytest

from mpijoin.config.job import Balance
from mpijoin.policy.choose import make_policy
from mpijoin.policy.flux import excess_bytes, utilization
from mpijoin.policy.plan import Collect
from mpijoin.policy.view import ClusterView, GroupView, SlaveView

MB = 1_000_000
LOAD, MEMORY, HYBRID = (make_policy(Balance(f"flux-{name}")) for name in ("load", "memory", "hybrid"))


def site(slave, loads=(), sizes_mb=(), on_disk=(), limit_mb=1000, held_mb=None):
    """loads: the share of its time that each of its groups takes · sizes_mb: of their state · on_disk: which are."""
    sizes_mb = sizes_mb or [1] * len(loads)
    loads = loads or [0.01] * len(sizes_mb)
    groups = []
    for at, (load, size_mb) in enumerate(zip(loads, sizes_mb)):
        state_mb, disk_mb = (0, size_mb) if at in on_disk else (size_mb, 0)
        groups.append(GroupView(100 * slave + at, load, state_mb * MB, 1000 * load, 0, disk_mb * MB))
    held = sum(one.state_bytes for one in groups) if held_mb is None else held_mb * MB
    return SlaveView(slave, bool(groups), 0.0, sum(loads), 0.0, tuple(groups), 1.0, held, limit_mb * MB)


def cluster(*sites, collected_s=0.0):
    return ClusterView(5, sites, 1, collected_s=collected_s)


def moves(plan):
    return [(move.group, move.supplier, move.consumer) for move in plan.moves]


# Section 5.3.


def test_figure_6():
    """ "We pair site 1 with 4 and site 2 with 3. ... Partition 5 is moved to site 4, and partition 8 is moved to site 3
    because moving 9 would increase the imbalance between sites 2 and 3." """
    plan = LOAD(
        cluster(
            site(1, [0.3, 0.3, 0.3]),
            site(2, [0.30, 0.17, 0.17]),
            site(3, [0.2, 0.2]),
            site(4, [0.1, 0.1]),
        )
    )
    assert moves(plan) == [(100, 1, 4), (201, 2, 3)]
    assert plan.moves[0].gain == pytest.approx(0.3)


def test_utilization_is_the_time_that_is_not_idle():
    assert utilization(site(1, [0.2, 0.3])._replace(communication=0.1)) == pytest.approx(0.6)


@pytest.mark.parametrize(
    "loads, moved",
    [
        ([[0.3, 0.2], [0.4, 0.03]], False),  # 0.5 is less than 1.2 times 0.43
        ([[0.3, 0.15, 0.05], [0.36, 0.04]], True),
        ([[0.9, 0.09], [0.91]], False),  # the receiver has no time left
    ],
)
def test_the_threshold_test(loads, moved):
    """ "If the donor's utilization, U_d is less than the average, or if the utilization ratio (i.e. imbalance) of the
    two sites is less than some threshold factor th_imb or if the receiver's utilization, U_r, is above a threshold,
    th_util, then we do not consider those sites for any state movement." """
    assert bool(LOAD(cluster(*(site(slave, own) for slave, own in enumerate(loads, 1)))).moves) == moved


def test_a_receiver_that_is_busy_gets_nothing():
    """ "or if the receiver's utilization, U_r, is above a threshold, th_util" is a test of its own where th_imb is less
    than 1 / th_util; section 5.4: "th_imb = 1.2, th_util = 0.9"."""
    settings = Balance("flux-load")
    close = settings._replace(imbalance_threshold=1.05)
    assert (settings.imbalance_threshold, settings.utilization_threshold) == (1.2, 0.9)
    sites = cluster(site(1, [0.9, 0.05, 0.04]), site(2, [0.91]))
    strict, mild = (make_policy(close._replace(utilization_threshold=one)) for one in (0.9, 0.95))
    assert strict(sites).changes == () and moves(mild(sites)) == [(101, 1, 2)]


def test_the_first_partition_that_reduces_the_imbalance_moves():
    """ "we walk down the sorted list of partitions and schedule a move for the first partition in the donor's list that
    will reduce the utilization imbalance between the donor and receiver." """
    assert moves(LOAD(cluster(site(1, [0.05, 0.5, 0.2]), site(2, [0.4])))) == [(102, 1, 2)]
    assert LOAD(cluster(site(1, [0.7]), site(2, [0.1, 0.1]))).changes == ()


def test_one_partition_per_pair_and_round():
    """ "During any round at most d/2 partitions are moved where d is the degree of declustering for the operator, and
    each site moves or receives at most one partition." """
    plan = LOAD(cluster(*(site(slave, [0.9 / (10 * slave)] * 10) for slave in range(1, 8))))
    assert len(plan.moves) <= 3
    parties = [slave for move in plan.moves for slave in (move.supplier, move.consumer)]
    assert plan.moves and len(parties) == len({*parties})


def test_a_pair_that_fails_the_test_is_the_last():
    """ "We continue down our list of machine pairs until all pairs have been considered or some pair fails the
    threshold test." """
    sites = [site(1, [0.5, 0.45]), site(2, [0.3, 0.3]), site(3, [0.1, 0.1]), site(4, [0.92])]
    assert LOAD(cluster(*sites)).moves and not LOAD(cluster(*sites[:1], *sites[3:])).moves


def test_a_receiver_is_not_overfilled():
    """ "If the receiver becomes overutilized, U_r' > 1, then we do not schedule the move." Its estimate is its own
    rate: a group that takes little from a fast donor takes much from a slow receiver."""
    slow = site(2, [0.3])
    slow = slow._replace(groups=(slow.groups[0]._replace(work=187.5),))  # 0.5 of the donor's time is 0.8 of its own
    assert LOAD(cluster(site(1, [0.5, 0.5]), slow)).changes == ()
    assert moves(LOAD(cluster(site(1, [0.5, 0.1, 0.4]), slow))) == [(102, 1, 2)]


def test_an_idle_site_gets_something():
    idle = SlaveView(2, False, 0.0, 0.0, 0.0, ())
    assert moves(LOAD(cluster(site(1, [0.2, 0.3]), idle))) == [(101, 1, 2)]


@pytest.mark.parametrize("policy", [LOAD, MEMORY, HYBRID])
def test_a_round_without_moves_halves_the_collection_and_one_with_moves_makes_it_as_long_as_they_took(policy):
    """ "The duration of the next collection phase is set to the length of the previous move phase. ... In case no
    partitions were moved, we set delta to half its previous value. Our collection phase length is subject to a minimum,
    delta_min." """
    assert policy(cluster(site(1, [0.2]), collected_s=8.0)).collect == Collect(4.0, 0.25)
    assert policy(cluster(site(1, [0.2]), collected_s=0.4)).collect == Collect(0.25, 0.25)


def test_the_least_collection_is_the_job_s():
    """Figure 9: "at delta_min = 250 ms, the load-balancing policy outperforms the unloaded, static case"."""
    assert Balance().collection_min_ns == 250_000_000
    policy = make_policy(Balance("flux-load", collection_min_ns=10_000_000))
    assert policy(cluster(site(1, [0.2]), collected_s=0.01)).collect == Collect(0.01, 0.01)


# Section 6.2.


def test_excess_capacity_is_negative_where_partitions_are_on_disk():
    """ "Note, excess capacity is negative when the free page list is exhausted and partitions are on disk." """
    assert excess_bytes(site(1, sizes_mb=[300, 100])) == 600 * MB
    assert excess_bytes(site(1, sizes_mb=[900, 400], on_disk=[1])) == -300 * MB


def test_sites_with_less_excess_capacity_give_to_those_with_more():
    """ "Like the load-balancing policy, we select partitions to move by pairing sites with less excess capacity to
    sites with more excess capacity." """
    plan = MEMORY(
        cluster(site(1, sizes_mb=[100] * 5), site(2, sizes_mb=[100] * 9), site(3, sizes_mb=[100]), site(4, [0.1] * 8))
    )
    assert moves(plan) == [(200, 2, 4), (100, 1, 3)]


def test_in_memory_partitions_go_before_those_on_disk():
    """ "the partitions are sorted in decreasing order of size, with in-memory partitions listed or prioritized before
    on-disk partitions, because the latter require I/O and processing spilled input before movement." """
    assert moves(MEMORY(cluster(site(1, sizes_mb=[100, 300, 200, 400], on_disk=[3]), site(2)))) == [(101, 1, 2)]
    assert moves(MEMORY(cluster(site(1, sizes_mb=[300, 400], on_disk=[0, 1]), site(2)))) == [(101, 1, 2)]


def test_the_first_that_reduces_the_imbalance():
    """ "For each pair, we traverse down the list of partitions and move the first that reduces the imbalance in excess
    capacity between the two." """
    assert moves(MEMORY(cluster(site(1, sizes_mb=[500, 300, 50]), site(2, sizes_mb=[400])))) == [(101, 1, 2)]


def test_a_full_receiver_is_no_obstacle():
    """ "In the threshold test, we remove the utilization restrictions for the receiver, because although memory may be
    exhausted, movement would balance the number of on-disk partitions." """
    own = [500] * 4
    full = cluster(site(1, sizes_mb=own, on_disk=[1, 2, 3], held_mb=500), site(2, sizes_mb=own[:2], on_disk=[1]))
    assert moves(MEMORY(full)) == [(100, 1, 2)]


def test_little_imbalance_is_left_alone():
    assert MEMORY(cluster(site(1, sizes_mb=[50] * 12), site(2, sizes_mb=[50] * 9))).moves
    assert MEMORY(cluster(site(1, sizes_mb=[10] * 59), site(2, sizes_mb=[10] * 50))).changes == ()


def test_memory_that_is_taken_away_counts():
    """Section 6.3: "We ran the simulation and introduced memory pressure on a single machine by reducing the available
    memory from 1GB to 512MB." """
    plan = MEMORY(cluster(site(1, sizes_mb=[6] * 80), site(2, sizes_mb=[6] * 80, limit_mb=512)))
    assert [(move.supplier, move.consumer) for move in plan.moves] == [(2, 1)]


# Section 6.4.


def test_while_anything_is_on_disk_memory_counts():
    """ "If any operator instance has partitions spilled to disk, the hybrid policy resorts to the memory-based policy
    to avoid high average latencies." """
    busy, spilled = site(1, [0.4, 0.5], [10, 10]), site(2, [0.1, 0.1], [900, 300], on_disk=[1])
    assert HYBRID(cluster(busy, spilled)) == MEMORY(cluster(busy, spilled)) != LOAD(cluster(busy, spilled))


def test_else_load_does_where_there_is_room():
    """ "If partitions for all instances are resident in memory, it resorts to the load-balancing policy to improve
    throughput, subject to the constraint that a partition is moved only if sufficient memory exists at the destination
    site." """
    busy, idle = site(1, [0.4, 0.3, 0.2], [300, 200, 100]), site(2, [0.1, 0.1], [400, 450])
    assert moves(LOAD(cluster(busy, idle))) == [(100, 1, 2)]
    assert moves(HYBRID(cluster(busy, idle))) == [(102, 1, 2)]
    assert HYBRID(cluster(busy, idle._replace(held_bytes=999 * MB))).changes == ()
