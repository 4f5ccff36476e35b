"""The benchmarks of paced runs, on made-up run directories: nothing here measures time."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mpijoin.config.check import resolve
from mpijoin.config.inject import Slowdown
from mpijoin.config.load import load_job
from mpijoin.metrics.write import MetricsFile
from mpijoin.sweep.capacity import NoCapacity, highest, is_sustained

SCRIPTS = Path(__file__).parents[2] / "scripts"
EPOCH_S = 0.5


@pytest.fixture(autouse=True)
def _import_scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))


def run_directory(path, lags_us=(0,) * 20, left_bytes=(100,) * 20, delays_us=(), seconds=()):
    """One master, slave 1; of slave 2 the epochs that end at `seconds` with mean delay `delays_us` of 10 results
    each."""
    (path / "metrics").mkdir(parents=True)
    master, slave, other = (MetricsFile(path / "metrics", rank, ["left", "right"]) for rank in range(3))
    for epoch, lag_us in enumerate(lags_us):
        master.add(rank=0, role="master", epoch=epoch, lag_us=lag_us)
    for epoch, octets in enumerate(left_bytes):
        slave.add(rank=1, role="slave", epoch=epoch, occupancy_bytes=octets, received_bytes=1000)
    for epoch, (second, delay_us) in enumerate(zip(seconds, delays_us)):
        row = {"end_us": int(second * 1e6), "delay_count": 10, "delay_sum_us": 10 * delay_us}
        other.add(rank=2, role="slave", epoch=epoch, received_bytes=1000, **row)
    for file in (master, slave, other):
        file.close()
    return path


@pytest.mark.parametrize("policy, back", [("none", False), ("threshold", False), ("balance", True)])
def test_the_jobs_have_no_fault(tmp_path, policy, back):
    from bench_recovery import BEFORE_S, NODE, SLAVES, SLOW, SLOW_S, load_of
    from benching.paced import job_text

    load = load_of(policy, back)
    values = tomllib.loads(job_text(load, 20_000))
    job = load_job(values, [*load.settings, f'output.path="{tmp_path}"'])
    resolve(job)
    assert (job.run.speed, job.balance.policy, job.streams[0].source.rate) == (1, policy, 20_000)
    end_ns = (BEFORE_S + SLOW_S) * 1e9 if back else None
    *equal, slower = job.inject.slow
    assert equal == [Slowdown(slave, NODE, 0, None) for slave in range(1, SLAVES + 1)]
    assert slower == Slowdown(SLOW, 0.333, int(BEFORE_S * 1e9), end_ns)


def test_capacity_is_found_from_below_and_from_above():
    for true in (777, 110_000, 777_777, 2_900_000):
        tried = []
        found = highest(lambda rate: tried.append(rate) or rate <= true, 100_000, 3_000_000)
        assert found <= true <= 1.08 * found and len(tried) <= 16
    with pytest.raises(NoCapacity, match="not even"):
        highest(lambda rate: False, 100_000, 3_000_000)


def test_the_end_of_the_search_is_tried_before_a_rate_below_it_is_called_the_capacity():
    def search(true):
        tried = []
        return highest(lambda rate: tried.append(rate) or rate <= true, 20_000, 1_000_000), tried

    assert search(math.inf)[0] == 1_000_000
    found, tried = search(999_999)
    assert found <= 999_999 <= 1.08 * found and tried[-1] == 1_000_000
    # What is far above the capacity takes long to run.
    assert max(search(50_000)[1]) < 200_000


@pytest.mark.parametrize(
    "lags_us, left_bytes, sustained",
    [
        ((0,) * 20, (100,) * 20, True),
        ((0,) * 9 + (9_000_000,) + (0,) * 10, (100,) * 20, True),  # one epoch was spoilt
        (tuple(range(0, 2_000_000, 100_000)), (100,) * 20, False),  # the master falls behind
        ((0,) * 20, tuple(range(0, 4000, 200)), False),  # the slave's backlog grows
        ((0,) * 20, (100,) * 18 + (2100, 2100), False),  # ... at the end
    ],
)
def test_sustained_is_what_leaves_no_backlog(tmp_path, lags_us, left_bytes, sustained):
    assert is_sustained(run_directory(tmp_path, lags_us, left_bytes), EPOCH_S) == sustained


def test_recovery_is_counted_from_the_slowdown(tmp_path):
    from bench_recovery import BEFORE_S, REORGANIZATION_S, mean_delays, recovery

    seconds = [BEFORE_S + REORGANIZATION_S * (epoch + 0.5) for epoch in range(-3, 12)]
    delays_us = [100_000] * 3 + [400_000, 900_000, 140_000, 200_000] + [149_000] * 8
    delays_s = mean_delays(run_directory(tmp_path / "back", delays_us=delays_us, seconds=seconds))
    assert delays_s[-1] == pytest.approx(0.1) and delays_s[1] == pytest.approx(0.9)
    assert recovery(delays_s) == {"normal_s": 0.1, "worst_s": 0.9, "epochs": 4}
    never = recovery(
        mean_delays(run_directory(tmp_path / "never", delays_us=[*delays_us[:-1], 160_000], seconds=seconds))
    )
    assert never["epochs"] is None
    unmoved = recovery(mean_delays(run_directory(tmp_path / "unmoved", delays_us=[100_000] * 15, seconds=seconds)))
    assert unmoved["epochs"] == 0


def test_moves_are_counted_per_reorganization_epoch(tmp_path):
    from bench_recovery import BEFORE_S, moves_per_epoch

    assert moves_per_epoch(tmp_path) == []
    (tmp_path / "metrics").mkdir()
    seconds, outcomes = [-1, 1, 1, 3, 7], ["moved", "moved", "refused", "moved", "moved"]
    begun_us = [int((BEFORE_S + second) * 1e6) for second in seconds]
    pq.write_table(pa.table({"begun_us": begun_us, "outcome": outcomes}), tmp_path / "metrics" / "moves.parquet")
    assert moves_per_epoch(tmp_path) == [1, 1, 0, 1]


def test_the_model_of_the_threshold_policy():
    """From 15 groups to 10 the backlog still grows: at one a period that takes five, and as many to work it off."""
    from bench_recovery import expected

    assert 8 <= expected() <= 12
    assert expected(groups=60) > 2 * expected()


def test_figures_of_bench_paced():
    from bench_paced import line_of, row_of

    row = row_of({"mean": 0.3, "p99": 0.7}, EPOCH_S, 1_000_000.0, 0.2)
    assert (row["mean"], row["p99"], row["met"]) == (0.6, 1.4, False)
    assert "missed" in line_of(row) and "1,000,000" in line_of(row)
    assert row_of({"mean": 0.3, "p99": 0.6}, EPOCH_S, 1_000_000.0, 0.2)["met"]
