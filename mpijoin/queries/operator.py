"""The operator: sliding-window joins of the same two streams, over one table."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from mpijoin.data.batch import read_only
from mpijoin.join.marks import Marks
from mpijoin.join.state import Ask
from mpijoin.join.unmatched import Unmatched
from mpijoin.join.window_join import Find, Setup, WindowJoin
from mpijoin.matching.answers import Answers, Question
from mpijoin.named import NamedTuple
from mpijoin.operators.base import Keep, Out, Progress
from mpijoin.operators.stored import Finder
from mpijoin.queries.pairs import OwnPairs, SameKeys
from mpijoin.queries.view import view_of
from mpijoin.store.fresh import settle_groups
from mpijoin.store.pool import Pool
from mpijoin.store.read import KeyWords
from mpijoin.store.state import COMPARED, LOOKS_BACK, MARK_BITS, StoreState, looking_back

UNFLAGGED = (False, False)


class Query(NamedTuple):
    """One of the queries.

    windows: in time units, no longer than those of the streams · marks: what a type other than the inner join needs ·
    where: the kernel that asks a condition, as of `where.kernel_of` · question: what is asked about the partners of
    each tuple of the first stream, if that is what the query does. Then the others are not looked at ·
    is_kept: whether anybody looks at its results, and does not only count them.
    """

    windows: tuple[int, int]
    marks: Marks | None = None
    where: Any = None
    question: Question | None = None
    is_kept: bool = True

    @property
    def flagged(self) -> tuple[bool, bool]:
        """Of each stream, whether its tuples are marked."""
        return (True, False) if self.question else self.marks.flagged if self.marks else UNFLAGGED


class SharedJoin(WindowJoin):
    """Implements `Operator`. Its probe finds the pairs of all queries, of which each takes its own. The operator's Out
    tells when these must be consumed. What `expire` finds belongs to one query at a time, which that Out names.

    owns: of each query, what it has found among pairs, or None if it asks about partners.
    """

    def __init__(self, setup: Setup, queries: Sequence[Query], pool: Pool, capacity: int, key: KeyWords | None = None):
        """setup: without marks · queries: as many as there are MARK_BITS, at most · capacity: of the operator's Out, in
        results · key: where tuples have their keys, if what is stored is a hash."""
        flagged = [any(both) for both in zip(*(query.flagged for query in queries))]
        streams = tuple(spec._replace(flagged=own) for spec, own in zip(setup.streams, flagged))
        self.owns = [_own_of(query, mark, capacity) for query, mark in zip(queries, MARK_BITS)]
        self._owns = [own for own in self.owns if own]
        asks: list[Ask] = [SameKeys(key)] if key else []
        super().__init__(setup._replace(streams=streams, asks=(*asks, *self._owns)), pool)
        self.queries = tuple(queries)
        self.views = [view_of(self._table, one.windows, one.flagged, mark) for one, mark in zip(queries, MARK_BITS)]
        looks = [looking_back(one.windows[0]) for one in queries if one.question]
        self._table.counters[LOOKS_BACK] = max(looks, default=0)
        found = ((index, _finder_of(*own)) for index, own in enumerate(zip(queries, self.views)))
        self._finders = [(index, finder) for index, finder in found if finder]
        self._at = 0  # the finder of an unfinished `expire`

    @property
    def answers_late(self) -> bool:
        return bool(self._finders)

    def probe(self, groups: np.ndarray, budget: int, out: Out) -> Progress:
        if self._owns:
            return super().probe(groups, budget, out)
        settle_groups(self._table, self._start(groups))
        return Progress.DONE

    def _find(self, find: Find, groups: np.ndarray, budget: int, out: Out) -> Progress:
        # All queries keep results in as much room as `out` has, and none keeps more than `out`, which is full first.
        assert out.keep is Keep.SLOT_IDS or all(own.out.keep is Keep.NOTHING for own in self._owns)
        for own in self._owns if not out.count else ():
            own.begin()
        progress = super()._find(find, groups, budget, out)
        for own in self._owns:
            own.end()
        return progress

    def expire(self, groups: np.ndarray, watermarks: Sequence[int] | np.ndarray, out: Out) -> Progress:
        marks = read_only(np.atleast_2d(np.asarray(watermarks, np.int64)))
        while self._at < len(self._finders):
            out.query, finder = self._finders[self._at]
            progress, counters = finder.find(self._start(groups), marks, out), self.views[out.query].counters
            self._results += out.count
            self._table.counters[COMPARED] += counters[COMPARED]
            counters[COMPARED] = 0
            if progress is not Progress.DONE:
                return progress
            self._at += 1
        self._at = 0
        return super().expire(groups, watermarks, out)


def _own_of(query: Query, mark: int, capacity: int) -> OwnPairs | None:
    if query.question:
        return None
    return OwnPairs(capacity if query.is_kept else 0, query.windows, mark, query.marks, query.where)


def _finder_of(query: Query, view: StoreState) -> Finder | None:
    if query.question:
        return Answers(view, query.question)
    return Unmatched(view, query.marks.leave) if query.marks and any(query.marks.leave) else None
