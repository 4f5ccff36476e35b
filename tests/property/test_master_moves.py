"""The master with moves at every reorganization epoch, whatever slaves and network do: no row is lost, doubled or out
of order, no slave is told that rows are complete which it lacks, every move ends, and the end comes once and last."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from master_harness import Cluster
from mpijoin.coordinator import events
from mpijoin.coordinator.reorganization import Reorganization
from mpijoin.partitioning.table import PartitionTable
from mpijoin.producer import events as producing
from pacings import new_pacing
from random_policy import random_policy


def random_cluster(chance, paced):
    slaves = tuple(range(1, chance.randint(1, 4) + 1))
    active = slaves[: chance.randint(1, len(slaves))]
    table = PartitionTable.even(chance.randint(1, 9), active)
    return Cluster(
        chance,
        table,
        slaves,
        refusals=chance.choice([0.0, 0.1, 0.5]),
        buffer_bytes=chance.choice([100, 1000, 1 << 20]),
        master_buffer_bytes=chance.choice([500, 5000, 1 << 20]),
        subgroups=chance.randint(1, 4),
        pacing=new_pacing() if paced else None,
        reorganization=Reorganization(random_policy(chance.randrange(1 << 30), spills=True), chance.randint(1, 6), 1),
    )


def random_parts(chance, partitions):
    """Ticks in one or several parts each, some of them empty: (groups, tick, completes)."""
    parts = []
    for tick in range(chance.choice([0, 1, 5, 40])):
        count = chance.choice([1, 1, 1, 3])
        for part in range(count):
            rows = chance.choice([0, 1, 6])
            parts.append(([chance.randrange(partitions) for _ in range(rows)], tick, part == count - 1))
    return parts


def run(cluster, parts):
    """Until nothing can happen any more."""
    parts = list(reversed(parts))
    eagerness = cluster.chance.choice([0.05, 0.3, 0.9])
    while True:
        acts = cluster.possible()
        if cluster.core.wants_input and (not acts or cluster.chance.random() < eagerness):
            if parts:
                cluster.ingest(*parts.pop())
            else:
                cluster.end()
        elif acts:
            act, *words = cluster.chance.choice(acts)
            act(*words)
        else:
            return


@settings(max_examples=400, deadline=None, derandomize=True)
@given(some.integers(0, 1 << 40), some.booleans())
def test_whatever_happens_every_row_is_joined_once_in_order_and_all_ends(seed, paced):
    chance = random.Random(seed)
    cluster = random_cluster(chance, paced)
    run(cluster, random_parts(chance, cluster.table.partitions))
    assert cluster.complete, "nothing can happen any more, and the run is not complete"
    for group in range(cluster.table.partitions):
        assert cluster.joined_rows[group] == cluster.sent_rows[group]
    assert cluster.buffers.held_bytes == 0
    check_ends(cluster.told)
    check_moves(cluster.told)


def check_ends(told):
    last = Counter(action.slave for action in told if isinstance(action, producing.Serve) and action.last)
    assert set(last.values()) <= {1} and len(last) == len(
        {action.slave for action in told if isinstance(action, producing.Serve)}
    )
    assert sum(isinstance(action, producing.CloseInput) for action in told) == 1


def check_moves(told):
    asked = [action.relocation for action in told if isinstance(action, events.Compute)]
    assert asked == list(range(len(asked)))
    begun = [action.move for action in told if isinstance(action, producing.Command) and action.step == "ship"]
    ended = [action.move for action in told if isinstance(action, events.Moved)]
    assert sorted(begun) == sorted(ended)
    opened = set()
    for action in told:
        match action:
            case events.Decided():
                assert not opened, "a decision while moves are open"
            case producing.Command(move, "ship"):
                opened.add(move)
            case events.Moved(move):
                opened.remove(move)
            case producing.CloseInput():
                assert not opened, "the end while a move is open"


@pytest.mark.parametrize("paced", [False, True])
def test_the_random_runs_see_every_outcome_and_every_order(paced):
    seen = Counter()
    for seed in range(60):
        chance = random.Random(seed)
        cluster = random_cluster(chance, paced)
        run(cluster, random_parts(chance, cluster.table.partitions))
        seen.update(action.outcome for action in cluster.told if isinstance(action, events.Moved))
        seen.update(action.step for action in cluster.told if isinstance(action, producing.Command))
        seen.update(type(action).__name__ for action in cluster.told)
    outcomes, orders = ("moved", "refused", "cancelled"), ("ship", "freeze", "drop", "restore", "Compute", "Spill")
    assert all(seen[name] >= 5 for name in (*outcomes, *orders)), seen
