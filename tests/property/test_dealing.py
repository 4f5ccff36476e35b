"""Groups that several holders join, one stream's rows dealt among them and all others given to each: together they find
what the oracle finds, each result once, whatever the operator, the plans and the moments at which holders come and go.
"""

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import oracle
from join_harness import Harness, Stream, check_accounts, groups_of, numbered
from mpijoin.config.plan import Binary
from mpijoin.errors import MemoryBudgetError
from mpijoin.join.window_join import Setup as JoinSetup
from mpijoin.join.window_join import window_join
from mpijoin.operators.base import Keep
from mpijoin.plans.kernels import MEMBERS
from mpijoin.plans.operator import PlannedJoin
from mpijoin.store import state as st
from mpijoin.store.pool import StreamSpec, new_pool
from random_joins import CUTS, SETUPS, Setup, expected, joins, rounds, trees

MEMORY = 1 << 22


def holder_of(setup, streams, plan, keep, memory=MEMORY):
    """plan: a tree; None: m-way, or the two-way probe for two streams."""
    layouts = [(stream.record_words, stream.has_blob, stream.window) for stream in streams]
    if plan is None:
        operator = window_join(setup.partitions, memory, setup.block, setup.theta, layouts)
    else:
        specs = tuple(StreamSpec(*layout) for layout in layouts)
        pool = new_pool(memory, setup.block, max(MEMBERS + len(specs), *(spec.tuple_words for spec in specs)))
        operator = PlannedJoin(JoinSetup(setup.partitions, setup.theta, specs), plan, pool, 20)
    return Harness(streams, setup.partitions, result_buffer=setup.result_buffer, keep=keep, operator=operator)


class Groups:
    """Holders, and who of them has which group, the first one first. chance: says when holders come and go."""

    def __init__(self, setup, holders, streams, chance):
        self.setup, self.holders, self.chance = setup, holders, chance
        self.members = {group: [group % len(holders)] for group in range(setup.partitions)}
        self.dealt = {group: chance.randrange(streams) for group in range(setup.partitions)}
        self.deals, self.copied, self.seen = 0, np.zeros(streams, int), Counter()

    def round(self, group, parts, marks):
        members, dealt = self.members[group], self.dealt[group]
        turn = self.chance.randrange(len(members))
        for at, member in enumerate(members):
            own = list(parts)
            own[dealt] = parts[dealt][(at + turn) % len(members) :: len(members)]
            self.holders[member].round_of(groups_of(group), own, marks, self.setup.budget, self.setup.pieces)
            self.copied += [len(rows) * (at > 0 and stream != dealt) for stream, rows in enumerate(parts)]
        while len(self.holders) > 1 and self.chance.random() < 0.4:
            self.change(group, members, dealt)

    def change(self, group, members, dealt):
        others = [one for one in range(len(self.holders)) if one not in members]
        first = self.holders[members[0]].operator
        if others and (len(members) == 1 or self.chance.random() < 0.5):
            members.append(self.chance.choice(others))
            self.deals += 1
            taker = self.holders[members[-1]].operator
            taker.install(first.get(group, 0), replica=True)
            first.deal(group, dealt, self.deals, 0)
            taker.deal(group, dealt, self.deals, 1)
            self.seen["came"] += 1
        else:
            leaving = self.holders[members.pop(self.chance.randrange(1, len(members)))].operator
            first.take_dealt(group, dealt, leaving.give_dealt(group, dealt))
            self.seen["left"] += 1


def run(setup, streams, rows, cuts, plans, seed, keep=Keep.SLOT_IDS):
    holders = [holder_of(setup, streams, plan, keep) for plan in plans[: setup.holders]]
    groups = Groups(setup, holders, len(streams), random.Random(seed))
    for parts, marks in rounds(rows, cuts):
        for group in range(setup.partitions):
            own = [[row for row in part if oracle.partition(row.key, setup.partitions) == group] for part in parts]
            groups.round(group, own, marks)
    return groups


def results_of(holders):
    return Counter(tuple(one.row for one in found) for holder in holders for found in holder.pairs)


def check(groups, streams, rows):
    wanted = expected(streams, rows)
    assert results_of(groups.holders) == wanted
    certificate = sum(holder.out.certificate for holder in groups.holders) & oracle.MASK
    assert f"{certificate:016x}" == oracle.certificate(wanted.elements())
    check_counts(groups, rows)
    for holder in groups.holders:
        if not isinstance(holder.operator, PlannedJoin):
            check_accounts(holder, holder.started())


def check_counts(groups, rows):
    """The ledger's rules, holder by holder and in all."""
    several = [holder.operator.totals for holder in groups.holders]
    for one in several:
        given = np.sum([one.expired, one.held, one.moved_out, one.discarded], axis=0)
        assert (np.array(one.joined) == given - one.moved_in - one.replicas_in).all()
    for ours, theirs in (("moved_in", "moved_out"), ("replicas_in", "replicas_out")):
        assert np.sum([getattr(one, ours) for one in several], 0).tolist() == np.sum(
            [getattr(one, theirs) for one in several], 0
        ).tolist()
    assert np.sum([one.joined for one in several], 0).tolist() == (groups.copied + [len(own) for own in rows]).tolist()


@settings(max_examples=200, deadline=None, derandomize=True)
@given(SETUPS, joins(some.integers(2, 5)), CUTS, some.integers(0, 1 << 30))
def test_holders_among_whom_one_stream_is_dealt_find_each_result_once(setup, join, cuts, seed):
    streams, rows = join
    check(run(setup, streams, rows, cuts, [None] * setup.holders, seed), streams, rows)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(SETUPS, joins(some.integers(3, 5)), CUTS, some.data(), some.integers(0, 1 << 30))
def test_the_plans_of_the_holders_may_differ(setup, join, cuts, data, seed):
    streams, rows = join
    plans = [data.draw(some.one_of(some.none(), trees(len(streams)))) for _ in range(setup.holders)]
    check(run(setup, streams, rows, cuts, plans, seed), streams, rows)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(SETUPS, joins(some.integers(2, 4)), CUTS, some.integers(0, 1 << 30), some.sampled_from([0, 2]))
def test_results_that_are_only_counted_are_as_many(setup, join, cuts, seed, keep):
    streams, rows = join
    groups, wanted = run(setup, streams, rows, cuts, [None] * setup.holders, seed, Keep(keep)), expected(streams, rows)
    assert sum(holder.out.found for holder in groups.holders) == wanted.total()


STEADY = [numbered([(at, at % 3) for at in range(300)], Stream(40)) for _ in range(3)]


@pytest.mark.parametrize("plan", [None, Binary(Binary(0, 1), 2)], ids=["m-way", "tree"])
def test_of_the_dealt_stream_both_hold_about_half(plan):
    setup, streams = Setup(holders=2, theta=st.THETA_OFF), [Stream(200)] * 3
    first, taker = (holder_of(setup, streams, plan, Keep.NOTHING) for _ in range(2))
    first.round_of(groups_of(0), STEADY, [0, 0, 0])
    taker.operator.install(first.operator.get(0, 0), replica=True)
    for part, holder in enumerate((first, taker)):
        holder.operator.deal(0, 1, 7, part)
    held = [holder.operator.totals.held for holder in (first, taker)]
    assert np.sum(held, 0).tolist() == [600, 300, 600] and min(one[1] for one in held) > 100
    assert first.operator.totals.replicas_out == taker.operator.totals.replicas_in == (300, 300, 300)
    frames = taker.operator.give_dealt(0, 1)
    assert taker.operator.memory().held == 0
    first.operator.take_dealt(0, 1, frames)
    assert first.operator.totals.held == (300, 300, 300)
    small = holder_of(setup, streams, plan, Keep.NOTHING, memory=2_000)
    with pytest.raises(MemoryBudgetError):
        small.operator.take_dealt(0, 1, frames)


def test_tuples_that_are_dealt_are_no_arrivals_for_the_choice_of_a_plan():
    holder = holder_of(Setup(holders=2, theta=st.THETA_OFF), [Stream(200)] * 3, Binary(Binary(0, 1), 2), Keep.NOTHING)
    holder.round_of(groups_of(0), STEADY, [0, 0, 0])
    came = holder.operator._came
    holder.operator.deal(0, 1, 7, 0)
    holder.operator.take_dealt(0, 1, holder.operator.give_dealt(0, 1))
    assert came > 0 and holder.operator._came == came
