"""Which groups a slave's spiller takes."""

import numpy as np

from join_harness import Harness, Stream, groups_of, numbered
from mpijoin.config.job import LARGEST
from mpijoin.spill.runs import Runs
from mpijoin.spill.scratch import open_scratch
from mpijoin.spill.spiller import Spiller


def test_a_group_that_changes_hands_stays_in_memory_however_much_is_to_go(tmp_path):
    harness = Harness([Stream(10), Stream(10)], partitions=2, memory=1 << 20, block=512, theta=4096)
    groups = groups_of(0, 1)
    with open_scratch(str(tmp_path), "rank-1", {}) as scratch:
        spiller = Spiller(harness.operator, harness.operator.beside(1), Runs(scratch))
        for group in groups.tolist():
            assert harness.insert(groups_of(group), 0, numbered([(0, key) for key in range(50)])) == 1
        harness.probe(groups)
        spiller.begin_spill(1 << 30, LARGEST, groups.tolist(), fixed=[0])
        while spiller.spill_next():
            pass
        assert np.flatnonzero(spiller.disk_bytes(groups)).tolist() == [1]
        assert (harness.operator.info(groups).tuples.sum(axis=1) > 0).tolist() == [True, False]
