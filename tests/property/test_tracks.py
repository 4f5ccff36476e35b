"""Groups that two holders join side by side, as DCAPE's PTLB has it (section 3): together they find what the oracle
finds, each result once, whatever the operator, the plans and the moments at which such moves begin, end or are undone.
"""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import oracle
from join_harness import EVER, NEVER, Harness, Stream, check_accounts, groups_of, numbered
from mpijoin.config.plan import Binary
from mpijoin.join.window_join import Setup as JoinSetup
from mpijoin.join.window_join import window_join
from mpijoin.operators.base import Keep, Left
from mpijoin.plans.kernels import MEMBERS
from mpijoin.plans.operator import PlannedJoin
from mpijoin.store import state as st
from mpijoin.store.pool import StreamSpec, new_pool
from random_joins import CUTS, SETUPS, Setup, expected, joins, rounds, trees

MEMORY = 1 << 22


def holder_of(setup, streams, plan, keep):
    """plan: a tree; None: m-way, or the two-way probe for two streams."""
    layouts = [(stream.record_words, stream.has_blob, stream.window) for stream in streams]
    if plan is None:
        operator = window_join(setup.partitions, MEMORY, setup.block, setup.theta, layouts, tracks=True)
    else:
        specs = tuple(StreamSpec(*layout, flagged=True) for layout in layouts)
        pool = new_pool(MEMORY, setup.block, max(MEMBERS + len(specs), *(spec.tuple_words for spec in specs)))
        operator = PlannedJoin(JoinSetup(setup.partitions, setup.theta, specs, tracks=True), plan, pool, 20)
    return Harness(streams, setup.partitions, result_buffer=setup.result_buffer, keep=keep, operator=operator)


class Track:
    """A group on its way from its owner to another holder. It may have begun in the middle of a round's rows."""

    def __init__(self, supplier, consumer):
        self.supplier, self.consumer, self.until = supplier, consumer, None


class Groups:
    """Holders, and who of them has which group. chance: says what moves begin and are given up."""

    def __init__(self, setup, holders, chance):
        self.setup, self.holders, self.chance = setup, holders, chance
        self.owner = {group: group % len(holders) for group in range(setup.partitions)}
        self.tracks, self.seen = {}, Counter()

    def round(self, group, parts, marks):
        own, settings = groups_of(group), (marks, self.setup.budget, self.setup.pieces)
        track = self.tracks.get(group)
        if track is None and len(self.holders) > 1 and self.chance.random() < 0.6:
            supplier = self.owner[group]
            consumer = self.chance.choice([one for one in range(len(self.holders)) if one != supplier])
            track = self.tracks[group] = Track(supplier, consumer)
            self.seen["begun"] += 1
        if track is None:
            self.holders[self.owner[group]].round_of(own, parts, *settings)
            return
        self.holders[track.supplier].round_of(own, parts, *settings, new=True)
        self.holders[track.consumer].round_of(own, parts, *settings)
        self.end(group, track, marks)

    def end(self, group, track, marks):
        supplier, consumer = self.holders[track.supplier].operator, self.holders[track.consumer].operator
        if track.until is None:
            track.until = supplier.old_until(group).tolist()
        others = [[mark for other, mark in enumerate(marks) if other != stream] for stream in range(len(marks))]
        if all(min(own, default=EVER) > last for own, last in zip(others, track.until)):
            supplier.drop(group, Left.DISCARDED)
            self.owner[group] = track.consumer
            self.seen["ended"] += 1
        elif self.chance.random() < 0.3:
            consumer.drop(group, Left.DISCARDED)
            supplier.make_all_old(group)
            self.seen["undone"] += 1
        else:
            return
        del self.tracks[group]


def run(setup, streams, rows, cuts, plans, seed, keep=Keep.SLOT_IDS):
    holders = [holder_of(setup, streams, plan, keep) for plan in plans[: setup.holders]]
    groups = Groups(setup, holders, random.Random(seed))
    for parts, marks in rounds(rows, cuts):
        for group in range(setup.partitions):
            groups.round(group, parts, marks)
    return groups


def results_of(holders):
    return Counter(tuple(one.row for one in found) for holder in holders for found in holder.pairs)


def check(groups, streams, rows):
    wanted = expected(streams, rows)
    assert results_of(groups.holders) == wanted
    certificate = sum(holder.out.certificate for holder in groups.holders) & oracle.MASK
    assert f"{certificate:016x}" == oracle.certificate(wanted.elements())
    for holder in groups.holders:
        totals = holder.operator.totals
        given = (totals.expired, totals.held, totals.discarded)
        assert totals.joined == tuple(map(sum, zip(*given)))
        if not isinstance(holder.operator, PlannedJoin):
            check_accounts(holder, holder.started())


@settings(max_examples=150, deadline=None, derandomize=True)
@given(SETUPS, joins(some.integers(1, 5)), CUTS, some.integers(0, 1 << 30))
def test_two_holders_find_each_result_once(setup, join, cuts, seed):
    streams, rows = join
    check(run(setup, streams, rows, cuts, [None] * setup.holders, seed), streams, rows)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(SETUPS, joins(some.integers(1, 4)), CUTS, some.integers(0, 1 << 30), some.sampled_from([0, 2]))
def test_results_that_are_only_counted_are_as_many(setup, join, cuts, seed, keep):
    streams, rows = join
    groups, wanted = run(setup, streams, rows, cuts, [None] * setup.holders, seed, Keep(keep)), expected(streams, rows)
    assert sum(holder.out.found for holder in groups.holders) == wanted.total()
    certificate = sum(holder.out.certificate for holder in groups.holders) & oracle.MASK
    assert f"{certificate:016x}" == oracle.certificate(wanted.elements())


@settings(max_examples=80, deadline=None, derandomize=True)
@given(SETUPS, joins(some.integers(3, 5)), CUTS, some.data(), some.integers(0, 1 << 30))
def test_the_plans_of_the_two_holders_may_differ(setup, join, cuts, data, seed):
    """DCAPE, section 3.2: "the PTLB is a general strategy that does not need to care about the detailed properties
    about the plan itself, such as the types of the operators and the shapes of the plans"."""
    streams, rows = join
    plans = [data.draw(some.one_of(some.none(), trees(len(streams)))) for _ in range(setup.holders)]
    check(run(setup, streams, rows, cuts, plans, seed), streams, rows)


WINDOW, ROWS = 40, 400
CHAIN = Binary(Binary(0, 1), 2)


@pytest.mark.parametrize("streams, plan", [(2, None), (3, None), (3, CHAIN)], ids=["two-way", "m-way", "tree"])
def test_the_old_ones_are_purged_after_one_window(streams, plan):
    """Section 3.1 has "relocation time T_PT = W" for one join, and 2W for trees, because there a tuple of a state waits
    from when its last member came. Here it waits no longer than its first member does, so that W is enough for trees.
    """
    specs = [Stream(WINDOW)] * streams
    rows = [numbered([(at, at * 7 % 5) for at in range(ROWS)]) for _ in range(streams)]
    both = [holder_of(Setup(theta=st.THETA_OFF), specs, plan, Keep.SLOT_IDS) for _ in range(2)]
    begin, until, ended = 200, None, None
    for at in range(0, ROWS, 2):
        parts, marks = [own[at : at + 2] for own in rows], [min(at + 2, ROWS)] * streams
        if ended is None:
            both[0].round_of(groups_of(0), parts, marks, new=at >= begin)
        if at >= begin:
            both[1].round_of(groups_of(0), parts, marks)
        if at >= begin and ended is None:
            until = both[0].operator.old_until(0) if until is None else until
            if marks[0] > max(until):
                both[0].operator.drop(0, Left.DISCARDED)
                ended = at
    assert until.tolist() == [begin - 1 + WINDOW] * streams and begin + WINDOW - 2 <= ended <= begin + WINDOW
    assert results_of(both) == expected(specs, rows)
    assert both[0].operator.memory().held == 0


@pytest.mark.parametrize("keep", list(Keep))
@pytest.mark.parametrize("windows", [(5, 25), (5, 12, 25), (25, 12, 5), (8, 20, 5, 12)], ids=str)
def test_old_and_new_rows_come_mixed(windows, keep):
    """Producers begin to send to both holders at different moments, so that an old row may come after new ones of its
    stream and key."""
    specs, chance = [Stream(window) for window in windows], random.Random(0)
    rows = [numbered([(at, chance.randrange(3)) for at in range(80)]) for _ in specs]
    both = supplier, consumer = [holder_of(Setup(), specs, None, keep) for _ in range(2)]
    for at in range(0, 80, 4):
        for stream, own in enumerate(rows):
            for row in own[at : at + 4]:
                new = chance.random() < at / 80
                supplier.insert(groups_of(0), stream, [row], new)
                if new:
                    consumer.insert(groups_of(0), stream, [row])
        for holder in both:
            holder.round_of(groups_of(0), [[]] * len(specs), [at + 4] * len(specs))
    wanted = expected(specs, rows)
    certificate = sum(holder.out.certificate for holder in both) & oracle.MASK
    assert sum(holder.out.found for holder in both) == wanted.total()
    assert f"{certificate:016x}" == oracle.certificate(wanted.elements())
    assert keep is not Keep.SLOT_IDS or results_of(both) == wanted


def test_a_group_without_old_tuples_waits_for_nothing():
    """Of a stream that has no old tuple, nothing is waited for."""
    holder = holder_of(Setup(), [Stream(WINDOW)] * 2, None, Keep.SLOT_IDS)
    holder.round_of(groups_of(0), [numbered([(5, 1)]), []], [6, 6])
    holder.round_of(groups_of(0), [numbered([(7, 1)]), numbered([(7, 1)])], [8, 8], new=True)
    assert holder.operator.old_until(0).tolist() == [5 + WINDOW, NEVER]
    holder.operator.make_all_old(0)
    assert holder.operator.old_until(0).tolist() == [7 + WINDOW] * 2
    assert results_of([holder]) == Counter({(0, 0): 1})
