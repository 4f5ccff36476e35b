"""Synthetic streams: pure functions of (seed, stream, number), with the distributions they claim."""

import numpy as np
import pyarrow as pa
import pytest

from mpijoin.config.check import resolve
from mpijoin.config.job import Job, Run, StreamJob, SyntheticSource
from mpijoin.data.schema import Column
from mpijoin.errors import InputError
from mpijoin.generators.keys import scaled
from mpijoin.sources import open_source
from mpijoin.sources.base import End
from mpijoin.sources.blocks import BlockLimit
from mpijoin.sources.synthetic import SyntheticReader

COLUMNS = (Column("ts", pa.timestamp("ns")), Column("key", pa.int64()))
PAYLOAD = (*COLUMNS, Column("payload", pa.binary(11)))


def made(source, columns=COLUMNS, seed=1, stream=0, block_rows=1000) -> pa.Table:
    reader = SyntheticReader(source, seed, stream, columns, BlockLimit(block_rows))
    schema = pa.schema([(column.name, column.type) for column in columns])
    return pa.Table.from_batches(list(reader.blocks()), schema)


def test_any_split_into_blocks_gives_the_same_rows():
    source = SyntheticSource(tuples=2000, payload_bytes=11)
    whole = made(source, PAYLOAD, block_rows=5000)
    assert all(
        made(source, PAYLOAD, block_rows=rows).combine_chunks().equals(whole.combine_chunks()) for rows in (1, 7, 1000)
    )
    assert whole.num_rows == 2000 and len(set(whole["payload"].to_pylist())) == 2000


def test_a_column_does_not_depend_on_the_others_read():
    source = SyntheticSource(tuples=50, payload_bytes=11)
    assert made(source, PAYLOAD[1:2])["key"].equals(made(source, PAYLOAD)["key"])


def test_seed_and_stream_make_other_rows():
    source = SyntheticSource(tuples=100)
    base = made(source)
    for other in (made(source, seed=2), made(source, stream=1), made(source, seed=-1)):
        assert not other["ts"].equals(base["ts"]) and not other["key"].equals(base["key"])
    assert made(source).equals(base)


def test_gaps_are_exponential_with_the_rate():
    time = made(SyntheticSource(rate=1500, tuples=200_000), block_rows=1 << 16)["ts"].cast(pa.int64()).to_numpy()
    gaps = np.diff(time)
    assert time[0] > 0 and gaps.min() >= 0
    assert gaps.mean() == pytest.approx(1e9 / 1500, rel=0.01) and gaps.std() == pytest.approx(1e9 / 1500, rel=0.02)
    assert np.median(gaps) == pytest.approx(np.log(2) * 1e9 / 1500, rel=0.02)


def test_every_bit_of_a_key_is_zero_with_the_bias():
    key = made(SyntheticSource(bias=0.7, domain=1 << 20, tuples=100_000), block_rows=1 << 16)["key"].to_numpy()
    zeros = [1 - ((key >> bit) & 1).mean() for bit in range(20)]
    assert min(zeros) > 0.69 and max(zeros) < 0.71
    together = np.corrcoef([(key >> bit) & 1 for bit in range(20)])
    assert np.abs(together - np.eye(20)).max() < 0.02


@pytest.mark.parametrize("domain", [1, 2, 3, 10_000_000, (1 << 40) + 1, 2**63 - 1])
def test_keys_lie_in_the_domain_and_use_all_of_it(domain):
    key = made(SyntheticSource(bias=0.5, domain=domain, tuples=5000))["key"].to_numpy()
    assert key.min() >= 0 and key.max() < domain and key.max() >= 0.9 * (domain - 1) and key.min() <= 0.1 * domain


def test_the_wide_product_is_exact():
    rng = np.random.default_rng(5)
    with np.errstate(over="ignore"):
        for bits in (1, 17, 32, 33, 63):
            key, domain = (
                int(rng.integers(0, 1 << bits, dtype=np.uint64)),
                int(rng.integers(1, 1 << 63, dtype=np.uint64)),
            )
            assert int(scaled(np.uint64(key), np.uint64(domain), np.uint64(bits))) == key * domain >> bits


def test_a_duration_ends_the_stream():
    by_time = made(SyntheticSource(duration_ns=10**9), block_rows=100)
    time = by_time["ts"].cast(pa.int64()).to_numpy()
    longer = made(SyntheticSource(tuples=by_time.num_rows + 1))["ts"].cast(pa.int64()).to_numpy()
    assert time.max() < 10**9 <= longer[-1] and (longer[:-1] == time).all()
    assert made(SyntheticSource(duration_ns=1)).num_rows == 0 and made(SyntheticSource(tuples=0)).num_rows == 0


def test_times_beyond_the_clock_are_refused():
    with pytest.raises(InputError, match="wanted a higher rate or fewer tuples"):
        made(SyntheticSource(rate=1e-9, tuples=1000))


@pytest.mark.parametrize("ending", [{"tuples": 1000}, {"duration_ns": 10**9}])
def test_as_a_source_it_is_never_late_and_ends_at_full_progress(ending):
    streams = tuple(StreamJob(name, SyntheticSource(**ending)) for name in ("left", "right"))
    job = Job(streams, run=Run(seed=4))
    schema = resolve(job)
    source = open_source(job, 1, schema, None)
    rows, progress = [], []
    while not isinstance(chunk := source.read(100), End):
        rows += chunk.batch.row.tolist()
        assert (chunk.running_max == chunk.batch.time).all()
        progress.append(source.progress())
    assert rows == list(range(source.counts.read)) and len(rows) > 900 and source.counts.late == 0
    assert progress == sorted(progress) and progress[-1] == 1.0
