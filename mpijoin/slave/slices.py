"""The messages that a slave has not joined yet, and the slices of groups in which it joins them."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass

import numpy as np


@dataclass
class Unjoined:
    """A message that is not joined yet: only `rows_joined` of the `rows_all` that it came with are. pending: it belongs
    to no epoch of this run, because the run before had it already."""

    epoch: int
    octets: int
    groups: np.ndarray
    rows: np.ndarray
    own: bool
    rows_all: int
    rows_joined: int = 0
    pending: bool = False

    @property
    def backlog_bytes(self) -> int:
        """The part of the stream buffer that it still takes: the share of its bytes that is not joined yet."""
        left = int(self.rows.sum()) - self.rows_joined
        return self.octets * left // self.rows_all if self.rows_all else 0


def cut_slices(rows: np.ndarray, slice_rows: int) -> list[tuple[int, int]]:
    """Cuts groups into runs of about `slice_rows` rows; a single larger group is a run of its own.

    >>> cut_slices(np.array([3, 3, 9, 0, 1]), 6)
    [(0, 2), (2, 3), (3, 5)]
    """
    ends, total = [], 0
    for index, count in enumerate(rows.tolist()):
        if total and total + count > slice_rows:
            ends.append(index)
            total = 0
        total += count
    bounds = [0, *ends, len(rows)] if len(rows) else [0]
    return list(itertools.pairwise(bounds))


def without(slices: deque[tuple[int, int]], at: int) -> list[tuple[int, int]]:
    """The slices when the group at `at` is one of them no more.

    >>> without(deque([(0, 2), (2, 3), (3, 5)]), 2)
    [(0, 2), (2, 4)]
    """
    moved = [(low - (low > at), high - (high > at)) for low, high in slices]
    return [(low, high) for low, high in moved if low < high]
