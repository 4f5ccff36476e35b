"""What is asked about the partners of each row of the first stream, and the finder of its answers."""

from __future__ import annotations

import numpy as np

from mpijoin.compiled import KernelPart
from mpijoin.data.batch import KEYLESS
from mpijoin.errors import AggregateError
from mpijoin.matching.kernels import match_groups, reduce_groups
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
from mpijoin.named import NamedTuple
from mpijoin.operators.base import Out, Progress
from mpijoin.store.read import KeyWords
from mpijoin.store.state import ROW, StoreState

CODES = {"first": FIRST, "last": LAST, "nearest": NEAREST}
NO_KEY = KeyWords(0, 0, 0)


class Question(NamedTuple):
    """What is asked about the partners of a tuple.

    keeps_alone: whether a tuple without partner is a result, too · asks: the kernels that are asked about partners, as
    of `asks_of` · match: "first", "last" or "nearest" · functions: what is worked out of all partners instead, and
    `names`, what they are called in messages · key: where tuples have their keys, if what is stored is a hash.
    """

    keeps_alone: bool
    asks: tuple[KernelPart, ...] = ()
    match: str = "first"
    functions: Functions = NO_FUNCTIONS
    names: tuple[str, ...] = ()
    key: KeyWords = NO_KEY

    @property
    def rule(self) -> np.ndarray:
        """int64[RULE_WORDS], for the kernels."""
        rule = np.zeros(RULE_WORDS, np.int64)
        rule[[MATCH, KEEPS_ALONE]] = CODES.get(self.match, FIRST), self.keeps_alone
        rule[[KEY_WORDS, KEY_FIXED, KEY_VARIABLE]] = self.key
        return rule

    @property
    def words(self) -> int:
        """How many words are worked out of each result: one for each function, and the bits of those that are null."""
        return len(self.names) + 1 if self.names else 0


class Answers:
    """A `Finder` of answers to one question. A tuple of stream 0 is due when its window is over."""

    def __init__(self, table: StoreState, question: Question):
        self._table, self._names, self._rows = table, question.names, len(table.layout) + question.words
        state = new_state(table, question.rule, question.functions, question.asks)
        self._cursor, self._find = state.cursor, (reduce_groups if question.names else match_groups).bound(state)

    def find(self, groups: np.ndarray, watermarks: np.ndarray, out: Out) -> Progress:
        """As `Finder.find`. Raises AggregateError if a sum has no int64."""
        status, out.count = self._find(groups, watermarks, out.table[: self._rows], 0)
        if self._cursor[FAULT] != NO_FAULT:
            raise self._too_large()
        out.is_final = out.count > 0
        if status == Progress.BUDGET:
            return Progress.BUDGET
        if status == Progress.OUT_FULL or out.count:
            return Progress.OUT_FULL
        self._cursor[[AT, ENTRY, PAGE]] = 0, 0, BEFORE_PAGES
        return Progress.DONE

    def _too_large(self) -> AggregateError:
        function, slot = self._cursor[[FAULT, FAULT_SLOT]].tolist()
        row = int(self._table.words[slot + ROW]) & ~KEYLESS
        return AggregateError(
            f"[join] reduce: {self._names[function]}: got a sum beyond 64 bits at row {row} of the first stream, "
            "wanted an int64: make the column a float"
        )
