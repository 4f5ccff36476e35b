"""Rates, dispersion and Hurst from counts."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from mpijoin.pipeline.profile.arrivals import Arrivals, dispersion, dispersions, grid_level, sliding_sums, variance_line

ITALY = "tests/data/italy_picks"


def poisson(seed=0, level=16, mean=10):
    return np.random.default_rng(seed).poisson(mean, 1 << level)


def test_poisson_arrivals_have_dispersion_one_hurst_one_half_and_b_one_half():
    arrivals = Arrivals(0.0, 1000.0, poisson())
    assert dispersion(arrivals.counts) == pytest.approx(1, abs=0.02)
    assert np.all(np.abs(dispersions(arrivals.counts)[8:] - 1) < 0.2)
    assert arrivals.hurst == pytest.approx(0.5, abs=0.03)
    assert arrivals.entropy.line.slope == pytest.approx(1, abs=1e-4)
    assert arrivals.entropy.bias == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("hurst", [0.6, 0.75, 0.9])
def test_hurst_of_fractional_noise_comes_back(hurst):
    """Gaussian noise of a known Hurst parameter, made by circulant embedding (Davies and Harte, 1987).

    The method is known to come out low for strong memory, as the series' own mean is taken off.
    """
    n = 1 << 15
    lag = np.arange(n + 1.0)
    covariance = 0.5 * (np.abs(lag + 1) ** (2 * hurst) - 2 * lag ** (2 * hurst) + np.abs(lag - 1) ** (2 * hurst))
    spectrum = np.fft.fft(np.concatenate([covariance, covariance[-2:0:-1]])).real.clip(0)
    estimates = []
    for seed in range(4):
        generator = np.random.default_rng(seed)
        noise = generator.standard_normal(2 * n) + 1j * generator.standard_normal(2 * n)
        series = np.fft.fft(np.sqrt(spectrum / (2 * n)) * noise).real[:n]
        estimates.append(1 + variance_line(np.rint(1000 + 100 * series).astype(np.int64)).slope / 2)
    assert np.mean(estimates) == pytest.approx(hurst, abs=0.06)


def test_real_bursts_have_the_dispersion_and_hurst_that_are_known_of_them():
    """ABOUT.md of the data: 10.2 in 20,000 bins of both streams together; Hurst 0.61, rough."""
    times = [pq.read_table(f"{ITALY}/{side}.parquet")["ts"].to_numpy() for side in ("left", "right")]
    both = np.concatenate(times)
    assert dispersion(np.histogram(both, 20_000)[0]) == pytest.approx(10.2, abs=0.1)
    counts = np.histogram(both, 1 << 16)[0]
    assert Arrivals(0.0, 86_400.0, counts).hurst == pytest.approx(0.61, abs=0.06)


def test_rates_and_windows():
    arrivals = Arrivals(100.0, 8.0, np.array([0, 4, 0, 0, 2, 2, 0, 0]))
    assert (arrivals.rows, arrivals.rate, arrivals.bin_s) == (8, 1.0, 1.0)
    assert arrivals.binned(4).tolist() == [4, 0, 4, 0]
    assert arrivals.binned(64).tolist() == arrivals.counts.tolist()
    assert arrivals.edges_s(2).tolist() == [100.0, 104.0, 108.0]
    assert arrivals.peak_rate(1.0) == 4.0
    assert arrivals.peak_rate(2.0) == 2.0
    assert arrivals.peak_rate(0.001) == 4.0
    assert arrivals.peak_rate(16.0) == 0.5
    assert arrivals.before(np.array([0.0, 101.5, 102.0, 200.0])).tolist() == [0, 2, 4, 8]


def test_in_window_is_never_less_than_what_is_there():
    generator = np.random.default_rng(5)
    times = np.sort(np.concatenate([generator.uniform(0, 64, 500), 20 + generator.random(300)]))
    arrivals = Arrivals(0.0, 64.0, np.histogram(times, 64, (0, 64))[0])
    for window_s in (0.0, 0.3, 1.0, 2.5, 10.0, 1e6):
        most = max(np.searchsorted(times, time, "right") - np.searchsorted(times, time - window_s) for time in times)
        bound = arrivals.in_window(window_s)
        assert len(bound) == 64
        assert most <= bound.max() <= arrivals.rows
    assert arrivals.in_window(1e6).max() == arrivals.rows


def test_tuples_wait_in_their_window_after_their_stream_has_ended():
    arrivals = Arrivals(100.0, 8.0, np.array([0, 4, 0, 0, 2, 2, 0, 1]))
    bins = np.array([8, 9, 11, 1000])
    # The window of a bin also holds the bin before those that it covers, since a tuple may lie at that bin's end.
    assert arrivals.left_in_window(bins, 3.0).tolist() == [3, 1, 0, 0]
    assert arrivals.left_in_window(bins, 1e6).tolist() == arrivals.left_in_window(bins, np.inf).tolist() == [9] * 4
    longer = Arrivals(100.0, 16.0, np.array([0, 4, 0, 0, 2, 2, 0, 1] + [0] * 8))
    for window_s in (0.0, 0.5, 1.0, 2.5, 5.0):
        assert arrivals.left_in_window(np.arange(8, 16), window_s).tolist() == longer.in_window(window_s)[8:].tolist()


def test_few_or_no_counts_give_no_estimate():
    assert dispersion(np.zeros(4, np.int64)) is None
    assert variance_line(np.array([1, 2, 3, 4])) is None
    assert variance_line(np.full(1 << 10, 7)) is None  # no variance at all
    one = Arrivals(0.0, 1e-6, np.array([1]))
    assert one.hurst is None and one.entropy.bias is None and one.peak_rate(1.0) == 1
    assert one.in_window(20.0).tolist() == [1]


@pytest.mark.parametrize("span, level", [(1, 0), (2, 1), (3, 1), (1 << 16, 16), (1 << 40, 16)])
def test_grid_level(span, level):
    assert grid_level(span) == level


def test_sliding_sums():
    assert sliding_sums(np.array([1, 2, 3, 4]), 2).tolist() == [3, 5, 7]
    assert sliding_sums(np.array([1, 2]), 2).tolist() == [3]
