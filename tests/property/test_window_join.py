"""WindowJoin finds what the oracle finds, whatever the batches, partitions, theta, block size, budget and result
buffer."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import oracle
from join_harness import EVER, NEVER, Harness, Stream, check_accounts, groups_of, numbered
from mpijoin.errors import MemoryBudgetError
from mpijoin.join import compare
from mpijoin.join.window_join import window_join
from mpijoin.operators.base import Keep, Out, Progress
from mpijoin.store import state as st
from random_joins import CUTS, SETUPS, Setup, expected, joins, rounds

PAIRS = joins(some.just(2))


def run(setup, streams, rows, cuts, keep=Keep.SLOT_IDS):
    harness = Harness(streams, setup.partitions, 1 << 23, setup.block, setup.theta, setup.result_buffer, keep)
    for parts, watermarks in rounds(rows, cuts):
        for first in range(0, setup.partitions, setup.slice_groups):
            groups = groups_of(*range(first, min(first + setup.slice_groups, setup.partitions)))
            harness.round_of(groups, parts, watermarks, setup.budget, setup.pieces)
    return harness


@settings(max_examples=500, deadline=None, derandomize=True)
@given(SETUPS, PAIRS, CUTS)
def test_the_result_is_the_oracles_and_every_tuple_expires(setup, join, cuts):
    streams, (left, right) = join
    harness = run(setup, streams, (left, right), cuts)
    assert harness.row_pairs() == expected(streams, (left, right))
    assert harness.out.found == len(harness.pairs)
    assert f"{harness.out.certificate:016x}" == oracle.certificate(harness.row_pairs().elements())
    assert all(a == left[a.row] and b == right[b.row] for a, b in harness.pairs)
    counters, walked = harness.state.counters, check_accounts(harness, range(setup.partitions))
    for stream, rows in enumerate((left, right)):
        held = [row for one in walked.values() for row in one.tuples[stream]]
        assert counters[st.INSERTED + stream] == len(rows) == counters[st.EXPIRED + stream] + len(held)
        # Only what is too near the end of time to be ever out of reach may be left, or shares a block with such a
        # tuple, or waits for ever.
        assert (
            not held
            or max(row.time for row in rows) >= EVER - streams[stream].window
            or streams[stream].window == st.FOREVER
        )
        assert len(held) == len(rows) or streams[stream].window != st.FOREVER


@settings(max_examples=100, deadline=None, derandomize=True)
@given(SETUPS, SETUPS, PAIRS, CUTS, CUTS)
def test_no_setting_and_no_cut_changes_the_result(one, other, join, cuts, other_cuts):
    found = [run(setup, *join, own_cuts) for setup, own_cuts in ((one, cuts), (other, other_cuts))]
    assert found[0].row_pairs() == found[1].row_pairs()
    assert oracle.certificate(found[0].row_pairs().elements()) == oracle.certificate(found[1].row_pairs().elements())


@settings(max_examples=200, deadline=None, derandomize=True)
@given(SETUPS, PAIRS, CUTS, some.sampled_from([Keep.NOTHING, Keep.LATEST_TIMES]))
def test_results_that_are_not_kept_are_counted_and_certified_all_the_same(setup, join, cuts, keep):
    _, (left, right) = join
    harness, wanted = run(setup, *join, cuts, keep), expected(*join)
    assert harness.pairs == []
    assert harness.out.found == wanted.total()
    assert f"{harness.out.certificate:016x}" == oracle.certificate(wanted.elements())
    times = Counter(max(left[a].time, right[b].time) for a, b in wanted.elements())
    assert harness.later_times == (times if keep is Keep.LATEST_TIMES else Counter())


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    SETUPS,
    some.tuples(*[some.integers(0, 30)] * 2),
    some.integers(0, 2**32 - 1),
    some.integers(1, 3),
    some.booleans(),
    CUTS,
)
def test_few_keys_and_short_windows_are_joined_by_time(setup, windows, seed, keys, disorder, cuts):
    """Blocks in order of time, but for a few rows, that span many windows and hold equal keys."""
    random, streams = np.random.default_rng(seed), [Stream(window) for window in windows]
    sides = []
    for _ in range(2):
        times = np.cumsum(random.integers(0, 40, 400))
        if disorder:
            times[random.integers(0, 400, 3)] -= 100
        sides.append(numbered(list(zip(times.tolist(), random.integers(0, keys, 400).tolist()))))
    harness = run(setup, streams, sides, cuts)
    assert harness.row_pairs() == expected(streams, sides)


def test_a_block_that_spans_many_windows_is_not_compared_whole():
    streams = [Stream(5), Stream(5)]
    left, right = (numbered([(10 * i + shift, 1) for i in range(150)]) for shift in (0, 3))
    harness = run(Setup(block=4096), streams, (left, right), [])
    assert len(harness.pairs) == 150
    assert harness.state.counters[st.COMPARED] < 1000, "of 150 x 150"


@pytest.mark.parametrize("windows", [(0, 0), (0, 5), (5, 0), (3, 9)])
def test_both_ends_of_the_windows_are_closed(windows):
    streams = [Stream(window) for window in windows]
    left = numbered([(100, 1)])
    right = numbered([(time, 1) for time in range(80, 120)])
    found = run(Setup(), streams, (left, right), [])
    times = sorted(b.time for _, b in found.pairs)
    assert times == list(range(100 - windows[1], 100 + windows[0] + 1))


@pytest.mark.parametrize("size", [64, 65, 300, 5000])
def test_a_blob_may_run_over_several_pages_and_moves_whole(size):
    stream = Stream(1000, 1, True)
    rows = numbered([(time, time % 16) for time in range(64)], stream, [size, 0, 3])
    harness = Harness([stream, stream], block=64, theta=500)
    for low in range(0, 64, 16):
        harness.round(groups_of(0), rows[low : low + 16], [], (NEVER, NEVER))
    info = harness.operator.info(groups_of(0))
    assert info.splits[0] > 2
    assert sorted(check_accounts(harness, [0])[0].tuples[0]) == rows
    harness.round(groups_of(0), [], rows, (NEVER, NEVER))
    assert harness.row_pairs() == expected([stream, stream], [rows, rows])
    assert all(a == b for a, b in harness.pairs if a.row == b.row)


def test_a_probe_that_is_interrupted_anywhere_goes_on_where_it_stopped():
    stream = Stream(EVER)
    rows = numbered([(0, 1)] * 40)
    for capacity in (1, 3, 1600):
        harness = Harness([stream, stream], block=256, result_buffer=capacity)
        for side in range(2):
            assert harness.insert(groups_of(0), side, rows) == 1
        calls = harness.probe(groups_of(0), 1)
        assert harness.row_pairs() == expected([stream, stream], [rows, rows])
        assert calls >= 1600 // capacity


def test_a_group_of_which_nothing_is_known_yet_has_nothing_to_join():
    operator, out = window_join(2, 1 << 20, 4096, 64, [(0, False, 1)] * 2), Out(2, 8)
    assert operator.probe(np.array([1]), 100, out) is Progress.DONE
    assert out.count == out.found == 0


def test_a_watermark_never_goes_back():
    harness = Harness([Stream(1), Stream(1)])
    harness.expire(groups_of(0), (10, 20))
    harness.expire(groups_of(0), (5, 30))
    assert harness.operator.info(groups_of(0)).watermarks.tolist() == [[10, 30]]


def test_a_group_is_inserted_whole_or_not_at_all_and_later_when_there_is_room():
    stream = Stream(5)
    rows = numbered([(time, key) for key in range(60) for time in range(10)])
    harness = Harness([stream, stream], partitions=6, memory=64 * 130, block=64, theta=500)
    groups = groups_of(*range(6))
    done = harness.insert(groups, 0, rows)
    assert 0 < done < 6
    assert "MB, largest groups: partition" in str(harness.operator.out_of_memory())
    assert '[memory] spill = "generations" or "rotate" (exact, later results)' in str(harness.operator.out_of_memory())
    assert isinstance(harness.operator.out_of_memory(), MemoryBudgetError)
    harness.probe(groups)
    walked = check_accounts(harness, range(done))
    wanted = Counter(row for row in rows if oracle.partition(row.key, 6) < done)
    assert Counter(row for one in walked.values() for row in one.tuples[0]) == wanted
    harness.expire(groups, (0, EVER))
    assert harness.operator.memory().held == 0
    assert harness.insert(groups[done:], 0, rows) > 0


def test_a_hot_key_with_100_000_partners_takes_no_more_memory_than_its_tuples():
    stream = Stream(EVER)
    harness = Harness([stream, stream], memory=1 << 24, theta=4096, result_buffer=512)
    partners = numbered([(0, 1)] * 100_000)
    assert harness.insert(groups_of(0), 1, partners) == 1
    harness.operator.probe(groups_of(0), 1 << 40, harness.out)
    harness.expire(groups_of(0), (NEVER, NEVER))
    info = harness.operator.info(groups_of(0))
    held = harness.operator.memory().held
    assert (info.buckets[0], info.splits[0], info.depth[0]) <= (16, 15, 24)
    assert held <= 1.1 * info.live_bytes.sum()
    harness.insert(groups_of(0), 0, numbered([(0, 1)]))
    found = 0
    while harness.operator.probe(groups_of(0), 1 << 40, harness.out) != 0:
        found += harness.out.count
        assert harness.out.count == 512
        harness.out.clear()
    assert found + harness.out.count == 100_000
    assert harness.operator.memory().held <= held + harness.operator._pool.page_bytes


# Fresh tuples and slots of a block around what decides how they are compared, and keys from one to more than the filter
# holds.
CROWDS = [1, compare.FILTERED_MIN - 1, compare.FILTERED_MIN, 64, 65, 128, 129, 157, compare.FILTERED_MAX + 1]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    some.builds(
        Setup,
        partitions=some.just(1),
        slice_groups=some.just(1),
        pieces=some.just(1),
        block=some.sampled_from([1024, 4096, 1 << 16]),
        theta=some.sampled_from([20_000, st.THETA_OFF]),
        result_buffer=some.sampled_from([7, 1000, 100_000]),
        budget=some.sampled_from([5000, 1 << 40]),
    ),
    some.lists(some.tuples(*[some.sampled_from(CROWDS)] * 2), min_size=1, max_size=2),
    some.sampled_from([9, 50, 1000, 1 << 40]),
    some.integers(0, 2**32 - 1),
)
def test_crowds_of_fresh_tuples_are_joined_through_the_filter(setup, crowds, keys, seed):
    random, streams = np.random.default_rng(seed), (Stream(60), Stream(45))
    sides = []
    for side in range(2):
        count = sum(crowd[side] for crowd in crowds)
        sides.append(
            list(zip(np.sort(random.integers(0, 400, count)).tolist(), random.integers(0, keys, count).tolist()))
        )
    rows = [numbered(side, stream, [0]) for side, stream in zip(sides, streams)]
    totals = np.cumsum(crowds[::-1], axis=0)[:-1].tolist()
    harness = run(setup, streams, rows, [(rest, 0) for rest in totals], Keep.NOTHING if seed % 2 else Keep.SLOT_IDS)
    wanted = expected(streams, rows)
    assert harness.out.found == wanted.total()
    assert f"{harness.out.certificate:016x}" == oracle.certificate(wanted.elements())
    assert not harness.operator._probe._state.filter.any()
