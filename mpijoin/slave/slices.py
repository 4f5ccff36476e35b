"""The messages that a slave has not joined yet, and the slices of groups in which it joins them."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass
from typing import Iterable

import numpy as np

# In a paced run results leave slice by slice. A message is cut into about so many slices, but a slice of fewer rows
# than the least is not worth its overhead.
PACED_SLICES = 8
PACED_SLICE_ROWS_MIN = 512


@dataclass
class Unjoined:
    """A message that is not joined yet: only `rows_joined` of the `rows_all` that it came with are. pending: it belongs
    to no epoch of this run, because the run before had it already · joint: it may be joined together with others."""

    epoch: int
    octets: int
    groups: np.ndarray
    rows: np.ndarray
    own: bool
    rows_all: int
    rows_joined: int = 0
    pending: bool = False
    joint: bool = False
    _counted: np.ndarray | None = None  # `rows` when they were counted last, and how many there were
    _count: int = 0

    @property
    def backlog_bytes(self) -> int:
        """The part of the stream buffer that it still takes: the share of its bytes that is not joined yet.

        Thousands of messages may wait, and all are asked for each that comes, so rows are counted once."""
        if self._counted is not self.rows:
            self._counted, self._count = self.rows, int(self.rows.sum())
        return self.octets * (self._count - self.rows_joined) // self.rows_all if self.rows_all else 0


def paced_slice_rows(rows: int) -> int:
    """Returns about how many rows a slice of a paced run has, of a message of so many."""
    return max(PACED_SLICE_ROWS_MIN, rows // PACED_SLICES)


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


def joint_count(messages: Iterable[object], most: int) -> int:
    """Returns how many of the oldest messages, at most `most`, are joined together: those of the same groups, up to
    whatever has a place of its own."""
    oldest, *others = itertools.islice(messages, most)
    alike = itertools.takewhile(lambda other: may_be_joint(oldest, other), others)
    return 1 + sum(1 for _ in alike)


def may_be_joint(one: object, other: object) -> bool:
    if not (isinstance(one, Unjoined) and isinstance(other, Unjoined) and one.joint and other.joint):
        return False
    return np.array_equal(one.groups, other.groups)


def take_out(
    group: int, messages: Iterable[Unjoined], begun: int, slices: deque[tuple[int, int]]
) -> tuple[tuple[int, int], ...]:
    """Forgets the group in all messages, but not in the first `begun` of them if it is joined there already.

    slices: what is left of these. Returns where the group was: the message, and the place in it.
    """
    places = []
    for index, message in enumerate(messages):
        at = np.flatnonzero(message.groups == group)
        if len(at) == 0 or (index < begun and not (slices and at[0] >= slices[0][0])):
            continue
        places.append((index, int(at[0])))
        message.groups, message.rows = np.delete(message.groups, at), np.delete(message.rows, at)
    return tuple(places)


def without(slices: deque[tuple[int, int]], at: int) -> list[tuple[int, int]]:
    """The slices when the group at `at` is one of them no more.

    >>> without(deque([(0, 2), (2, 3), (3, 5)]), 2)
    [(0, 2), (2, 4)]
    """
    moved = [(low - (low > at), high - (high > at)) for low, high in slices]
    return [(low, high) for low, high in moved if low < high]
