"""Records that messages carry beside rows: what ranks count, and where on the disk something lies.

In a frame's meta a record is the list of its values; `of` makes it again. What is counted per stream is a tuple in the
job's order.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence


class Delays(NamedTuple):
    """A histogram of delays (metrics/delay.py): its filled buckets with their counts, and exactly how many delays there
    are, their sum and the longest."""

    buckets: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()
    results: int = 0
    sum_us: int = 0
    max_us: int = 0

    @classmethod
    def of(cls, plain: Sequence[Any]) -> Delays:
        buckets, counts, *exact = plain
        return cls(tuple(buckets), tuple(counts), *exact)


class Counts(NamedTuple):
    """A slave's side of the ledger, or the sum of several. received: rows from the master · held, moved_in, moved_out:
    tuples of groups it has, got and gave · written: rows in result files · certificate: of the results, modulo
    2**64."""

    received: tuple[int, ...]
    joined: tuple[int, ...]
    expired: tuple[int, ...]
    held: tuple[int, ...]
    moved_in: tuple[int, ...]
    moved_out: tuple[int, ...]
    results: int = 0
    written: int = 0
    certificate: int = 0
    comparisons: int = 0
    splits: int = 0
    merges: int = 0
    delays: Delays = Delays()

    @classmethod
    def of(cls, plain: Sequence[Any]) -> Counts:
        streams, numbers = plain[:PER_STREAM], plain[PER_STREAM:-1]
        return cls._make([*map(tuple, streams), *numbers, Delays.of(plain[-1])])

    @classmethod
    def nothing(cls, streams: int) -> Counts:
        """Of so many streams, before a run."""
        none = (0,) * streams
        return cls(none, none, none, none, none, none)


PER_STREAM = 6  # fields of `Counts` that are per stream: the first ones


class Figures(NamedTuple):
    """What the summary tells of a slave beside its counts: seconds after the warm-up, and its largest state."""

    cpu_s: float
    comm_s: float
    idle_s: float
    busy_s: float
    blocked_s: float
    window_bytes_max: int
    blocks_max: int
    theta_bytes: int

    @classmethod
    def of(cls, plain: Sequence[Any]) -> Figures:
        return cls(*plain)


class PartInfo(NamedTuple):
    """One closed part file: file name in its folder, rows, bytes on disk, and their checksum (`disk.HashedFile`)."""

    name: str
    rows: int
    bytes: int
    checksum: str


class Span(NamedTuple):
    """Where a frame lies: file name in the checkpoint folder, first byte, bytes."""

    file: str
    offset: int
    octets: int


class GroupSpans(NamedTuple):
    """A partition group in a checkpoint. alive: bytes of its live tuples · spans: its frames, the tail last."""

    group: int
    alive: int
    spans: tuple[Span, ...]

    @classmethod
    def of(cls, plain: Sequence[Any]) -> GroupSpans:
        group, alive, spans = plain
        return cls(group, alive, tuple(Span(*span) for span in spans))


class MoveTotals(NamedTuple):
    """Moves of groups that have ended, by how they ended, and the bytes of the groups that moved."""

    moved: int = 0
    refused: int = 0
    cancelled: int = 0
    moved_bytes: int = 0

    def with_one(self, outcome: str, octets: int) -> MoveTotals:
        """One move more. outcome: the field that counts it · octets: of the group."""
        more = self._replace(**{outcome: getattr(self, outcome) + 1})
        return more._replace(moved_bytes=self.moved_bytes + octets) if outcome == "moved" else more


class Transfer(NamedTuple):
    """What moving a group cost, as the slave measured it; None: it says nothing of that."""

    octets: int | None = None
    transfer_s: float | None = None
    blocks: int | None = None

    @classmethod
    def of(cls, plain: Sequence[Any]) -> Transfer:
        return cls(*plain)
