"""Generators: the laws they claim, and that any split gives the same rows."""

import numpy as np
import pyarrow as pa
import pytest

from mpijoin.config.job import B_MODEL, ZIPF, Change, SyntheticSource
from mpijoin.errors import InputError
from mpijoin.generators.arrivals import START, Bursts, Poisson
from mpijoin.generators.draws import ARRIVAL, base_of
from mpijoin.generators.keys import permute
from mpijoin.generators.schedule import OperationalTime, segments_of
from mpijoin.generators.stream import SyntheticStream

S = 10**9
MILLION = 1_000_000


def times(source, first=0, rows=None, position=START, seed=1):
    arrivals = SyntheticStream(source, seed, 0).arrivals
    return arrivals.times(first, arrivals.total if rows is None else rows, position)[0]


def keys(source, rows=MILLION, seed=3):
    return SyntheticStream(source, seed, 0).keys(0, np.arange(rows, dtype=np.int64))


def ks_distance(sample, cumulative):
    """Kolmogorov's: the greatest distance between the empirical distribution and `cumulative`."""
    ordered = np.sort(sample)
    theory, n = cumulative(ordered), len(ordered)
    return max(np.max(np.arange(1, n + 1) / n - theory), np.max(theory - np.arange(n) / n))


def entropy(counts):
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log2(share)).sum())


def entropy_plot(cells):
    """Entropy in bits at each level, from one cell to all; cells: counts of 2**n cells."""
    levels = [cells]
    while len(levels[-1]) > 1:
        levels.append(levels[-1].reshape(-1, 2).sum(axis=1))
    return np.array([entropy(level) for level in levels[::-1]])


def b_of(slope):
    """b > 0.5 of the entropy per level."""
    b = np.linspace(0.5, 0.999, 100_000)
    return float(b[np.argmin(np.abs(-b * np.log2(b) - (1 - b) * np.log2(1 - b) - slope))])


def test_poisson_gaps_are_exponential():
    gaps = np.diff(times(SyntheticSource(rate=2000.0, tuples=MILLION)))
    # 1.95 is the 0.1 % point of the statistic; the seed is fixed.
    assert ks_distance(gaps, lambda x: 1 - np.exp(-x * 2000.0 / S)) * np.sqrt(len(gaps)) < 1.95
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 0.004


def test_poisson_times_can_be_made_in_pieces():
    source = SyntheticSource(rate=1500.0, tuples=10_000, changes=(Change(2 * S, rate=7000.0),))
    arrivals = Poisson(source, base_of(9, 1, ARRIVAL))
    whole, end = arrivals.times(0, 10_000, START)
    for size in (1, 37, 4096):
        position, parts = START, []
        for first in range(0, 10_000, size):
            rows = min(size, 10_000 - first)
            part, _ = arrivals.times(first, rows, position)
            assert (
                (part[0] if len(part) else 0)
                >= arrivals.time_before(first, position)
                >= (parts[-1][-1] if parts else 0)
            )
            position += arrivals.skip(first, rows)
            parts.append(part)
        assert position == end and np.array_equal(np.concatenate(parts), whole)


def test_the_rate_changes_when_it_should():
    changes = (Change(10 * S, rate=4000.0), Change(20 * S, rate=500.0))
    time = times(SyntheticSource(rate=1000.0, duration_ns=40 * S, changes=changes), rows=80_000)
    counts = np.histogram(time, [0, 10 * S, 20 * S, 40 * S])[0]
    assert np.abs(counts - [10_000, 40_000, 10_000]).max() < 5 * np.sqrt(40_000) and (np.diff(time) >= 0).all()
    for low, high, rate in ((0, 10, 1000.0), (10, 20, 4000.0), (20, 40, 500.0)):
        gaps = np.diff(time[(time >= low * S) & (time < high * S)])
        assert ks_distance(gaps, lambda x: 1 - np.exp(-x * rate / S)) * np.sqrt(len(gaps)) < 1.95


def test_stretching_keeps_the_order_and_meets_the_borders():
    changes = (Change(7, rate=3.0), Change(11, rate=1e-9), Change(20, rate=5e8))
    clock = OperationalTime(segments_of(SyntheticSource(rate=1.0, changes=changes)))
    found = clock.event_ns(np.arange(0, 10_000))
    assert found[0] == 0 and found[7] == 7 and (np.diff(found) >= 0).all()
    assert clock.event_ns(np.array([18, 19])).tolist() == [11, 20]
    assert clock.event_ns(np.array([2**62]))[0] >= 20


@pytest.mark.parametrize("b", [0.5, 0.6, 0.7, 0.8])
def test_bursts_have_the_entropy_plot_of_the_b_model(b):
    """Wang et al.: entropy grows by the same H(b) at every halving of time."""
    time = times(SyntheticSource(arrivals=B_MODEL, burst=b, tuples=MILLION, rate=MILLION / (1 << 30) * S))
    assert (np.diff(time) >= 0).all() and 0 <= time[0] and time[-1] < 1 << 30
    plot = entropy_plot(np.bincount(time >> 20, minlength=1 << 10))
    steps = np.diff(plot)
    assert b_of(steps.mean()) == pytest.approx(b, abs=0.01)
    assert np.corrcoef(np.arange(11), plot)[0, 1] > 0.9999
    # From one level on a half has b or 1 - b of its parent's tuples, whichever half.
    halves = np.bincount(time >> 29, minlength=2) / MILLION
    assert max(halves) == pytest.approx(b, abs=1e-6)


def test_bursts_can_be_made_in_pieces():
    source = SyntheticSource(arrivals=B_MODEL, burst=0.8, rate=500.0, duration_ns=20 * S)
    arrivals = Bursts(source, base_of(4, 0, ARRIVAL))
    whole = arrivals.times(0, arrivals.total, START)[0]
    assert len(whole) == 10_000 and whole[-1] < 20 * S
    for size in (1, 999):
        parts = [arrivals.times(first, size, START)[0] for first in range(0, 10_000, size)]
        assert np.array_equal(np.concatenate(parts), whole)
        assert [arrivals.time_before(first, START) for first in range(0, 10_000, size)] == [part[0] for part in parts]


def test_bursts_that_end_beyond_64_bits_are_refused():
    with pytest.raises(InputError, match="2000 tuples end .* wanted a higher rate or fewer tuples"):
        Bursts(SyntheticSource(tuples=2000, rate=1e-9, arrivals=B_MODEL), np.uint64(1))


def test_bursts_of_more_tuples_than_nanoseconds_and_of_none():
    many = times(SyntheticSource(arrivals=B_MODEL, burst=0.7, rate=1e12, duration_ns=100))
    assert len(many) == 100_000 and many[0] >= 0 and many[-1] <= 99 and (np.diff(many) >= 0).all()
    assert len(times(SyntheticSource(arrivals=B_MODEL, tuples=0))) == 0


@pytest.mark.parametrize("b", [0.5, 0.6, 0.7, 0.8])
def test_keys_have_the_entropy_of_the_b_model(b):
    cells = np.bincount(keys(SyntheticSource(bias=b, domain=1 << 20)) >> 10, minlength=1 << 10)
    plot = entropy_plot(cells)
    assert b_of(np.diff(plot).mean()) == pytest.approx(b, abs=0.01) and np.corrcoef(np.arange(11), plot)[0, 1] > 0.9999


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.00000001, 2.5])
def test_zipf_keys_have_their_shares(exponent):
    domain = 1000
    counts = np.bincount(keys(SyntheticSource(keys=ZIPF, exponent=exponent, domain=domain)), minlength=domain)
    chance = np.arange(1, domain + 1) ** -exponent
    expected = MILLION * chance / chance.sum()
    often = expected > 20
    chi2 = ((counts - expected)[often] ** 2 / expected[often]).sum()
    assert len(counts) == domain and chi2 < often.sum() + 5 * np.sqrt(2 * often.sum())


@pytest.mark.parametrize("domain", [1, 2, 3, 17, 1000, 1 << 16])
def test_a_permutation_is_one(domain):
    for salt in (0, 1, 2**63 - 1):
        key = np.arange(domain, dtype=np.int64)
        with np.errstate(over="ignore"):
            permute(key, np.uint64(domain), np.uint64(max(1, ((domain - 1).bit_length() + 1) // 2)), np.uint64(salt))
        assert np.array_equal(np.sort(key), np.arange(domain))
    if domain >= 1000:
        assert (key != np.arange(domain)).mean() > 0.99


def test_streams_of_one_number_have_the_same_hot_keys():
    def hottest(number, seed):
        key = keys(SyntheticSource(bias=0.8, domain=5000, permute=number), 100_000, seed)
        return int(np.bincount(key).argmax())

    assert hottest(None, 1) == hottest(None, 2) == 0
    assert 0 != hottest(7, 1) == hottest(7, 2) != hottest(8, 1)


def test_skew_changes_from_the_moment_it_should():
    source = SyntheticSource(bias=0.5, domain=1 << 10, changes=(Change(500, bias=0.9), Change(800, permute=3)))
    time = np.repeat(np.arange(1000), 100)
    key = SyntheticStream(source, 1, 0).keys(0, time)
    top = [
        np.bincount(key[part * 100 : end * 100]).max() / (end - part) / 100
        for part, end in ((0, 500), (500, 800), (800, 1000))
    ]
    assert top[0] < 0.004 and 0.33 < top[1] < 0.36 and 0.33 < top[2] < 0.36
    assert np.bincount(key[50_000:80_000]).argmax() == 0 != np.bincount(key[80_000:]).argmax()


def test_delays_are_uniform_up_to_the_bound():
    stream = SyntheticStream(SyntheticSource(disorder_ns=1000), 1, 0)
    delay = stream.emitted(0, np.zeros(100_000, np.int64))
    assert delay.min() == 0 and delay.max() == 1000
    assert ks_distance(delay, lambda x: (x + 0.5) / 1001) * np.sqrt(len(delay)) < 1.95
    late = stream.emitted(0, np.full(10, np.iinfo(np.int64).max - 5))
    assert (late >= np.iinfo(np.int64).max - 5).all()


def test_columns_do_not_depend_on_how_tuples_are_cut():
    source = SyntheticSource(tuples=5000, payload_bytes=11, permute=1, keys=ZIPF, changes=(Change(S, exponent=2.0),))
    stream = SyntheticStream(source, 5, 1)
    time, _ = stream.arrivals.times(0, 5000, START)
    names = ["ts", "key", "payload"]
    whole = pa.Table.from_batches([stream.batch(names, 0, time)])
    parts = [stream.batch(names, first, time[first : first + 7]) for first in range(0, 5000, 7)]
    assert pa.Table.from_batches(parts).combine_chunks().equals(whole.combine_chunks())
