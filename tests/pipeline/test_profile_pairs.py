"""Counting pairs without making them, and estimating from a sample."""

import numpy as np
import pytest

from mpijoin.pipeline.profile.pairs import Ranges, choose, count_pairs, cut_ranges, extrapolate, sharing


def slow_count(group, key, time, is_right, left_window, right_window):
    counts = []
    for i in np.flatnonzero(~is_right):
        near = (time >= time[i] - right_window) & (time <= time[i] + left_window)
        counts.append(int((is_right & near & (key == key[i]) & (group == group[i])).sum()))
    return counts


@pytest.mark.parametrize("windows", [(0, 0), (5, 0), (0, 5), (3, 4), (10**6, 10**6)])
@pytest.mark.parametrize("seed", range(5))
def test_pairs_are_those_of_the_definition(seed, windows):
    generator = np.random.default_rng(seed)
    n = 400
    group, key, time = generator.integers(0, 3, n), generator.integers(-2, 3, n), generator.integers(0, 60, n)
    is_right = generator.random(n) < 0.5
    found = count_pairs(group, key, time, is_right, *windows)
    assert found.tolist() == slow_count(group, key, time, is_right, *windows)


def test_extreme_hashes_and_one_sided_or_empty_groups():
    key = np.array([-(2**63), 2**63 - 1, -(2**63)])
    group, time = np.zeros(3, np.int64), np.zeros(3, np.int64)
    assert count_pairs(group, key, time, np.array([False, True, True]), 0, 0).tolist() == [1]
    assert count_pairs(group, key, time, np.array([False, False, False]), 0, 0).tolist() == [0, 0, 0]
    assert count_pairs(group, key, time, np.array([True, True, True]), 0, 0).tolist() == []
    none = np.zeros(0, np.int64)
    assert count_pairs(none, none, none, none.astype(bool), 1, 1).tolist() == []


@pytest.mark.parametrize(
    "start, end, windows, most",
    [(0, 999, 10, 1024), (-50, 10**9, 0, 1024), (5, 5, 100, 1024), (0, 10**6, 10**9, 7), (0, 99, 3, 50)],
)
def test_ranges_cover_the_span_and_hold_the_windows(start, end, windows, most):
    ranges = cut_ranges(start, end, windows, most)
    assert ranges.start == start
    assert ranges.count * ranges.slots <= most and ranges.slot_length * ranges.slots == ranges.length
    assert ranges.length * (ranges.count - 1) < end - start + 1 <= ranges.length * ranges.count
    assert ranges.length >= 8 * windows or ranges.count == 1


def test_a_sample_is_a_share_of_the_ranges_or_all_of_few():
    ranges = Ranges(0, 1, 1000, 1)
    chosen = choose(ranges, 0.1)
    assert len(chosen) == 100 == len(set(chosen.tolist())) and np.all(np.diff(chosen) > 0)
    assert len(choose(ranges, 0.001)) == 30
    assert len(choose(ranges, None)) == 1000
    assert len(choose(Ranges(0, 1, 50, 1), 0.1)) == 50


def test_the_bound_holds_about_as_often_as_it_says():
    """Bursty results, in proportion to a weight up to noise: the ratio estimate's bound covers the truth in most
    draws."""
    generator = np.random.default_rng(11)
    weight = generator.pareto(3, 2000) + 0.1
    truth = np.rint(weight * 100 * generator.uniform(0.7, 1.3, 2000))
    ranges = Ranges(0, 1, 2000, 1)
    covered = plain_width = width = 0
    for seed in range(200):
        chosen = choose(ranges, 0.1, seed)
        found = extrapolate(ranges, chosen, truth, weight)
        plain = extrapolate(ranges, chosen, truth, np.ones(2000))
        assert not found.is_exact and found.counted == 200
        covered += abs(found.results - truth.sum()) <= found.error
        width, plain_width = width + found.error, plain_width + plain.error
    assert covered >= 180
    assert width < plain_width / 2


def test_all_ranges_are_no_estimate():
    found = extrapolate(Ranges(0, 4, 3, 2), np.arange(3), np.array([1.0, 2, 3, 0, 0, 1]), np.zeros(3))
    assert found.is_exact and found.results == 7 and found.error == 0
    assert found.per_slot.tolist() == [1, 2, 3, 0, 0, 1]


def test_a_sample_without_weight_still_counts():
    ranges = Ranges(0, 1, 100, 1)
    chosen = choose(ranges, 0.5)
    assert extrapolate(ranges, chosen, np.full(100, 2.0), np.zeros(100)).results == 200


def test_calls_get_a_bounded_number_of_rows():
    rows = np.array([10.0, 20, 30, 250, 5, 90, 90])
    block, parts = sharing(rows, 100)
    assert parts.tolist() == [1, 1, 1, 3, 1, 1, 1]
    assert np.all(np.diff(block) >= 0)
    for number in set(block.tolist()):
        own = block == number
        assert len(set(parts[own].tolist())) == 1, "ranges of a call are cut alike"
        assert (rows[own] / parts[own]).sum() <= 200
