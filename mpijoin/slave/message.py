"""A slot's message on its way through the join."""

from __future__ import annotations

import numpy as np

from mpijoin.data.batch import read_only
from mpijoin.messages import Columns, Piece, Slot
from mpijoin.store.insert import Fresh
from mpijoin.store.state import ADDRESS, SIZE

STREAMS = 2


class Message:
    """The mini-buffers of a message as kernels take them. groups: int64[m], those it still is of."""

    def __init__(self, slot: Slot):
        self.slot = slot
        self.groups = read_only(slot.groups)  # once for all kernels that take some of them
        # stream, rows, bounds int64[m, 2]; both streams of each piece
        self.parts: list[tuple[int, Fresh, np.ndarray]] = []
        for piece in slot.pieces:
            for stream, columns in enumerate(piece.columns):
                ends = np.cumsum(piece.counts[stream])
                self.parts.append((stream, Fresh(*columns), np.stack([ends - piece.counts[stream], ends], axis=1)))

    def rows(self, stream: int) -> int:
        return sum(len(fresh.tuples) for own, fresh, _ in self.parts if own == stream)

    def take_out(self, at: int) -> list[Piece]:
        """The rows of its group number `at`, which it then is not of any more."""
        pieces = []
        for first in range(0, len(self.parts), STREAMS):
            both = [_rows_of(fresh, *bounds[at].tolist()) for _, fresh, bounds in self.parts[first : first + STREAMS]]
            counts = np.array([[len(columns.tuples)] for columns in both])
            if counts.any():
                pieces.append(Piece(counts, tuple(both)))
        self.groups = read_only(np.delete(self.groups, at))
        self.parts = [(stream, fresh, np.delete(bounds, at, axis=0)) for stream, fresh, bounds in self.parts]
        return pieces


def _rows_of(fresh: Fresh, low: int, high: int) -> Columns:
    """Some rows that lie together, with their blobs, which do so too."""
    tuples = fresh.tuples[low:high].copy()
    if len(fresh.blob) == 0 or len(tuples) == 0:
        return Columns(tuples, np.empty(0, np.uint8))
    start, end = int(tuples[0, ADDRESS]), int(tuples[-1, ADDRESS] + tuples[-1, SIZE])
    tuples[:, ADDRESS] -= start
    return Columns(tuples, fresh.blob[start:end].copy())
