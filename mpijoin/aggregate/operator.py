"""The operator: statistics over the histories of the rows of one stream, over the groups of one slave."""

from __future__ import annotations

from typing import Sequence

import numpy as np

from mpijoin.aggregate.find import find_results, finish_groups
from mpijoin.aggregate.state import (
    AT,
    CURSOR_WORDS,
    ENTRY,
    FAULT,
    FAULT_SLOT,
    FIND,
    FINISH,
    GIVEN,
    IN_ROWS,
    LACKING,
    LISTED_MAX,
    NO_ROOM,
    PHASE,
    SPAN,
    STAGED,
    TOO_LARGE,
    Rules,
    new_work,
)
from mpijoin.data.batch import read_only
from mpijoin.errors import AggregateError
from mpijoin.join.results import certificate_of
from mpijoin.named import NamedTuple
from mpijoin.operators.base import Out, Progress
from mpijoin.operators.stored import TableOperator
from mpijoin.store.fresh import settle_groups
from mpijoin.store.pool import Pool, StreamSpec
from mpijoin.store.state import OUT_FULL, ROW
from mpijoin.store.transfer import ready_fresh

ROOM_MIN = 1 << 10  # of a bucket's rows


class Setup(NamedTuple):
    """What an aggregate is made for.

    partitions: how many groups there may be · theta: in bytes · record_words, has_blob: of the stream's tuples · rules:
    what is worked out · names: what the functions are called in messages · number: the operator's number among those
    that share its pool.
    """

    partitions: int
    theta: int
    record_words: int
    has_blob: bool
    rules: Rules
    names: tuple[str, ...]
    number: int = 0

    @property
    def stream(self) -> StreamSpec:
        """The stream as the store knows it. Dead rows are flagged where the history counts rows."""
        rule = self.rules.rule
        in_rows = bool(rule[IN_ROWS])
        return StreamSpec(self.record_words, self.has_blob, 0 if in_rows else int(rule[SPAN]), flagged=in_rows)


class WindowAggregate(TableOperator):
    """Implements `Operator`. It has results only in `expire`, which returns OUT_FULL until all are consumed.

    An Out for it has a row of slot ids, then one of answers for each function, as int64 or as the bits of a float64,
    and a row of words with a bit for each function whose answer is null.
    """

    def __init__(self, setup: Setup, pool: Pool):
        super().__init__(pool, setup.partitions, setup.theta, (setup.stream,), setup.number)
        self._setup, self._cursor = setup, np.zeros(CURSOR_WORDS, np.int64)
        self._listed = np.zeros(LISTED_MAX, np.int64)
        self._make_room(ROOM_MIN)

    def _make_room(self, rows: int) -> None:
        """Makes the scratch memory large enough for buckets of so many rows."""
        work = new_work(rows, len(self._setup.rules.functions), self._cursor, self._listed)
        self._find = find_results.bound(self._table, self._setup.rules, work)
        self._finish = finish_groups.bound(self._table, self._setup.rules, work)
        self._room = rows

    def probe(self, groups: np.ndarray, budget: int, out: Out) -> Progress:
        settle_groups(self._table, self._start(groups))
        return Progress.DONE

    def pause(self, budget: int, out: Out) -> Progress:
        return Progress.DONE

    def ready_moves(self, group: int, out: Out) -> None:
        """As `WindowJoin.ready_moves`."""
        ready_fresh(self._table, group)

    def expire(self, groups: np.ndarray, watermarks: Sequence[int] | np.ndarray, out: Out) -> Progress:
        groups = self._start(groups)
        marks = np.broadcast_to(np.asarray(watermarks, np.int64), (len(groups), 1))
        marks = read_only(np.ascontiguousarray(marks[:, 0]))
        if self._cursor[PHASE] == FIND and (self.find(groups, marks, out) == OUT_FULL or out.count):
            # Rows are let go of after their results were consumed.
            return Progress.OUT_FULL
        self.finish(groups, marks)
        return Progress.DONE

    def finish(self, groups: np.ndarray, marks: np.ndarray) -> None:
        """Lets go of rows. All results up to the marks, int64[k], one per group, must have been found."""
        self._finish(groups, marks)
        self._pool.trim()
        self._cursor[[PHASE, AT, ENTRY, STAGED, GIVEN]] = FIND, 0, 0, 0, 0

    def find(self, groups: np.ndarray, marks: np.ndarray, out: Out) -> int:
        """Finds results until the buffer is full, or all are found, which the cursor then says."""
        before, status = out.count, NO_ROOM
        while status == NO_ROOM:
            status, out.count = self._find(groups, marks, out.table, out.count)
            if status == NO_ROOM:
                self._make_room(max(int(self._cursor[LACKING]), 2 * self._room))
        if status == TOO_LARGE:
            raise self._too_large()
        if status != OUT_FULL:
            self._cursor[PHASE] = FINISH
        found = out.count - before
        own = np.ascontiguousarray(out.slots[:, before : out.count])
        out.counted(found, int(certificate_of(self._table.words, own, found)))
        self._results += found
        return status

    def _too_large(self) -> AggregateError:
        function, slot = self._cursor[[FAULT, FAULT_SLOT]].tolist()
        row = int(self._table.words[slot + ROW])
        return AggregateError(
            f"[aggregate] columns: {self._setup.names[function]}: got a sum beyond 64 bits at row {row}, wanted an "
            "int64: shorten the history, or make the column a float"
        )
