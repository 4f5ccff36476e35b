"""How the rows of one group that have waited are cut into items, each of which is joined as a whole.

Until all of an item is joined, nothing expires for it. What has waited may be many epochs long, which in one item would
take memory for all of them at once, and be compared with much that is too old for it.
"""

from __future__ import annotations

from typing import Iterable, Iterator, Sequence

from mpijoin.messages import Piece
from mpijoin.named import NamedTuple
from mpijoin.partitioning.table import TIME_MAX

TIME = 1  # This word of a tuple has its time.
ITEMS_MAX = 16  # There are about so many, because each costs a message.
MEMORY_PARTS = 64  # There are more where one would be a larger part of a slave's memory.
ITEM_BYTES_MIN = 1 << 13  # Joining fewer takes much less time than a message does.
UNLIMITED = 1 << 62


class Run(NamedTuple):
    """Pieces that go out in one item. later: as of `Waited`."""

    pieces: list[Piece]
    later: tuple[int, ...] = ()


def octets_of(pieces: Iterable[Piece]) -> int:
    return sum(piece.octets for piece in pieces)


def earliest_of(piece: Piece) -> tuple[int, ...]:
    """The earliest time of each stream, TIME_MAX for one without rows."""
    return tuple(int(own.tuples[:, TIME].min(initial=TIME_MAX)) for own in piece.columns)


def item_bytes_max(memory_bytes: int) -> int:
    """About so many bytes at most go into an item for a slave with so much memory."""
    return max(ITEM_BYTES_MIN, memory_bytes // MEMORY_PARTS)


def item_bytes(pieces: Iterable[Piece], memory_bytes: int) -> int:
    """About so many bytes of all these go into an item for a slave with so much memory."""
    return min(max(ITEM_BYTES_MIN, -(-octets_of(pieces) // ITEMS_MAX)), item_bytes_max(memory_bytes))


def cut(pieces: Sequence[Piece], least_bytes: int) -> list[Run]:
    """Cuts the pieces of a group into runs of so many bytes, or a little more. They stay in their order."""
    runs: list[Run] = []
    later: tuple[int, ...] = ()
    for some in reversed([*_batches(pieces, least_bytes)]):
        runs.append(Run(some, later))
        earliest = [earliest_of(one) for one in some]
        later = tuple(map(min, zip(*earliest, later or earliest[0])))
    return runs[::-1]


def _batches(pieces: Sequence[Piece], least_bytes: int) -> Iterator[list[Piece]]:
    batch: list[Piece] = []
    octets = 0
    for piece in pieces:
        batch.append(piece)
        octets += piece.octets
        if octets >= least_bytes:
            yield batch
            batch, octets = [], 0
    if batch:
        yield batch
