"""What runs every kernel of plans once, before the clock starts."""

from __future__ import annotations

from functools import reduce

import numpy as np

from mpijoin.config.plan import Binary
from mpijoin.data.batch import read_only
from mpijoin.operators.base import Out, Progress
from mpijoin.plans.operator import PlannedJoin
from mpijoin.store.insert import Fresh


def run_once(operator: PlannedJoin, out: Out) -> None:
    """Joins one tuple of each stream, m-way and by two trees, of which the second has a state of the first."""
    groups, bounds, streams = np.zeros(1, np.int64), np.array([[0, 1]]), len(operator.streams)
    below = Binary(0, 1)
    chains = [reduce(Binary, range(2, streams), one) for one in (below, Binary(1, 0))]
    for plan in (None, *chains):
        operator.follow(plan)
        for stream, spec in enumerate(operator.streams):
            fresh = Fresh(read_only(np.zeros((1, spec.tuple_words), np.int64)), read_only(np.empty(0, np.uint8)))
            operator.insert(groups, stream, fresh, bounds)
        operator.statistics.take(groups, 0, 1, 1)
        while operator.probe(groups, 1 << 20, out) is not Progress.DONE:
            out.clear()
        operator.expire(groups, (0,) * streams, out)
        operator.merge_mini_partitions(read_only(groups))
