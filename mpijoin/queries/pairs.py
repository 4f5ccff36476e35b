"""Each query takes its own of the pairs that all queries share, while the probe still has their tuples at hand."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from mpijoin.compiled import kernel, part
from mpijoin.data.batch import KEYLESS
from mpijoin.join.confirm import ask, certify, certify_first, longest_wait
from mpijoin.join.marks import FIRST, UNMARKED, Marks, mark_pairs
from mpijoin.join.state import PAIRED, Call, JoinState
from mpijoin.named import NamedTuple
from mpijoin.operators.base import Keep, Out
from mpijoin.queries.view import view_of
from mpijoin.store.read import KeyWords, same_key
from mpijoin.store.simd import calls_of, unsigned
from mpijoin.store.state import NONE, ROW, TIME, StoreState, stored_in

# Of `told`: how many results are kept in `kept`, how many were found since this was last asked, and which pairs are
# results (UNMARKED, ALL, FIRST or NO_PAIRS).
KEPT, FOUND, PAIRS, TOLD_WORDS = range(4)


class OwnState(NamedTuple):
    """The arrays of a view of the table that reading and marking tuples needs, then those of the query.

    left, right int64[PAIRED]: a few pairs · kept int64[2, capacity]: the slot ids of results; nothing is kept if
    capacity is 0 · told int64[TOLD_WORDS] · certificate uint64[1]: of what was found since it was last asked · asked
    int64[]: one chain, as of `JoinState`.
    """

    words: np.ndarray
    octets: np.ndarray
    heads: np.ndarray
    pool: np.ndarray
    layout: np.ndarray
    counters: np.ndarray
    left: np.ndarray
    right: np.ndarray
    kept: np.ndarray
    told: np.ndarray
    certificate: np.ndarray
    asked: np.ndarray


class OwnPairs:
    """Implements `Ask`, for one query. It keeps all pairs for the others.

    out: what the query has found in the pairs that are not consumed yet.
    """

    def __init__(self, capacity: int, windows: Sequence[int], mark: int, marks: Marks | None = None, where: Any = None):
        """capacity: of the results that are kept until they are consumed, which is that of the operator's Out, or 0 if
        nobody looks at them · windows, marks, where: as of `Query` · mark: the query's bit of MARK_BITS."""
        self.out = Out(2, capacity, Keep.SLOT_IDS if capacity else Keep.NOTHING)
        self._windows, self._mark, self._marks, self._where = tuple(windows), mark, marks, where
        self._told, self._certificate = np.zeros(TOLD_WORDS, np.int64), np.zeros(1, np.uint64)
        self._told[PAIRS] = marks.pairs if marks else UNMARKED
        self._states: list[OwnState] = []  # Kernels know their arrays by address.
        self._left, self._right = (np.zeros(PAIRED, np.int64) for _ in range(2))

    def __call__(self, state: JoinState, left: np.ndarray, right: np.ndarray) -> Call:
        flagged = self._marks.flagged if self._marks else (False, False)
        table = view_of(_table_of(state), self._windows, flagged, self._mark)
        stored = stored_in(table)
        where = [(self._where, (stored, self._left, self._right))] if self._where else []
        own = OwnState(
            *stored, table.layout, table.counters, self._left, self._right, self.out.slots, self._told,
            self._certificate, calls_of(where),
        )  # fmt: skip
        self._states.append(own)
        return take_own, (own, left, right)

    def begin(self) -> None:
        """Says that all that was found has been consumed."""
        self.out.clear()
        self._told[KEPT] = 0

    def end(self) -> None:
        """Brings `out` up to date after a call of the probe."""
        self.out.count = int(self._told[KEPT])
        self.out.counted(int(self._told[FOUND]), int(self._certificate[0]))
        self._told[FOUND] = self._certificate[0] = 0


class SameKeys:
    """Implements `Ask`: keeps the pairs whose keys are equal, and not their hashes alone."""

    def __init__(self, key: KeyWords):
        self._key = key

    def __call__(self, state: JoinState, left: np.ndarray, right: np.ndarray) -> Call:
        return keep_same_keys, (_table_of(state), left, right, *self._key)


def _table_of(state: JoinState) -> StoreState:
    return StoreState(*state[: len(StoreState._fields)])


@kernel
def take_own(own, left, right, count):
    """Finds the results of a query among the pairs 0..count, certifies them, and keeps them if anybody looks at them.

    left, right: int64[at least count] slot ids of tuples whose keys are alike and which lie in the table's windows.
    Two null keys are not equal, though the words that stand for them may be. Returns `count`: all of them are pairs.
    """
    found = take_pairs(own, left, right, count)
    found = ask(own, 0, found)
    pairs = own.told[PAIRS]
    if pairs != UNMARKED:
        found = mark_pairs(own, pairs, own.left, own.right, found)
    if pairs == FIRST:
        own.certificate[0] += certify_first(own.words, own.left, found)
    else:
        own.certificate[0] += certify(own.words, own.left, own.right, 0, found)
    own.told[FOUND] += found
    if own.kept.shape[1] != 0:
        at = own.told[KEPT]
        for i in range(found):
            own.kept[0, unsigned(at + i)] = own.left[unsigned(i)]
            own.kept[1, unsigned(at + i)] = own.right[unsigned(i)] if pairs != FIRST else NONE
        own.told[KEPT] = at + found
    return count


@part
def take_pairs(own, left, right, count):
    """Copies those of the pairs 0..count that lie in the windows of the query and both have keys."""
    words, before, after, taken = own.words, longest_wait(own, 1), longest_wait(own, 0), 0
    for i in range(count):
        one, other = left[unsigned(i)], right[unsigned(i)]
        own.left[unsigned(taken)] = one
        own.right[unsigned(taken)] = other
        time, its_time = words[unsigned(one + TIME)], words[unsigned(other + TIME)]
        difference = unsigned(its_time - time) if time <= its_time else unsigned(time - its_time)
        in_windows = difference <= (after if time <= its_time else before)
        taken += in_windows & ((words[unsigned(one + ROW)] | words[unsigned(other + ROW)]) & KEYLESS == 0)
    return taken


@kernel
def keep_same_keys(s, left, right, key_words, fixed_words, variable, count):
    """Moves those of the pairs 0..count whose keys are equal to the front, and returns how many they are.

    key_words, fixed_words, variable: as in `KeyWords`."""
    kept = 0
    for i in range(count):
        one, other = left[unsigned(i)], right[unsigned(i)]
        left[unsigned(kept)] = one
        right[unsigned(kept)] = other
        kept += same_key(s, one, other, 1, key_words, fixed_words, variable)
    return kept
