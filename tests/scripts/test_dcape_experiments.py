"""DCAPE's comparisons: the streams are as section 5.1 describes them, every setting can be run, and all give one answer
in a small simulated run."""

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import oracle

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import dcape_experiments
from dcape_experiments import (
    EXPERIMENTS,
    FALLS_S,
    NAMES,
    PARTITIONS,
    REAL,
    SIMULATED,
    SLAVES,
    USED,
    Found,
    Scale,
    compare,
    make_inputs,
    ratios_of,
    settings_of,
    slowed,
    table_of,
)
from mpijoin.config.check import resolve
from mpijoin.config.load import load_job
from mpijoin.config.moves import MOVES
from mpijoin.partitioning.table import PartitionTable

SMALL = Scale("small", 10.0, 200)


@pytest.fixture(params=["plans", "meeting"])
def streams(request, tmp_path):
    """The name of an experiment, and the times in seconds and the keys of its streams, at a small scale."""
    make_inputs(EXPERIMENTS[request.param], 100.0, 30.0, SMALL, 0, tmp_path)
    tables = [pq.read_table(tmp_path / f"{name}.parquet") for name in NAMES]
    return request.param, [(one["ts"].to_numpy() * SMALL.quicker / 1e6, one["key"].to_numpy()) for one in tables]


def test_one_machine_has_half_of_the_load_and_the_others_share_the_rest_evenly(streams):
    """Section 5.2: "one machine in the system gets 50% of the total workload, while the rest of the workload is divided
    evenly among all machines." """
    table = PartitionTable.even(PARTITIONS, tuple(range(1, SLAVES + 1)))
    assert Counter(map(table.owner_of, USED)) == {1: 24, 2: 6, 3: 6, 4: 6, 5: 6}
    _, tables = streams
    distinct, counts = np.unique(np.concatenate([keys for _, keys in tables]), return_counts=True)
    owners = np.array([table.owner_of(oracle.partition(key, PARTITIONS)) for key in distinct.tolist()])
    shares = np.bincount(owners, counts, SLAVES + 1)[1:] / counts.sum()
    assert shares == pytest.approx([0.5] + [0.125] * 4, abs=0.02)


def test_rates_fall_to_a_twentieth_at_the_30th_second(streams):
    """Section 5.2: "The initial input rates are all set to be 100 tuples/sec. ... At the 30th second, the input rates
    of B and C are both changed to 5 tuples/sec." """
    name, tables = streams
    for stream, (times, _) in enumerate(tables):
        assert (np.diff(times) >= 0).all()
        early, late = (times < FALLS_S).sum() / FALLS_S, (times >= FALLS_S).sum() / (times[-1] - FALLS_S)
        early, late = early / SMALL.counted, late / SMALL.counted
        assert early == pytest.approx(100, rel=0.02)
        assert late == pytest.approx(5 if stream and name == "plans" else 100, rel=0.1)


def test_who_seldom_meets_changes(streams):
    name, tables = streams

    def common(one, other, start_s, end_s):
        own, others = (keys[(times >= start_s) & (times < end_s)] for times, keys in (tables[one], tables[other]))
        return np.isin(own, others).mean()

    if name == "plans":
        assert min(common(0, 1, 0, 30), common(1, 2, 0, 30), common(0, 2, 0, 30)) > 0.95
        return
    assert common(0, 1, 0, 60) < 0.1 and common(1, 2, 0, 30) > 0.9
    assert common(1, 2, 30, 120) < 0.1 and common(1, 0, 60, 120) > 0.9


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("scale", [SIMULATED, REAL])
def test_every_setting_is_a_job_that_can_be_run(name, scale, tmp_path):
    rate, window_s = EXPERIMENTS[name].loads[0]
    inputs = make_inputs(EXPERIMENTS[name]._replace(moments_s=(1.0,)), rate / 100, window_s, scale, 0, tmp_path)
    for setting in settings_of(name):
        job = load_job(inputs.job, [*setting.values, slowed(inputs), 'output.path="none"'])
        assert len(resolve(job).streams) == 3 and job.balance.move == (setting.move or "precopy")
        assert (job.balance.policy == "none") == (not setting.move) and job.join.plan == setting.plan
        assert [one.end_ns for one in job.inject.slow] == [scale.us(1.0) * 1000] * SLAVES
        assert job.streams[0].window_ns == scale.us(window_s) * 1000


def test_every_kind_of_move_is_compared():
    assert [one.name for one in settings_of("windows")] == ["no-adapt", *MOVES]
    assert {one.move for one in settings_of("plans")} == {"", *MOVES}


def test_a_small_simulated_comparison_has_a_row_for_each_setting(monkeypatch):
    small = EXPERIMENTS["plans"]._replace(moments_s=(10.0, 20.0), comparison_us=2000.0, falls_s=10.0)
    monkeypatch.setitem(dcape_experiments.EXPERIMENTS, "plans", small)
    found = compare("plans", SIMULATED, 40.0, 10.0, 2, [0])
    assert [one.setting for one in found] == [one.name for one in settings_of("plans")]
    assert len({one.whole for one in found}) == 1 and found[0].moves == 0
    for one in found:
        assert 0 < one.results[0] <= one.results[1] <= one.whole and min(one.in_system) > 0
    head, *rows = table_of(found)
    assert head[:3] == ["plans, simulated", "10 s", "20 s"] and len(rows) == len(found)
    assert rows[0][3] == "1.00" and {len(row) for row in rows} == {len(head)}


def test_ratios_are_to_the_run_without_moves_of_the_same_load():
    def found(rate, setting, results, moves, move_s):
        return Found("windows", "simulated", rate, 15.0, setting, [results], [9.0], 200.0, moves, move_s)

    rows = ratios_of(
        [found(rate, "no-adapt", 100.0, 0.0, 0.0) for rate in (30.0, 40.0)]
        + [found(30.0, move, 150.0, 12.0, 2.5) for move in MOVES]
        + [found(40.0, move, 100.0, 0.0, 0.0) for move in MOVES]
    )
    assert rows[1] == ["30 tuples/s", "15 s", "50%", *["1.50, 12, 2.5 s"] * len(MOVES)]
    assert rows[2] == ["40 tuples/s", "15 s", "50%", *["1.00, 0, -"] * len(MOVES)]
