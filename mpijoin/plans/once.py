"""What runs every kernel of a tree once, before the clock starts."""

from __future__ import annotations

import numpy as np

from mpijoin.data.batch import read_only
from mpijoin.operators.base import Out, Progress
from mpijoin.plans.operator import TreeJoin
from mpijoin.store.insert import Fresh


def run_once(operator: TreeJoin, out: Out) -> None:
    """Joins one tuple of each stream, and then another one, for which the states have to be made again."""
    groups, bounds = np.zeros(1, np.int64), np.array([[0, 1]])
    for _ in range(2):
        for stream, spec in enumerate(operator.streams):
            fresh = Fresh(read_only(np.zeros((1, spec.tuple_words), np.int64)), read_only(np.empty(0, np.uint8)))
            operator.insert(groups, stream, fresh, bounds)
        while operator.probe(groups, 1 << 20, out) is not Progress.DONE:
            out.clear()
        operator.expire(groups, (0,) * len(operator.streams), out)
        operator.forget_states()
