"""Runs that are killed at any moment and go on, on other ranks, with another policy and pace, to be killed again: rows,
late files, ledger and certificate are always the oracle's. Among threads and in virtual time;
tests/harness/checkpoint_harness.py says how.
"""

import sys
import tempfile
from collections import Counter

import pytest

from checkpoint_harness import course, live, live_simulated
from engine_harness import compiled_once

LOCAL_SEEDS = (0, 3, 6, 8, 9, 11)  # joins of one, two and four streams; each is some ten kills in a few seconds
SIMULATED_SEEDS = range(10)
# threads of one process take turns so often, or moves would hardly come about in runs as short as these
SWITCH_S = 1e-4


@pytest.fixture(autouse=True, scope="module")
def threads_that_take_turns():
    with compiled_once():
        before_s = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        yield
        sys.setswitchinterval(before_s)


def seen_in(seeds, live):
    seen = Counter()
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            try:
                seen += course(seed, folder, live)
            except BaseException as error:
                error.add_note(f"seed {seed} of {live.__name__}")
                raise
    return seen


@pytest.fixture(scope="module")
def local():
    return seen_in(LOCAL_SEEDS, live)


@pytest.fixture(scope="module")
def simulated():
    return seen_in(SIMULATED_SEEDS, live_simulated)


@pytest.mark.parametrize("transport", ["local", "simulated"])
def test_killed_runs_give_the_oracles_answer(transport, request):
    """The checks are inside; here is that there was something to check."""
    seen = request.getfixturevalue(transport)
    assert seen["kills"] > 25 and seen["resumed"] > 15 and seen["resumed again"] > 0, seen
    things = ("collect", "parquet", "count", "late", "results", "moves", "paced", "whole", "stopped by a signal")
    assert min(seen[name] for name in things) > 0, seen
    assert sum(seen[f"{count} streams"] > 0 for count in (1, 2, 3, 4)) > 2, seen


def test_kills_came_inside_checkpoints_moves_and_the_commit(local):
    inside = (
        "torn state",
        "state written",
        "before sync",
        "before rename state",
        "before rename manifest",
        "before unlink state",
    )
    assert sum(local[name] for name in inside) > 2 and local["half-written"] > 4, local
    assert min(local[name] for name in ("late parts", "kills of a resumed run")) > 0, local
    assert sum(local[name] for name in ("move", "move step", "committing", "done")) > 0, local


def test_no_checkpoint_fails_on_a_sound_disk(local, simulated):
    assert local["failed checkpoints"] == simulated["failed checkpoints"] == 0
