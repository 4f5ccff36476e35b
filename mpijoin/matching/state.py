"""The state of a matching join: a table of the store, and what its kernels need besides."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpijoin.store.simd import LANES
from mpijoin.store.state import StoreState

# Entries of `rule`. MATCH: which partner is wanted · KEEPS_ALONE: 1 if a row without partner is a result, too ·
# KEY_WORDS, KEY_FIXED, KEY_VARIABLE: as in `KeyWords`; without words, keys that are stored alike are equal.
MATCH, KEEPS_ALONE, KEY_WORDS, KEY_FIXED, KEY_VARIABLE, RULE_WORDS = range(6)
FIRST, LAST, NEAREST = range(3)

# Entries of `cursor`. AT: which of the groups · ENTRY: which entry of its directory · PAGE: which block of stream 0 in
# that bucket, or BEFORE_PAGES.
AT, ENTRY, PAGE, CURSOR_WORDS = range(4)
BEFORE_PAGES = -2

# So many tuples of a bucket are answered at once, so many slots of a block are listed, and so many pairs are taken at
# once. All of it stays in the caches.
DUE_MAX, LISTED_MAX, PAIRS_MAX = 512, 256, 320
# The filter has so many entries, of a byte each. They mark the tags of tuples that are due, without their upper bits.
FILTER = 1 << 13
# Rows of `found`, of the best partner so far.
RANK, ITS_TIME, ITS_ROW, SLOT, BEST_ROWS = range(5)
# Comparisons after which a kernel returns, so that its slave can do something else between two tuples.
BUDGET_MAX = 1 << 26


class MatchState(NamedTuple):
    """The arrays of a `StoreState`, then those of the join.

    rule int64[RULE_WORDS] · cursor int64[CURSOR_WORDS] · due int64[DUE_MAX]: the slot ids of tuples of stream 0 that
    are due · tags uint16[DUE_MAX + LANES]: theirs · filter uint8[FILTER]: all 0 between two such sets · listed
    int64[LISTED_MAX + 1]: slots of a block · pairs int64[2, PAIRS_MAX]: which of the tuples that are due, and the slot
    id of one of stream 1 · found int64[n, DUE_MAX]: what is known of the answer of each.

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
    found: np.ndarray


def new_state(table: StoreState, rule: np.ndarray, rows: int) -> MatchState:
    """Returns a table with what a matching join over it needs. rows: of `found`."""
    cursor = np.zeros(CURSOR_WORDS, np.int64)
    cursor[PAGE] = BEFORE_PAGES
    return MatchState(
        *table,
        rule=rule,
        cursor=cursor,
        due=np.zeros(DUE_MAX, np.int64),
        tags=np.zeros(DUE_MAX + LANES, np.uint16),
        filter=np.zeros(FILTER, np.uint8),
        listed=np.zeros(LISTED_MAX + 1, np.int64),
        pairs=np.zeros((2, PAIRS_MAX), np.int64),
        found=np.zeros((rows, DUE_MAX), np.int64),
    )
