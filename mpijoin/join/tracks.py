"""Which pairs are left to a holder whose group another one joins as well (DCAPE, section 3.2)."""

from __future__ import annotations

import numpy as np

from mpijoin.join.state import Call, JoinState
from mpijoin.store.state import StoreState
from mpijoin.store.tracks import keep_with_old


class WithOld:
    """Implements `Ask`: drops the pairs of two new tuples, which the other holder finds."""

    def __call__(self, state: JoinState, left: np.ndarray, right: np.ndarray) -> Call:
        return keep_with_old, (StoreState(*state[: len(StoreState._fields)]), left, right)
