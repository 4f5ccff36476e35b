"""Joins that answer each left row once find the partner that the oracle finds, whatever the batches, settings and
moves. A row is answered in the round in which its window is over, neither before nor after."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as some

import oracle
from join_harness import EVER, NEVER, Harness, Stream, check_accounts, groups_of, is_over, numbered
from mpijoin.compiled import Kernel
from mpijoin.data.schema import Column, JoinSchema, StreamSchema
from mpijoin.matching.answers import Question
from mpijoin.matching.kernels import asks_of
from mpijoin.matching.operator import MatchingJoin
from mpijoin.matching.operator import Setup as Rules
from mpijoin.operators.base import Progress
from mpijoin.store import state as st
from mpijoin.store.pool import StreamSpec, new_pool
from random_joins import CUTS, SETUPS, Setup, joins, rounds

TIME, KEY = Column("ts", pa.int64()), Column("key", pa.int64())
SCHEMA = JoinSchema(tuple(StreamSchema(name, TIME, 1, (KEY,), False, ()) for name in ("left", "right")), "ns")
CONDITION = "abs(right.time - left.time) <= '3 ns' or key > 20"
MATCHES, KINDS = some.sampled_from(list(oracle.RANKS)), some.sampled_from(["inner", "left"])


def wanted(kind, match, streams, rows, has_condition):
    windows = [None if stream.window == st.FOREVER else stream.window for stream in streams]
    keys = {row.time: row.key for row in rows[0]}
    holds = (lambda one, other: abs(other - one) <= 3 or keys[one] > 20) if has_condition else None
    sides = [[(row.time, row.key, row.row) for row in own] for own in rows]
    return Counter(oracle.typed(kind, sides, windows, holds, match))


def new_holder(kind, match, setup, streams, where=""):
    layout = tuple(StreamSpec(stream.record_words, stream.has_blob, stream.window) for stream in streams)
    question = Question(kind == "left", asks_of(where, [], SCHEMA), match)
    rules = Rules(setup.partitions, setup.theta, layout, question)
    operator = MatchingJoin(rules, new_pool(1 << 22, setup.block, max(one.tuple_words for one in layout)))
    return Harness(streams, setup.partitions, result_buffer=setup.result_buffer, operator=operator)


def moved(holder, following, data):
    """The holder that goes on. Some of the blocks are shipped before the flags of their tuples are the last ones."""
    for group, frames in data.items():
        since = holder.operator.reached(frames)[0] if frames else 0
        assert following.operator.install([*frames, *holder.operator.get(group, since)]) == group
    return following


def shipped_of(holder):
    """What of each group can go ahead, one block or so."""
    early = {group: holder.operator.get(group, 0, 1) for group in holder.started()}
    return {group: [] if holder.operator.reached(frames)[1] else frames for group, frames in early.items()}


def has_one_key_at_a_time(rows):
    return len({row.time for row in rows}) == len({(row.time, row.key) for row in rows})


@settings(max_examples=400, deadline=None, derandomize=True)
@given(
    MATCHES, KINDS, some.booleans(), SETUPS, joins(some.just(2)), CUTS, some.lists(some.booleans(), max_size=6),
)  # fmt: skip
def test_each_row_has_its_partner_as_soon_as_its_window_is_over(match, kind, asks, setup, join, cuts, moves):
    streams, rows = join
    assume(all(row.time < EVER for own in rows for row in own))  # The last moment never is over.
    asks = asks and has_one_key_at_a_time(rows[0])  # The oracle's condition knows keys by their times.
    results, where = wanted(kind, match, streams, rows, asks), CONDITION if asks else ""
    moves, come, reached = list(moves), [], [NEVER, NEVER]
    holders, groups = [new_holder(kind, match, setup, streams, where)], groups_of(*range(setup.partitions))
    for parts, watermarks in rounds(rows, cuts):
        holder, reached = holders[-1], list(map(max, reached, watermarks))
        shipped = shipped_of(holder) if moves else {}
        holder.round_of(groups, parts, watermarks, setup.budget, setup.pieces)
        found = sum((one.row_pairs() for one in holders), Counter())
        come += parts[0]
        over = {row.row for row in come if is_over(row, streams[0], reached[1])}
        assert found == Counter({pair: n for pair, n in results.items() if pair[0] in over})
        if moves and moves.pop():
            following = new_holder(kind, match, setup, streams, where)
            holders.append(moved(holder, following, {group: shipped.get(group, []) for group in holder.started()}))
    assert sum((one.row_pairs() for one in holders), Counter()) == results
    check_accounts(holders[-1], holders[-1].started())
    hashes = [int(oracle.certificate(one.row_pairs().elements()), 16) for one in holders]
    assert [one.out.certificate for one in holders] == hashes


@pytest.mark.parametrize("match", oracle.RANKS)
def test_groups_may_move_in_every_round(match):
    chance = np.random.default_rng(len(match))
    streams, setup = [Stream(30), Stream(20)], Setup(partitions=2, block=256, theta=2000, result_buffer=50)
    rows = [
        numbered([(time, int(chance.integers(0, 60))) for time in np.sort(chance.integers(0, 400, 400)).tolist()])
        for _ in range(2)
    ]
    results, holders, shipped_early, held = (
        wanted("left", match, streams, rows, False), [new_holder("left", match, setup, streams)], 0, 0
    )  # fmt: skip
    for low in range(0, 400, 20):
        holder = holders[-1]
        shipped = shipped_of(holder)
        marks = [min((row.time for row in own[low + 20 :]), default=EVER) for own in rows]
        holder.round_of(groups_of(0, 1), [own[low : low + 20] for own in rows], marks)
        held += int(holder.operator.info(groups_of(0, 1)).tuples.sum())
        shipped_early += sum(map(len, shipped.values()))
        following = new_holder("left", match, setup, streams)
        holders.append(moved(holder, following, {group: shipped.get(group, []) for group in holder.started()}))
    assert sum((one.row_pairs() for one in holders), Counter()) == results
    assert held > 500 and shipped_early > 10


def test_a_new_condition_compiles_no_more_than_itself(monkeypatch):
    """The kernels that find partners are the same for all jobs, so only the first job waits until they are compiled."""
    readied, ready = [], Kernel.ready

    def noted(self, *arguments):
        readied.append(self.__name__)
        return ready(self, *arguments)

    monkeypatch.setattr(Kernel, "ready", noted)
    for where in ("key > 2", "key > 3"):
        readied.clear()
        holder = new_holder("inner", "first", Setup(), [Stream(5), Stream(5)], where)
        holder.round_of(groups_of(0), [numbered([(10, 3), (10, 4)]), numbered([(10, 3), (10, 4)])], (EVER, EVER))
        assert holder.row_pairs() == Counter({(row, row): 1 for row in range(where == "key > 3", 2)})
    assert len(readied) == 1 and readied[0].startswith("keep_partners_"), readied


def test_of_two_partners_that_are_alike_the_earlier_one_counts_then_the_one_of_the_smaller_row():
    """`"nearest"`: the smallest distance in time (ties: the earlier, then the smaller row)."""
    right = [(12, 1), (8, 1), (8, 1), (12, 1)]
    for match, row in (("first", 1), ("last", 0), ("nearest", 1)):
        for order in ([0, 1, 2, 3], [3, 2, 1, 0]):
            holder = new_holder("inner", match, Setup(block=64), [Stream(5), Stream(5)])
            rows = [numbered(right)[at] for at in order]
            holder.round_of(groups_of(0), [numbered([(10, 1)]), rows], (EVER, EVER))
            assert holder.row_pairs() == Counter({(0, row): 1}), match


def test_rows_of_the_second_stream_are_held_as_long_as_a_row_may_look_at_them():
    """The first stream is far ahead, but its rows wait for the second one."""
    holder, groups = new_holder("inner", "first", Setup(), [Stream(50), Stream(0)]), groups_of(0)
    holder.round_of(groups, [numbered([(10, 1)]), numbered([(20, 1)])], (1000, 30))
    assert not holder.pairs
    holder.round_of(groups, [[], []], (1000, 61))
    assert holder.row_pairs() == Counter({(0, 0): 1}) and holder.operator.totals.held == (0, 1)
    holder.round_of(groups, [[], []], (1000, 71))
    assert holder.operator.totals.held == (0, 0)


@pytest.mark.parametrize("block", [4096, 16384])
def test_a_hot_key_with_many_partners_costs_few_comparisons(block):
    """Of 100,000 partners, the tuples of a block or two are looked at. A large one has more than are taken at once."""
    holder = new_holder("inner", "nearest", Setup(block=block, theta=st.THETA_OFF), [Stream(10**6), Stream(10**6)])
    right = numbered([(time, 1) for time in range(100_000)])
    holder.round_of(groups_of(0), [numbered([(time, 1) for time in range(500, 100_000, 1000)]), right], (EVER, EVER))
    assert holder.row_pairs() == Counter({(at, 500 + 1000 * at): 1 for at in range(100)})
    assert holder.operator.totals.comparisons < 100 * 4 * block // 24


def test_an_expire_without_room_goes_on_where_it_stopped():
    holder = new_holder("left", "last", Setup(partitions=4, block=64, result_buffer=3), [Stream(0), Stream(0)])
    for stream in range(2):
        assert holder.insert(groups_of(0, 1, 2, 3), stream, numbered([(0, key) for key in range(40)])) == 4
    holder.probe(groups_of(0, 1, 2, 3))
    calls = 0
    while holder.operator.expire(groups_of(0, 1, 2, 3), np.array([EVER, EVER]), holder.out) is not Progress.DONE:
        assert holder.out.count <= 3 and holder.out.is_final
        holder.consume()
        calls += 1
    assert holder.row_pairs() == Counter({(row, row): 1 for row in range(40)}) and 14 <= calls <= 19
    assert holder.operator.memory().held == 0
