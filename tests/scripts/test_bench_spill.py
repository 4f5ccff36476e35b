"""The benchmark of small budgets: what its cases show, and that others get no more memory than they are given."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from bench_spill import Bench, Case, cases_of, row, targets
from peers.catalogue import PEERS
from peers.workloads import make

GB = 1 << 30


def case(spill, percent, wall_s, trouble="", **figures):
    """A case of workload A with one run on one slave."""
    limit, program = percent << 20 or GB, "mpijoin" if spill else "DuckDB"
    own = Case("A", program, spill, percent, limit, pss_bytes={0: 1 << 20, 1: 2 << 20}, trouble=trouble)
    if not trouble:
        slave = {"last_runtime_result_s": 0.5, **figures}
        own.runs.append({"wall_s": wall_s, "results": 100, "per_slave": {"1": slave}})
    return own


def test_targets_are_about_time_the_disk_the_bound_and_the_others():
    written = {"spilled_bytes": 1_000_000, "spill_s": 0.01, "write_s": 0.02}
    cases = [
        case("off", 0, 1.0),
        case("generations", 50, 1.5, **written),
        case("generations", 5, 4.5),
        case("rotate", 5, 1.0, trouble="exit 3"),
        case("rotate", 20, 1.0, spilled_bytes=500_000, read_back_bytes=500_000, spill_s=0.01, write_s=0.005),
        case("", 50, 2.0),
        case("", 5, 3.0),
    ]
    cases[2].over_s = 3
    found = [(one.what.removeprefix("A "), one.state) for one in targets(cases, disk=150_000_000)]
    assert found == [
        ("50 % generations: times that in memory", "met"),
        ("50 % generations: share of what dd writes, in writing", "MISSED"),
        ("50 % generations: share of what dd writes, in all of spilling", "met"),
        ("50 % generations: seconds over the bound of memory", "met"),
        ("50 % generations: seconds, beside the others' best", "met"),
        ("5 % generations: times that in memory", "MISSED"),
        ("5 % generations: seconds over the bound of memory", "MISSED"),
        ("5 % generations: seconds, beside the others' best", "MISSED"),
        ("5 % rotate", "MISSED"),
        ("20 % rotate: share of what dd writes, in writing", "met"),
        ("20 % rotate: share of what dd writes, in all of spilling", "met"),
        ("20 % rotate: seconds over the bound of memory", "met"),
    ]


def test_a_row_has_the_figures_of_the_fastest_run_or_says_what_went_wrong():
    memory = case("off", 0, 2.0)
    spilled = case("rotate", 20, 3.0, spilled_bytes=5_000_000, cleanup_results=40, cleanup_s=0.25)
    spilled.runs.insert(0, {**spilled.runs[0], "wall_s": 9.0})
    cells = row(spilled, memory)
    assert cells[:6] == ["20 %", "mpijoin, rotate", "21.0", "3.00", "1.50", "0.50"]
    assert cells[7:10] == ["0.25", "40.0%", "5.0"] and cells[-2:] == ["2 (173)", "0"]
    assert row(case("rotate", 20, 0, trouble="exit 3: no"), memory)[3] == "exit 3: no"
    assert row(case("", 20, 4.0), memory)[:5] == ["20 %", "DuckDB", "21.0", "4.00", "2.00"]


@pytest.fixture
def bench(tmp_path):
    options = argparse.Namespace(
        cores=len(os.sched_getaffinity(0)), slaves=2, rounds=1, limit=120.0, budgets=[50], forms=["generations"],
        peers=["duckdb-plain"], environments=tmp_path,
    )  # fmt: skip
    return Bench(make("A", tmp_path, tmp_path, 1000), options, tmp_path)


def test_budgets_are_shares_of_what_the_run_in_memory_took(bench):
    memory = case("off", 0, 1.0, memory_bytes_max=10_000_000)
    memory.runs[0]["per_slave"]["2"] = {"memory_bytes_max": 20_000_000}
    found = [(one.program, one.spill, one.limit_bytes) for _, one in cases_of(bench, memory)]
    assert found == [("mpijoin", "generations", 10_000_000), ("DuckDB, plain", "", 20_000_000)]


@pytest.mark.parametrize("memory, answers", [(GB, True), (1 << 20, False)])
def test_another_program_gets_its_memory_and_a_refusal_is_told(bench, monkeypatch, memory, answers):
    monkeypatch.setattr("peers.catalogue.environment", lambda name, home: sys.executable)
    peer = next(one for one in PEERS if one.name == "duckdb-plain")
    own = Case("A", peer.title, "", 50, memory)
    bench.run_other(peer, own)
    assert bool(own.best) == answers and ("Out of Memory" in own.trouble) != answers


@pytest.mark.mpi
def test_mpijoin_is_sampled_rank_by_rank_and_its_answer_checked(bench):
    own = Case("A", "mpijoin", "off", 0, GB)
    bench.run(own)
    assert not own.trouble and own.best["results"] == bench.workload.answer.results
    assert sorted(own.pss_bytes) == [0, 1, 2] and min(own.pss_bytes.values()) > 1 << 20 and own.over_s == 0
    short = Case("A", "mpijoin", "off", 1, 64 << 10)
    bench.run(short)
    assert short.best is None and short.trouble.startswith("exit 3: mpijoin: ")
