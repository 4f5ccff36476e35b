"""The master's buffer: per slave and stream the mini-buffers of its partitions, piece by piece until the slave takes them."""

from __future__ import annotations

from collections import deque

import numpy as np

from mpijoin.messages import Columns, Piece
from mpijoin.partitioning.scatter import FIXED_WORDS, Scattered
from mpijoin.partitioning.table import PartitionTable

ADDRESS = FIXED_WORDS


class MiniBuffers:
    """First in, first out per slave. `held_bytes` is what waits; `held_bytes_max` its measured peak."""

    def __init__(self, table: PartitionTable, slaves: tuple[int, ...]):
        self.table = table
        self.held_bytes = 0
        self.held_bytes_max = 0
        self._waiting: dict[int, deque[Piece]] = {slave: deque() for slave in slaves}

    def add(self, scattered: tuple[Scattered, Scattered]) -> dict[int, int]:
        """Takes one scattered part of both streams; returns bytes per slave."""
        octets = {}
        for slave, waiting in self._waiting.items():
            piece = _piece_of(scattered, self.table.places_of(slave))
            waiting.append(piece)
            octets[slave] = piece.octets
        self.held_bytes += sum(octets.values())
        self.held_bytes_max = max(self.held_bytes_max, self.held_bytes)
        return octets

    def take(self, slave: int, pieces: int) -> list[Piece]:
        """The slave's oldest pieces."""
        taken = [self._waiting[slave].popleft() for _ in range(pieces)]
        self.held_bytes -= sum(piece.octets for piece in taken)
        return taken

    def settle(self) -> None:
        """Copies the last part's pieces that were not taken at once, so that none keeps the others' memory alive."""
        for waiting in self._waiting.values():
            if waiting and waiting[-1].columns[0].tuples.base is not None:
                waiting[-1] = _copied(waiting[-1])


def _piece_of(scattered: tuple[Scattered, Scattered], places: slice) -> Piece:
    counts = np.stack([np.diff(one.starts[places.start : places.stop + 1]) for one in scattered])
    return Piece(counts, tuple(_columns_of(one, places) for one in scattered))


def _columns_of(scattered: Scattered, places: slice) -> Columns:
    low, high = scattered.starts[[places.start, places.stop]]
    blob_low, blob_high = scattered.blob_starts[[places.start, places.stop]]
    tuples = scattered.tuples[low:high]
    if len(scattered.blob):
        tuples[:, ADDRESS] -= blob_low
    return Columns(tuples, scattered.blob[blob_low:blob_high])


def _copied(piece: Piece) -> Piece:
    return Piece(piece.counts, tuple(Columns(one.tuples.copy(), one.blob.copy()) for one in piece.columns))
