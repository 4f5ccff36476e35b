"""simd.py: machine instructions do what their plain twins say."""

import numpy as np
import pytest
from numba import njit

from mpijoin.join import simd

EDGES = np.array([np.iinfo(np.int64).min, -(1 << 40), -1, 0, 1, 5, 1 << 40, np.iinfo(np.int64).max])
TUPLES = 40


@njit
def compiled_keep_matches(words, mine, theirs, start, count, to, before, after):
    return simd.keep_matches(words, mine, theirs, start, count, to, before, after)


@njit
def compiled_match_tags(tags, start, tag):
    return simd.match_tags(tags, start, tag)


@pytest.mark.parametrize("seed", range(200))
def test_matches_are_kept_as_the_plain_loop_keeps_them(seed):
    """Times at both ends of their range too, where their difference does not fit 64 bits."""
    random = np.random.default_rng(seed)
    words = np.zeros(3 * TUPLES, np.int64)
    words[::3] = random.integers(0, 2, TUPLES)
    words[1::3] = random.choice(EDGES, TUPLES) if seed % 2 else random.integers(-5, 6, TUPLES)
    pairs = [random.integers(0, TUPLES, 24) * 3 for _ in range(2)]
    start, count = int(random.integers(0, 17)), int(random.integers(1, simd.PAIRS + 1))
    to = int(random.integers(0, start + 1))
    windows = random.choice(EDGES[EDGES >= 0], 2) if seed % 2 else random.integers(0, 8, 2)
    bounds = (-int(windows[0]), int(windows[1]))
    plain, fast = [side.copy() for side in pairs], [side.copy() for side in pairs]
    kept = simd.keep_matches(words, *plain, start, count, to, *bounds)
    assert compiled_keep_matches(words, *fast, start, count, to, *bounds) == kept
    for plain_side, fast_side in zip(plain, fast):
        assert np.array_equal(plain_side[: to + kept], fast_side[: to + kept])
        assert np.array_equal(fast_side[start + simd.PAIRS :], plain_side[start + simd.PAIRS :]), "nothing beyond is touched"


def test_some_match_and_some_do_not():
    words = np.array([1, 10, 0, 1, 14, 1, 2, 10, 2, 1, 15, 3])  # key, time, row: four tuples
    mine, theirs = np.zeros(16, np.int64), np.zeros(16, np.int64)
    theirs[8:12] = 0, 3, 6, 9
    assert compiled_keep_matches(words, mine, theirs, 8, 4, 0, -4, 4) == 2
    assert theirs[:2].tolist() == [0, 3], "the third has another key, the last comes too late"


@pytest.mark.parametrize("seed", range(20))
def test_tags_are_matched_as_one_by_one(seed):
    random = np.random.default_rng(seed)
    tags = random.integers(0, 3, 200).astype(np.uint16)
    start, tag = int(random.integers(0, 200 - simd.LANES + 1)), np.uint16(random.integers(0, 3))
    assert compiled_match_tags(tags, start, tag) == simd.match_tags(tags, start, tag)
