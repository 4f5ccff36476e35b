"""Groups that are spilled at any time: what is found at run time and what a clean-up finds are the oracle's results
together, and none is found twice."""

from itertools import cycle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import oracle
from join_harness import EVER, NEVER, Stream, check_accounts, groups_of, numbered
from mpijoin.join import mway_scan, mway_state
from mpijoin.operators.base import Keep, Progress
from mpijoin.store import state as st
from random_joins import CUTS, SETUPS, Setup, expected, joins, rounds
from spilling import PLACES, Spilling

# For each group and round, whether a group is spilled when it ends.
SPILLS = some.lists(some.booleans(), min_size=1, max_size=12)


# Tuples of a stream around what decides how they are compared, and whether they are one batch.
CROWDS = [0, 1, mway_scan.TABLE_MIN, 65, mway_state.BATCH + 1]
STREAMS = some.sampled_from([2, 2, 3, 3, 4])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    SETUPS, joins(STREAMS), CUTS, SPILLS, some.one_of(some.just(PLACES), some.integers(0, PLACES)), some.booleans(),
    some.sampled_from([None, True]), some.booleans(),
)  # fmt: skip
def test_run_time_and_clean_up_find_each_result_once(setup, join, cuts, spills, middle, settles, symmetric, expires):
    """Rows expire meanwhile (if `expires`), and those that rows on the disk may still meet are written there, too."""
    streams, rows = join
    spilling, spills = Spilling(streams, setup, symmetric), cycle(spills)
    for parts, reached in rounds(rows, cuts):
        marks = reached if expires else [NEVER] * len(streams)
        for group in range(setup.partitions):
            spilling.main.round_of(groups_of(group), parts, marks, setup.budget, setup.pieces)
            if next(spills):
                spilling.spill(group)
            if next(spills):
                spilling.drain()
            check_accounts(spilling.main, spilling.main.started())
    spilling.drain()
    for group in range(setup.partitions):
        spilling.spill(group)
        spilling.clean_up(group, 0, middle, settles)
        spilling.clean_up(group, middle, PLACES, settles)
    check(spilling, streams, rows)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    some.sampled_from([2, 3, 4]),
    some.lists(some.sampled_from(CROWDS), min_size=8, max_size=8),
    some.sampled_from([(1000, 60, 45, 300, 20), (60, 60, 45, 300, 20), (3, 9, 7, 12, 6)]),
    some.sampled_from([256, 1024, 4096]),
    some.sampled_from([100, 5000, 1 << 40]),
    some.integers(0, 2**32 - 1),
)
def test_crowds_of_old_and_fresh_tuples_in_batches_of_any_size(count, crowds, shape, block, budget, seed):
    """Three classes with crowds of each stream, whose lists of partners have old tuples, fresh ones, or both.

    With few keys and short windows, blocks are scanned by time.
    """
    keys, *windows = shape
    random, streams = np.random.default_rng(seed), [Stream(window) for window in windows[:count]]
    setup = Setup(block=block, theta=2000, budget=budget, result_buffer=7 if seed % 2 else 1000)
    spilling, rows = Spilling(streams, setup, True), [[] for _ in streams]
    for crowd in (crowds[:count], crowds[4 : 4 + count], crowds[2 : 2 + count]):
        parts = []
        for own, members in zip(rows, crowd):
            times = np.sort(random.integers(0, 400, members)).tolist()
            times_and_keys = list(zip(times, random.integers(0, keys, members).tolist()))
            parts.append(numbered(times_and_keys, first_row=len(own)))
            own.extend(parts[-1])
        spilling.main.round_of(groups_of(0), parts, [NEVER] * count, budget)
        spilling.spill(0)
    spilling.clean_up(0)
    check(spilling, streams, rows)
    assert not spilling.clean.operator._probe._scratch.table.any()


def test_an_endless_stream_keeps_only_what_rows_on_the_disk_may_still_meet():
    """A window of 30 is spilled at 100. What comes until 130 is kept when it expires, and what comes later is not."""
    streams = [Stream(30), Stream(20)]
    spilling, rows = Spilling(streams, Setup(block=64)), [numbered([(time, 1) for time in range(300)])] * 2
    kept = []
    for start in range(0, 300, 10):
        parts, end = [own[start : start + 10] for own in rows], start + 10
        spilling.main.round_of(groups_of(0), parts, (end, end))
        if end == 100:
            spilling.spill(0)
        kept += [end] * spilling.drain()
    assert (spilling.owed_until(0, 0), spilling.owed_until(0, 1)) == (99 + 20, 99 + 30)
    assert 25 < len(kept) < 80 and 120 <= min(kept) and max(kept) <= 170
    spilling.main.expire(groups_of(0), (EVER, EVER))
    assert spilling.main.operator.totals.held == (0, 0)
    spilling.clean_up(0)
    check(spilling, streams, rows)
    assert spilling.clean.out.found > 300


def hot(olds, fresh):
    """A clean-up's table of three streams and one key, with so many old and fresh tuples of each stream."""
    streams = [Stream(st.FOREVER)] * 3
    spilling = Spilling(streams, Setup(block=4096, theta=20_000, result_buffer=4096), memory=1 << 24)
    for stream, count in enumerate(olds):
        spilling.clean.insert(groups_of(0), stream, numbered([(0, 1)] * count))
    spilling.clean.operator.settle(groups_of(0))
    for stream, (count, first) in enumerate(zip(fresh, olds)):
        spilling.clean.insert(groups_of(0), stream, numbered([(0, 1)] * count, first_row=first))
    return spilling.clean


@pytest.mark.parametrize("keep", [Keep.NOTHING, Keep.LATEST_TIMES])
@pytest.mark.parametrize("stream", range(3))
def test_fresh_combinations_of_a_hot_key_are_not_enumerated(stream, keep):
    """One stream has an old tuple, and all have 200 fresh ones: 200 ** 2 results are owed, and 200 ** 3 are not."""
    clean, budget, spent = hot([int(own == stream) for own in range(3)], [200] * 3), 1 << 13, 0
    clean.out.keep = keep
    while (progress := clean.operator.probe(groups_of(0), budget, clean.out)) is not Progress.DONE:
        clean.out.clear()
        assert progress is Progress.BUDGET or clean.out.keep is not Keep.NOTHING
        assert clean.state.counters[st.SPENT] < 40_000, "a piece is as large as was asked for, and a pair of blocks"
        spent += int(clean.state.counters[st.SPENT])
    spent += int(clean.state.counters[st.SPENT]) - int(clean.state.counters[st.COMPARED])
    assert clean.out.found == 200**2
    assert spent < 3.1 * 200**2, "each result takes at most a step for each of its tuples"


def check(spilling, streams, rows):
    wanted = expected(streams, rows)
    assert spilling.results() == wanted
    certificates = [holder.out.certificate for holder in (spilling.main, spilling.clean)]
    assert f"{sum(certificates) & oracle.MASK:016x}" == oracle.certificate(wanted.elements())
    for found in spilling.main.pairs + spilling.clean.pairs:
        assert all(one == rows[stream][one.row] for stream, one in enumerate(found)), "records and blobs are whole"
    main, clean = spilling.main.operator.totals, spilling.clean.operator.totals
    assert main.joined == tuple(map(sum, zip(main.spilled, main.expired))) == tuple(map(len, rows))
    assert main.held == clean.held == clean.joined == clean.spilled == (0,) * len(rows)
    assert clean.taken_back == tuple(map(sum, zip(clean.expired, clean.moved_out))) == main.spilled
    assert spilling.main.operator._pool.held_bytes == 0
