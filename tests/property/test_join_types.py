"""Outer, semi and anti joins find what the oracle finds, whatever the batches, settings and moves. A tuple without a
partner leaves in the round in which its window is over, neither before nor after."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as some

import oracle
from join_harness import EVER, NEVER, Harness, Stream, check_accounts, groups_of, is_over, numbered
from mpijoin.join.marks import MARKS
from mpijoin.operators.base import Progress
from mpijoin.store import state as st
from random_joins import CUTS, SETUPS, Setup, joins, rounds


def wanted(kind, streams, rows):
    windows = [None if stream.window == st.FOREVER else stream.window for stream in streams]
    return Counter(oracle.typed(kind, [[(row.time, row.key, row.row) for row in own] for own in rows], windows))


def new_holder(kind, setup, streams, certifies=True):
    own = setup.partitions, 1 << 22, setup.block, setup.theta, setup.result_buffer
    return Harness(streams, *own, marks=MARKS[kind], certifies=certifies)


def moved(holder, kind, setup, data):
    """The holder that goes on. Some of the blocks are shipped before the flags of their tuples are the last ones."""
    following = new_holder(kind, setup, holder.streams, holder.out.certifies)
    for group, frames in data.items():
        since = holder.operator.reached(frames)[0] if frames else 0
        assert following.operator.install([*frames, *holder.operator.get(group, since)]) == group
    return following


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    some.booleans(), some.sampled_from(list(MARKS)), SETUPS, joins(some.just(2)), CUTS,
    some.lists(some.booleans(), max_size=6),
)  # fmt: skip
def test_each_tuple_leaves_as_its_type_wants_and_when_its_window_is_over(certifies, kind, setup, join, cuts, moves):
    streams, rows = join
    assume(all(row.time < EVER for own in rows for row in own))  # The last moment never is over.
    moves, results = list(moves), wanted(kind, streams, rows)
    alone = [{pair[side] for pair in results if pair[1 - side] is None} for side in oracle.ALONE.get(kind, ())]
    holders, groups, come = [new_holder(kind, setup, streams, certifies)], groups_of(*range(setup.partitions)), ([], [])
    reached = [NEVER, NEVER]
    for parts, watermarks in rounds(rows, cuts):
        holder, reached = holders[-1], list(map(max, reached, watermarks))
        shipped = {group: holder.operator.get(group, 0, 1) for group in holder.started()} if moves else {}
        shipped = {group: [] if holder.operator.reached(frames)[1] else frames for group, frames in shipped.items()}
        holder.round_of(groups, parts, watermarks, setup.budget, setup.pieces)
        found = sum((one.row_pairs() for one in holders), Counter())
        for side, own in zip(oracle.ALONE.get(kind, ()), alone):
            come[side].extend(parts[side])
            over = {row.row for row in come[side] if is_over(row, streams[side], reached[1 - side])}
            assert {pair[side] for pair in found if pair[1 - side] is None and pair[side] in own} == own & over
        if moves and moves.pop():
            holders.append(moved(holder, kind, setup, {group: shipped.get(group, []) for group in holder.started()}))
    assert sum((one.row_pairs() for one in holders), Counter()) == results
    check_accounts(holders[-1], holders[-1].started())
    hashes = [int(oracle.certificate(one.row_pairs().elements()), 16) for one in holders]
    assert not certifies or [one.out.certificate for one in holders] == hashes


@pytest.mark.parametrize("certifies", [True, False])
@pytest.mark.parametrize("kind", MARKS)
def test_marks_go_along_with_groups_that_move_in_every_round(kind, certifies):
    """Most tuples move several times after they were matched, and blocks are shipped before others in them are. Those
    without partner leave in the round in which they may, wherever they are."""
    chance = np.random.default_rng(len(kind))
    streams, setup = [Stream(30), Stream(20)], Setup(partitions=2, block=256, theta=2000, result_buffer=50)
    rows = [
        numbered([(time, int(chance.integers(0, 60))) for time in np.sort(chance.integers(0, 400, 400)).tolist()])
        for _ in range(2)
    ]
    results, holders = wanted(kind, streams, rows), [new_holder(kind, setup, streams, certifies)]
    held = shipped_early = 0
    for low in range(0, 400, 20):
        holder, groups = holders[-1], groups_of(0, 1)
        shipped = {group: holder.operator.get(group, 0, 1) for group in holder.started()}
        shipped = {group: [] if holder.operator.reached(own)[1] else own for group, own in shipped.items()}
        marks = [min((row.time for row in own[low + 20 :]), default=EVER) for own in rows]
        holder.round_of(groups, [own[low : low + 20] for own in rows], marks)
        found = sum((one.row_pairs() for one in holders), Counter())
        for side in oracle.ALONE.get(kind, ()):
            own = {pair[side] for pair in results if pair[1 - side] is None}
            over = {row.row for row in rows[side][: low + 20] if is_over(row, streams[side], marks[1 - side])}
            assert {pair[side] for pair in found if pair[1 - side] is None} - {None} == own & over
        held += int(holder.operator.info(groups).tuples.sum())
        shipped_early += sum(map(len, shipped.values()))
        holders.append(moved(holder, kind, setup, {group: shipped.get(group, []) for group in holder.started()}))
    assert sum((one.row_pairs() for one in holders), Counter()) == results
    assert held > 500 and shipped_early > 10


@pytest.mark.parametrize("kind", MARKS)
def test_what_is_found_counts_once_however_small_the_room(kind):
    streams = [Stream(5), Stream(5)]
    rows = [numbered([(time, time % 3 + 3 * side) for time in range(0, 90, 1 + side)]) for side in range(2)]
    holder = Harness(streams, 3, 1 << 20, 128, 300, 2, marks=MARKS[kind])
    holder.round_of(groups_of(0, 1, 2), rows, (EVER, EVER))
    assert holder.row_pairs() == wanted(kind, streams, rows)
    assert holder.operator.totals.results >= len(holder.pairs)


def test_a_tuple_waits_until_the_watermark_has_passed_the_end_of_its_window():
    holder, groups = Harness([Stream(5), Stream(0)], 1, 1 << 20, marks=MARKS["left"]), groups_of(0)
    holder.round_of(groups, [numbered([(10, 1), (9, 2)]), []], [0, 15])
    assert holder.row_pairs() == Counter({(1, None): 1}), "a partner of the other can still come at 15"
    holder.round_of(groups, [[], numbered([(15, 1)])], [0, 16])
    assert holder.row_pairs() == Counter({(1, None): 1, (0, 0): 1})


def test_an_expire_without_room_goes_on_where_it_stopped():
    holder = Harness([Stream(0), Stream(0)], 4, 1 << 20, 64, result_buffer=3, marks=MARKS["left"])
    assert holder.insert(groups_of(0, 1, 2, 3), 0, numbered([(0, key) for key in range(40)])) == 4
    holder.probe(groups_of(0, 1, 2, 3))
    calls = 0
    while holder.operator.expire(groups_of(0, 1, 2, 3), np.array([EVER, EVER]), holder.out) is not Progress.DONE:
        assert holder.out.count <= 3 and holder.out.is_final
        holder.consume()
        calls += 1
    assert len(holder.pairs) == 40 and 14 <= calls <= 19
    assert holder.operator.memory().held == 0
