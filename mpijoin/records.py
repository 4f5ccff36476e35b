"""Messages carry these records beside rows. They say what ranks count, and where on the disk something lies.

In the meta of a frame, a record is the list of its values, and `of` makes the record again. Counts per stream are a
tuple in the order of the job's streams.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence


class Delays(NamedTuple):
    """A histogram of delays (metrics/delay.py). It has the filled buckets with their counts. The number of delays,
    their sum and the longest one are exact."""

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
    """A slave's side of the ledger, or the sum of several. `received` are rows from the master. `held`, `moved_in` and
    `moved_out` are the tuples of the groups that it has, got and gave away. `written` are rows in result files.
    `certificate` is that of the results, modulo 2**64."""

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
        """Returns the counts of so many streams before a run."""
        none = (0,) * streams
        return cls(none, none, none, none, none, none)


# The first fields of `Counts` are per stream. This is their number.
PER_STREAM = 6


class Figures(NamedTuple):
    """What the summary says about a slave beside its counts. The seconds are those after the warm-up."""

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
    """One closed part file. It has a file name in its folder, rows, bytes on disk, and the checksum of these bytes
    (`disk.HashedFile`)."""

    name: str
    rows: int
    bytes: int
    checksum: str


class Span(NamedTuple):
    """The place of a frame: the file name in the checkpoint folder, the first byte, and the number of bytes."""

    file: str
    offset: int
    octets: int


class GroupSpans(NamedTuple):
    """A partition group in a checkpoint. `alive` are the bytes of its live tuples. `spans` are the places of its
    frames, the tail last."""

    group: int
    alive: int
    spans: tuple[Span, ...]

    @classmethod
    def of(cls, plain: Sequence[Any]) -> GroupSpans:
        group, alive, spans = plain
        return cls(group, alive, tuple(Span(*span) for span in spans))


class MoveTotals(NamedTuple):
    """The moves of groups that have ended, counted by how they ended, and the bytes of the groups that moved."""

    moved: int = 0
    refused: int = 0
    cancelled: int = 0
    moved_bytes: int = 0

    def with_one(self, outcome: str, octets: int) -> MoveTotals:
        """Returns the totals with one move more. `outcome` is the field that counts it, and `octets` are the bytes of
        the group."""
        more = self._replace(**{outcome: getattr(self, outcome) + 1})
        return more._replace(moved_bytes=self.moved_bytes + octets) if outcome == "moved" else more


class Transfer(NamedTuple):
    """What moving a group cost, as the slave measured it. A field is None if the slave says nothing about it."""

    octets: int | None = None
    transfer_s: float | None = None
    blocks: int | None = None

    @classmethod
    def of(cls, plain: Sequence[Any]) -> Transfer:
        return cls(*plain)
