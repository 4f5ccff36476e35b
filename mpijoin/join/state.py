"""The state of a window join: a table of the store, and what the probes need besides."""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

import numpy as np

from mpijoin.compiled import Kernel
from mpijoin.operators.base import Keep
from mpijoin.store.simd import CALL_ARGUMENTS, PLAIN_ENTRIES
from mpijoin.store.state import Stored, StoreState, stored_in

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
# Words of a call from kernel to kernel: arguments, and what is returned. `asked` has an address and two calls.
CALL_WORDS = CALL_ARGUMENTS + 1
ASKED_WORDS = 1 + 2 * CALL_WORDS
# The filter has so many entries, of a byte each. They mark the tags of some fresh tuples, without their upper bits.
FILTER = 1 << 13


class JoinState(NamedTuple):
    """The arrays of a `StoreState`, then those of the join.

    asked int64[ASKED_WORDS]: the address of the kernel that asks a condition, 0 if there is none; then for each phase
    the words of its arguments, and room for what it returns.

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


def new_state(table: StoreState, certificate: np.ndarray, where: Any = None) -> JoinState:
    """Returns a table with what a join over it needs. certificate: uint64[1], to which that of results is added ·
    where: asks the condition of a join of two streams, as of `where.kernel_of`."""
    state = JoinState(
        *table,
        candidates=np.zeros(SHORT_LIST + LISTED, np.int64),
        mine=np.zeros(PAIRED, np.int64),
        theirs=np.zeros(PAIRED, np.int64),
        filter=np.zeros(FILTER, np.uint8),
        certificate=certificate,
        asked=np.zeros(ASKED_WORDS, np.int64),
    )
    if where is not None:
        sides = (state.mine, state.theirs), (state.theirs, state.mine)
        stored = stored_in(state)
        state.asked[0] = _address_of(where, stored, sides)
        for phase, arrays in enumerate(sides):
            at = 1 + phase * CALL_WORDS
            state.asked[at : at + CALL_ARGUMENTS - 1] = [id(array) for array in (*stored, *arrays)]
    return state


def _address_of(where: Any, stored: Stored, sides: Sequence[tuple[np.ndarray, np.ndarray]]) -> int:
    """What `call_entry` finds the kernel by. Without the compiler that is its number among PLAIN_ENTRIES."""
    if isinstance(where, Kernel):
        return where.address(stored, *sides[0], 0)
    PLAIN_ENTRIES.append(lambda at, count: where(stored, *sides[at // CALL_WORDS], count))
    return len(PLAIN_ENTRIES)
