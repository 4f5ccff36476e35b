"""Runs with groups that are spread, killed at any moment: each checkpoint finds every group with one slave, and what
goes on from it gives the oracle's answer."""

import tempfile
from collections import Counter

import pytest

import checkpoint_harness
from checkpoint_harness import course, live, live_simulated
from engine_harness import compiled_once
from mpijoin.coordinator.core import CoordinatorCore

# In these, checkpoints are cut while groups are spread, which are gathered for them.
LOCAL_SEEDS = (4,)
SIMULATED_SEEDS = (4, 14, 25)


@pytest.mark.parametrize(
    "live, seeds", [(live, LOCAL_SEEDS), (live_simulated, SIMULATED_SEEDS)], ids=["local", "simulated"]
)
def test_groups_are_gathered_for_a_checkpoint(live, seeds, monkeypatch):
    gathered, gather = Counter(), CoordinatorCore._gather

    def counted(core, wanted):
        gathered[core._saves.wanted] += len(wanted)
        return gather(core, wanted)

    monkeypatch.setattr(CoordinatorCore, "_gather", counted)
    monkeypatch.setattr(checkpoint_harness, "SPILLS", ("off",))
    monkeypatch.setattr(checkpoint_harness, "TYPED_SHARE", 0.0)
    monkeypatch.setattr(checkpoint_harness, "QUERIES_SHARE", 0.0)
    seen = Counter()
    with compiled_once():
        for seed in seeds:
            with tempfile.TemporaryDirectory() as folder:
                seen += course(seed, folder, live)
    assert seen["resumed"] > 5 and gathered[True] > 2, (seen, gathered)
