"""What waits while a group moves comes part by part, so that little memory is enough for it."""

from unittest import mock

import pytest

import mpijoin.coordinator.start
from mpijoin.config.check import resolve
from mpijoin.config.load import load_job
from mpijoin.errors import MemoryBudgetError
from mpijoin.partitioning import buffers
from mpijoin.simulate.cluster import Manner, simulate
from mpijoin.simulate.costs import Costs
from mpijoin.slave import moving
from random_policy import random_policy

ROWS, WINDOWS = 60_000, 20  # of each stream
COSTS = Costs(
    comparison_ns=0.1,
    tuple_ns=200.0,
    message_ns=1e5,
    call_ns=1e4,
    latency_ns=1e5,
    bandwidth_bytes_per_s=1e9,
    scattered_ns=20.0,
)


def run(memory, seed, producers):
    """Runs two slaves, one of which is slow, so that windows of input wait for it. Returns the summary."""
    stream = {"kind": "synthetic", "rate": ROWS / WINDOWS, "bias": 0.5, "tuples": ROWS, "window": "1 s"}
    cluster = {"partitions": 12, "producers": producers, "reorganization_epoch": "4 s", "distribution_epoch": "250 ms"}
    job = load_job(
        {
            "left": {**stream, "seed": 1},
            "right": {**stream, "seed": 2},
            "cluster": cluster,
            "balance": {"policy": "none" if seed is None else "balance"},
            "memory": {"limit": memory},
            "output": {"results": "count"},
            "inject": {"slow": [{"rank": producers, "share": 0.2}]},
        }
    )
    schema = resolve(job._replace(output=job.output._replace(path="none")))
    with mock.patch.object(mpijoin.coordinator.start, "make_policy", lambda *_: random_policy(seed, spreads=False)):
        return simulate(job, schema, 2, Manner(COSTS, modelled=False)).summary


@pytest.fixture(scope="module")
def certificate():
    return run("64 MiB", None, 1)["certificate"]


# Of each of these runs, the old windows of both slaves take less than all of the memory.
CASES = [(1, 1), (2, 1), (5, 1), (3, 2)]


@pytest.mark.parametrize("seed, producers", CASES)
def test_a_move_needs_no_memory_for_all_the_windows_that_waited(certificate, seed, producers):
    summary = run("300 KiB", seed, producers)
    assert summary["certificate"] == certificate and summary["moves"] > 4


@pytest.mark.parametrize("place", [moving, buffers])
def test_it_would_if_all_came_as_one(monkeypatch, place):
    monkeypatch.setattr(place, "item_bytes", lambda pieces, memory_bytes: 1 << 40)
    short = 0
    for seed, producers in CASES:
        try:
            run("300 KiB", seed, producers)
        except MemoryBudgetError:
            short += 1
    assert short > 0
