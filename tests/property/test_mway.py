"""The symmetric m-way join finds what the oracle finds, for one to five streams, whatever the batches, partitions,
theta, block size, budget and result buffer, and whoever holds a group.

"We use a symmetric multiple-way hash join operator as a representative example of state intensive operators" (LAD,
section 2); "the join is defined as A.A1 = B.B1 = C.C1 where A, B, and C denote the three input streams".
"""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import oracle
from join_harness import EVER, Harness, Stream, check_accounts, groups_of, numbered
from mpijoin.join import mway_scan, mway_state
from mpijoin.operators.base import Keep, Progress
from mpijoin.store import state as st
from random_joins import CUTS, SETUPS, Setup, expected, joins, rounds


def run(setup, streams, rows, cuts, keep=Keep.SLOT_IDS):
    """The holders, after every round of which each group has gone to the next one."""
    holders = [
        Harness(
            streams, setup.partitions, 1 << 22, setup.block, setup.theta, setup.result_buffer, keep, symmetric=True
        )
        for _ in range(setup.holders)
    ]
    for number, (parts, marks) in enumerate(rounds(rows, cuts)):
        for group in range(setup.partitions):
            holder, following = (holders[(group + step) % setup.holders] for step in (number, number + 1))
            holder.round_of(groups_of(group), parts, marks, setup.budget, setup.pieces)
            if holder is not following:
                assert following.operator.install(holder.operator.get(group, 0)) == group
                holder.operator.drop(group)
    return holders


def results_of(holders):
    return Counter(tuple(one.row for one in found) for holder in holders for found in holder.pairs)


def check_totals(holders, wanted):
    assert sum(holder.out.found for holder in holders) == wanted.total()
    certificate = sum(holder.out.certificate for holder in holders) & oracle.MASK
    assert f"{certificate:016x}" == oracle.certificate(wanted.elements())


@settings(max_examples=120, deadline=None, derandomize=True)
@given(SETUPS, joins(), CUTS)
def test_the_result_is_the_oracles_wherever_groups_go_and_every_tuple_expires(setup, join, cuts):
    streams, rows = join
    holders = run(setup, streams, rows, cuts)
    wanted = expected(streams, rows)
    assert results_of(holders) == wanted
    check_totals(holders, wanted)
    assert all(one == rows[i][one.row] for holder in holders for found in holder.pairs for i, one in enumerate(found))
    held = Counter()
    for holder in holders:
        for one in check_accounts(holder, holder.started()).values():
            held.update({stream: len(own) for stream, own in enumerate(one.tuples)})
    for stream, own in enumerate(rows):
        # Only what is too near the end of time to be ever out of reach may be left, or shares a block with such a
        # tuple.
        waits = streams[stream].window if len(streams) > 1 else 0
        assert not held[stream] or waits == st.FOREVER or max(row.time for row in own) >= EVER - waits


@settings(max_examples=80, deadline=None, derandomize=True)
@given(SETUPS, joins(), CUTS, some.sampled_from([Keep.NOTHING, Keep.LATEST_TIMES]))
def test_results_that_are_not_kept_are_counted_and_certified_all_the_same(setup, join, cuts, keep):
    streams, rows = join
    holders, wanted = run(setup, streams, rows, cuts, keep), expected(streams, rows)
    check_totals(holders, wanted)
    times = Counter(max(rows[stream][row].time for stream, row in enumerate(one)) for one in wanted.elements())
    found = sum((holder.later_times for holder in holders), Counter())
    assert found == (times if keep is Keep.LATEST_TIMES else Counter())


@settings(max_examples=60, deadline=None, derandomize=True)
@given(SETUPS, joins(some.just(2)), CUTS)
def test_two_streams_are_joined_as_by_their_own_probe(setup, join, cuts):
    streams, rows = join
    (own,) = run(setup._replace(holders=1), streams, rows, cuts)
    two = Harness(streams, setup.partitions, 1 << 22, setup.block, setup.theta, setup.result_buffer, symmetric=False)
    for parts, marks in rounds(rows, cuts):
        for group in range(setup.partitions):
            two.round_of(groups_of(group), parts, marks, setup.budget, setup.pieces)
    assert Counter(own.pairs) == Counter(two.pairs)
    assert own.out.certificate == two.out.certificate


@settings(max_examples=60, deadline=None, derandomize=True)
@given(SETUPS, some.integers(2, 4), some.integers(0, 2**32 - 1), some.integers(1, 3), some.booleans(), CUTS)
def test_few_keys_and_short_windows_are_joined_by_time(setup, count, seed, keys, disorder, cuts):
    """Blocks in order of time, but for a few rows, that span many windows and hold equal keys."""
    random = np.random.default_rng(seed)
    streams = [Stream(int(window)) for window in random.integers(0, 30, count)]
    rows = []
    for _ in streams:
        times = np.cumsum(random.integers(0, 40, 200))
        if disorder:
            times[random.integers(0, 200, 3)] -= 100
        rows.append(numbered(list(zip(times.tolist(), random.integers(0, keys, 200).tolist()))))
    holders = run(setup, streams, rows, cuts)
    assert results_of(holders) == expected(streams, rows)


# Fresh tuples around what decides how they are compared, and whether they are one batch.
CROWDS = [1, mway_scan.TABLE_MIN - 1, mway_scan.TABLE_MIN, 65, mway_state.BATCH, mway_state.BATCH + 1, 600]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    some.lists(some.sampled_from(CROWDS), min_size=3, max_size=3),
    some.sampled_from([90, 1000, 1 << 40]),
    some.sampled_from([1024, 4096, 1 << 16]),
    some.sampled_from([100, 5000, 1 << 40]),
    some.integers(0, 2**32 - 1),
)
def test_crowds_of_fresh_tuples_are_joined_batch_by_batch(crowds, keys, block, budget, seed):
    random, streams = np.random.default_rng(seed), [Stream(60), Stream(45), Stream(300)]
    rows = []
    for count in crowds:
        times = np.sort(random.integers(0, 400, count)).tolist()
        rows.append(numbered(list(zip(times, random.integers(0, keys, count).tolist()))))
    setup = Setup(block=block, theta=st.THETA_OFF, budget=budget, result_buffer=7 if seed % 2 else 1000)
    cuts = [([int(cut) for cut in random.integers(0, 600, 5)], 0)]
    holders, wanted = run(setup, streams, rows, cuts), expected(streams, rows)
    assert results_of(holders) == wanted
    check_totals(holders, wanted)
    assert not holders[0].operator._probe._scratch.table.any()


@pytest.mark.parametrize("count", [3, 4])
def test_both_ends_of_every_window_are_closed(count):
    """Each stream's tuple at 100 and windows of 2, 3, 4, ...: the others may come until just then, after all of
    them."""
    for patient in range(count):
        streams = [Stream(2 + stream) for stream in range(count)]
        many = [(time, 1) for time in range(95, 111)]
        rows = [numbered([(100, 1)] if stream == patient else many) for stream in range(count)]
        holders = run(Setup(), streams, rows, [])
        assert results_of(holders) == expected(streams, rows)
        latest = max(max(one.time for one in found) for found in holders[0].pairs)
        assert latest == 100 + streams[patient].window


def hot_streams(count, streams=3):
    harness = Harness(
        [Stream(st.FOREVER)] * streams, memory=1 << 24, theta=20_000, result_buffer=4096, keep=Keep.NOTHING
    )
    for stream in range(streams):
        assert harness.insert(groups_of(0), stream, numbered([(0, 1)] * count)) == 1
    return harness


def test_27_million_results_of_one_key_come_in_bounded_pieces():
    """300 partners in each of three streams."""
    harness, budget, calls = hot_streams(300), 1 << 18, 1
    while harness.operator.probe(groups_of(0), budget, harness.out) is Progress.BUDGET:
        calls += 1
        assert harness.state.counters[st.SPENT] < 1.5 * budget, "a piece is about as large as was asked for"
    assert harness.out.found == 300**3
    assert 27_000_000 / budget <= calls < 250
    assert harness.operator._probe._scratch.partners.nbytes < 1 << 24, (
        "what lists of partners may take is reserved once"
    )


def test_results_of_a_hot_key_fill_the_buffer_and_go_on_where_they_stopped():
    harness, found = hot_streams(40), 0
    other = Harness([Stream(st.FOREVER)] * 3, memory=1 << 24, theta=20_000, result_buffer=4096)
    for stream in range(3):
        other.insert(groups_of(0), stream, numbered([(0, 1)] * 40))
    while (progress := other.operator.probe(groups_of(0), 1 << 40, other.out)) is Progress.OUT_FULL:
        assert other.out.count == 4096
        found += other.out.count
        other.out.clear()
    assert progress is Progress.DONE and found + other.out.count == 40**3
    harness.probe(groups_of(0))
    assert harness.out.certificate == other.out.certificate


def test_a_single_tuple_may_have_more_partners_than_a_batch_has_room_for():
    count = mway_state.PAIRS + 5000
    harness = Harness([Stream(st.FOREVER)] * 3, memory=1 << 24, keep=Keep.NOTHING)
    harness.insert(groups_of(0), 0, numbered([(0, 1)] * count))
    harness.probe(groups_of(0))
    harness.insert(groups_of(0), 1, numbered([(0, 1), (1, 1)]))
    harness.insert(groups_of(0), 2, numbered([(0, 1)] * 3))
    harness.probe(groups_of(0))
    assert harness.out.found == count * 6


def test_a_stream_without_a_partner_spares_the_others_from_being_compared():
    streams = [Stream(1000)] * 3
    harness = Harness(streams)
    rows = numbered([(time, time % 50) for time in range(400)])
    harness.round_of(groups_of(0), (rows, rows, []), (0, 0, 0))
    assert harness.state.counters[st.COMPARED] == 0
    harness.round_of(groups_of(0), ([], [], numbered([(5, 999)])), (0, 0, 0))
    assert harness.state.counters[st.COMPARED] <= 400, "no partner in the first stream: the second is not looked at"
