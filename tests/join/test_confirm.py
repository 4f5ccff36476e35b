"""confirm.py: of a probe's candidates each pair is looked at once, and kept if keys and times say so."""

import numpy as np
import pytest
from numba import njit

from mpijoin.join import confirm
from mpijoin.join.state import CANDIDATE_WORDS, FIRST_OTHER, MASK, ONE, PAIRED, new_state
from mpijoin.store.pool import StreamSpec, new_pool, new_table

EDGES = np.array([np.iinfo(np.int64).min, -(1 << 40), -1, 0, 1, 5, 1 << 40, np.iinfo(np.int64).max])
TUPLES = 40


@njit
def compiled_keep_matches(words, mine, theirs, count, before, after):
    return confirm.keep_matches(words, mine, theirs, count, before, after)


@njit
def compiled_fetch_candidates(s, stream, at, end, room):
    return confirm.fetch_candidates(s, stream, at, end, room)


@pytest.mark.parametrize("seed", range(200))
def test_pairs_are_kept_whose_keys_are_equal_and_times_in_the_windows(seed):
    """Times at both ends of their range too, where their difference does not fit 64 bits."""
    random = np.random.default_rng(seed)
    words = np.zeros(3 * TUPLES, np.int64)
    words[::3] = random.integers(0, 2, TUPLES)
    words[1::3] = random.choice(EDGES, TUPLES) if seed % 2 else random.integers(-5, 6, TUPLES)
    mine, theirs = (random.integers(0, TUPLES, 24) * 3 for _ in range(2))
    count = int(random.integers(0, 25))
    windows = (
        random.choice(np.array([0, 1, 5, 1 << 40, (1 << 63) - 1, (1 << 64) - 1], np.uint64), 2)
        if seed % 2
        else random.integers(0, 8, 2)
    )
    before, after = map(int, windows)
    pairs = [(int(a), int(b)) for a, b in zip(mine, theirs)]
    wanted = [
        (a, b)
        for a, b in pairs[:count]
        if words[a] == words[b] and -before <= int(words[b + 1]) - int(words[a + 1]) <= after
    ]
    kept = compiled_keep_matches(words, mine, theirs, count, np.uint64(before), np.uint64(after))
    assert list(zip(mine[:kept].tolist(), theirs[:kept].tolist())) == wanted
    assert list(zip(mine[count:].tolist(), theirs[count:].tolist())) == pairs[count:], "nothing beyond is touched"


def test_some_match_and_some_do_not():
    words = np.array([1, 10, 0, 1, 14, 1, 2, 10, 2, 1, 15, 3])  # key, time, row: four tuples
    mine, theirs = np.zeros(4, np.int64), np.array([0, 3, 6, 9])
    assert compiled_keep_matches(words, mine, theirs, 4, np.uint64(4), np.uint64(4)) == 2
    assert theirs[:2].tolist() == [0, 3], "the third has another key, the last comes too late"


@pytest.mark.parametrize("stream", [0, 1])
@pytest.mark.parametrize("seed", range(20))
def test_each_bit_of_each_mask_becomes_one_pair(seed, stream):
    """However little room there is at a time, and whether the one tuple of a candidate is fresh or old."""
    random = np.random.default_rng(seed)
    table = new_table(new_pool(1 << 20, 4096, 5), 1, 1 << 40, [StreamSpec(0, False, 10), StreamSpec(2, False, 10)])
    state = new_state(table, np.zeros(1, np.uint64))
    width = [3, 5]  # words of a tuple
    end, wanted = int(random.integers(1, 60)) * CANDIDATE_WORDS, []
    for at in range(0, end, CANDIDATE_WORDS):
        places = random.choice(64, int(random.integers(1, 1 + random.choice([2, 64]))), replace=False).tolist()
        mask = sum(1 << place for place in places)
        one, other = (int(slot) for slot in random.integers(0, 1000, 2))
        one_is_old = bool(random.integers(0, 2))
        state.candidates[at + MASK] = mask - (1 << 64) * (mask >> 63)
        state.candidates[at + ONE], state.candidates[at + FIRST_OTHER] = one, ~other if one_is_old else other
        others = [other + place * width[stream if one_is_old else 1 - stream] for place in places]
        wanted += [(slot, one) if one_is_old else (one, slot) for slot in others]
    at, found = 0, []
    while at < end:
        at, filled = compiled_fetch_candidates(state, stream, at, end, int(random.integers(1, PAIRED + 1)))
        found += zip(state.mine[:filled].tolist(), state.theirs[:filled].tolist())
    assert sorted(found) == sorted(wanted)
