"""Entropy plots: the b of generated keys comes back, and the plots are lines."""

import numpy as np
import pyarrow as pa
import pytest

from mpijoin.config.job import SyntheticSource
from mpijoin.data.schema import Column
from mpijoin.pipeline.profile.entropy import (
    bias_of_collisions,
    bias_of_entropy,
    binary_entropy,
    coarser,
    entropy_bits,
    entropy_plot,
)
from mpijoin.pipeline.profile.keys import Keys, KeySums, key_span
from mpijoin.sources.synthetic import SyntheticReader

TUPLES = 1_000_000


def b_model_keys(bias, domain, tuples=TUPLES, seed=1):
    source = SyntheticSource(rate=1500, bias=bias, domain=domain, tuples=tuples)
    reader = SyntheticReader(source, seed, 0, [Column("key", pa.int64())])
    return pa.Table.from_batches(list(reader.blocks()))["key"].to_numpy()


def cells_of(keys):
    span = key_span(int(keys.min()), int(keys.max()))
    cells = 1 << span.level
    place = np.floor((keys - span.start) * (cells / span.length)).astype(int)
    return np.bincount(np.minimum(place, cells - 1), minlength=cells)


@pytest.mark.parametrize("bias", [0.5, 0.6, 0.7, 0.8])
@pytest.mark.parametrize("domain", [10_000_000, 1 << 20, 1_000_000])
def test_b_comes_back_from_keys_and_the_plot_is_a_line(bias, domain):
    plot = entropy_plot(cells_of(b_model_keys(bias, domain)))
    assert plot.bias == pytest.approx(bias, abs=0.01)
    assert plot.is_linear and plot.line.r2 > 0.999
    assert plot.line.slope == pytest.approx(binary_entropy(bias), abs=0.015)


@pytest.mark.parametrize("bias", [0.5, 0.6, 0.7, 0.8])
def test_b_comes_back_from_arrivals(bias):
    """Times that a b-model places: the same plot, over time."""
    times = b_model_keys(bias, 1 << 24, 300_000, seed=3)
    plot = entropy_plot(np.bincount(times >> 8, minlength=1 << 16))
    assert plot.bias == pytest.approx(bias, abs=0.01)
    assert plot.is_linear


def test_keys_that_are_no_b_model_give_a_bent_plot():
    generator = np.random.default_rng(0)
    counts = np.zeros(1 << 12, np.int64)
    counts[: 1 << 4] = generator.poisson(10_000, 1 << 4)  # uniform in a corner of the span
    plot = entropy_plot(counts)
    assert not plot.is_linear


def test_the_correction_makes_few_tuples_in_many_cells_unbiased():
    generator = np.random.default_rng(1)
    found = [entropy_bits(generator.multinomial(20_000, np.full(256, 1 / 256))) for _ in range(50)]
    assert np.mean(found) == pytest.approx(8, abs=2e-4)


def test_only_levels_with_enough_tuples_are_fitted():
    assert entropy_plot(np.full(1 << 10, 1)).fitted == 3  # 1024 tuples, at least 100 in each cell
    assert entropy_plot(np.full(4, 10)).line is None
    assert entropy_plot(np.full(4, 10)).bias is None
    assert not entropy_plot(np.zeros(8, np.int64)).is_linear


def test_levels_above_are_sums():
    counts = np.arange(8)
    assert coarser(counts, 3).tolist() == list(range(8))
    assert coarser(counts, 1).tolist() == [6, 22]
    assert coarser(counts, 0).tolist() == [28]


@pytest.mark.parametrize("bias", [0.5, 0.51, 0.6, 0.75, 0.9, 0.999, 1.0])
def test_bias_is_the_inverse_of_entropy(bias):
    assert bias_of_entropy(binary_entropy(bias)) == pytest.approx(bias, abs=1e-7)


def test_entropies_beyond_the_range_give_its_ends():
    assert bias_of_entropy(1.0001) == 0.5
    assert bias_of_entropy(-0.1) == pytest.approx(1.0)


@pytest.mark.parametrize("bias", [0.5, 0.7, 0.8])
def test_collisions_give_b_where_all_keys_were_met(bias):
    count = np.unique(b_model_keys(bias, 1 << 8), return_counts=True)[1].astype(float)
    share = (count * (count - 1)).sum() / (TUPLES * (TUPLES - 1.0))
    # Near one half the share hardly depends on b: an error of 1e-5 there is one of 0.03 here.
    assert bias_of_collisions(share, len(count)) == pytest.approx(bias, abs=0.02)


def test_collisions_say_nothing_of_one_key_or_of_different_ones():
    assert bias_of_collisions(1.0, 1) is None
    assert bias_of_collisions(0.0, 100) is None


def test_skew_is_of_the_plot_where_that_is_a_line_else_of_collisions():
    keys = b_model_keys(0.7, 1 << 12)
    count = np.unique(keys, return_counts=True)[1].astype(float)
    sums = KeySums(len(count), TUPLES, (count * np.log2(count)).sum(), (count * (count - 1)).sum(), int(count.max()))
    by_plot = Keys(sums, cells_of(keys)).skew
    assert by_plot.is_trusted and by_plot.bias == pytest.approx(0.7, abs=0.01)
    rough = Keys(sums, None).skew
    assert not rough.is_trusted and rough.method == "collisions" and rough.bias == pytest.approx(0.7, abs=0.05)
    assert Keys(sums, None).entropy_bits == pytest.approx(12 * binary_entropy(0.7), abs=0.01)
    assert Keys(sums, None).top_share == pytest.approx(0.7**12, abs=0.001)


@pytest.mark.parametrize(
    "least, most, start, length",
    [
        (0, 9_999_999, 0, 10_000_000),
        (5, 1_040_000, 0, 1 << 20),
        (0, 7_350_000, 0, 7_350_001),
        (-5, 5, -5, 11),
        (10**6, 10**6 + 99, 10**6, 100),
        (7, 7, 7, 1),
        (0, 0, 0, 1),
        (-(2**63), 2**63 - 1, -(2**63), 2**64),
    ],
)
def test_spans(least, most, start, length):
    span = key_span(least, most)
    assert (span.start, span.length) == (start, length)
    assert 0 <= span.level <= 14
