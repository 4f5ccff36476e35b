"""A tree of binary joins finds what the oracle finds, for any tree over three to five streams, whatever the batches,
partitions, theta, block size, budget and buffers, wherever groups go, and whenever their states are dropped or the plan
changes.

States are made again as DCAPE does it (section 4): "This can be done by recursively recomputing the unmatched states
from bottom to top."
"""

import random
from collections import Counter
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import oracle
from join_harness import EVER, Harness, Stream, check_accounts, groups_of, numbered
from mpijoin.config.plan import Binary
from mpijoin.data.codec import decode, encode
from mpijoin.errors import ProtocolError
from mpijoin.join.window_join import Setup as JoinSetup
from mpijoin.operators.base import Keep, Progress
from mpijoin.plans.kernels import MEMBERS
from mpijoin.plans.node import Node
from mpijoin.plans.operator import PlannedJoin
from mpijoin.plans.travel import STATES_KIND
from mpijoin.plans.tree import Tree
from mpijoin.store import state as st
from mpijoin.store.pool import StreamSpec, new_pool
from random_joins import CUTS, SETUPS, expected, joins, rounds, trees


class Change(NamedTuple):
    plan: Binary | None


def tree_of(streams, plan, partitions=1, memory=1 << 22, block=256, theta=200, capacity=50, period=0):
    specs = tuple(StreamSpec(stream.record_words, stream.has_blob, stream.window) for stream in streams)
    pool = new_pool(memory, block, max(MEMBERS + len(specs), *(spec.tuple_words for spec in specs)))
    return PlannedJoin(JoinSetup(partitions, theta, specs), plan, pool, capacity, period)


def run(setup, streams, rows, cuts, plans, capacity, dropped, keep=Keep.SLOT_IDS, changes=None, takes=0):
    """The holders, each with its own plan, after every round of which each group has gone to the next one. dropped:
    how often states are dropped, in rounds; 0: never · changes: which plan all holders follow after each round · takes:
    how often groups go with their states, in rounds; 0: never."""
    holders = [
        Harness(
            streams, setup.partitions, result_buffer=setup.result_buffer, keep=keep,
            operator=tree_of(streams, plan, setup.partitions, 1 << 22, setup.block, setup.theta, capacity),
        )
        for plan in plans[: setup.holders]
    ]  # fmt: skip
    changes = iter(changes or ())
    for number, (parts, marks) in enumerate(rounds(rows, cuts)):
        if number and (change := next(changes, None)):
            for holder in holders:
                if change.plan != holder.operator.plan:
                    holder.operator.follow(change.plan)
        for group in range(setup.partitions):
            holder, following = (holders[(group + step) % setup.holders] for step in (number, number + 1))
            holder.round_of(groups_of(group), parts, marks, setup.budget, setup.pieces)
            if dropped and number % dropped == 0:
                holder.operator.forget_states()
            if holder is not following:
                states = holder.operator.states_of(group) if takes and number % takes == 0 else []
                assert following.operator.install([*states, *holder.operator.get(group, 0)]) == group
                holder.operator.drop(group)
    return holders


def results_of(holders):
    return Counter(tuple(one.row for one in found) for holder in holders for found in holder.pairs)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(SETUPS, joins(some.integers(3, 5)), CUTS, some.data(), some.integers(1, 60), some.integers(0, 3))
def test_the_result_is_the_oracles_for_any_tree(setup, join, cuts, data, capacity, dropped):
    takes = data.draw(some.integers(0, 2))
    streams, rows = join
    plans = [data.draw(trees(len(streams))) for _ in range(setup.holders)]
    holders = run(setup, streams, rows, cuts, plans, capacity, dropped, takes=takes)
    wanted = expected(streams, rows)
    assert results_of(holders) == wanted
    assert all(one == rows[i][one.row] for holder in holders for found in holder.pairs for i, one in enumerate(found))
    certificate = sum(holder.out.certificate for holder in holders) & oracle.MASK
    assert f"{certificate:016x}" == oracle.certificate(wanted.elements())
    for holder in holders:
        operator = holder.operator
        own = operator.info(groups_of(*range(setup.partitions)))
        assert operator.totals.results == holder.out.found
        if setup.holders == 1:  # The counts of a group go with it.
            assert own.results.sum() == operator.totals.results
            assert own.comparisons.sum() == operator.totals.comparisons
        operator.forget_states()  # What is left must be the streams' own tuples.
        check_accounts(holder, holder.started())
        assert operator.memory().held == holder.state.pool[st.PAGES_HELD] * operator.page_bytes


@settings(max_examples=60, deadline=None, derandomize=True)
@given(SETUPS, joins(some.integers(3, 4)), CUTS, some.data(), some.sampled_from([Keep.NOTHING, Keep.LATEST_TIMES]))
def test_results_that_are_not_kept_are_counted_and_certified_all_the_same(setup, join, cuts, data, keep):
    streams, rows = join
    plans = [data.draw(trees(len(streams)))] * setup.holders
    holders, wanted = run(setup, streams, rows, cuts, plans, 7, 0, keep), expected(streams, rows)
    assert sum(holder.out.found for holder in holders) == wanted.total()
    times = Counter(max(rows[stream][row].time for stream, row in enumerate(one)) for one in wanted.elements())
    found = sum((holder.later_times for holder in holders), Counter())
    assert found == (times if keep is Keep.LATEST_TIMES else Counter())


@settings(max_examples=100, deadline=None, derandomize=True)
@given(SETUPS, joins(some.integers(3, 5)), CUTS, some.data(), some.sampled_from([1, 10, 1 << 16]), some.integers(0, 3))
def test_the_result_is_the_oracles_whatever_plans_follow_each_other(setup, join, cuts, data, restored, dropped):
    """restored: of how many tuples states are made at a time, so that some groups wait for their turn."""
    streams, rows = join
    plans = [data.draw(trees(len(streams))) for _ in range(setup.holders)]
    known = [*plans[:2], data.draw(trees(len(streams))), None]
    changes = [Change(data.draw(some.sampled_from(known))) for _ in range(len(cuts) + 1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mpijoin.plans.operator.RESTORED_MIN", restored)
        takes = data.draw(some.integers(0, 2))
        holders = run(setup, streams, rows, cuts, plans, 20, dropped, changes=changes, takes=takes)
    assert results_of(holders) == expected(streams, rows)
    for holder in holders:
        holder.operator.forget_states()
        check_accounts(holder, holder.started())
        assert holder.operator.memory().held == holder.state.pool[st.PAGES_HELD] * holder.operator.page_bytes


ROWS, STREAMS = 400, [Stream(40), Stream(25), Stream(60)]
CHAIN = Binary(Binary(0, 1), 2)


def steady(keys=20, partitions=4):
    return [numbered([(at + 3 * stream, (at * 7 + stream) % keys) for at in range(ROWS)]) for stream in range(3)]


def pieces(rows, size=20):
    for low in range(0, ROWS, size):
        yield [own[low : low + size] for own in rows], [min(EVER, own[min(low + size, ROWS - 1)].time) for own in rows]


def test_states_die_with_the_first_of_their_members():
    """So steady streams have steady states."""
    rows, harness = steady(), Harness(STREAMS, operator=tree_of(STREAMS, CHAIN))
    held = []
    for parts, marks in pieces(rows):
        harness.round_of(groups_of(0), parts, marks)
        held.append([node.totals.held for node in harness.operator._tree.nodes])
    inner, root = zip(*held[5:])
    assert max(map(sum, root)) < 2 * min(map(sum, root)) and min(one for _, one in inner) > 0
    assert max(own for own, _ in root) < expected(STREAMS[:2], rows[:2]).total() / 4
    harness.expire(groups_of(0), [EVER] * 3)
    assert harness.operator.memory().held == 0


def test_states_do_not_outlive_the_stay_of_their_group():
    """It goes to and fro between two holders. Whenever it comes back, it has tuples that its former states lack."""
    rows, both = steady(keys=5), [Harness(STREAMS, operator=tree_of(STREAMS, CHAIN)) for _ in range(2)]
    for number, (parts, marks) in enumerate(pieces(rows)):
        here, there = both[number % 2], both[1 - number % 2]
        here.round_of(groups_of(0), parts, marks)
        there.operator.install(here.operator.get(0, 0))
        here.operator.drop(0)
    assert results_of(both) == expected(STREAMS, rows)


def test_tuples_that_are_old_without_being_joined_are_in_the_states_that_come_next():
    rows, harness, settled = steady(keys=5), Harness(STREAMS, operator=tree_of(STREAMS, CHAIN)), 6
    for number, (parts, marks) in enumerate(pieces(rows)):
        if number != settled:
            harness.round_of(groups_of(0), parts, marks)
            continue
        for stream, own in enumerate(parts):
            harness.insert(groups_of(0), stream, own)
        harness.operator.settle(groups_of(0))
        harness.expire(groups_of(0), marks)
    wanted = expected(STREAMS, rows)
    joined = Counter({found: times for found, times in wanted.items() if max(found) // 20 != settled})
    assert results_of([harness]) == joined != wanted


@pytest.mark.parametrize("block, share", [(64, 0.9), (256, 0.6)])
def test_where_memory_is_short_states_of_other_groups_go_first(block, share):
    """It is enough for the tuples, and for the states of some groups. Results are the same."""
    rows, partitions = steady(), 4
    wanted = expected(STREAMS, rows)
    roomy = Harness(STREAMS, partitions, operator=tree_of(STREAMS, CHAIN, partitions, block=block, theta=1 << 20))
    most = 0
    for parts, marks in pieces(rows):
        for group in range(partitions):
            roomy.round_of(groups_of(group), parts, marks)
            most = max(most, roomy.operator.memory().held)
    operator = tree_of(STREAMS, CHAIN, partitions, int(share * most), block, theta=1 << 20)
    tight = Harness(STREAMS, partitions, operator=operator)
    dropped = 0
    for parts, marks in pieces(rows):
        for group in range(partitions):
            tight.round_of(groups_of(group), parts, marks)
            dropped += int(not tight.operator._tree.holds.all())
    assert results_of([tight]) == results_of([roomy]) == wanted and dropped > 10


@pytest.mark.parametrize("keys", [1, 20])
def test_states_that_do_not_fit_at_all_are_done_without(keys):
    """The tuples fit, the states of their pairs do not. Later there is room again for a while."""
    rows = [numbered([(at, at % keys) for at in range(ROWS)]) for _ in range(3)]
    harness = Harness(STREAMS, operator=tree_of(STREAMS, CHAIN, memory=15_000, theta=1 << 20))
    had_states = dropped = 0
    for number, (parts, marks) in enumerate(pieces(rows)):
        harness.round_of(groups_of(0), parts if number % 8 else [own[:2] for own in parts], marks, 1000)
        dropped += not harness.operator._tree.holds[0]
        had_states += harness.operator._tree.holds[0]
    lows = range(0, ROWS, 20)
    kept = [[row for low in lows for row in own[low : low + (20 if low // 20 % 8 else 2)]] for own in rows]
    windows = [stream.window for stream in STREAMS]
    wanted = Counter(oracle.join([[(row.time, row.key, row.row) for row in own] for own in kept], windows))
    assert results_of([harness]) == wanted
    assert dropped and (had_states or keys == 1)


def test_a_probe_that_is_paused_is_done_to_its_end():
    rows, harness = steady(keys=5), Harness(STREAMS, operator=tree_of(STREAMS, CHAIN))
    for stream, own in enumerate(rows):
        harness.insert(groups_of(0), stream, own)
    assert harness.operator.probe(groups_of(0), 100, harness.out) is Progress.BUDGET
    while harness.operator.pause(100, harness.out) is not Progress.DONE:
        harness.consume()
    harness.consume()
    assert not harness.operator.holds_fresh(0) and results_of([harness]) == expected(STREAMS, rows)


def selective(rng, pair, rows, keys=10):
    """Three streams. The keys of two of them are never equal, and each row of them has many partners in the third."""
    lows, many = {pair[1]: keys}, dict.fromkeys(pair, keys)

    def key(stream):
        return lows.get(stream, 0) + rng.randrange(many.get(stream, 2 * keys))

    return [[(at, key(stream)) for at in range(rows)] for stream in range(3)]


def test_a_slave_changes_to_the_plan_that_its_rows_make_cheapest_and_back():
    """At first the keys of a and b are never equal, then those of b and c, and then all are equal as often."""
    rng, window, length = random.Random(3), 800, 3000
    alike = [[(at, rng.randrange(200)) for at in range(length)] for _ in range(3)]
    phases = [selective(rng, (0, 1), length), selective(rng, (1, 2), length), alike]
    keys_of = [[key for phase in phases for _, key in phase[i]] for i in range(3)]
    rows = [numbered(list(enumerate(keys))) for keys in keys_of]
    streams = [Stream(window)] * 3
    operator, steady_one = (tree_of(streams, None, 4, theta=2000, period=period) for period in (600, EVER))
    harnesses = [Harness(streams, 4, operator=one, keep=Keep.NOTHING) for one in (operator, steady_one)]
    for low in range(0, 3 * length, 100):
        marks = [min(EVER, own[min(low + 100, 3 * length - 1)].time) for own in rows]
        for harness in harnesses:
            harness.round_of(groups_of(*range(4)), [own[low : low + 100] for own in rows], marks)
    (found, certificate), wanted = ((one.out.found, one.out.certificate) for one in harnesses)
    assert (found, certificate) == wanted and found > 0 and len(steady_one.plans) == 1
    pairs = {Binary(0, 1), Binary(1, 2)}
    first = [(one.tuples // (3 * length), one.plan and {*one.plan} & pairs) for one in operator.plans]
    assert [one for one in first if one[1] is not None] == [(0, {Binary(0, 1)}), (1, {Binary(1, 2)})]
    assert operator.plans[0][1] is None and operator.plan is None


def test_a_slave_goes_back_from_a_plan_that_takes_longer_than_it_costs_by_the_guesses():
    """The rows make a tree cheapest, by what its steps took on another machine. Here a tuple takes ten times as long by
    it as m-way."""
    rng, length, streams = random.Random(3), 9000, [Stream(800)] * 3
    few = [(length, 5)] * 20  # These meet.
    rows = [numbered(own + few) for own in selective(rng, (0, 1), length - len(few))]
    told, untold = (tree_of(streams, None, 4, theta=2000, period=600) for _ in range(2))
    for operator in (told, untold):
        harness = Harness(streams, 4, operator=operator, keep=Keep.NOTHING)
        for low in range(0, length, 100):
            marks = [min(EVER, own[min(low + 100, length - 1)].time) for own in rows]
            harness.round_of(groups_of(*range(4)), [own[low : low + 100] for own in rows], marks)
            if operator is told:
                operator.spent(300 * (1e-6 if operator.plan is None else 1e-5))
    assert untold.plan is not None and len(untold.plans) == 2
    away, back = told.plans[1:]
    assert away.plan == untold.plan and back.plan is None
    assert away.took_ns == pytest.approx(1000, rel=0.1) and back.took_ns == pytest.approx(10_000, rel=0.1)
    assert back.takes_ns < back.took_ns
    assert told.totals.results == untold.totals.results > 0


def test_a_change_goes_group_by_group_and_makes_states_of_two_tuples_at_most_for_each_that_comes(monkeypatch):
    monkeypatch.setattr("mpijoin.plans.operator.RESTORED_MIN", 1)
    partitions, streams = 16, [Stream(60)] * 3
    rows, groups = steady(keys=100), groups_of(*range(partitions))
    operator = tree_of(streams, None, partitions, period=EVER)
    harness, held, came = Harness(streams, partitions, operator=operator), [], 0
    for number, (parts, marks) in enumerate(pieces(rows)):
        if number == 5:
            operator.follow(CHAIN)
        harness.round_of(groups, parts, marks)
        operator.spent(0.001)
        # What a change takes says nothing of any plan.
        assert (operator.statistics.tuple_ns > 0) == (number < 5)
        if number >= 5:
            came += sum(map(len, parts))
            held.append(int(operator._tree.holds.sum()))
            assert operator.info(groups).tuples[operator._tree.holds].sum() < 2 * came + 60
    assert held == sorted(held) and 0 < held[0] < partitions / 2 and held[-1] == partitions
    assert results_of([harness]) == expected(streams, rows)


def test_states_that_both_trees_have_are_taken_over_and_the_others_are_made_again(monkeypatch):
    """DCAPE, section 4.1: "Two states can move tuples in between them if and only if they contain tuples with the same
    schema."
    """
    taken, take_over = [], Tree._take_over

    def watched(tree, found, parent, at):
        taken.append((found.state.members, parent.states[at].members))
        take_over(tree, found, parent, at)

    monkeypatch.setattr(Tree, "_take_over", watched)
    streams = [Stream(40), Stream(25), Stream(60), Stream(30)]
    rows = [*steady(), steady()[0]]
    operator = tree_of(streams, Binary(Binary(Binary(0, 1), 2), 3))
    harness = Harness(streams, operator=operator)
    for number, (parts, marks) in enumerate(pieces(rows)):
        if number == 10:
            operator.follow(Binary(Binary(3, Binary(1, 0)), 2))
        harness.round_of(groups_of(0), parts, marks)
    assert taken == [((0, 1), (1, 0))] and results_of([harness]) == expected(streams, rows)


@pytest.mark.parametrize("restored, every", [(1, 1), (1, 3), (1 << 16, 2)])
def test_plans_that_come_back_find_nothing_that_they_left(monkeypatch, restored, every):
    """If few groups change at a time, others are still held by the tree of before when the next plan comes."""
    monkeypatch.setattr("mpijoin.plans.operator.RESTORED_MIN", restored)
    other, third = Binary(Binary(2, 1), 0), Binary(Binary(0, 2), 1)
    plans = [other, CHAIN, None, CHAIN, third, other, third, CHAIN]
    rows, groups = steady(), groups_of(*range(4))
    operator = tree_of(STREAMS, CHAIN, 4)
    harness = Harness(STREAMS, 4, operator=operator)
    for number, (parts, marks) in enumerate(pieces(rows)):
        if number > 5 and number % every == 0:
            operator.follow(plans[number // every % len(plans)])
        harness.round_of(groups, parts, marks)
        assert operator.memory().held == harness.state.pool[st.PAGES_HELD] * operator.page_bytes
    assert results_of([harness]) == expected(STREAMS, rows)


@pytest.mark.parametrize("receiver, taken", [
    (Binary(Binary(Binary(0, 1), 2), 3), [(0, 1), (0, 1, 2)]),
    (Binary(Binary(3, Binary(1, 0)), 2), [(0, 1)]),
    (Binary(Binary(0, 3), Binary(1, 2)), []),
    (None, []),
])  # fmt: skip
def test_states_that_the_receiver_has_as_well_come_along_and_the_others_are_made_there(monkeypatch, receiver, taken):
    """DCAPE, section 4.2: "If a match is found, the single partition is then inserted to the state that has the same
    schema." "If a single partition cannot be matched with any state, this single partition is then discarded by the
    receiver." Between equal plans, "all partitions transferred between two machines will be matching partitions on the
    receiver machine. Therefore no partition recomputation is necessary."
    """
    streams = [Stream(40), Stream(25), Stream(60), Stream(30)]
    rows, given, found = [*steady(), steady()[0]], [], []
    plans = Binary(Binary(Binary(0, 1), 2), 3), receiver
    holders = [Harness(streams, operator=tree_of(streams, plan)) for plan in plans]
    take_over, find = Tree._take_over, Node.find

    def watched(tree, one, parent, at):
        given.append(one.state.members)
        take_over(tree, one, parent, at)

    for number, (parts, marks) in enumerate(pieces(rows)):
        holders[number >= 10].round_of(groups_of(0), parts, marks)
        if number == 9:
            sender = holders[0].operator
            frames = [*sender.states_of(0), *sender.get(0, 0)]
            with monkeypatch.context() as patch:
                patch.setattr(Tree, "_take_over", watched)
                patch.setattr(Node, "find", lambda *asked: found.append(asked[0].state.members) or find(*asked))
                holders[1].operator.install(frames)
            sender.drop(0)
    assert given == taken and results_of(holders) == expected(streams, rows)
    is_made = receiver is not None and receiver != plans[0]
    assert bool(found) == is_made


def test_states_that_come_with_another_group_or_of_more_tuples_are_refused_by_name():
    operator, other = tree_of(STREAMS, CHAIN, 2), tree_of(STREAMS, CHAIN, 2)
    harness = Harness(STREAMS, 2, operator=operator)
    for parts, marks in pieces(steady(partitions=2)):
        harness.round_of(groups_of(0, 1), parts, marks)
    with pytest.raises(ProtocolError, match="states of partition 1 came with partition 0"):
        other.install([*operator.states_of(1), *operator.get(0, 0)])
    (frame,) = operator.states_of(1)
    places = decode(frame).buffers[0] + 10_000
    with pytest.raises(ProtocolError, match="partition 1: states came of more than .* tuples"):
        other.install([encode(STATES_KIND, {"group": 1, "members": [0, 1]}, [places]), *operator.get(1, 0)])
