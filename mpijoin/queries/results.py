"""What becomes of the results of one query: they are counted, certified, timed and written."""

from __future__ import annotations

from typing import Sequence

from mpijoin.join.results import certificate_of
from mpijoin.operators.base import Consumer, Keep, Out, Rows
from mpijoin.queries.operator import SharedJoin


class QueryResults:
    """A consumer of what a `SharedJoin` finds, for its query of one number. It hands on what this query has found.

    out: it counts these results.
    """

    def __init__(self, operator: SharedJoin, number: int, consumers: Sequence[Consumer] = ()):
        question, own = operator.queries[number].question, operator.owns[number]
        self._number, self._own, self._consumers = number, own, consumers
        self._answers = question.words if question else 0
        self.out = own.out if own else Out(2, 0, Keep.NOTHING)

    def consume(self, out: Out, rows: Rows, epoch: int) -> None:
        if out.is_final and out.query == self._number:
            self.out.counted(out.count, int(certificate_of(rows.words, out.slots, out.count)))
            self._hand_on(out.first_rows(self._answers), rows, epoch)
        elif self._own and not out.is_final:
            self._hand_on(self._own.out, rows, epoch)

    def _hand_on(self, out: Out, rows: Rows, epoch: int) -> None:
        if out.count:
            for consumer in self._consumers:
                consumer.consume(out, rows, epoch)

    def end_epoch(self, epoch: int, last: bool) -> None:
        for consumer in self._consumers:
            consumer.end_epoch(epoch, last)
