"""Policy "balance" in the whole simulated engine: what made it oscillate, and what it must not do to stop that."""

from collections import Counter
from statistics import median

import pyarrow.parquet as pq
import pytest

from mpijoin.config.check import resolve
from mpijoin.config.load import load_job
from mpijoin.simulate.cluster import Manner, simulate
from mpijoin.simulate.costs import load_costs
from mpijoin.transport.simulated import Disturbance

PERIOD_S, EPOCH_S = 2, 0.4
TENTH_S = 10 * PERIOD_S


def run(folder, slaves, seconds, rate, stall_s=0.0, seed=0, **sections):
    """A paced run on the paper's machines; its summary, and its moves as rows."""
    stream = {
        "kind": "synthetic",
        "rate": rate,
        "bias": 0.5,
        "duration": f"{seconds} s",
        "window": "4 s",
        "payload_bytes": 40,
    }
    stream |= {"changes": sections.pop("changes", [])}
    cluster = {"distribution_epoch": f"{EPOCH_S} s", "reorganization_epoch": f"{PERIOD_S} s", **sections.pop("cluster")}
    job = load_job({
        "left": {**stream, "seed": 1},
        "right": {**stream, "seed": 2},
        "cluster": cluster,
        "balance": {"policy": "balance"},
        "run": {"speed": 1, "seed": seed},
        "output": {"path": str(folder / "run")},
        **sections,
    })  # fmt: skip
    manner = Manner(load_costs("wsj_2005"), disturbance=Disturbance(seed, 0.0, stall_s, 20 * stall_s))
    summary = simulate(job, resolve(job), slaves, manner).summary
    moves = folder / "run" / "metrics" / "moves.parquet"
    return summary, pq.read_table(moves).to_pylist() if moves.exists() else []


def late(moves):
    """The whole groups that have moved late. A slow slave may share its only group, but shall not take it back."""
    assert "gather" not in {move["kind"] for move in moves}
    whole = [move for move in moves if move["kind"] != "spread"]
    return [(move["group"], move["supplier"], move["consumer"]) for move in whole if move["begun_us"] > 1e6 * TENTH_S]


def test_one_group_more_than_slaves_does_not_go_round(tmp_path):
    summary, _ = run(tmp_path, 2, 60, 2000, 0.05, cluster={"partitions": 3})
    assert summary["moves"] == 0


@pytest.mark.parametrize("seed", range(3))
def test_slaves_that_are_alike_exchange_nothing_for_noise(tmp_path, seed):
    """Each stands still for 0.3 s every 6 s in the mean."""
    _, moves = run(tmp_path, 4, 50, 3000, 0.3, seed, cluster={"partitions": 60})
    assert moves == []


@pytest.mark.parametrize(
    "seed, slaves, partitions, slow", [(1, 3, 4, {}), (2, 3, 31, {2: 0.5}), (3, 5, 6, {1: 0.33}), (4, 2, 5, {})]
)
def test_under_a_steady_load_nothing_moves_after_the_tenth_period(tmp_path, seed, slaves, partitions, slow):
    _, moves = run(
        tmp_path, slaves, 50, 900 * slaves, 0.1, seed, cluster={"partitions": partitions}, inject={"slow": slow}
    )
    assert late(moves) == []


def test_a_load_that_becomes_fivefold_finds_slaves_at_once_and_none_leaves(tmp_path):
    cluster = {"partitions": 60, "slaves_min": 1}
    summary, moves = run(tmp_path, 8, 50, 2000, changes=[{"from": "30 s", "rate": 10_000}], cluster=cluster)
    assert summary["declustering"]["max"] >= 5 and summary["overload"]["behind_s_max"] < 1.5 * PERIOD_S
    assert {move["supplier"] for move in moves} == {1}  # nobody gives back what it got
    assert all(30e6 <= move["begun_us"] <= 38e6 for move in moves)


def test_after_a_slowdown_at_half_load_the_mean_delay_stays_below_one_and_a_half_times_the_normal(tmp_path):
    """One of four slaves falls to a third of its speed; figures per reorganization epoch, as in
    scripts/bench_recovery.py."""
    slow = [{"rank": 2, "share": 0.333, "from": "12 s"}]
    _summary, moves = run(
        tmp_path, 4, 34, 4800, cluster={"partitions": 60, "distribution_epoch": "200 ms"}, inject={"slow": slow}
    )
    counts, sums_us = Counter(), Counter()
    for file in (tmp_path / "run" / "metrics").glob("rank-*.parquet"):
        for row in pq.read_table(file, columns=["role", "end_us", "delay_count", "delay_sum_us"]).to_pylist():
            if row["role"] == "slave":
                period = int(row["end_us"] // (1e6 * PERIOD_S))
                counts[period] += row["delay_count"]
                sums_us[period] += row["delay_sum_us"]
    means_us = {period: sums_us[period] / count for period, count in counts.items() if count}
    normal_us = median(means_us[period] for period in range(2, 6))
    assert max(means_us[period] for period in range(6, 17)) <= 1.5 * normal_us
    assert 7 <= len(moves) <= 14 and {move["supplier"] for move in moves} == {2}


def test_many_small_groups_leave_a_slow_slave_before_it_is_far_behind(tmp_path):
    summary, moves = run(tmp_path, 3, 30, 2500, cluster={"partitions": 900}, inject={"slow": {1: 0.3}})
    assert summary["overload"]["behind_s_max"] < 2 * PERIOD_S and summary["overload"]["behind_s_end"] < 3 * EPOCH_S
    assert len(moves) < 600 and len(late(moves)) < 30


def test_an_only_group_leaves_a_slow_slave_for_an_idle_one(tmp_path):
    cluster = {"partitions": 2, "slaves_min": 2}
    summary, moves = run(tmp_path, 3, 40, 1500, cluster=cluster, inject={"slow": {1: 0.2}})
    assert [(move["supplier"], move["consumer"]) for move in moves] == [(1, 3)]
    assert summary["overload"]["behind_s_end"] < EPOCH_S
