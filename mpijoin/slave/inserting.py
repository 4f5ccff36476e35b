"""Hands the rows of a slice to the operator. It knows how far it has come where the operator could not take all."""

from __future__ import annotations

import numpy as np

from mpijoin.operators.base import Operator, Taken
from mpijoin.slave.batches import Batches, StreamPart
from mpijoin.slave.events import Inserted


class Inserter:
    """Inserts one slice after the other. A slice that was not done is gone on with by the next call."""

    def __init__(self, operator: Operator):
        self._operator = operator
        # So many parts of the slice are done; of the next one so many groups, and so many rows of the group after them.
        self._parts = self._groups = self._rows = 0

    def insert(self, message: Batches, low: int, high: int, in_parts: bool = False) -> Inserted:
        """Inserts groups low:high of a message, of all streams, up to the first for which memory is lacking.

        in_parts: of that group as many rows as fit are inserted, if any do.
        """
        parts = [(stream, part) for piece in message.pieces for stream, part in enumerate(piece)]
        before = self._parts, self._groups, self._rows
        groups = message.groups[low:high]
        while self._parts < len(parts):
            stream, part = parts[self._parts]
            lacking = self._insert(groups, stream, part, part.bounds[low:high], in_parts)
            if lacking:
                progressed = before != (self._parts, self._groups, self._rows)
                return Inserted(Taken(0, lacking), progressed, self._operator.memory())
            self._parts, self._groups = self._parts + 1, 0
        self._parts = 0
        return Inserted(Taken(len(groups)))

    def _insert(
        self, groups: np.ndarray, stream: int, part: StreamPart, bounds: np.ndarray, in_parts: bool
    ) -> int:
        """Returns how many pages are lacking, or 0 if all is in."""
        if self._groups or self._rows:
            groups, bounds = groups[self._groups :], bounds[self._groups :].copy()
            bounds[:1, 0] += self._rows
        taken = self._operator.insert(groups, stream, part.fresh, bounds)
        if taken.groups == len(groups):
            self._rows = 0
            return 0
        if taken.groups:
            self._groups, self._rows = self._groups + taken.groups, 0
        if in_parts:
            self._rows += self._insert_rows(groups[taken.groups], stream, part, bounds[taken.groups])
        return taken.lacking_pages

    def _insert_rows(self, group: int, stream: int, part: StreamPart, bounds: np.ndarray) -> int:
        """Inserts as many leading rows of a group as fit, as far as halving their number tells. Returns how many."""
        first, rows = int(bounds[0]), int(bounds[1] - bounds[0]) // 2
        while rows:
            taken = self._operator.insert(np.array([group]), stream, part.fresh, np.array([[first, first + rows]]))
            if taken.groups:
                return rows
            rows //= 2
        return 0
