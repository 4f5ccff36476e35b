"""The order in which groups go, and how many of them. The quotations are LAD's."""

from types import SimpleNamespace

import numpy as np
import pytest

from join_harness import groups_of
from mpijoin.errors import ProtocolError
from mpijoin.operators.base import Memory
from mpijoin.policy.plan import RANKINGS
from mpijoin.spill.ranking import held_bytes, ranked, within

GROUPS = groups_of(10, 11, 12, 13, 14)


def info(octets, results, blocks=(1, 1, 1, 1, 1)):
    """Statistics of five groups. octets: of both streams, in equal parts."""
    halves = np.array(octets, np.int64)[:, None] // 2 * np.ones((1, 2), np.int64)
    return SimpleNamespace(live_bytes=halves, outputs=np.array(results), blocks=np.array(blocks))


def test_the_least_productive_go_first():
    """Section 3: "Our spill policy uses the metrics as defined in Section 2 to rank partition groups by their
    productivities and then selects partitions that are less productive to be pushed in each spill process." """
    own = info([100, 100, 400, 50, 100], [50, 10, 80, 5, 70])  # 0.5, 0.1, 0.2, 0.1, 0.7
    assert ranked(own, GROUPS, "least productive").tolist() == [1, 3, 2, 0, 4]


def test_the_most_productive_go_first():
    """Section 5.1: "we choose the productive partitions (with large P_output/P_size values) to move in the state
    relocation adaptation." """
    own = info([100, 100, 400, 50, 100], [50, 10, 80, 5, 70])
    assert ranked(own, GROUPS, "most productive").tolist() == [4, 0, 2, 1, 3]


def test_the_largest_go_first():
    """Section 3: "XJoin [25] flushes the largest partition." """
    assert ranked(info([10, 30, 20, 30, 40], [0] * 5), GROUPS, "largest").tolist() == [4, 1, 3, 2, 0]


def test_a_random_order_is_a_function_of_the_seed_and_of_the_group():
    orders = [tuple(ranked(info([8] * 5, [0] * 5), GROUPS, "random", seed).tolist()) for seed in range(60)]
    assert len({*orders}) > 30 and all(sorted(order) == [0, 1, 2, 3, 4] for order in orders)
    assert {order[0] for order in orders} == {0, 1, 2, 3, 4}
    assert orders[7] == tuple(ranked(info([80] * 5, [9] * 5), GROUPS, "random", 7).tolist())


@pytest.mark.parametrize("ranking", RANKINGS)
def test_a_group_that_holds_nothing_does_not_go(ranking):
    own = info([0, 8, 0, 8, 8], [1, 2, 3, 4, 5])
    assert sorted(ranked(own, GROUPS, ranking).tolist()) == [1, 3, 4]


def test_another_ranking_is_refused_by_name():
    with pytest.raises(ProtocolError, match="got the ranking 'newest', wanted one of least productive, most"):
        ranked(info([8] * 5, [0] * 5), GROUPS, "newest")


def test_a_group_takes_the_pages_of_its_blocks():
    memory = Memory(1 << 20, 4096 * 10, 0)
    assert held_bytes(info([8] * 5, [0] * 5, (1, 0, 4, 3, 2)), memory).tolist() == [4096, 0, 16384, 12288, 8192]
    assert held_bytes(info([0] * 5, [0] * 5, (0,) * 5), Memory(1 << 20, 0, 1 << 20)).tolist() == [0] * 5


def test_groups_go_while_they_fit_and_one_that_does_not_is_passed_over():
    assert within(np.array([40, 90, 20, 50, 1]), 110).tolist() == [0, 2, 3]
    assert within(np.array([40, 90]), 39).tolist() == []
    assert within(np.array([], np.int64), 39).tolist() == []
