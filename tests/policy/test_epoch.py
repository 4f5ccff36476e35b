"""Epoch advice against communication that costs a seconds per epoch and a share b for its bytes."""

import itertools
import random

import pytest

from mpijoin.policy.epoch import LONGEST_NS, SHORTEST_NS, next_epoch_ns

BOUND = 0.1


def advised(start_ns, per_epoch_s, per_byte, steps=60, noise=0.0, bound=BOUND, seed=0):
    """The epochs that follow one another, and the true share of each."""
    chance, epoch_ns, found = random.Random(seed), start_ns, []
    for _ in range(steps):
        share = per_epoch_s / (epoch_ns / 1e9) + per_byte
        found.append((epoch_ns, share))
        epoch_ns = next_epoch_ns(epoch_ns, max(0.0, share * (1 + chance.gauss(0, noise))), bound)
    return found


@pytest.mark.parametrize("start_ns", [SHORTEST_NS, 500_000_000, LONGEST_NS])
@pytest.mark.parametrize("per_epoch_s, per_byte", [(0.005, 0.0), (0.02, 0.02), (0.1, 0.05), (0.05, 0.08), (0.3, 0.0)])
def test_the_share_ends_just_below_the_bound(start_ns, per_epoch_s, per_byte):
    history = advised(start_ns, per_epoch_s, per_byte)
    assert 0.55 * BOUND <= history[-1][1] <= BOUND * (1 + 1e-6)
    shortest_ns = per_epoch_s / (BOUND - per_byte) * 1e9  # whose share is the bound
    # else it may stay where it is, longer than need be, but cheap enough
    if per_byte <= 0.02 or start_ns < shortest_ns:
        assert history[-1][0] <= 2 * shortest_ns


def test_it_gets_there_step_by_step():
    epochs = [epoch_ns for epoch_ns, _ in advised(LONGEST_NS, 0.005, 0.0)]
    assert all(0.5 <= after / before <= 2 for before, after in itertools.pairwise(epochs))
    assert epochs == sorted(epochs, reverse=True)  # from one side: it never overshoots


@pytest.mark.parametrize("seed", range(5))
def test_noise_makes_no_ping_pong(seed):
    epochs = [epoch_ns for epoch_ns, _ in advised(500_000_000, 0.02, 0.01, steps=200, noise=0.08, seed=seed)]
    assert sum(one != other for one, other in itertools.pairwise(epochs)) <= 8  # of 189, and all of them small:
    assert max(epochs[10:]) <= 1.6 * min(epochs[10:])


def test_bounds_of_the_epoch():
    assert advised(500_000_000, 0.0, 0.0)[-1][0] == SHORTEST_NS
    assert advised(500_000_000, 0.01, 0.3)[-1][0] == LONGEST_NS  # the bytes alone cost more: no epoch will do


def test_a_load_that_changes_is_followed():
    before = advised(500_000_000, 0.01, 0.01)[-1][0]
    after = advised(before, 0.05, 0.01)[-1][0]
    assert after > 2 * before
    assert advised(after, 0.01, 0.01)[-1][0] <= 1.5 * before
