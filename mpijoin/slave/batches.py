"""A slot's message on its way through the join."""

from __future__ import annotations

from typing import Sequence

import numpy as np

from mpijoin.data.batch import read_only
from mpijoin.messages import Columns, Piece, Slot
from mpijoin.moving import steps
from mpijoin.named import NamedTuple
from mpijoin.store.insert import Fresh
from mpijoin.store.state import ADDRESS, SIZE, TIME_MIN_VALUE


class StreamPart(NamedTuple):
    """The rows that a piece has of one stream. bounds: int64[m, 2], for each group its first row that is not inserted
    and the row behind its last one. They tell of rows that are inserted only where memory was short."""

    fresh: Fresh
    bounds: np.ndarray


class Batches:
    """The mini-buffers of a message as kernels take them. groups: int64[m], those that it still has rows of · pieces:
    each is a list with one part per stream."""

    def __init__(self, slot: Slot):
        self.slot = slot
        self.groups = read_only(slot.groups)  # once for all kernels that take some of them
        self.pieces = list(map(_parts_of, slot.pieces))

    @classmethod
    def without_rows(cls, groups: Sequence[int], streams: int, producer: int) -> Batches:
        """Of these groups, and so old that nothing expires for it."""
        return cls(Slot(producer, 0, (TIME_MIN_VALUE,) * streams, np.array(groups), ()))

    @property
    def is_new(self) -> bool:
        """Whether another slave gets the rows, too, and finds the results among them."""
        return self.slot.step == steps.DUPLICATE

    def rows(self) -> np.ndarray:
        """int64[streams]: how many rows it has of each stream."""
        counts = [[len(part.fresh.tuples) for part in piece] for piece in self.pieces]
        return np.array(counts, np.int64).reshape(-1, len(self.slot.watermarks)).sum(axis=0)

    def take_out(self, at: int) -> list[Piece]:
        """Takes out a copy of the rows of the group at place `at`, and forgets the group."""
        taken = [
            piece._replace(columns=tuple(Columns(own.tuples.copy(), own.blob.copy()) for own in piece.columns))
            for piece in self.rows_of(at)
        ]
        self.forget([at])
        return taken

    def rows_of(self, at: int) -> list[Piece]:
        """Returns the rows of the group at place `at`, but not those that are inserted already. They lie in the
        message where no word of them has to be changed."""
        taken = []
        for piece in self.pieces:
            columns = tuple(_rows_of(part.fresh, *part.bounds[at].tolist()) for part in piece)
            counts = np.array([[len(own.tuples)] for own in columns])
            if counts.any():
                taken.append(Piece(counts, columns))
        return taken

    def forget(self, places: Sequence[int]) -> None:
        """Forgets the groups at these places."""
        self.groups = read_only(np.delete(self.groups, places))
        self.pieces = [
            [StreamPart(fresh, np.delete(bounds, places, axis=0)) for fresh, bounds in piece] for piece in self.pieces
        ]


def unjoined(messages: Sequence[Batches], lows: Sequence[int], producer: int) -> list[Slot]:
    """Takes out what is not joined: of messages[i], all groups from place lows[i] on. Returns a slot per group, in
    which the oldest rows come first."""
    pieces: dict[int, list[Piece]] = {}
    for batches, low in zip(messages, lows):
        while len(batches.groups) > low:
            group = int(batches.groups[low])
            pieces.setdefault(group, []).extend(batches.take_out(low))
    return [
        Slot(producer, 0, messages[0].slot.watermarks, np.array([group]), tuple(own))
        for group, own in pieces.items()
        if own
    ]


def _parts_of(piece: Piece) -> list[StreamPart]:
    bounds = np.empty((*piece.counts.shape, 2), np.int64)
    np.cumsum(piece.counts, axis=1, out=bounds[:, :, 1])
    np.subtract(bounds[:, :, 1], piece.counts, out=bounds[:, :, 0])
    return [StreamPart(Fresh(*map(read_only, columns)), own) for columns, own in zip(piece.columns, bounds)]


def _rows_of(fresh: Fresh, low: int, high: int) -> Columns:
    """Returns rows low:high with their blobs, which lie side by side as the rows do."""
    tuples = fresh.tuples[low:high]
    if len(fresh.blob) == 0 or len(tuples) == 0:
        return Columns(tuples, np.empty(0, np.uint8))
    start, end = int(tuples[0, ADDRESS]), int(tuples[-1, ADDRESS] + tuples[-1, SIZE])
    tuples = tuples.copy()
    tuples[:, ADDRESS] -= start
    return Columns(tuples, fresh.blob[start:end])
