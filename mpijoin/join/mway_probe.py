"""The probe of a window join of any number of streams."""

from __future__ import annotations

import numpy as np

from mpijoin.join.mway import probe_groups_mway
from mpijoin.join.mway_pause import pause_probe_mway
from mpijoin.join.mway_state import MWAY_CURSOR_WORDS, new_scratch, start_probe_mway
from mpijoin.join.state import new_state
from mpijoin.store.state import StoreState


class MwayProbe:
    """Probes any number of streams. For two streams it takes three times as long as `TwoWayProbe`."""

    def __init__(self, table: StoreState, certificate: np.ndarray):
        state = new_state(table, certificate)
        self._scratch, self._cursor = new_scratch(state), np.zeros(MWAY_CURSOR_WORDS, np.int64)
        self._probe = probe_groups_mway.bound(state, self._scratch, self._cursor)
        self._pause = pause_probe_mway.bound(state, self._scratch, self._cursor)

    def start(self) -> None:
        start_probe_mway(self._cursor)

    def go_on(self, groups: np.ndarray, budget: int, slots: np.ndarray) -> int:
        return self._probe(groups, budget, slots)

    def pause(self, groups: np.ndarray, budget: int, slots: np.ndarray) -> int:
        return self._pause(groups, budget, slots)
