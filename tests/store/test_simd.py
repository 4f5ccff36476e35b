"""simd.py: machine instructions do what their plain twins say."""

import numpy as np
import pytest
from numba import njit

from mpijoin.store import simd


@njit
def compiled_match_tags(tags, start, tag):
    return simd.match_tags(tags, start, tag)


@pytest.mark.parametrize("seed", range(20))
def test_tags_are_matched_as_one_by_one(seed):
    random = np.random.default_rng(seed)
    tags = random.integers(0, 3, 200).astype(np.uint16)
    start, tag = int(random.integers(0, 200 - simd.LANES + 1)), np.uint16(random.integers(0, 3))
    assert compiled_match_tags(tags, start, tag) == simd.match_tags(tags, start, tag)
