"""What the scripts on many producers and on Flux's policies make of what they measured."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import bench_ranks
from bench_scaling import costs_of, predicted
from flux_experiments import LEFT, X_LABELS, Found, cases, job_of, points, rotating
from mpijoin.config.inject import holds_at


def test_at_every_moment_the_rotating_load_is_on_one_slave_and_goes_round():
    """Flux, section 4: "a load that goes round-robin on the machines, lasting 0.5 sec. on each machine" """
    slow = job_of(next(cases("skew", 4, True)), 100, rotating(4, 10), "run").inject.slow
    on = [[one.rank for one in slow if holds_at(one, second * 1e9)] for second in (0.1, 0.6, 1.1, 1.9, 2.1, 9.9)]
    assert on == [[1], [2], [3], [4], [1], [4]] and {one.share for one in slow} == {LEFT}


@pytest.mark.parametrize("experiment", X_LABELS)
def test_every_experiment_is_compared_with_an_unloaded_run(experiment):
    rates = [100.0] + [50.0] * 20
    found = [Found(case, "simulated", rate, 0, [50.0] * 4) for case, rate in zip(cases(experiment, 4, True), rates)]
    lines = list(points(found))
    assert lines and found[0].case.line == "unloaded" and not found[0].case.slow
    assert {y for line, _, _, y in lines if line != "unloaded"} == {0.5}


def test_costs_are_those_of_a_million_tuples_by_role():
    streams = {"left": {"read": 1_000_000}, "right": {"read": 3_000_000}}
    slaves = {"1": {"cpu_s": 0.1}, "2": {"cpu_s": 0.1}}
    summary = {"streams": streams, "per_producer": {"0": {"cpu_s": 0.2}}, "per_slave": slaves}
    assert costs_of(summary) == {"producer": 0.05, "slave": 0.05, "all": 0.1}
    cost = {"producer": 0.04, "slave": 0.08}
    assert predicted(cost, 1, 8, 1e12) == pytest.approx(25) and predicted(cost, 8, 2, 1e12) == pytest.approx(25)
    assert predicted(cost, 4, 8, 1e6) == pytest.approx(1e6 * 4 / 24 / 1e6), "a slow link decides"


def test_ranks_are_compared_with_the_first_case_and_by_their_cores():
    first = bench_ranks.Case("2, 1 producing", 2, dict, [2.0, 3.0], [3.0, 2.0])
    other = bench_ranks.Case("8, 4 producing", 8, dict, [1.0, 0.8], [4.0, 5.0])
    head, *rows = bench_ranks.table_of([first, other], 1_000_000)
    assert rows[0] == ("2, 1 producing", "2", "2.5", "0.5", "1", "1.00", "2.000")
    assert rows[1] == ("8, 4 producing", "0.8", "0.9", "1.25", "2.5", "0.62", "4.000") and len(head) == len(rows[1])


def test_every_number_of_producers_is_tried_once_and_leaves_slaves():
    assert [bench_ranks.producers_of(ranks) for ranks in (2, 3, 4, 16)] == [
        [1], [1, "auto"], [1, 2, "auto"], [1, 4, 8, "auto"]
    ]


def test_a_rank_gets_a_core_of_its_own_before_two_share_one(monkeypatch):
    siblings = {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}
    monkeypatch.setattr(Path, "read_text", lambda path: siblings[int(path.parts[-3].removeprefix("cpu"))])
    assert bench_ranks.distinct_cores([0, 1, 2, 3]) == [0, 1, 2, 3]
    assert bench_ranks.distinct_cores([0, 2, 3]) == [0, 3, 2]
