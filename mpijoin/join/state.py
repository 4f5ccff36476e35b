"""The state of a window join: a table of the store, and what the probes need besides."""

from __future__ import annotations

from typing import Any, Protocol, Sequence

import numpy as np

from mpijoin.compiled import KernelPart
from mpijoin.named import NamedTuple
from mpijoin.operators.base import Keep
from mpijoin.store.simd import calls_of
from mpijoin.store.state import StoreState

# The cursor of a two-way probe says where it goes on. PHASE: the stream whose fresh tuples are joined · BUCKET: NONE
# between two phases · COLLECTED: how many words of `candidates` are filled · CONFIRMED: how many of these are done
# with · AHEAD: how many buckets, from BUCKET on, were asked for.
(
    GROUP_INDEX, PHASE, BUCKET, FRESH_AT, FRESH_FROM, OPPOSITE_AT, OPPOSITE_FROM, COLLECTED, CONFIRMED, AHEAD,
    CURSOR_WORDS,
) = range(11)  # fmt: skip

NOTHING, SLOT_IDS, LATEST_TIMES = (one.value for one in Keep)  # Kernels know the values of `Keep` as numbers.

# A probe collects masks of candidates before it looks at keys and times. They have three words each, and take 30 KB of
# cache in all. A candidate stands for one tuple, ONE, and those of its mask, the first of which is FIRST_OTHER. Where
# ONE is old and the others are fresh, the word is ~FIRST_OTHER.
MASK, ONE, FIRST_OTHER, CANDIDATE_WORDS = range(4)
CANDIDATES = 1280
# The list of LISTED pages or slots starts here. One extra candidate may be written before it, because a mask is stored
# before we know whether it is empty.
SHORT_LIST = (CANDIDATES + 1) * CANDIDATE_WORDS
LISTED = 256
# So many pairs are taken out of the masks, and their cache lines asked for, before the first of them is looked at.
PAIRED = 320
# The filter has so many entries, of a byte each. They mark the tags of some fresh tuples, without their upper bits.
FILTER = 1 << 13


# A kernel, and its first arguments.
Call = tuple[KernelPart, Sequence[Any]]


class JoinState(NamedTuple):
    """The arrays of a `StoreState`, then those of the join.

    asked int64[]: the kernels that are asked about pairs, as a chain of calls for each phase (`calls_of`).

    candidates int64[], and mine, theirs int64[PAIRED]: a probe's scratch memory · filter uint8[FILTER]: all 0 between
    two blocks of fresh tuples · certificate uint64[1]: of the results so far.

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
    candidates: np.ndarray
    mine: np.ndarray
    theirs: np.ndarray
    filter: np.ndarray
    certificate: np.ndarray
    asked: np.ndarray


class Ask(Protocol):
    """Somebody who is asked about all pairs of a probe, a few at a time, while their tuples are in the innermost cache.
    """

    def __call__(self, state: JoinState, left: np.ndarray, right: np.ndarray) -> Call:
        """Returns a kernel and its first arguments. The last one is the number of pairs, whose slot ids lie in `left`
        and `right`, int64[PAIRED]. It moves those that are still pairs to the front, and returns how many they are."""


def new_state(table: StoreState, certificate: np.ndarray, asks: Sequence[Ask] = ()) -> JoinState:
    """Returns a table with what a join over it needs. certificate: uint64[1], to which that of results is added ·
    asks: are asked about the pairs of two streams, one after the other. They keep the arrays of their arguments."""
    state = JoinState(
        *table,
        candidates=np.zeros(SHORT_LIST + LISTED, np.int64),
        mine=np.zeros(PAIRED, np.int64),
        theirs=np.zeros(PAIRED, np.int64),
        filter=np.zeros(FILTER, np.uint8),
        certificate=certificate,
        asked=calls_of((), ()),
    )
    sides = (state.mine, state.theirs), (state.theirs, state.mine)
    return state._replace(asked=calls_of(*([ask(state, *arrays) for ask in asks] for arrays in sides)))
