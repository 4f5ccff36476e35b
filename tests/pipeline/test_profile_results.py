"""Counting results without making them, and estimating from a sample."""

import itertools

import numpy as np
import pytest

from mpijoin.pipeline.profile.results import Ranges, choose, count_results, cut_ranges, extrapolate, sharing


def slow_count(group, key, time, stream, is_own, windows):
    """By the definition: all combinations, each counted for its latest tuple."""
    counts = {int(place): 0 for place in np.flatnonzero(is_own)}
    for rows in itertools.product(*(np.flatnonzero(stream == number) for number in range(len(windows)))):
        latest = max(rows, key=lambda row: (time[row], stream[row]))
        alike = len({(group[row], key[row]) for row in rows}) == 1
        if alike and is_own[latest] and all(time[latest] <= time[row] + windows[stream[row]] for row in rows):
            counts[int(latest)] += 1
    return list(counts.values())


WINDOWS = [(0, 0), (5, 0), (0, 5), (3, 4), (10**6, 10**6), (5,), (0, 0, 0), (4, 0, 9), (7, 10**6, 3), (3, 8, 10**6, 5)]


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("seed", range(3))
def test_results_are_those_of_the_definition(seed, windows):
    generator = np.random.default_rng(seed)
    n = {1: 100, 2: 200, 3: 60, 4: 40}[len(windows)]
    group, key, time = generator.integers(0, 2, n), generator.integers(-1, 1, n), generator.integers(0, 30, n)
    stream, is_own = generator.integers(0, len(windows), n), generator.random(n) < 0.7
    found = count_results(group, key, time, stream, is_own, windows)
    assert found.tolist() == slow_count(group, key, time, stream, is_own, windows)


def test_extreme_hashes_and_one_sided_or_empty_groups():
    key = np.array([-(2**63), 2**63 - 1, -(2**63)])
    group, time, own = np.zeros(3, np.int64), np.zeros(3, np.int64), np.ones(3, bool)
    assert count_results(group, key, time, np.array([0, 1, 1]), own, (0, 0)).tolist() == [0, 0, 1]
    assert count_results(group, key, time, np.array([1, 1, 1]), own, (0, 0)).tolist() == [0, 0, 0]
    none = np.zeros(0, np.int64)
    assert count_results(none, none, none, none, none.astype(bool), (1, 1)).tolist() == []


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
