"""The messages that a slave has not joined yet, and the slices of groups in which it joins them."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field
from typing import Iterable, Iterator, Sequence

import numpy as np

from mpijoin.slave.events import EndInput, EndMessage, Marked

# In a paced run results leave slice by slice. A message is cut into about so many slices, but a slice of fewer rows
# than the least is not worth its overhead.
PACED_SLICES = 8
PACED_SLICE_ROWS_MIN = 512


@dataclass
class Unjoined:
    """A message of so many rows, `rows_left` of which are not joined yet. pending: it belongs to no epoch of this run,
    because the run before had it already · joint: it may be joined together with others · producer: whose it is, then.
    """

    epoch: int
    octets: int
    groups: np.ndarray
    rows: np.ndarray
    own: bool
    rows_all: int
    rows_left: int = field(init=False)
    pending: bool = False
    joint: bool = False
    producer: int = 0

    def __post_init__(self) -> None:
        self.rows_left = self.rows_all

    @property
    def backlog_bytes(self) -> int:
        """The part of the stream buffer that it still takes: the share of its bytes that is not joined yet."""
        return self.octets * self.rows_left // self.rows_all if self.rows_all else 0


class Messages:
    """The messages that a slave has not joined yet, oldest first, and between them the marks of checkpoints.

    `backlog_bytes` is asked for each that comes while thousands may wait, so every change keeps it up to date.
    """

    def __init__(self) -> None:
        self._all: deque[Unjoined | Marked] = deque()
        self.backlog_bytes = 0  # This much of the stream buffer is taken by what is not joined yet.

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Unjoined | Marked]:
        return iter(self._all)

    @property
    def oldest(self) -> Unjoined | Marked:
        return self._all[0]

    def unjoined(self) -> Iterator[Unjoined]:
        return (one for one in self._all if isinstance(one, Unjoined))

    def first(self, count: int) -> list[Unjoined]:
        """The oldest that are no marks, at most so many."""
        return list(itertools.islice(self.unjoined(), count))

    def add(self, message: Unjoined | Marked) -> None:
        self._all.append(message)
        self.backlog_bytes += _bytes_of(message)

    def add_oldest(self, message: Unjoined) -> None:
        self._all.appendleft(message)
        self.backlog_bytes += message.backlog_bytes

    def pop_oldest(self) -> None:
        self.backlog_bytes -= _bytes_of(self._all.popleft())

    def clear(self) -> None:
        self._all.clear()
        self.backlog_bytes = 0

    def joined(self, count: int, low: int, high: int) -> None:
        """The groups from place `low` to place `high` are joined in the oldest `count` messages."""
        for message in self.first(count):
            self._less(message, message.rows[low:high])

    def without(self, message: Unjoined, places: Sequence[int] | np.ndarray) -> None:
        """Forgets the groups at these places of the message, of which nothing is joined."""
        self._less(message, message.rows[places])
        message.groups, message.rows = np.delete(message.groups, places), np.delete(message.rows, places)

    def take_out(self, group: int, begun: int, slices: deque[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        """Forgets the group in all messages, but not in the first `begun` of them if it is joined there already.

        slices: what is left of these. Returns where the group was: the message, and the place in it.
        """
        places = []
        for index, message in enumerate(self.unjoined()):
            at = np.flatnonzero(message.groups == group)
            if len(at) == 0 or (index < begun and not (slices and at[0] >= slices[0][0])):
                continue
            places.append((index, int(at[0])))
            self.without(message, at)
        return tuple(places)

    def _less(self, message: Unjoined, rows: np.ndarray) -> None:
        before = message.backlog_bytes
        message.rows_left -= int(rows.sum())
        self.backlog_bytes += message.backlog_bytes - before


def _bytes_of(message: Unjoined | Marked) -> int:
    return message.backlog_bytes if isinstance(message, Unjoined) else 0


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


def end_all(messages: Sequence[Unjoined]) -> list[EndInput | EndMessage]:
    """Returns what ends messages that were joined together."""
    following = [one.epoch for one in messages[1:]] + [None]
    return [
        EndInput() if one.pending else EndMessage(one.epoch, one.octets, one.own, one.epoch == epoch)
        for one, epoch in zip(messages, following)
    ]


def may_be_joint(one: object, other: object) -> bool:
    if not (isinstance(one, Unjoined) and isinstance(other, Unjoined) and one.joint and other.joint):
        return False
    return np.array_equal(one.groups, other.groups)


def without(slices: deque[tuple[int, int]], at: int) -> list[tuple[int, int]]:
    """The slices when the group at `at` is one of them no more.

    >>> without(deque([(0, 2), (2, 3), (3, 5)]), 2)
    [(0, 2), (2, 4)]
    """
    moved = [(low - (low > at), high - (high > at)) for low, high in slices]
    return [(low, high) for low, high in moved if low < high]
