"""The whole engine with the real join in virtual time: whatever the links, the load, the moves and the trouble, the pairs are
the oracle's, the ledger balances and buffers keep to their bounds. `scripts/soak_simulated.py` runs thousands of seeds."""

import tempfile
from collections import Counter
from dataclasses import replace

import pytest

from mpijoin.transport.simulated import Disturbance
from simulated_engine import run_scenario, scenario

SEEDS = 60


def run(made):
    with tempfile.TemporaryDirectory() as folder:
        return run_scenario(made, folder)


@pytest.fixture(scope="module")
def courses():
    """Seed -> how it went; the checks are inside."""
    return {seed: run(scenario(seed)) for seed in range(SEEDS)}


def test_every_seed_gives_the_oracles_answer(courses):
    assert len(courses) == SEEDS


def test_the_seeds_cover_what_they_are_for(courses):
    seen = Counter()
    for course in courses.values():
        summary = course.summary
        seen["moves"] += summary["moves"]
        seen["refused"] += summary["moves_refused"]
        seen["paused"] += bool(summary["held_back_by"])
        seen["paced"] += summary["overload"] is not None
        seen["delays"] += summary["delay_s"] is not None
        seen["idle slaves"] += summary["declustering"]["min"] < summary["slaves"]
    assert seen["moves"] > 100 and min(seen.values()) > 0, seen


def test_one_seed_is_one_course_of_events(courses):
    for seed in (0, 7, 20):
        assert run(scenario(seed)).trace == courses[seed].trace


def test_the_seed_of_the_trouble_changes_the_course_and_not_the_answer(courses):
    made = next(made for made in map(scenario, range(SEEDS)) if made.manner.disturbance.delay_s and made.slaves > 1)
    other = replace(made, manner=replace(made.manner, disturbance=made.manner.disturbance._replace(seed=12345)))
    assert run(other).trace != courses[made.seed].trace
    assert run(other).summary["certificate"] == courses[made.seed].summary["certificate"]


def test_bytes_on_the_wire_make_no_difference_to_the_answer(courses):
    for seed in (1, 2, 3):
        made = scenario(seed)
        other = replace(made, manner=replace(made.manner, encodes=not made.manner.encodes, disturbance=Disturbance()))
        assert run(other).summary["certificate"] == courses[seed].summary["certificate"]
