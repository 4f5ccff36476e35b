"""The operator: a sliding-window join of two streams that answers each row of the first one once."""

from __future__ import annotations

from typing import Sequence

import numpy as np

from mpijoin.data.batch import read_only
from mpijoin.join.results import certificate_of
from mpijoin.matching.answers import Answers, Question
from mpijoin.named import NamedTuple
from mpijoin.operators.base import Out, Progress
from mpijoin.operators.stored import TableOperator
from mpijoin.store.expire import expire_groups
from mpijoin.store.fresh import settle_groups
from mpijoin.store.pool import Pool, StreamSpec
from mpijoin.store.state import LOOKS_BACK, looking_back


class Setup(NamedTuple):
    """What a matching join is made for.

    partitions: how many groups there may be · theta: in bytes · streams: in the job's order · question: about each
    tuple of the first stream · number: the operator's number among those that share its pool.
    """

    partitions: int
    theta: int
    streams: tuple[StreamSpec, StreamSpec]
    question: Question
    number: int = 0


class MatchingJoin(TableOperator):
    """Implements `Operator`. It has results only in `expire`, which returns OUT_FULL or BUDGET until all are found and
    consumed. It certifies them itself."""

    def __init__(self, setup: Setup, pool: Pool):
        left, right = setup.streams
        super().__init__(pool, setup.partitions, setup.theta, (left._replace(flagged=True), right), setup.number)
        self._table.counters[LOOKS_BACK] = looking_back(left.window)
        self._answers = Answers(self._table, setup.question)
        self._expire = expire_groups.bound(self._table)

    def probe(self, groups: np.ndarray, budget: int, out: Out) -> Progress:
        settle_groups(self._table, self._start(groups))
        return Progress.DONE

    def pause(self, budget: int, out: Out) -> Progress:
        return Progress.DONE

    def expire(self, groups: np.ndarray, watermarks: Sequence[int] | np.ndarray, out: Out) -> Progress:
        groups, marks = self._start(groups), read_only(np.atleast_2d(np.asarray(watermarks, np.int64)))
        progress = self._answers.find(groups, marks, out)
        self._results += out.count
        out.counted(out.count, int(certificate_of(self._table.words, out.slots, out.count)))
        if progress is not Progress.DONE:
            return progress  # Rows are let go of after their results were consumed.
        self._expire(groups, marks)
        self._pool.trim()
        return Progress.DONE
