"""The policies of LAD, sentence by sentence."""


import pytest

from mpijoin.config.job import Balance, Memory
from mpijoin.policy.choose import make_policy
from mpijoin.policy.plan import Plan, Relocate, Spill
from mpijoin.policy.view import ClusterView, GroupView, SlaveView

MB = 1_000_000
SETTINGS = Balance()
LAZY = make_policy(Balance("lazy-disk"))
ACTIVE = make_policy(Balance("active-disk"))


def machine(slave, held_mb, results=0, groups=10, limit_mb=200, disk_mb=0):
    """A slave whose groups are alike."""
    views = [
        GroupView(100 * slave + n, 0.01, held_mb * MB // groups, 1.0, results // groups, disk_mb * MB // groups)
        for n in range(groups)
    ]
    return SlaveView(slave, bool(groups), 0.1, 0.1, 0.0, tuple(views), 1.0, held_mb * MB, limit_mb * MB)


def cluster(*machines, now_s=100.0, memory=None):
    return ClusterView(5, machines, 1, now_s=now_s, memory=memory)


def test_the_parameters_are_those_of_the_paper():
    """Section 5.4: "Here, the state relocation threshold theta_r is set to 0.8, while the minimal time span of two
    relocations tau_m is set to 45 seconds. The productivity threshold lambda that triggers a force state spill
    adaptation is set to 2." """
    assert (SETTINGS.relocation_threshold, SETTINGS.productivity_ratio) == (0.8, 2.0)
    assert SETTINGS.relocation_pause_ns == 45_000_000_000


@pytest.mark.parametrize("policy", [LAZY, ACTIVE])
def test_half_the_difference_goes_from_the_most_used_memory_to_the_least_used(policy):
    """Section 4: "We refer to the machine with the maximally used memory (M_max) as the sender, and to the machine with
    the least memory used (M_least) as the receiver. In each adaptation, the global coordinator moves (M_max -
    M_least)/2 amount of states from the sender to the receiver" """
    plan = policy(cluster(machine(1, 60), machine(2, 100), machine(3, 20)))
    assert plan.changes == (Relocate(2, 3, 40 * MB, "most productive"),)


@pytest.mark.parametrize("policy", [LAZY, ACTIVE])
def test_only_below_the_threshold(policy):
    """Section 4: "if it is observed that M_least/M_max reaches a threshold theta_r, i.e., M_least/M_max < theta_r" """
    assert policy(cluster(machine(1, 80), machine(2, 100))) == Plan()
    assert policy(cluster(machine(1, 79), machine(2, 100))).relocations
    strict = make_policy(Balance("lazy-disk", relocation_threshold=0.5), Memory())
    assert strict(cluster(machine(1, 50), machine(2, 100))) == Plan()
    assert strict(cluster(machine(1, 49), machine(2, 100))).relocations


@pytest.mark.parametrize("policy", [LAZY, ACTIVE])
def test_and_only_when_the_pause_is_over(policy):
    """Section 4.2: "The global coordinator triggers state relocation if and only if when M_least / M_max < theta_r and
    the time elapsed since the last relocation is greater than tau_m." """
    uneven = cluster(machine(1, 10), machine(2, 100), now_s=1.0)
    first = policy(uneven)
    assert first.relocations
    for now_s, again in ((20.0, False), (46.0, False), (46.1, True)):
        later = policy(uneven._replace(now_s=now_s, memory=first.memory))
        assert bool(later.relocations) == again, now_s


def test_the_productive_groups_move_and_the_slave_chooses_them():
    """Section 5.1: "we choose the productive partitions (with large P_output/P_size values) to move in the state
    relocation adaptation", and section 4: "the actual partition groups to be moved are decided by the local adaptation
    controller of the machine with the most used memory" """
    (wanted,) = LAZY(cluster(machine(1, 10), machine(2, 100))).changes
    assert isinstance(wanted, Relocate) and wanted.ranking == "most productive"


def test_lazy_disk_never_asks_for_a_spill():
    """Section 5.3: "State spill in the lazy-disk approach is a local decision." """
    full = cluster(machine(1, 180, 1000, disk_mb=500), machine(2, 180, 10, disk_mb=500))
    assert LAZY(full) == Plan() and ACTIVE(full).spills


def test_a_receiver_gets_no_more_than_it_has_room_for():
    """Section 5.1: "state spill is postponed until there is no main memory in the cluster that can hold the states from
    overloaded machines". A machine may have less memory than others."""
    plan = LAZY(cluster(machine(1, 60, limit_mb=100), machine(2, 200)))
    assert plan.changes == (Relocate(2, 1, 30 * MB, "most productive"),)
    assert LAZY(cluster(machine(1, 95, limit_mb=100), machine(2, 200))) == Plan()


def test_a_slave_without_groups_has_room_too():
    idle = SlaveView(3, False, 0.0, 0.0, 0.0, (), memory_bytes=200 * MB)
    assert LAZY(cluster(machine(1, 60), machine(2, 100), idle)).changes == (Relocate(2, 3, 50 * MB, "most productive"),)


def needy(*rates, held_mb=170, now_s=100.0):
    """Machines that hold alike, find so many results per group, and have much on disk."""
    return cluster(*(machine(n, held_mb, 10 * rate, disk_mb=100) for n, rate in enumerate(rates, 1)), now_s=now_s)


def test_the_machine_with_the_lower_rate_is_forced_to_spill():
    """Section 5.3: "If one machine has a much lower average productivity rate, for example, R_max/R_min > lambda, we
    force the partitions of the lower average productivity rate machine to be pushed into disks." """
    (spill,) = ACTIVE(needy(400, 200, 100)).changes
    assert (spill.slave, spill.ranking) == (3, "least productive")
    assert ACTIVE(needy(200, 100, 100)) == Plan()
    assert ACTIVE(needy(201, 100, 100)).spills
    assert ACTIVE(needy(100, 0, 100)).changes[0].slave == 2
    assert ACTIVE(needy(0, 0, 0)) == Plan()


def test_the_rate_is_of_results_by_groups():
    """ "the average productivity rate (R) of one machine is defined as the total number of tuples that have been
    generated by this machine during the sampling time divided by the number of partition groups in the machine." """
    many, few = machine(1, 170, 4000, groups=40, disk_mb=100), machine(2, 170, 2000, groups=5, disk_mb=100)
    assert ACTIVE(cluster(many, few)).changes[0].slave == 1


def test_relocation_comes_first():
    """Algorithm 2, lines 7 to 18: rates are compared only "else", where memory is even."""
    uneven = cluster(machine(1, 170, 4000, disk_mb=300), machine(2, 100, 10, disk_mb=300), now_s=1.0)
    first = ACTIVE(uneven)
    assert first.relocations and not first.spills
    assert ACTIVE(uneven._replace(now_s=20.0, memory=first.memory)) == Plan()


def test_a_third_of_the_machine_s_state_goes_at_once():
    """Section 3.2: "we choose such a middle range value, say 30% as default". """
    assert ACTIVE(needy(400, 100)).changes == (Spill(2, 51 * MB, "least productive"),)
    half = make_policy(Balance("active-disk"), Memory(share=0.5))
    assert half(needy(400, 100)).changes == (Spill(2, 85 * MB, "least productive"),)


def test_all_that_is_forced_is_bounded_by_what_the_query_lacks():
    """Section 5.3: "we set the maximal amount of states being pushed by the global coordinator to be less than M_query
    - M_cluster, where M_query denotes the estimation of the overall memory consumption for the query, while M_cluster
    is the overall available memory of the cluster." """
    view, forced = needy(400, 100, now_s=100.0), 0
    lacking = 2 * 270 * MB - int(0.9 * 400 * MB)
    memory = ACTIVE(view._replace(now_s=99.0)).memory._replace(forced_bytes=0)
    for now_s in range(100, 120):
        plan = ACTIVE(view._replace(now_s=float(now_s), memory=memory))
        memory, forced = plan.memory, forced + sum(spill.octets for spill in plan.spills)
    assert forced == lacking


def test_what_fits_into_memory_stays_there():
    """ "This aims to assure that data that fits into memory is left there." A state that does not grow fits where it is
    now; one that grows will be twice as large when as much time has passed again."""
    still = cluster(machine(1, 100, 4000), machine(2, 100, 100), now_s=100.0)
    first = ACTIVE(still._replace(now_s=50.0))
    assert ACTIVE(still._replace(memory=first.memory)) == Plan()
    before = ACTIVE(cluster(machine(1, 50, 4000), machine(2, 50, 100), now_s=50.0)).memory
    grown = ACTIVE(still._replace(memory=before._replace(forced_bytes=0)))
    assert [spill.slave for spill in grown.spills] == [2]
    little = cluster(machine(1, 40, 4000), machine(2, 40, 100), now_s=100.0)
    before = ACTIVE(cluster(machine(1, 20, 4000), machine(2, 20, 100), now_s=50.0)).memory
    assert ACTIVE(little._replace(memory=before)) == Plan()
