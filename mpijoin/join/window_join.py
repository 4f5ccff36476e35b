"""The operator: a sliding-window join of the streams of one job, over the groups of one slave."""

from __future__ import annotations

from typing import Any, Callable, Iterator, Sequence

import numpy as np

from mpijoin.data.batch import read_only
from mpijoin.join.marks import ALL, UNMARKED, MarkPairs, Marks
from mpijoin.join.probes import new_probe
from mpijoin.join.results import certificate_of
from mpijoin.join.state import Ask
from mpijoin.join.tracks import WithOld
from mpijoin.join.unmatched import Unmatched
from mpijoin.named import NamedTuple
from mpijoin.operators.base import Filter, Out, Progress
from mpijoin.operators.stored import Finder, TableOperator
from mpijoin.store.expire import expire_groups
from mpijoin.store.insert import Fresh
from mpijoin.store.pool import Pool, StreamSpec, new_pool
from mpijoin.store.prepare import split_for
from mpijoin.store.rows import RowsFrame
from mpijoin.store.state import APART, FOUND, HASHED, INSERTED, KEEPS, OUT_COUNT, PAIRS, TRACKS
from mpijoin.store.transfer import ready_fresh

# A group is not split further than this ahead of its tuples, because many of them may have the same key.
EXPECTED_DEPTH_MAX = 16

# A call of a `Probe` that finds results.
Find = Callable[[np.ndarray, int, np.ndarray], int]


class Setup(NamedTuple):
    """What a join is made for.

    partitions: how many groups there may be · theta: in bytes · streams: in the job's order · number: the operator's
    number among those that share its pool · symmetric: as of `new_probe` · fresh_meets_fresh: whether a result may
    consist of fresh tuples alone. If not, a probe finds only those with at least one tuple that was old before. A
    clean-up needs this, and what is inserted was taken back from a disk, and not joined for the first time · marks:
    what a type other than the inner join needs · asks: as of `new_state` · tracks: whether tuples may be new to one of
    two holders, so that no result may consist of new ones alone. All streams are flagged then.
    """

    partitions: int
    theta: int
    streams: tuple[StreamSpec, ...]
    number: int = 0
    symmetric: bool | None = None
    fresh_meets_fresh: bool = True
    marks: Marks | None = None
    asks: tuple[Ask, ...] = ()
    tracks: bool = False


class WindowJoin(TableOperator):
    """Implements `Operator`: the inner join of n streams, and all types of join of two.

    Where an Out does not certify, because of filters, the results of a type with marks have to pass `marker` as their
    last filter. What leaves without a partner is found by `expire`, which then returns OUT_FULL until all of it is
    consumed.
    """

    def __init__(self, setup: Setup, pool: Pool):
        super().__init__(pool, setup.partitions, setup.theta, setup.streams, setup.number)
        self._setup = setup
        self._table.counters[APART] = not setup.fresh_meets_fresh
        self._table.counters[TRACKS] = setup.tracks
        self._table.counters[PAIRS] = setup.marks.pairs if setup.marks else UNMARKED
        self._certificate = np.zeros(1, np.uint64)
        asks = (*setup.asks, WithOld()) if setup.tracks else setup.asks
        self._probe = new_probe(self._table, self._certificate, setup.symmetric, asks)
        # The groups of an unfinished probe.
        self._probed: np.ndarray | None = None
        self._expire = expire_groups.bound(self._table)
        leave = setup.marks.leave if setup.marks else ()
        self._unmatched: Finder | None = Unmatched(self._table, leave) if any(leave) else None

    def probe(self, groups: np.ndarray, budget: int, out: Out) -> Progress:
        if self._probed is None:
            self._probe.start()
            self._probed = self._start(groups)
        return self._find(self._probe.go_on, self._probed, budget, out)

    def pause(self, budget: int, out: Out) -> Progress:
        if self._probed is None:
            return Progress.DONE
        # A tuple that has become old while others are still fresh would meet these in the next probe.
        find = self._probe.go_on if self._table.counters[APART] else self._probe.pause
        return self._find(find, self._probed, budget, out)

    def ready_moves(self, group: int, out: Out) -> None:
        """Loads what `pause` needs, and what moves fresh tuples. The group is started, and nothing is in it."""
        self._probe.start()
        self._find(self._probe.pause, self._start(np.zeros(0, np.int64)), 0, out)
        ready_fresh(self._table, group)

    def _find(self, find: Find, groups: np.ndarray, budget: int, out: Out) -> Progress:
        """Goes on with the probe of the groups, or pauses it, as `find` does, and counts what it finds."""
        counters = self._table.counters
        counters[KEEPS], counters[HASHED], counters[OUT_COUNT] = out.keep, not out.certifies, out.count
        counters[FOUND] = self._certificate[0] = 0
        progress = Progress(find(groups, budget, out.slots))
        found = int(counters[FOUND])
        self._results += found
        out.count = int(counters[OUT_COUNT])
        if out.certifies:
            out.counted(found, int(self._certificate[0]))
        if progress is Progress.DONE:
            self._probed = None
        return progress

    @property
    def marker(self) -> Filter | None:
        return MarkPairs(self._table, self._setup.marks) if self._setup.marks else None

    @property
    def answers_late(self) -> bool:
        return self._unmatched is not None

    def expire(self, groups: np.ndarray, watermarks: Sequence[int] | np.ndarray, out: Out) -> Progress:
        groups, marks = self._start(groups), read_only(np.atleast_2d(np.asarray(watermarks, np.int64)))
        if self._unmatched and (progress := self._unmatched.find(groups, marks, out)) is not Progress.DONE:
            self._results += out.count
            if out.certifies:
                out.counted(out.count, int(certificate_of(self._table.words, out.slots, out.count)))
            return progress  # The tuples stay until they are consumed.
        self._expire(groups, marks)
        self._pool.trim()
        return Progress.DONE

    @property
    def _is_probing(self) -> bool:
        return self._probed is not None

    def beside(self, number: int) -> WindowJoin:
        """Returns an empty table over the same pool, for clean-ups: its fresh tuples do not meet each other.

        number: its number among the operators that share the pool.
        """
        return WindowJoin(self._setup._replace(number=number, fresh_meets_fresh=False), self._pool)

    def take_back(self, groups: np.ndarray, fresh: Sequence[Fresh]) -> bool:
        """Inserts rows of one group that were on a disk, of each stream, as tuples that have met all others of theirs.

        They count as taken back, and not as joined. Returns whether there was room for all; if not, some are in.
        """
        for stream, rows in enumerate(fresh):
            if count := len(rows.tuples):
                if not self.insert(groups, stream, rows, np.array([[0, count]])).groups:
                    return False
                self._table.counters[INSERTED + stream] -= count
                self._from_disk[stream] += count
                self.settle(groups)
        return True

    def joined_rows(self, group: int, generation: int, stream: int | None = None) -> Iterator[RowsFrame]:
        """Yields the rows of a group, but no fresh ones, as frames of this generation. stream: the only one that is
        wanted. The group must not change before all of them were taken."""
        self._refuse_probed(group)
        return self._reader.of_group(group, generation, stream)

    @property
    def finds_pairs(self) -> bool:
        """Whether all rows that the keys and windows allow are results together, and each of them once."""
        return not self._setup.asks and (self._setup.marks is None or self._setup.marks.pairs == ALL)

    def expect(self, group: int, octets: int) -> None:
        """Prepares a group that holds no tuple for so many bytes of all streams, because they come in many batches
        before the group can be tuned. Each mini-partition-group is to have between theta and 2 theta bytes then."""
        self._start(np.array([group]))
        depth = max(1, octets // self.theta_bytes).bit_length() - 1
        split_for(self._table, group, min(depth, EXPECTED_DEPTH_MAX))


def window_join(
    partitions: int, memory_bytes: int, block_bytes: int, theta: int, streams: Sequence[tuple[int, bool, int]],
    symmetric: bool | None = None, marks: Marks | None = None, where: Any = None, tracks: bool = False,
) -> WindowJoin:
    """Returns a join with a pool of its own.

    streams: (record_words, has_blob, window in time units) of each · theta, memory and block: in bytes · symmetric: as
    of `new_probe` · marks, tracks: as of `Setup` · where: as of `where.kernel_of`.
    """
    specs = tuple(StreamSpec(*stream) for stream in streams)
    if tracks:
        specs = tuple(spec._replace(flagged=True) for spec in specs)
    if marks:
        specs = tuple(spec._replace(flagged=flagged) for spec, flagged in zip(specs, marks.flagged))
    asks: tuple[Ask, ...] = ()
    if where is not None:
        from mpijoin.join.where import Where  # late: most joins have no condition

        asks = (Where(where),)
    pool = new_pool(memory_bytes, block_bytes, max(spec.tuple_words for spec in specs))
    return WindowJoin(Setup(partitions, theta, specs, symmetric=symmetric, marks=marks, asks=asks, tracks=tracks), pool)
