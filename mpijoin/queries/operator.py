"""The operator: sliding-window joins of the same two streams, over one table."""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

import numpy as np

from mpijoin.data.batch import read_only
from mpijoin.join.marks import Marks
from mpijoin.join.unmatched import Unmatched
from mpijoin.join.window_join import Setup, WindowJoin
from mpijoin.matching.answers import Answers, Question
from mpijoin.operators.base import Out, Progress
from mpijoin.operators.stored import Finder
from mpijoin.queries.view import view_of
from mpijoin.store.fresh import settle_groups
from mpijoin.store.pool import Pool
from mpijoin.store.state import COMPARED, LOOKS_BACK, MARK_BITS, StoreState, looking_back

UNFLAGGED = (False, False)


class Query(NamedTuple):
    """One of the queries.

    windows: in time units, no longer than those of the streams · marks: what a type other than the inner join needs ·
    where: the kernel that asks a condition, as of `where.kernel_of` · question: what is asked about the partners of
    each tuple of the first stream, if that is what the query does. Then the others are not looked at.
    """

    windows: tuple[int, int]
    marks: Marks | None = None
    where: Any = None
    question: Question | None = None

    @property
    def flagged(self) -> tuple[bool, bool]:
        """Of each stream, whether its tuples are marked."""
        return (True, False) if self.question else self.marks.flagged if self.marks else UNFLAGGED


class SharedJoin(WindowJoin):
    """Implements `Operator`. Its probe finds the pairs of all queries, of which each takes its own. It certifies
    nothing. What `expire` finds belongs to one query at a time, which `out` names."""

    def __init__(self, setup: Setup, queries: Sequence[Query], pool: Pool):
        """setup: without marks and condition · queries: as many as there are MARK_BITS, at most."""
        flagged = [any(both) for both in zip(*(query.flagged for query in queries))]
        streams = tuple(spec._replace(flagged=own) for spec, own in zip(setup.streams, flagged))
        super().__init__(setup._replace(streams=streams), pool)
        self.queries = tuple(queries)
        self.views = [view_of(self._table, one.windows, one.flagged, mark) for one, mark in zip(queries, MARK_BITS)]
        looks = [looking_back(one.windows[0]) for one in queries if one.question]
        self._table.counters[LOOKS_BACK] = max(looks, default=0)
        self._has_pairs = any(one.question is None for one in queries)
        found = ((index, _finder_of(*own)) for index, own in enumerate(zip(queries, self.views)))
        self._finders = [(index, finder) for index, finder in found if finder]
        self._at = 0  # the finder of an unfinished `expire`

    @property
    def answers_late(self) -> bool:
        return bool(self._finders)

    def probe(self, groups: np.ndarray, budget: int, out: Out) -> Progress:
        if self._has_pairs:
            return super().probe(groups, budget, out)
        settle_groups(self._table, self._start(groups))
        return Progress.DONE

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


def _finder_of(query: Query, view: StoreState) -> Finder | None:
    if query.question:
        return Answers(view, query.question)
    return Unmatched(view, query.marks.leave) if query.marks and any(query.marks.leave) else None
