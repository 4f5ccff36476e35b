"""A producer's buffer. It keeps the mini-buffers of each slave's partitions, piece by piece, until the slave takes
them."""

from __future__ import annotations

from collections import Counter, deque
from itertools import pairwise
from typing import Iterable, Iterator, Sequence

import numpy as np

from mpijoin.messages import Columns, Piece
from mpijoin.named import NamedTuple
from mpijoin.partitioning.runs import UNLIMITED, Run, cut, earliest_of, item_bytes, item_bytes_max, octets_of
from mpijoin.partitioning.scatter import FIXED_WORDS, Scattered
from mpijoin.partitioning.table import HELD, NO_STREAM, SHARED, Copy, PartitionTable, Waited

ADDRESS, SIZE = FIXED_WORDS, FIXED_WORDS + 1  # words of a tuple
# Rows that were held back for several slaves go out in items of about this size. One that spans much more than a window
# would be compared with much that is too old for it, and no other group would be joined meanwhile.
BATCH_BYTES = 1 << 16


class Added(NamedTuple):
    """The bytes that one part of a tick brought. `octets` has them for each slave that has partitions for itself, and
    `held` for each partition that is held back. `shared` has a slave and the bytes of each item with rows that also go
    to another slave, in the order of these items. They stand before the slave's item of its own partitions."""

    octets: dict[int, int]
    held: dict[int, int]
    shared: tuple[tuple[int, int], ...] = ()


class Queued(NamedTuple):
    """An item that waits for a slave. `groups`, int64[m], are the partitions of every piece in it. `copy` is given for
    an item of one partition that is shared."""

    groups: np.ndarray
    pieces: list[Piece]
    copy: Copy | None = None


class MiniBuffers:
    """The items that wait for each slave. They leave in the order in which they came. `held_bytes` are the bytes that
    wait, and `held_bytes_max` is their measured peak."""

    def __init__(self, table: PartitionTable, slaves: tuple[int, ...], memory_bytes: int = UNLIMITED):
        """memory_bytes: of each slave, for its windows."""
        self.table, self._memory_bytes = table, memory_bytes
        self.held_bytes = 0
        self.held_bytes_max = 0
        self._waiting: dict[int, deque[Queued]] = {slave: deque() for slave in slaves}
        self._held: dict[int, list[Piece]] = {}
        self._turns = Counter[int]()  # For each partition whose rows are dealt, how many pieces there were.

    def add(self, scattered: Sequence[Scattered]) -> Added:
        """Takes one scattered part of all streams. Each slave that has partitions gets a piece of it."""
        added = Added({}, {}, tuple(self._share(scattered)))
        for slave in self.table.owners:
            piece = _piece_of(scattered, self.table.places_of(slave))
            self._waiting[slave].append(Queued(self.table.groups_of(slave), [piece]))
            added.octets[slave] = piece.octets
        first = self.table.places_of(HELD).start
        for at, group in enumerate(self.table.groups_of(HELD).tolist(), first):
            piece = _copied(_piece_of(scattered, slice(at, at + 1)))
            self._held.setdefault(group, []).append(piece)
            added.held[group] = piece.octets
        self.held_bytes += sum(added.octets.values()) + sum(added.held.values())
        self.held_bytes += sum(octets for _, octets in added.shared)
        self.held_bytes_max = max(self.held_bytes_max, self.held_bytes)
        return added

    def _share(self, scattered: Sequence[Scattered]) -> Iterator[tuple[int, int]]:
        """Puts the rows of each shared group into an item for each of its slaves. Yields the slave and the bytes."""
        first = self.table.places_of(SHARED).start
        for at, group in enumerate(self.table.groups_of(SHARED).tolist(), first):
            piece = _copied(_piece_of(scattered, slice(at, at + 1)))
            copies = self.table.copies_of(group)
            for copy, own in zip(copies, self._dealt(group, piece, copies)):
                self._waiting[copy.slave].append(Queued(np.array([group]), [own], copy))
                yield copy.slave, own.octets

    def _dealt(self, group: int, piece: Piece, copies: Sequence[Copy]) -> list[Piece]:
        """Returns what each slave gets of a piece of one shared group."""
        stream = copies[0].dealt
        if stream == NO_STREAM:
            return [piece] * len(copies)
        self._turns[group] += 1
        turn = self._turns[group] % len(copies)
        parts = _parts_of(piece, stream, len(copies))
        return parts[turn:] + parts[:turn]

    def take(self, slave: int, items: int) -> Queued:
        """Takes the slave's oldest items, which must all have the same groups. Returns all of them as one."""
        taken = [self._waiting[slave].popleft() for _ in range(items)]
        pieces = [piece for item in taken for piece in item.pieces]
        self.held_bytes -= octets_of(pieces)
        return taken[0]._replace(pieces=pieces)

    def tell(self, group: int, copy: Copy) -> None:
        """Appends an item without rows that tells a slave something about a group that it shares."""
        self._waiting[copy.slave].append(Queued(np.array([group]), [], copy))

    def settle(self) -> None:
        """Copies those pieces of the last part that were not taken at once. Otherwise, one of them would keep the
        memory of the whole part alive."""
        for waiting in self._waiting.values():
            if waiting and waiting[-1].pieces and waiting[-1].pieces[-1].columns[0].tuples.base is not None:
                waiting[-1].pieces[-1] = _copied(waiting[-1].pieces[-1])

    def hold(self, group: int, slave: int) -> tuple[int, ...]:
        """Takes the group's rows out of everything that waits for the slave, and holds them back. Returns their bytes
        for each item, the oldest item first."""
        waiting, octets = self._waiting[slave], []
        held = self._held.setdefault(group, [])
        for index, item in enumerate(waiting):
            at = np.flatnonzero(item.groups == group)
            if len(at) == 0:
                octets.append(0)
                continue
            split = [_without(piece, int(at[0])) for piece in item.pieces]
            waiting[index] = Queued(np.delete(item.groups, at[0]), [rest for rest, _ in split], item.copy)
            held += [own for _, own in split]
            octets.append(octets_of(own for _, own in split))
        return tuple(octets)

    def deliver(self, group: int, slave: int) -> tuple[Waited, ...]:
        """Puts the rows of the group that were held back before all that waits for the slave, in items of this group
        alone. There may be no rows, but there is an item. Returns what is in them, in their order."""
        held = self._held.pop(group, [])
        runs = cut(held, item_bytes(held, self._memory_bytes)) or [Run([])]
        self._waiting[slave].extendleft(Queued(np.array([group]), run.pieces) for run in reversed(runs))
        return tuple(Waited(slave, octets_of(run.pieces), run.later) for run in runs)

    def redeal(self, group: int) -> tuple[Waited, ...]:
        """Puts the rows of the group that were held back behind all that waits for its slaves, about as many in an item
        as may go at once, and at the end an item without rows. Returns what is in them, in their order."""
        held = self._held.pop(group, [])
        copies = self.table.copies_of(group) or (Copy(self.table.owner_of(group)),)
        waited = []
        for some, later in (*cut(held, min(BATCH_BYTES, item_bytes_max(self._memory_bytes))), Run([])):
            each = list(zip(*(self._dealt(group, piece, copies) for piece in some))) or [()] * len(copies)
            for copy, own in zip(copies, each):
                self._waiting[copy.slave].append(Queued(np.array([group]), list(own), copy))
                waited.append(Waited(copy.slave, octets_of(own), later))
        self.held_bytes += sum(one.octets for one in waited) - octets_of(held)
        self.held_bytes_max = max(self.held_bytes_max, self.held_bytes)
        return tuple(waited)

    def waiting(self) -> Iterator[tuple[int, Queued]]:
        """Yields each item with rows that waits, together with its slave. The items of a slave come in their order."""
        for slave, items in self._waiting.items():
            yield from ((slave, item) for item in items if any(piece.octets for piece in item.pieces))

    def restore(self, items: Iterable[Queued]) -> tuple[Waited, ...]:
        """Puts all rows that waited when a checkpoint cut the run behind what waits for the slaves of their groups,
        group by group, the earliest first: several producers may have had rows of the same time. Returns what is in
        their items, in the order of these."""
        of_groups: dict[int, list[Piece]] = {}
        for groups, pieces, _ in items:
            for piece in pieces:
                for at in np.flatnonzero(piece.counts.sum(axis=0)).tolist():
                    of_groups.setdefault(int(groups[at]), []).append(_only(piece, at))
        waited = []
        for group, pieces in of_groups.items():
            pieces.sort(key=lambda piece: min(earliest_of(piece)))
            slave = self.table.owner_of(group)
            for run in cut(pieces, item_bytes(pieces, self._memory_bytes)):
                self._waiting[slave].append(Queued(np.array([group]), run.pieces))
                waited.append(Waited(slave, octets_of(run.pieces), run.later))
        self.held_bytes += sum(one.octets for one in waited)
        self.held_bytes_max = max(self.held_bytes_max, self.held_bytes)
        return tuple(waited)

    def rest(self, groups: Iterable[tuple[int, np.ndarray]]) -> None:
        """Appends an item without rows for each of these slaves, with its groups."""
        for slave, own in groups:
            self._waiting[slave].append(Queued(own, []))

    def close(self) -> None:
        """Appends an item without rows for every slave, also for those without partitions. This item carries the end
        of the input."""
        for slave, waiting in self._waiting.items():
            waiting.append(Queued(self.table.groups_of(slave), []))


def _piece_of(scattered: Sequence[Scattered], places: slice) -> Piece:
    counts = np.stack([np.diff(one.starts[places.start : places.stop + 1]) for one in scattered])
    return Piece(counts, tuple(_columns_of(one, places) for one in scattered))


def _columns_of(scattered: Scattered, places: slice) -> Columns:
    low, high = scattered.starts[[places.start, places.stop]]
    blob_low, blob_high = scattered.blob_starts[[places.start, places.stop]]
    tuples = scattered.tuples[low:high]
    if len(scattered.blob) and len(tuples) and (above := blob_low - _base(scattered, places.start)):
        # The rows are copied, because they may also belong to another piece.
        tuples = tuples.copy()
        tuples[:, ADDRESS] -= above
    return Columns(tuples, scattered.blob[blob_low:blob_high])


def _base(scattered: Scattered, place: int) -> int:
    """Returns the byte from which the blob addresses in this place count."""
    return int(scattered.blob_starts[scattered.firsts[place]])


def _copied(piece: Piece) -> Piece:
    return Piece(piece.counts, tuple(Columns(one.tuples.copy(), one.blob.copy()) for one in piece.columns))


def _parts_of(piece: Piece, stream: int, parts: int) -> list[Piece]:
    """Returns so many pieces of one group. Each has a run of the rows of one stream, and all rows of the others."""
    bounds = (np.arange(parts + 1) * int(piece.counts[stream, 0]) // parts).tolist()
    several = []
    for low, high in pairwise(bounds):
        counts, columns = piece.counts.copy(), list(piece.columns)
        counts[stream] = high - low
        columns[stream] = _own_of(columns[stream], np.diff([0, low, high]), 1)
        several.append(Piece(counts, tuple(columns)))
    return several


def _without(piece: Piece, at: int) -> tuple[Piece, Piece]:
    """Returns the piece without its group number `at`, and a piece of this group alone."""
    rest = [_rest_of(columns, counts, at) for columns, counts in zip(piece.columns, piece.counts)]
    return Piece(np.delete(piece.counts, at, axis=1), tuple(rest)), _only(piece, at)


def _only(piece: Piece, at: int) -> Piece:
    """Returns a piece of group number `at` alone. Its arrays are copies."""
    own = [_own_of(columns, counts, at) for columns, counts in zip(piece.columns, piece.counts)]
    return Piece(piece.counts[:, at : at + 1].copy(), tuple(own))


def _own_of(columns: Columns, counts: np.ndarray, at: int) -> Columns:
    """Returns the rows of group number `at` in one stream's columns. Blobs lie in the order of the rows."""
    (low, high), (blob_low, blob_high) = _bounds(columns, counts, at)
    own = columns.tuples[low:high].copy()
    if blob_high > blob_low:
        own[:, ADDRESS] -= blob_low
    return Columns(own, columns.blob[blob_low:blob_high].copy())


def _rest_of(columns: Columns, counts: np.ndarray, at: int) -> Columns:
    """Returns the rows of all other groups."""
    (low, high), (blob_low, blob_high) = _bounds(columns, counts, at)
    rest = np.concatenate([columns.tuples[:low], columns.tuples[high:]])
    if blob_high > blob_low:
        rest[low:, ADDRESS] -= blob_high - blob_low
    return Columns(rest, np.concatenate([columns.blob[:blob_low], columns.blob[blob_high:]]))


def _bounds(columns: Columns, counts: np.ndarray, at: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Returns the first row of group number `at` and the row after its last, and the same for the bytes of their blobs.
    """
    low = int(counts[:at].sum())
    high = low + int(counts[at])
    if len(columns.blob) == 0:
        return (low, high), (0, 0)
    blob_low = int(columns.tuples[:low, SIZE].sum())
    return (low, high), (blob_low, blob_low + int(columns.tuples[low:high, SIZE].sum()))
