"""The two probes of a window join, each with its kernels, their scratch, and where a probe that stopped goes on."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from mpijoin.join.mway import probe_groups_mway
from mpijoin.join.mway_pause import pause_probe_mway
from mpijoin.join.mway_state import MWAY_CURSOR_WORDS, new_scratch, start_probe_mway
from mpijoin.join.probe import pause_probe, probe_groups, start_probe
from mpijoin.join.state import CURSOR_WORDS, new_state
from mpijoin.store.state import StoreState


class Probe(Protocol):
    """Finds the results of fresh tuples. certificate: uint64[1], to which that of the results is added."""

    def start(self) -> None:
        """The next `go_on` begins with the first of its groups."""

    def go_on(self, groups: np.ndarray, budget: int, slots: np.ndarray) -> int:
        """Probes for about `budget` comparisons; DONE, BUDGET or OUT_FULL.

        groups: int64[m], the same until DONE · slots: int64[k, capacity] for what is found; the table's counters say
        what is filled."""

    def pause(self, groups: np.ndarray, budget: int, slots: np.ndarray) -> int:
        """As `go_on`, for the same groups, but only to where the marks of fresh tuples tell what is left; after DONE
        comes `start`."""


class TwoWayProbe:
    """Of two streams."""

    def __init__(self, table: StoreState, certificate: np.ndarray):
        self._state = new_state(table, certificate)
        self._cursor = np.zeros(CURSOR_WORDS, np.int64)
        self._probe = probe_groups.bound(self._state, self._cursor)
        self._pause = pause_probe.bound(self._state, self._cursor)

    def start(self) -> None:
        start_probe(self._cursor)

    def go_on(self, groups: np.ndarray, budget: int, slots: np.ndarray) -> int:
        return self._probe(groups, budget, slots)

    def pause(self, groups: np.ndarray, budget: int, slots: np.ndarray) -> int:
        return self._pause(groups, budget, slots)


class MwayProbe:
    """Of any number of streams; two take it three times as long as `TwoWayProbe`."""

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


def new_probe(table: StoreState, certificate: np.ndarray, symmetric: bool | None) -> Probe:
    """symmetric: `MwayProbe` also for two streams; None: unless there are two."""
    if symmetric is None:
        symmetric = len(table.layout) != 2
    return MwayProbe(table, certificate) if symmetric else TwoWayProbe(table, certificate)
