"""The state of a window join: a table of the store, and what its probes need besides."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpijoin.operators.base import Keep
from mpijoin.store.state import StoreState

# A probe's cursor: where a probe that stopped goes on. PHASE 0: the first stream's fresh tuples, 1: the second's.
# BUCKET: NONE between phases. COLLECTED words of candidates are filled, those before CONFIRMED are done with; AHEAD
# buckets from BUCKET on were asked for.
(
    GROUP_INDEX, PHASE, BUCKET, FRESH_AT, FRESH_FROM, OPPOSITE_AT, OPPOSITE_FROM, COLLECTED, CONFIRMED, AHEAD,
    CURSOR_WORDS,
) = range(11)  # fmt: skip

NOTHING, SLOT_IDS, LATEST_TIMES = (one.value for one in Keep)  # as kernels see them

# A probe collects masks of candidates before it looks at keys and times: three words each, 30 KB of cache. A candidate
# is one tuple, ONE, and those of a mask, the first of which is FIRST_OTHER; ~FIRST_OTHER where the one is old and the
# others are fresh. Then the slot ids of up to PAIRED pairs, whose cache lines are asked for before the first of them is
# looked at.
MASK, ONE, FIRST_OTHER, CANDIDATE_WORDS = range(4)
CANDIDATES = 1280
# The list of LISTED pages or slots starts here. One extra candidate may be written before it, because a mask is stored
# before we know whether it is empty.
SHORT_LIST = (CANDIDATES + 1) * CANDIDATE_WORDS
LISTED = 256
PAIRED = 320
FILTER = 1 << 13  # entries, of a byte each: which tags some fresh tuples have, but for the upper bits


class JoinState(NamedTuple):
    """The arrays of a `StoreState`, then those of the join: candidates int64[], a probe's scratch · mine, theirs
    int64[PAIRED], more of it · filter uint8[FILTER], 0 between fresh blocks · certificate uint64[1], of the results so
    far.

    The store's arrays lie side by side with the others because a kernel pays for each tuple within a tuple.
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
    candidates: np.ndarray
    mine: np.ndarray
    theirs: np.ndarray
    filter: np.ndarray
    certificate: np.ndarray


def new_state(table: StoreState, certificate: np.ndarray) -> JoinState:
    """A table with what a join over it needs. certificate: uint64[1], to which that of results is added."""
    return JoinState(
        *table,
        candidates=np.zeros(SHORT_LIST + LISTED, np.int64),
        mine=np.zeros(PAIRED, np.int64),
        theirs=np.zeros(PAIRED, np.int64),
        filter=np.zeros(FILTER, np.uint8),
        certificate=certificate,
    )
