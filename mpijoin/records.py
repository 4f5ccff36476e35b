"""Messages carry these records beside rows. They say what ranks count, and where on the disk something lies.

In the meta of a frame, a record is the list of its values, and `of` makes the record again. Counts per stream are a
tuple in the order of the job's streams.
"""

from __future__ import annotations

from typing import Any, Iterable, NamedTuple, Sequence


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
    `moved_out` are the tuples in memory of the groups that it has, got and gave away. `spilled` are the tuples that
    left memory for the disk, and `taken_back` those whose copy on the disk is done with, because they are joined with
    everything or because nothing can meet them any more. `written` are rows in result files. `certificate` is that of
    the results, modulo 2**64."""

    received: tuple[int, ...]
    joined: tuple[int, ...]
    expired: tuple[int, ...]
    held: tuple[int, ...]
    moved_in: tuple[int, ...]
    moved_out: tuple[int, ...]
    spilled: tuple[int, ...]
    taken_back: tuple[int, ...]
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
        return cls._make([*[none] * PER_STREAM, *cls._field_defaults.values()])


# The first fields of `Counts` are per stream. This is their number.
PER_STREAM = 8


class SpillFigures(NamedTuple):
    """What a slave has done with state that does not fit into memory, since its clock started, and what is left to do.

    `spills` is how many times it wrote state to the disk, in `spill_s` seconds. `spilled_bytes` and `read_back_bytes`
    are bytes written to the disk and read from it. `disk_bytes` lie there now, and `disk_bytes_max` were the most.
    `cleanup_results` were found in `cleanup_s` seconds of clean-up. `owed_groups` still owe results, and their clean-up
    has to read `owed_bytes`."""

    spills: int = 0
    spill_s: float = 0.0
    spilled_bytes: int = 0
    read_back_bytes: int = 0
    disk_bytes: int = 0
    disk_bytes_max: int = 0
    cleanup_s: float = 0.0
    cleanup_results: int = 0
    owed_groups: int = 0
    owed_bytes: int = 0

    @classmethod
    def of(cls, plain: Sequence[Any]) -> SpillFigures:
        return cls(*plain)

    @classmethod
    def together(cls, several: Iterable[SpillFigures]) -> SpillFigures:
        """Returns the sums over several slaves, but of the seconds the most, because slaves work side by side. Their
        `disk_bytes_max` may be from different moments.

        >>> SpillFigures.together([SpillFigures(spills=2, spill_s=0.5), SpillFigures(spills=1, spill_s=0.25)])[:2]
        (3, 0.5)
        """
        columns = zip(cls._fields, zip(cls(), *several))
        return cls._make((max if name.endswith("_s") else sum)(column) for name, column in columns)


class Figures(NamedTuple):
    """What the summary says about a slave beside its counts. The seconds of work are those after the warm-up.

    `memory_limit_bytes` is the budget of its pool, and `memory_bytes_max` the most of it that was in use when it wrote
    a record of its metrics. At `last_runtime_result_s` of its clock it found the last result that no clean-up found."""

    cpu_s: float
    comm_s: float
    idle_s: float
    busy_s: float
    blocked_s: float
    window_bytes_max: int
    blocks_max: int
    theta_bytes: int
    memory_limit_bytes: int
    memory_bytes_max: int
    last_runtime_result_s: float
    spilling: SpillFigures = SpillFigures()

    @classmethod
    def of(cls, plain: Sequence[Any]) -> Figures:
        *own, spilling = plain
        return cls._make([*own, SpillFigures.of(spilling)])


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
