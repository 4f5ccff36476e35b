"""The probe of a window join: its kernels, scratch memory, and a cursor that says where it goes on."""

from __future__ import annotations

from typing import Protocol, Sequence

import numpy as np

from mpijoin.join.probe import pause_probe, probe_groups, start_probe
from mpijoin.join.state import CURSOR_WORDS, Ask, new_state
from mpijoin.store.state import StoreState


class Probe(Protocol):
    """Finds the results of fresh tuples, and adds their certificate to the uint64[1] with which it was made."""

    def start(self) -> None:
        """Makes the next `go_on` begin with the first of its groups."""

    def go_on(self, groups: np.ndarray, budget: int, slots: np.ndarray) -> int:
        """Probes for about `budget` comparisons. Returns DONE, BUDGET or OUT_FULL.

        groups: int64[m], the same ones until DONE · slots: int64[k, capacity], for what is found. The table's counters
        say how much of it is filled.
        """

    def pause(self, groups: np.ndarray, budget: int, slots: np.ndarray) -> int:
        """Does what `go_on` does, for the same groups, but only to where the marks of fresh tuples tell what is left.

        After DONE, `start` must come next.
        """


class TwoWayProbe:
    """Probes two streams. asks: as of `new_state`."""

    def __init__(self, table: StoreState, certificate: np.ndarray, asks: Sequence[Ask] = ()):
        self._asks, self._state = asks, new_state(table, certificate, asks)
        self._cursor = np.zeros(CURSOR_WORDS, np.int64)
        self._probe = probe_groups.bound(self._state, self._cursor)
        self._pause = pause_probe.bound(self._state, self._cursor)

    def start(self) -> None:
        start_probe(self._cursor)

    def go_on(self, groups: np.ndarray, budget: int, slots: np.ndarray) -> int:
        return self._probe(groups, budget, slots)

    def pause(self, groups: np.ndarray, budget: int, slots: np.ndarray) -> int:
        return self._pause(groups, budget, slots)


def new_probe(table: StoreState, certificate: np.ndarray, symmetric: bool | None, asks: Sequence[Ask] = ()) -> Probe:
    """Returns a probe of the table. symmetric: whether it is the `MwayProbe`; None: it is, unless there are two
    streams.

    certificate: uint64[1], to which that of the results is added · asks: are asked about pairs, which only the
    `TwoWayProbe` does.
    """
    if symmetric is None:
        symmetric = len(table.layout) != 2
    if not symmetric:
        return TwoWayProbe(table, certificate, asks)
    from mpijoin.join.mway_probe import MwayProbe  # Few jobs need it, and a short run spares to load it.

    return MwayProbe(table, certificate)
