"""The partition table: whose every partition is, and where it lies in the scatter's layout."""

import random

import numpy as np
import pytest

from mpijoin.partitioning.table import HELD, PartitionTable


@pytest.mark.parametrize(
    "partitions, slaves", [(1, (1,)), (5, (1, 2)), (60, (1, 2, 3, 4)), (3, (2, 5, 9, 11)), (8, (4, 1))]
)
def test_an_even_table_gives_every_partition_to_one_slave(partitions, slaves):
    table = PartitionTable.even(partitions, slaves)
    groups = {slave: table.groups_of(slave).tolist() for slave in slaves}
    assert sorted(partition for own in groups.values() for partition in own) == list(range(partitions))
    assert max(map(len, groups.values())) - min(map(len, groups.values())) <= 1
    for slave in slaves:
        places = table.places_of(slave)
        assert table.place[table.groups_of(slave)].tolist() == list(range(places.start, places.stop))


def test_held_partitions_are_nobody_s_and_lie_together():
    table = PartitionTable([2, HELD, 1, HELD, 2])
    assert [table.groups_of(slave).tolist() for slave in (1, 2, 3, HELD)] == [[2], [0, 4], [], [1, 3]]
    assert sorted(table.place.tolist()) == list(range(5))
    assert table.places_of(3) == slice(0, 0)
    assert np.array_equal(np.argsort(table.place), [1, 3, 2, 0, 4])
    assert table.firsts.tolist() == [0, 1, 2, 3, 3], "each that is held is a piece of its own"


def test_changing_routes_is_as_good_as_a_new_table():
    chance = random.Random(4)
    table = PartitionTable.even(12, (1, 2, 3))
    for _ in range(200):
        table.route(chance.randrange(12), chance.choice([None, 1, 2, 3, 7]))
        fresh = PartitionTable(map(table.owner_of, range(12)))
        assert np.array_equal(table.place, fresh.place) and np.array_equal(table.firsts, fresh.firsts)
        assert sorted(table.owners) == sorted({table.owner_of(group) for group in range(12)} - {HELD})
        for owner in (HELD, 1, 2, 3, 7):
            groups = table.groups_of(owner)
            assert groups.tolist() == [group for group in range(12) if table.owner_of(group) == owner]
            assert table.places_of(owner) == fresh.places_of(owner)
            assert table.place[groups].tolist() == list(range(12))[table.places_of(owner)]


def test_what_was_laid_out_before_a_change_stays_as_it_was():
    table = PartitionTable.even(6, (1, 2))
    place, groups = table.place, table.groups_of(1)
    kept = place.copy(), groups.copy()
    table.route(0, 2)
    assert table.place is not place
    assert np.array_equal(place, kept[0]) and np.array_equal(groups, kept[1])
