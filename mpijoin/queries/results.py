"""What becomes of the results of one query: they are counted, certified, timed and written."""

from __future__ import annotations

from typing import Sequence

import numpy as np

from mpijoin.join.marks import UNMARKED
from mpijoin.join.results import certificate_of
from mpijoin.operators.base import Consumer, Out, Rows
from mpijoin.queries.operator import SharedJoin
from mpijoin.queries.pairs import certify_pairs, finish_pairs, take_pairs
from mpijoin.store.state import stored_in


class QueryResults:
    """A consumer of what a `SharedJoin` finds, for its query of one number. It hands on what is left of pairs, and what
    was found for this query in `expire`."""

    def __init__(self, operator: SharedJoin, number: int, capacity: int, consumers: Sequence[Consumer] = ()):
        """capacity: of the operator's Out, in results."""
        query, view = operator.queries[number], operator.views[number]
        self._number, self._consumers, self._asks_rows = number, consumers, query.question is not None
        self._answers = query.question.words if query.question else 0
        # It counts, and holds the pairs of this query. What it is given for others to consume is never certified.
        self.out = Out(len(query.windows), capacity, certifies=False)
        self._certificate = np.zeros(1, np.uint64)
        left, right = self.out.slots
        self._take, self._take_all = take_pairs.bound(view), certify_pairs.bound(view)
        self._is_plain = not (query.where or query.marks)
        self._where = query.where.bound(stored_in(view), left, right) if query.where else None
        pairs = query.marks.pairs if query.marks else UNMARKED
        self._finish = finish_pairs.bound(view, pairs, left, right)

    def consume(self, out: Out, rows: Rows, epoch: int) -> None:
        if not out.is_final and not self._asks_rows:
            self._hand_on(self._own_pairs(out), rows, epoch)
        elif out.is_final and out.query == self._number:
            self.out.counted(out.count, int(certificate_of(rows.words, out.slots, out.count)))
            self._hand_on(out.first_rows(self._answers), rows, epoch)

    def _own_pairs(self, out: Out) -> Out:
        own, pairs = self.out, (out.slots[0], out.slots[1], out.count)
        self._certificate[0] = 0
        if self._is_plain:
            own.count = self._take_all(*pairs, own.slots[0], own.slots[1], self._certificate)
        else:
            count = self._take(*pairs, own.slots[0], own.slots[1])
            own.count = self._finish(self._where(count) if self._where else count, self._certificate)
        own.counted(own.count, int(self._certificate[0]))
        return own

    def _hand_on(self, out: Out, rows: Rows, epoch: int) -> None:
        if out.count:
            for consumer in self._consumers:
                consumer.consume(out, rows, epoch)

    def end_epoch(self, epoch: int, last: bool) -> None:
        for consumer in self._consumers:
            consumer.end_epoch(epoch, last)
