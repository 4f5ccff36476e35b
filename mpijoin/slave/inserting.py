"""Hands the rows of a slice to the operator. Where the operator could not take all, the message knows what is in."""

from __future__ import annotations

from typing import Sequence

import numpy as np

from mpijoin.operators.base import Operator, Taken
from mpijoin.slave.batches import Batches, StreamPart
from mpijoin.slave.events import Inserted


class Inserter:
    """Inserts one slice after the other. A slice that was not done is gone on with by the next call."""

    def __init__(self, operator: Operator):
        self._operator = operator

    def insert(self, messages: Sequence[Batches], low: int, high: int, in_parts: bool = False) -> Inserted:
        """Inserts groups low:high of messages with the same groups, of all streams, up to the first for which memory is
        lacking.

        in_parts: of that group as many rows as fit are inserted, if any do. Rows that are in are taken off the bounds
        of the messages if memory is lacking.
        """
        groups, new, before = messages[0].groups[low:high], messages[0].is_new, list[np.ndarray]()
        for stream, part in (one for message in messages for piece in message.pieces for one in enumerate(piece)):
            bounds = part.bounds[low:high]
            taken = self._operator.insert(groups, stream, part.fresh, bounds, new)
            if taken.groups < len(groups):
                at = taken.groups
                rows = 0
                if in_parts:
                    rows, taken = self._insert_rows(groups[at], stream, part, bounds[at], taken, new)
                progressed = _take_off(before) + _take_off([bounds[:at]]) + rows > 0
                bounds[at, 0] += rows
                return Inserted(Taken(0, taken.lacking_pages), progressed, self._operator.memory())
            before.append(bounds)
        return Inserted(Taken(len(groups)))

    def _insert_rows(
        self, group: int, stream: int, part: StreamPart, bounds: np.ndarray, taken: Taken, new: bool
    ) -> tuple[int, Taken]:
        """Inserts as many leading rows of a group as fit, as far as halving their number tells. Returns how many, and
        the answer to the last try. taken: the answer to a try with all rows · new: as of `Operator.insert`."""
        first, rows = int(bounds[0]), int(bounds[1] - bounds[0]) // 2
        while rows:
            some = np.array([[first, first + rows]])
            taken = self._operator.insert(np.array([group]), stream, part.fresh, some, new)
            if taken.groups:
                return rows, taken
            rows //= 2
        return 0, taken


def _take_off(several: list[np.ndarray]) -> int:
    """Takes all rows off these bounds. Returns how many there were."""
    rows = sum(int((bounds[:, 1] - bounds[:, 0]).sum()) for bounds in several)
    for bounds in several:
        bounds[:, 0] = bounds[:, 1]
    return rows
