"""The whole engine with the real join in virtual time: whatever the links, the load, the moves and the trouble, the
pairs are the oracle's, the ledger balances, every move closes and memory keeps to its bounds.
`scripts/soak_simulated.py` runs thousands of seeds."""

import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from mpijoin.transport.simulated import Disturbance
from simulated_engine import THINGS, drawn, run_scenario, scenario

# Of the first 240, these do most for their time: half of what the first 80 take, and they see no less of most THINGS.
SEEDS = (
    5, 9, 11, 15, 18, 20, 27, 29, 30, 31, 32, 34, 35, 40, 43, 44, 45, 48, 54, 56, 58, 59, 61, 62, 63, 66, 73, 74, 79,
    80, 81, 83, 89, 100, 108, 109, 115, 116, 121, 123, 127, 140, 145, 146, 149, 154, 155, 164, 172, 174, 175, 176, 177,
    181, 182, 183, 184, 187, 189, 192, 194, 196, 202, 206, 216, 218, 220, 222, 224, 230, 238,
)  # fmt: skip
SOAK = Path(__file__).parents[2] / "scripts" / "soak_simulated.py"


def run(made):
    with tempfile.TemporaryDirectory() as folder:
        return run_scenario(made, folder)


@pytest.fixture(scope="module")
def courses():
    """Seed -> how it went; the checks are inside."""
    return {seed: run(scenario(seed)) for seed in SEEDS}


@pytest.fixture
def finished(courses):
    """Seeds whose run did not end for want of memory."""
    return [seed for seed, course in courses.items() if course.summary]


def test_every_seed_gives_the_oracles_answer(finished):
    assert len(finished) > len(SEEDS) * 0.8


def test_the_seeds_cover_what_they_are_for(courses):
    seen = sum((course.seen for course in courses.values()), Counter())
    assert seen["moved"] > 75 and min(seen[name] for name in THINGS) > 0, seen


@pytest.mark.parametrize("seed", [821, 1973])
def test_groups_that_move_as_a_whole_take_the_states_of_their_trees_along(seed):
    course = run(scenario(seed))
    assert course.summary and course.seen["moves at once"] >= course.seen["states that travel"] > 1


def test_a_slice_does_not_wait_for_a_group_that_is_to_go_after_it():
    """It waited for ever, for a group that was ordered to go, and that alone takes all memory."""
    assert not run(drawn(647)).summary


def test_one_seed_is_one_course_of_events(courses):
    for seed in SEEDS[::10]:
        assert run(scenario(seed)).trace == courses[seed].trace


def test_the_seed_of_the_trouble_changes_the_course_and_not_the_answer(courses, finished):
    made = next(made for made in map(scenario, finished) if made.manner.disturbance.delay_s and made.slaves > 1)
    other = replace(made, manner=replace(made.manner, disturbance=made.manner.disturbance._replace(seed=12345)))
    assert run(other).trace != courses[made.seed].trace
    assert run(other).summary["certificate"] == courses[made.seed].summary["certificate"]


def test_bytes_on_the_wire_make_no_difference_to_the_answer(courses, finished):
    for seed in finished[:3]:
        made = scenario(seed)
        other = replace(made, manner=replace(made.manner, encodes=not made.manner.encodes, disturbance=Disturbance()))
        assert run(other).summary["certificate"] == courses[seed].summary["certificate"]


def test_the_soak_names_the_first_seed_that_fails(monkeypatch, capsys):
    monkeypatch.syspath_prepend(SOAK.parent)
    import soak_simulated

    def broken(seed):
        if seed >= 3:
            raise AssertionError("a pair is lost")
        return soak_simulated.Course({}, 0, Counter())

    monkeypatch.setattr(soak_simulated, "run", broken)
    assert soak_simulated.soak(range(1, 9), 1) == 1
    told = capsys.readouterr().out
    assert "AssertionError: a pair is lost" in told and told.endswith("soak_simulated.py --seeds 3:4\n")
    monkeypatch.setattr(soak_simulated, "run", lambda seed: soak_simulated.Course({}, 0, Counter(moved=1)))
    assert soak_simulated.soak(range(199), 1) == 0
    assert soak_simulated.soak(range(200), 1) == 1
    assert "these proved nothing, for they never happened: refused, cancelled" in capsys.readouterr().out
    monkeypatch.setattr(soak_simulated, "run", lambda seed: soak_simulated.Course({}, object(), Counter()))
    assert soak_simulated.soak(range(50, 51), 1) == 1


def test_the_soak_runs_in_several_processes():
    command = [sys.executable, SOAK, "--seeds", "5:9", "--processes", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "4 of 4 seeds" in done.stdout, done.stdout + done.stderr
    wrong = subprocess.run([sys.executable, SOAK, "--seeds", "9:5"], capture_output=True, text=True, timeout=60)
    assert wrong.returncode == 2 and "got '9:5', wanted FIRST:LAST" in wrong.stderr
