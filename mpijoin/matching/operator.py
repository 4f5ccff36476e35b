"""The operator: a sliding-window join of two streams that answers each row of the first one once."""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

import numpy as np

from mpijoin.data.batch import KEYLESS, read_only
from mpijoin.errors import AggregateError
from mpijoin.join.results import certificate_of
from mpijoin.matching.state import (
    AT,
    BEFORE_PAGES,
    ENTRY,
    FAULT,
    FAULT_SLOT,
    FIRST,
    KEEPS_ALONE,
    KEY_FIXED,
    KEY_VARIABLE,
    KEY_WORDS,
    LAST,
    MATCH,
    NEAREST,
    NO_FAULT,
    NO_FUNCTIONS,
    PAGE,
    RULE_WORDS,
    Functions,
    new_state,
)
from mpijoin.operators.base import Out, Progress
from mpijoin.operators.stored import TableOperator
from mpijoin.store.expire import expire_groups
from mpijoin.store.fresh import settle_groups
from mpijoin.store.pool import Pool, StreamSpec
from mpijoin.store.read import KeyWords
from mpijoin.store.state import LOOKS_BACK, ROW

CODES = {"first": FIRST, "last": LAST, "nearest": NEAREST}
NO_KEY = KeyWords(0, 0, 0)


class Setup(NamedTuple):
    """What a matching join is made for.

    partitions: how many groups there may be · theta: in bytes · streams: in the job's order · keeps_alone: whether a
    tuple without partner is a result, too · find: the kernel, as of `kernel_of` · match: "first", "last" or "nearest" ·
    functions: what is worked out of all partners instead, and `names`, what they are called in messages · key: where
    tuples have their keys, if what is stored is a hash · number: the operator's number among those that share its pool.
    """

    partitions: int
    theta: int
    streams: tuple[StreamSpec, StreamSpec]
    keeps_alone: bool
    find: Any
    match: str = "first"
    functions: Functions = NO_FUNCTIONS
    names: tuple[str, ...] = ()
    key: KeyWords = NO_KEY
    number: int = 0

    @property
    def rule(self) -> np.ndarray:
        """int64[RULE_WORDS], for the kernels."""
        rule = np.zeros(RULE_WORDS, np.int64)
        rule[[MATCH, KEEPS_ALONE]] = CODES.get(self.match, FIRST), self.keeps_alone
        rule[[KEY_WORDS, KEY_FIXED, KEY_VARIABLE]] = self.key
        return rule


class MatchingJoin(TableOperator):
    """Implements `Operator`. It has results only in `expire`, which returns OUT_FULL or BUDGET until all are found and
    consumed. It certifies them itself."""

    def __init__(self, setup: Setup, pool: Pool):
        left, right = setup.streams
        super().__init__(pool, setup.partitions, setup.theta, (left._replace(flagged=True), right), setup.number)
        self._table.counters[LOOKS_BACK] = 1
        self._names = setup.names
        state = new_state(self._table, setup.rule, setup.functions)
        self._cursor, self._find = state.cursor, setup.find.bound(state)
        self._expire = expire_groups.bound(self._table)

    def probe(self, groups: np.ndarray, budget: int, out: Out) -> Progress:
        settle_groups(self._table, self._start(groups))
        return Progress.DONE

    def pause(self, budget: int, out: Out) -> Progress:
        return Progress.DONE

    def expire(self, groups: np.ndarray, watermarks: Sequence[int] | np.ndarray, out: Out) -> Progress:
        groups, marks = self._start(groups), read_only(np.atleast_2d(np.asarray(watermarks, np.int64)))
        status, out.count = self._find(groups, marks, out.table, 0)
        if self._cursor[FAULT] != NO_FAULT:
            raise self._too_large()
        out.is_final = out.count > 0
        self._results += out.count
        out.counted(out.count, int(certificate_of(self._table.words, out.slots, out.count)))
        if status == Progress.BUDGET:
            return Progress.BUDGET
        if status == Progress.OUT_FULL or out.count:
            return Progress.OUT_FULL  # Rows are let go of after their results were consumed.
        self._cursor[[AT, ENTRY, PAGE]] = 0, 0, BEFORE_PAGES
        self._expire(groups, marks)
        self._pool.trim()
        return Progress.DONE

    def _too_large(self) -> AggregateError:
        function, slot = self._cursor[[FAULT, FAULT_SLOT]].tolist()
        row = int(self._table.words[slot + ROW]) & ~KEYLESS
        return AggregateError(
            f"[join] reduce: {self._names[function]}: got a sum beyond 64 bits at row {row} of the first stream, "
            "wanted an int64: make the column a float"
        )
