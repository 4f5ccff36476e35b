"""The state of a matching join: a table of the store, and what its kernels need besides."""

from __future__ import annotations

from typing import Sequence

import numpy as np

from mpijoin.aggregate.state import SUM_WORDS
from mpijoin.compiled import KernelPart
from mpijoin.named import NamedTuple
from mpijoin.store.simd import LANES, calls_of
from mpijoin.store.state import StoreState

# Entries of `rule`. MATCH: which partner is wanted · KEEPS_ALONE: 1 if a row without partner is a result, too ·
# KEY_WORDS, KEY_FIXED, KEY_VARIABLE: as in `KeyWords`; without words, keys that are stored alike are equal.
MATCH, KEEPS_ALONE, KEY_WORDS, KEY_FIXED, KEY_VARIABLE, RULE_WORDS = range(6)
FIRST, LAST, NEAREST = range(3)

# Entries of `cursor`. AT: which of the groups · ENTRY: which entry of its directory · PAGE: which block of stream 0 in
# that bucket, or BEFORE_PAGES · FAULT, FAULT_SLOT: a function whose sum has no int64, and the tuple whose it is.
AT, ENTRY, PAGE, FAULT, FAULT_SLOT, CURSOR_WORDS = range(6)
BEFORE_PAGES, NO_FAULT = -2, -1

# So many tuples of a bucket are answered at once, so many slots of a block are listed, and so many pairs are taken at
# once. All of it stays in the caches.
DUE_MAX, LISTED_MAX, PAIRS_MAX = 512, 256, 320
# Rows of `pairs`. OF: the number of the tuple that is due · OTHER: the slot id of one of stream 1 · OWN: the slot id of
# the tuple that is due, which is there when the keys and times were looked at.
OF, OTHER, OWN, PAIR_ROWS = range(4)
# Room for the calls of a condition and of functions, each with the words of a state.
ASKED_WORDS = 96
# The filter has so many entries, of a byte each. They mark the tags of tuples that are due, without their upper bits.
FILTER = 1 << 13
# Rows of `spans`: the key of a tuple that is due, and between which times its partners lie.
ITS_KEY, EARLIEST, LATEST, SPAN_ROWS = range(4)
# Rows of `found`, of the best partner so far.
RANK, ITS_TIME, ITS_ROW, SLOT, BEST_ROWS = range(5)
# Where functions are worked out, the first row of `found` has the number of partners.
PARTNERS = 0
# Columns of `functions`. FORM: how values are ordered, as for an aggregate · FIRST_AT: its first row of `found`, which
# counts values that are not null · SUM_AT: which of `sums` is its, or NO_SUM.
FUNCTION, FORM, FIRST_AT, SUM_AT, FUNCTION_WORDS = range(5)
COUNT, SUM, MEAN, MIN, MAX, FIRST_VALUE, LAST_VALUE, ARG_MIN, ARG_MAX = range(9)
NO_SUM = -1
# Comparisons after which a kernel returns, so that its slave can do something else between two tuples.
BUDGET_MAX = 1 << 26


class MatchState(NamedTuple):
    """The arrays of a `StoreState`, then those of the join.

    rule int64[RULE_WORDS] · cursor int64[CURSOR_WORDS] · due int64[DUE_MAX]: the slot ids of tuples of stream 0 that
    are due · tags uint16[DUE_MAX + LANES]: theirs · filter uint8[FILTER]: all 0 between two such sets · listed
    int64[LISTED_MAX + 1]: slots of a block · pairs int64[PAIR_ROWS, PAIRS_MAX] · spans int64[SPAN_ROWS, DUE_MAX] and
    found int64[n, DUE_MAX]: what is known of each tuple that is due, and of its answer · functions int64[f,
    FUNCTION_WORDS] · sums int64[k, DUE_MAX, SUM_WORDS]: exact sums of floats (aggregate/sums.py) · digits
    int64[SUM_WORDS]: scratch memory to round one · asked int64[ASKED_WORDS]: the kernels that take partners, as a chain
    of calls (`calls_of`).

    The store's arrays are fields of this tuple, and not of one within it, because a kernel pays for each inner tuple.
    """

    words: np.ndarray
    halves: np.ndarray
    octets: np.ndarray
    heads: np.ndarray
    pool: np.ndarray
    buckets: np.ndarray
    groups: np.ndarray
    directory: np.ndarray
    layout: np.ndarray
    counters: np.ndarray
    rule: np.ndarray
    cursor: np.ndarray
    due: np.ndarray
    tags: np.ndarray
    filter: np.ndarray
    listed: np.ndarray
    pairs: np.ndarray
    spans: np.ndarray
    found: np.ndarray
    functions: np.ndarray
    sums: np.ndarray
    digits: np.ndarray
    asked: np.ndarray


class Functions(NamedTuple):
    """What is worked out of the partners of a tuple. table: int64[f, FUNCTION_WORDS] · rows: of `found` · sums: how
    many exact sums of floats there are."""

    table: np.ndarray
    rows: int
    sums: int


NO_FUNCTIONS = Functions(np.zeros((0, FUNCTION_WORDS), np.int64), BEST_ROWS, 0)


def new_state(table: StoreState, rule: np.ndarray, functions: Functions, asks: Sequence[KernelPart]) -> MatchState:
    """Returns a table with what a matching join over it needs.

    asks: are asked about partners one after the other, each about those that the one before has kept. They take the
    state and how many of `pairs` there are, move those that they keep to the front, and return how many they are.
    """
    cursor = np.zeros(CURSOR_WORDS, np.int64)
    cursor[[PAGE, FAULT]] = BEFORE_PAGES, NO_FAULT
    state = MatchState(
        *table,
        rule=rule,
        cursor=cursor,
        due=np.zeros(DUE_MAX, np.int64),
        tags=np.zeros(DUE_MAX + LANES, np.uint16),
        filter=np.zeros(FILTER, np.uint8),
        listed=np.zeros(LISTED_MAX + 1, np.int64),
        pairs=np.zeros((PAIR_ROWS, PAIRS_MAX), np.int64),
        spans=np.zeros((SPAN_ROWS, DUE_MAX), np.int64),
        found=np.zeros((functions.rows, DUE_MAX), np.int64),
        functions=functions.table,
        sums=np.zeros((functions.sums, DUE_MAX, SUM_WORDS), np.int64),
        digits=np.zeros(SUM_WORDS, np.int64),
        asked=np.zeros(ASKED_WORDS, np.int64),
    )
    # It is filled in its place, because the calls hold the address of the state that it is a part of.
    words = calls_of([(ask, (state,)) for ask in asks])
    state.asked[: len(words)] = words
    return state
