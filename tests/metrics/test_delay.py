"""Production delays: a histogram that is never off by more than it promises, and its file."""

import json
import math

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from mpijoin.errors import OutputError
from mpijoin.metrics.buckets import BUCKETS, EXACT, LONGEST_US, STARTS_US, STEPS_BITS, bucket_starts
from mpijoin.metrics.delay import ROWS_HELD, SCHEMA, DelayHistogram, DelaysFile
from mpijoin.metrics.delay_kernels import bucket_of
from mpijoin.records import Delays

# Delays of every size: as many of 7 digits as of 3.
DELAYS = some.integers(0, 40).flatmap(lambda bits: some.integers((1 << bits) >> 1, (1 << bits) - 1))
SHARES = (0.0, 0.01, 0.25, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0)


def histogram(delays_us, counts=None):
    delays = DelayHistogram()
    delays_us = np.array(delays_us, np.int64)
    delays.add(delays_us, np.ones(len(delays_us), np.int64) if counts is None else np.array(counts, np.int64))
    return delays


def random_delays(seed, size=5000):
    random = np.random.default_rng(seed)
    kinds = (
        random.lognormal(10, 3, size),
        random.uniform(0, 300, size),
        random.exponential(2e6, size),
        random.choice([7.0, 1000.0, 5e6], size),
    )
    return kinds[seed % len(kinds)].astype(np.int64)


def nearest_rank(delays_us, share):
    """The smallest delay that at least this share of all does not exceed."""
    return int(np.sort(delays_us)[max(1, math.ceil(share * len(delays_us))) - 1])


def same(one, other):
    return one.counts.tolist() == other.counts.tolist() and totals(one) == totals(other)


def totals(delays):
    return delays.count, delays.sum_us, delays.max_us


def test_buckets_touch_and_cover_all_from_zero_to_twelve_days():
    starts = bucket_starts()
    widths = np.diff(starts)
    assert len(starts) == BUCKETS + 1 and starts[0] == 0 and starts[-1] == LONGEST_US + 1
    assert widths[:EXACT].tolist() == [1] * EXACT
    assert (widths[EXACT:] * (1 << STEPS_BITS) <= starts[EXACT:-1]).all()
    doublings = starts[EXACT :: 1 << STEPS_BITS]
    assert (doublings[1:] == 2 * doublings[:-1]).all()


def test_first_and_last_value_of_every_bucket_fall_into_it():
    assert [bucket_of(start_us) for start_us in STARTS_US[:-1]] == list(range(BUCKETS))
    assert [bucket_of(start_us - 1) for start_us in STARTS_US[1:]] == list(range(BUCKETS))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(DELAYS)
def test_no_value_is_off_by_more_than_a_64th(delay_us):
    bucket = bucket_of(delay_us)
    low, high = int(STARTS_US[bucket]), int(STARTS_US[bucket + 1]) - 1
    assert low <= delay_us <= high
    assert (high - low) * 64 <= delay_us
    if delay_us < 128:
        assert low == high


@pytest.mark.parametrize("seed", range(8))
def test_quantiles_are_those_of_numpy_within_the_promised_error(seed):
    delays_us = random_delays(seed)
    found = histogram(delays_us)
    for share in SHARES:
        exact_us = nearest_rank(delays_us, share)
        assert abs(found.quantile_us(share) - exact_us) * 64 <= exact_us + 64  # one us of rounding
    middle_us = float(np.quantile(delays_us, 0.5, method="inverted_cdf"))
    assert abs(found.figures_s()["p50"] * 1e6 - middle_us) <= middle_us / 64 + 1


@settings(max_examples=100, deadline=None, derandomize=True)
@given(some.lists(DELAYS, min_size=1, max_size=60), some.floats(0, 1))
def test_quantiles_of_few_delays_are_within_the_promised_error_too(delays_us, share):
    exact_us = nearest_rank(delays_us, share)
    assert abs(histogram(delays_us).quantile_us(share) - exact_us) * 64 <= exact_us + 64


@pytest.mark.parametrize("seed", range(4))
def test_count_sum_and_maximum_are_exact_and_quantiles_rise_up_to_the_maximum(seed):
    delays_us = random_delays(seed)
    found = histogram(delays_us)
    assert totals(found) == (len(delays_us), int(delays_us.sum()), int(delays_us.max()))
    quantiles = [found.quantile_us(share) for share in SHARES]
    assert quantiles == sorted(quantiles) and quantiles[-1] <= delays_us.max()
    figures = found.figures_s()
    assert list(figures) == ["mean", "p50", "p95", "p99", "max"]
    assert figures["mean"] == pytest.approx(delays_us.mean() / 1e6)


def test_weights_count_as_often_as_they_say_and_zero_not_at_all():
    weighted = histogram([5, 900, 10**12], [3, 2, 0])
    assert same(weighted, histogram([5, 5, 5, 900, 900]))
    assert weighted.max_us == 900


def test_nothing_added_says_nothing():
    for empty in (DelayHistogram(), histogram([]), histogram([4, 5], [0, 0])):
        assert totals(empty) == (0, 0, 0) and not empty.counts.any()
        assert empty.quantile_us(0.5) == 0 and empty.figures_s() is None
        assert empty.compact() == Delays()


def test_delays_of_zero_are_delays():
    none = histogram([0, 0, 0])
    assert totals(none) == (3, 0, 0) and none.quantile_us(1.0) == 0
    assert none.figures_s() == {"mean": 0.0, "p50": 0.0, "p95": 0.0, "p99": 0.0, "max": 0.0}


def test_what_took_longer_than_the_last_bucket_counts_as_that_and_totals_stay_exact():
    huge = histogram([LONGEST_US, LONGEST_US + 1, 1 << 60])
    assert huge.counts[-1] == 3 and huge.counts.sum() == 3
    assert huge.max_us == 1 << 60 and huge.sum_us == 2 * LONGEST_US + 1 + (1 << 60)
    assert LONGEST_US * (1 - 1 / 64) <= huge.quantile_us(0.5) <= LONGEST_US


@pytest.mark.parametrize("seed", range(4))
def test_merging_is_adding(seed):
    delays_us = random_delays(seed)
    parts = [histogram(part) for part in np.array_split(delays_us, 7)] + [DelayHistogram()]
    merged = DelayHistogram()
    for part in parts:
        before = part.compact()
        merged.merge(part)
        assert part.compact() == before
    assert same(merged, histogram(delays_us))


@pytest.mark.parametrize("seed", range(4))
def test_compact_forms_are_plain_and_add_up(seed):
    delays_us = random_delays(seed)
    compacts = [histogram(part).compact() for part in np.array_split(delays_us, 3)]
    assert all(Delays.of(json.loads(json.dumps(compact))) == compact for compact in compacts)
    assert all(all(compact.counts) for compact in compacts)
    assert same(DelayHistogram.of(compacts), histogram(delays_us))
    assert same(DelayHistogram.of([]), DelayHistogram())


def test_memory_does_not_grow_with_what_is_added():
    delays, random = DelayHistogram(), np.random.default_rng(1)
    before_bytes = delays.counts.nbytes
    for _ in range(50):
        delays.add(random.integers(0, 1 << 50, 2000), np.ones(2000, np.int64))
    assert delays.count == 100_000 and delays.counts.sum() == 100_000
    assert delays.counts.nbytes == before_bytes == 8 * BUCKETS < 20_000


def test_the_file_has_the_filled_buckets_of_each_epoch(tmp_path):
    epochs = {3: random_delays(0), 4: random_delays(1), 9: np.array([0, 0, LONGEST_US])}
    file = DelaysFile(tmp_path, 2)
    for epoch, delays_us in epochs.items():
        file.add(epoch, 1000 * epoch, histogram(delays_us))
    assert not (tmp_path / "delay-2.parquet").exists()
    file.close()
    table = pq.read_table(tmp_path / "delay-2.parquet")
    assert table.schema.equals(SCHEMA) and set(table["rank"].to_pylist()) == {2}
    columns = {name: table[name].to_numpy() for name in table.column_names}
    assert list(dict.fromkeys(columns["epoch"].tolist())) == [3, 4, 9]
    for epoch, delays_us in epochs.items():
        own = columns["epoch"] == epoch
        assert set(columns["end_us"][own].tolist()) == {1000 * epoch}
        found = histogram(columns["bucket_us"][own], columns["count"][own])
        assert found.counts.tolist() == histogram(delays_us).counts.tolist()
        assert (np.diff(columns["bucket_us"][own]) > 0).all() and columns["count"][own].all()


def test_the_file_holds_few_rows_back_however_many_epochs_there_are(tmp_path):
    delays = histogram(STARTS_US[:-1])
    epochs = 3 * ROWS_HELD // BUCKETS
    file = DelaysFile(tmp_path, 1)
    for epoch in range(epochs):
        file.add(epoch, 0, delays)
    file.close()
    whole = pq.ParquetFile(tmp_path / "delay-1.parquet").metadata
    assert whole.num_rows == epochs * BUCKETS and whole.num_row_groups > 1
    groups = [whole.row_group(index).num_rows for index in range(whole.num_row_groups)]
    assert max(groups) < ROWS_HELD + BUCKETS


def test_without_delays_there_is_no_file(tmp_path):
    file = DelaysFile(tmp_path, 1)
    file.add(0, 0, DelayHistogram())
    file.close()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_an_output_error(tmp_path):
    file = DelaysFile(tmp_path / "none", 1)
    file.add(0, 0, histogram([1]))
    with pytest.raises(OutputError, match="delay-1.parquet.open: cannot be written"):
        file.close()
