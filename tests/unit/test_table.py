"""The partition table: whose every partition is, and where it lies in the scatter's layout."""

import numpy as np
import pytest

from mpijoin.partitioning.table import JOIN, Hop, PartitionTable


@pytest.mark.parametrize("partitions, slaves", [(1, (1,)), (5, (1, 2)), (60, (1, 2, 3, 4)), (3, (2, 5, 9, 11)), (8, (4, 1))])
def test_an_even_table_gives_every_partition_to_one_slave(partitions, slaves):
    table = PartitionTable.even(partitions, slaves)
    groups = {slave: table.groups_of(slave).tolist() for slave in slaves}
    assert sorted(partition for own in groups.values() for partition in own) == list(range(partitions))
    assert max(map(len, groups.values())) - min(map(len, groups.values())) <= 1
    for slave in slaves:
        places = table.places_of(slave)
        assert table.place[table.groups_of(slave)].tolist() == list(range(places.start, places.stop))


def test_held_partitions_are_nobody_s_and_lie_together():
    table = PartitionTable([(Hop(2, JOIN),), (), (Hop(1, JOIN),), (), (Hop(2, JOIN),)])
    assert [table.groups_of(slave).tolist() for slave in (1, 2, 3)] == [[2], [0, 4], []]
    assert sorted(table.place.tolist()) == list(range(5))
    assert table.places_of(3) == slice(0, 0)
    assert np.array_equal(np.argsort(table.place), [1, 3, 2, 0, 4])
