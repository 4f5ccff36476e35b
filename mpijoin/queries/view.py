"""How a query sees the table: its own windows, and its own bit of the flags of tuples."""

from __future__ import annotations

from typing import Sequence

import numpy as np

from mpijoin.store.state import FLAGS_AT, MARK, WINDOW, StoreState


def view_of(table: StoreState, windows: Sequence[int], flagged: Sequence[bool], mark: int) -> StoreState:
    """Returns the table with the windows of a query, and with counters of its own.

    windows: in time units, no longer than those of the table · flagged: of each stream, whether the query marks its
    tuples · mark: the bit with which it does. The store's kernels that change a table must not be given a view.
    """
    layout, counters = table.layout.copy(), np.zeros_like(table.counters)
    layout[:, WINDOW] = windows
    layout[~np.array(flagged), FLAGS_AT] = 0
    counters[MARK] = mark
    return table._replace(layout=layout, counters=counters)
