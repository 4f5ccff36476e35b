"""Join types: which tuples are marked once they have a partner, and what becomes of pairs and of the others.

Pairs are found as those of an inner join. A tuple that is asked for a partner is marked with its first one. Tuples
without a mark leave alone when their window is over (`unmatched`).
"""

from __future__ import annotations

from mpijoin.compiled import kernel
from mpijoin.data.batch import KEYLESS
from mpijoin.named import NamedTuple
from mpijoin.operators.base import Out, Rows
from mpijoin.store.simd import unsigned
from mpijoin.store.state import FLAGS_AT, MARK, NONE, ROW, StoreState
from mpijoin.store.tracks import flag_at

# Which pairs are results: all of them, and nothing is marked; all of them; of each left tuple the first, without its
# partner; or none.
UNMARKED, ALL, FIRST, NO_PAIRS = range(4)


class Marks(NamedTuple):
    """What a join type needs. flagged: of each stream, whether its tuples are marked · leave: of each stream, whether
    its tuples without partner are results · pairs: ALL, FIRST or NO_PAIRS."""

    flagged: tuple[bool, bool]
    leave: tuple[bool, bool]
    pairs: int = ALL


MARKS = {
    "left": Marks((True, False), (True, False)),
    "right": Marks((False, True), (False, True)),
    "full": Marks((True, True), (True, True)),
    "semi": Marks((True, False), (False, False), FIRST),
    "anti": Marks((True, False), (True, False), NO_PAIRS),
}


class MarkPairs:
    """The last filter of a join that is not an inner one, where others come before it. What reaches it has found each
    other."""

    def __init__(self, table: StoreState, marks: Marks):
        self._mark, self._pairs = mark_pairs.bound(table, marks.pairs), marks.pairs

    def keep(self, out: Out, rows: Rows) -> None:
        out.count = self._mark(out.slots[0], out.slots[1], out.count)
        if self._pairs == FIRST:
            out.slots[1, : out.count] = NONE


@kernel
def mark_pairs(s, pairs, left, right, count):
    """Marks the tuples of pairs 0..count, and moves those that are results to the front. Returns how many they are.

    pairs: ALL, FIRST or NO_PAIRS · left, right: int64[at least count] slot ids.
    """
    words, octets, mark, kept = s.words, s.octets, s.counters[MARK], 0
    mark_left, mark_right = s.layout[0, FLAGS_AT] != 0, s.layout[1, FLAGS_AT] != 0
    for i in range(count):
        one, other, was_marked = left[unsigned(i)], right[unsigned(i)], False
        # Two null keys are not equal, though their tuples need some word for a key and the words may be.
        is_pair = (words[unsigned(one + ROW)] | words[unsigned(other + ROW)]) & KEYLESS == 0
        if mark_left:
            at = flag_at(s, 0, one)
            was_marked = octets[at] & mark != 0
            octets[at] |= mark * is_pair
        if mark_right:
            octets[flag_at(s, 1, other)] |= mark * is_pair
        left[unsigned(kept)] = one
        right[unsigned(kept)] = other
        kept += is_pair & (pairs == ALL or (pairs == FIRST and not was_marked))
    return kept
