"""Memory that comes and goes: the pool's budget falls and rises while it is used, and the system gets pages back."""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from join_harness import NEVER, Harness, Stream, check_accounts, groups_of, numbered
from mpijoin.data.batch import read_only
from mpijoin.store import state as st
from mpijoin.store.insert import Fresh
from random_joins import expected, joins, rounds

MB = 1 << 20


def pss_bytes(harness):
    """What the pages of the pool take of the machine's memory, as the system counts it."""
    words = harness.state.words
    first, found, inside = words.ctypes.data, 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if mapped := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            low, high = (int(end, 16) for end in mapped.groups())
            inside = low < first + words.nbytes and first < high
        elif inside and line.startswith("Pss:"):
            found += 1024 * int(line.split()[1])
    return found


def fill(harness, group, octets):
    """Inserts so many bytes of tuples of stream 0 into a group."""
    rows = octets // 24
    tuples = np.stack([np.arange(rows), np.zeros(rows, np.int64), np.arange(rows)], axis=1)
    fresh = Fresh(read_only(tuples), read_only(np.zeros(0, np.uint8)))
    assert harness.operator.insert(groups_of(group), 0, fresh, np.array([[0, rows]])).groups == 1
    harness.operator.settle(groups_of(group))


@pytest.mark.parametrize("block", [4096, 1 << 16, 1000])
def test_the_system_gets_back_what_the_budget_does_not_allow(block):
    harness = Harness([Stream(9), Stream(9)], 8, 160 * MB, block, 1 << 18)
    for group in range(8):
        fill(harness, group, 8 * MB)
    held = harness.operator.memory().held
    assert 64 * MB < held <= pss_bytes(harness)
    harness.operator.limit(held // 2)
    assert harness.operator.memory().free < 0 and held <= pss_bytes(harness), "all pages hold tuples"
    for group in range(6):
        harness.operator.empty(groups_of(group))
    assert pss_bytes(harness) < 0.55 * held, "no more memory is taken than the budget allows"
    harness.operator.limit(held // 8)
    assert pss_bytes(harness) < 1.05 * harness.operator.memory().held < 0.3 * held, "free pages have given back theirs"
    frames = (frame for batch in harness.operator.rows(groups_of(6)) for frame in batch.frames)
    keys = np.sort(np.concatenate([frame.fresh[0].tuples[:, st.KEY].copy() for frame in frames]))
    assert (keys == np.arange(8 * MB // 24)).all(), "what is held beside them is whole"
    harness.operator.limit(160 * MB)
    fill(harness, 0, 30 * MB)
    assert 1.05 * pss_bytes(harness) > harness.operator.memory().held > 0.5 * held


def test_a_pool_that_is_touched_beforehand_gives_back_what_it_has_not_used():
    harness = Harness([Stream(9), Stream(9)], 1, 64 * MB)
    harness.operator.touch(48 * MB)
    assert pss_bytes(harness) >= 48 * MB
    harness.operator.limit(8 * MB)
    assert pss_bytes(harness) < 2 * MB


def test_with_less_than_is_held_nothing_can_be_inserted_before_enough_is_freed():
    harness = Harness([Stream(9), Stream(9)], 2, 100 * 512, 512)
    rows = numbered([(time, time) for time in range(300)])
    harness.round(groups_of(0, 1), rows, [], (NEVER, NEVER))
    held = harness.operator.memory().held
    harness.operator.limit(held - 512)
    assert harness.operator.memory() == (held - 512, held, -512)
    assert harness.insert(groups_of(0), 0, numbered([(400 + time, time) for time in range(100)])) == 0
    harness.operator.limit(1 << 40)
    assert harness.operator.memory().budget == 100 * 512, "no more than it was made with"


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    joins(some.sampled_from([2, 3])),
    some.lists(some.tuples(some.lists(some.integers(0, 60), min_size=5, max_size=5), some.just(0)), max_size=5),
    some.lists(some.integers(0, 60), min_size=1, max_size=8),
    some.sampled_from([64, 4096]),
)
def test_the_answer_does_not_depend_on_what_is_given_back_meanwhile(join, cuts, limits, block):
    streams, rows = join
    harness = Harness(streams, 2, 1 << 22, block, 200)
    for number, (parts, marks) in enumerate(rounds(rows, cuts)):
        harness.operator.limit(1 << 22)
        harness.round_of(groups_of(0, 1), parts, marks)
        harness.operator.limit(limits[number % len(limits)] * block)
        check_accounts(harness, harness.started())
        resident = int(harness.state.pool[st.UNUSED_PAGE] - harness.state.pool[st.RELEASED])
        memory = harness.operator.memory()
        assert resident * block <= max(memory.budget, memory.held)
    assert Counter(tuple(one.row for one in pair) for pair in harness.pairs) == expected(streams, rows)
