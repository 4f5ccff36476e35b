"""Messages carry these records beside rows. They say what ranks count, and where on the disk something lies.

In the meta of a frame, a record is the list of its values, and `of` makes the record again. Counts per stream are a
tuple in the order of the job's streams.
"""

from __future__ import annotations

from typing import Any, Iterable, Sequence

from mpijoin.config.moves import GATHER, SPREAD
from mpijoin.named import NamedTuple


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


class QueryCounts(NamedTuple):
    """What a slave has found for one query: results, rows in result files of its own, and the certificate modulo
    2**64."""

    results: int
    written: int
    certificate: int


class Counts(NamedTuple):
    """A slave's side of the ledger, or the sum of several. `received` are rows from producers, without those that are
    sent to another slave as well; these are `copied` here. `held`, `moved_in` and `moved_out` are the tuples in memory
    of the groups that it has, got and gave away. `discarded` are those that another slave has as well, `replicas_in`
    those that came from a slave that kept them, too, and `replicas_out` those that went to another one and stayed.
    `spilled` are the tuples that
    left memory for the disk, and `taken_back` those whose copy on the disk is done with, because they are joined with
    everything or because nothing can meet them any more. `written` are rows in result files. `certificate` is that of
    the results, modulo 2**64. A job with several queries also has the counts of each in `queries`, and the others are
    their sums."""

    received: tuple[int, ...]
    joined: tuple[int, ...]
    expired: tuple[int, ...]
    held: tuple[int, ...]
    moved_in: tuple[int, ...]
    moved_out: tuple[int, ...]
    spilled: tuple[int, ...]
    taken_back: tuple[int, ...]
    copied: tuple[int, ...]
    discarded: tuple[int, ...]
    replicas_in: tuple[int, ...]
    replicas_out: tuple[int, ...]
    results: int = 0
    written: int = 0
    certificate: int = 0
    comparisons: int = 0
    splits: int = 0
    merges: int = 0
    delays: Delays = Delays()
    queries: tuple[QueryCounts, ...] = ()

    @classmethod
    def of(cls, plain: Sequence[Any]) -> Counts:
        *numbers, delays, queries = plain[PER_STREAM:]
        streams = map(tuple, plain[:PER_STREAM])
        return cls._make([*streams, *numbers, Delays.of(delays), tuple(QueryCounts(*one) for one in queries)])

    @classmethod
    def nothing(cls, streams: int) -> Counts:
        """Returns the counts of so many streams before a run."""
        none = (0,) * streams
        return cls._make([*[none] * PER_STREAM, *cls._field_defaults.values()])


# The first fields of `Counts` are per stream. This is their number.
PER_STREAM = 12


class SpillFigures(NamedTuple):
    """What a slave has done with state that does not fit into memory, since its clock started, and what is left to do.

    `spills` is how many times it wrote state to the disk, in `spill_s` seconds. `spilled_bytes` and `read_back_bytes`
    are bytes written to the disk, in `write_s` seconds, and read from it. `disk_bytes` lie there now, and
    `disk_bytes_max` were the most. `cleanup_results` were found in `cleanup_s` seconds of clean-up. `owed_groups` still
    owe results, for `owed_generations` of theirs; their clean-up has to read `owed_bytes`, and finds at least
    `owed_results`."""

    spills: int = 0
    spill_s: float = 0.0
    write_s: float = 0.0
    spilled_bytes: int = 0
    read_back_bytes: int = 0
    disk_bytes: int = 0
    disk_bytes_max: int = 0
    cleanup_s: float = 0.0
    cleanup_results: int = 0
    owed_groups: int = 0
    owed_bytes: int = 0
    owed_generations: int = 0
    owed_results: int = 0

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
    Its messages waited `turn_s` for their turns, and would have waited `turn_offset_s` if the slave had come as late
    for each as it was served the last time.

    `memory_limit_bytes` is the budget of its pool, and `memory_bytes_max` the most of it that was in use when it wrote
    a record of its metrics. At `last_runtime_result_s` of its clock it found the last result that no clean-up found."""

    cpu_s: float
    comm_s: float
    idle_s: float
    busy_s: float
    turn_s: float
    turn_offset_s: float
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


class Followed(NamedTuple):
    """A slave has joined by a plan since so many tuples had come to it. took_ns, takes_ns: as of `PlanChange`."""

    tuples: int
    plan: str
    took_ns: float = 0.0
    takes_ns: float = 0.0


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


class InputState(NamedTuple):
    """Where a producer stands when a checkpoint cuts its input. `late` are its closed part files of late rows. `sent`
    are rows per stream. `slots` have ended, and `complete` are the watermarks then. `ticks` brought rows."""

    late: tuple[PartInfo, ...]
    sent: tuple[int, ...]
    slots: int
    ticks: int
    complete: tuple[int, ...]

    @classmethod
    def of(cls, plain: Sequence[Any]) -> InputState:
        late, sent, slots, ticks, complete = plain
        return cls(tuple(PartInfo(*part) for part in late), tuple(sent), slots, ticks, tuple(complete))


class Fed(NamedTuple):
    """How far a producer has come. `sent` are rows per stream, and `rows` what became of those that were read: for each
    stream (read, late, null_key, disorder_max). `fraction` of its input has been sent. It is `behind_s` behind its
    time, if the run is paced."""

    sent: tuple[int, ...] = ()
    rows: tuple[tuple[int, int, int, int], ...] = ()
    fraction: float = 0.0
    behind_s: float = 0.0

    @classmethod
    def of(cls, plain: Sequence[Any]) -> Fed:
        sent, rows, fraction, behind_s = plain
        return cls(tuple(sent), tuple((read, late, null, most) for read, late, null, most in rows), fraction, behind_s)


class Feeding(NamedTuple):
    """What a producer has done by the end of the run. `late` are its part files of late rows. `ticks` brought rows.
    `buffer_bytes_max` waited for slaves at most. `held_back_by` are pairs of a slave and how often it made the source
    pause. The seconds are those since the warm-up; `lag_s_max` and `behind_s_max` (pairs of a slave and seconds) those
    of a paced run, which tell whether it was `overloaded`. `copied` are rows per stream that it has sent to a second
    slave, too."""

    fed: Fed
    late: tuple[PartInfo, ...] = ()
    ticks: int = 0
    buffer_bytes_max: int = 0
    held_back_by: tuple[tuple[int, int], ...] = ()
    cpu_s: float = 0.0
    comm_s: float = 0.0
    idle_s: float = 0.0
    lag_s_max: float = 0.0
    behind_s_max: tuple[tuple[int, float], ...] = ()
    overloaded: bool = False
    copied: tuple[int, ...] = ()

    @classmethod
    def of(cls, plain: Sequence[Any]) -> Feeding:
        fields = dict(zip(cls._fields, plain, strict=True))
        fields["copied"] = tuple(fields["copied"])
        fields["fed"] = Fed.of(fields["fed"])
        fields["late"] = tuple(PartInfo(*part) for part in fields["late"])
        for pairs in ("held_back_by", "behind_s_max"):
            fields[pairs] = tuple(map(tuple, fields[pairs]))
        return cls(**fields)


class MoveTotals(NamedTuple):
    """The moves of whole groups that have ended, counted by how they ended, and the bytes of those that moved. So many
    times a slave came to share a group (`spread`), or gave its part back (`gathered`)."""

    moved: int = 0
    refused: int = 0
    cancelled: int = 0
    moved_bytes: int = 0
    spread: int = 0
    gathered: int = 0

    def with_one(self, outcome: str, octets: int, kind: str = "") -> MoveTotals:
        """Returns the totals with one move more. `outcome` is the field that counts it, `octets` are the bytes of the
        group, and `kind` is one of `config.moves.MOVES`, or SPREAD or GATHER."""
        if outcome == "moved" and (counted := {SPREAD: "spread", GATHER: "gathered"}.get(kind)):
            return self._replace(**{counted: getattr(self, counted) + 1})
        more = self._replace(**{outcome: getattr(self, outcome) + 1})
        return more._replace(moved_bytes=self.moved_bytes + octets * (outcome == "moved"))


class Transfer(NamedTuple):
    """What moving a group cost, as the slave measured it. A field is None if the slave says nothing about it."""

    octets: int | None = None
    transfer_s: float | None = None
    blocks: int | None = None

    @classmethod
    def of(cls, plain: Sequence[Any]) -> Transfer:
        return cls(*plain)
