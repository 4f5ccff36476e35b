"""Which tuples go into which file. A stream is cut into pieces, which can be made anywhere and in any order."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from mpijoin.config.job import SyntheticSource
from mpijoin.generators.schedule import TIME_MAX
from mpijoin.generators.stream import SyntheticStream
from mpijoin.named import NamedTuple

TUPLE_BYTES = 16  # time and key
FILE_BYTES = 128 << 20  # of tuples in memory, that a file holds by default


@dataclass(frozen=True)
class StreamPlan:
    """A stream to make. rows: tuples of a piece; the last piece has fewer."""

    name: str
    source: SyntheticSource
    seed: int
    index: int  # of the stream in the job, from 0
    rows: int

    def stream(self) -> SyntheticStream:
        return SyntheticStream(self.source, self.seed, self.index)


class Piece(NamedTuple):
    """Tuples first .. first + rows - 1. Before them the arrivals stand at `position`, and none of them comes before the
    time `start_ns`."""

    number: int
    first: int
    rows: int
    position: int
    start_ns: int


class FilePlan(NamedTuple):
    """A file for the tuples that come in [low_ns, high_ns), all of which are in these pieces. number: of the file."""

    number: int
    low_ns: int
    high_ns: int
    pieces: tuple[Piece, ...]


def rows_per_file(source: SyntheticSource) -> int:
    """So many rows that the tuples of a file fit into FILE_BYTES of memory.

    >>> rows_per_file(SyntheticSource(payload_bytes=112))
    1048576
    """
    return max(1, FILE_BYTES // (TUPLE_BYTES + source.payload_bytes))


def file_plans(plan: StreamPlan, pieces: list[Piece]) -> list[FilePlan]:
    """One file for each piece. It holds the tuples of the piece; with disorder it holds those that come before the next
    piece starts, and some of them are of earlier pieces."""
    if not plan.source.disorder_ns:
        return [FilePlan(piece.number, 0, TIME_MAX, (piece,)) for piece in pieces]
    borders = [0, *(piece.start_ns for piece in pieces[1:]), TIME_MAX]
    found = []
    for number, (low_ns, high_ns) in enumerate(itertools.pairwise(borders)):
        first = number
        while first > 0 and pieces[first].start_ns >= low_ns - plan.source.disorder_ns:
            first -= 1
        found.append(FilePlan(number, low_ns, high_ns, tuple(pieces[first : number + 1])))
    return found
