"""A probe that is stopped anywhere, its groups read out with their fresh tuples and installed elsewhere, where the rest
is joined: together the results are the oracle's, for two streams and for any other number."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from join_harness import NEVER, Harness, Stream, check_accounts, groups_of, numbered
from mpijoin.data.codec import decode, encode
from mpijoin.errors import CodecError, ProtocolError
from mpijoin.operators.base import Keep, Progress
from random_joins import SETUPS, Setup, expected, joins


def next_holder(holder, setup):
    """The operator that goes on: it gets all groups of the other, whose probe is paused."""
    while holder.operator.pause(setup.budget, holder.out) is not Progress.DONE:
        holder.consume()
    holder.consume()
    following = new_holder(holder.streams, setup)
    for group in holder.started():
        assert following.operator.install(holder.operator.get(group, 0)) == group
    check_fresh_alike(holder, following)
    return following


def new_holder(streams, setup, keep=Keep.SLOT_IDS):
    return Harness(streams, setup.partitions, 1 << 22, setup.block, setup.theta, setup.result_buffer, keep=keep)


def check_fresh_alike(holder, following):
    """The tails say so: read out again, as many tuples of each chain are fresh."""
    for group in holder.started():
        tails = [decode(one.operator.get(group, 0)[-1]).buffers for one in (holder, following)]
        assert tails[0][4].tolist() == tails[1][4].tolist()


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    some.data(), joins(some.sampled_from([1, 2, 2, 2, 3, 4])), SETUPS, some.lists(some.integers(0, 4), max_size=8),
    some.integers(1, 3),
)  # fmt: skip
def test_what_is_left_of_a_paused_probe_is_joined_elsewhere(data, join, setup, pauses, rounds):
    streams, rows = join
    holders, pauses = [new_holder(streams, setup)], list(pauses)
    groups = groups_of(*range(setup.partitions))
    for part in range(rounds):
        for stream, own in enumerate(rows):
            fresh = own[len(own) * part // rounds : len(own) * (part + 1) // rounds]
            assert holders[-1].insert(groups, stream, fresh) == len(groups)
        while True:
            if pauses and pauses.pop() == 0:
                holders.append(next_holder(holders[-1], setup))
            progress = holders[-1].operator.probe(groups, setup.budget, holders[-1].out)
            holders[-1].consume()
            if progress is Progress.DONE:
                break
        holders[-1].expire(groups, [NEVER] * len(streams))
    check_accounts(holders[-1], holders[-1].started())
    found = Counter(tuple(row.row for row in pair) for holder in holders for pair in holder.pairs)
    assert found == expected(streams, rows)


def test_an_m_way_probe_that_is_paused_at_a_tuple_does_not_join_it_again():
    """Wherever it stops: each of six tuples has 36 combinations."""
    streams, setup, halves = [Stream(10**6)] * 3, Setup(), 0
    rows = [numbered([(time, 7) for time in range(6)]) for _ in streams]
    for budget in range(1, 400, 7):
        holders = [new_holder(streams, setup)]
        for stream, own in enumerate(rows):
            holders[0].insert(groups_of(0), stream, own)
        holders[0].operator.probe(groups_of(0), budget, holders[0].out)
        holders[0].consume()
        holders.append(next_holder(holders[0], setup))
        holders[1].probe(groups_of(0))
        found = Counter(tuple(row.row for row in pair) for holder in holders for pair in holder.pairs)
        assert found == expected(streams, rows)
        halves += 0 < len(holders[0].pairs) < 6**3
    assert halves > 10


def half_probed():
    """A holder of one group, two tuples of a hot key a block, whose probe has stopped somewhere."""
    streams = [Stream(10**6)] * 2
    holder = Harness(streams, 1, 1 << 22, 64)
    rows = numbered([(time, 7) for time in range(60)])
    for stream in range(2):
        holder.insert(groups_of(0), stream, rows)
    assert holder.operator.probe(groups_of(0), 100, holder.out) is Progress.BUDGET
    return holder


def test_a_group_is_neither_read_out_nor_dropped_while_a_probe_is_under_way():
    operator = half_probed().operator
    for action in (lambda: operator.get(0, 0), lambda: operator.drop(0)):
        with pytest.raises(ProtocolError, match="partition 0 is wanted while a probe is under way"):
            action()


def test_a_pause_soon_ends_however_much_is_left():
    holder = half_probed()
    assert holder.operator.pause(1 << 40, holder.out) is Progress.DONE
    assert 0 < holder.out.found < 60 * 10  # of 3,600


@pytest.mark.parametrize(
    "fresh, error",
    [
        ([60], CodecError),  # of one chain of two
        ([-1, 0], CodecError),
        ([61, 0], ProtocolError),  # of 60 tuples
    ],
)
def test_wrong_counts_of_fresh_tuples_are_refused(fresh, error):
    holder = half_probed()
    holder.operator.pause(1 << 40, holder.out)
    *blocks, tail = holder.operator.get(0, 0)
    kind, meta, buffers = decode(tail)
    tail = encode(kind, meta, [*buffers[:4], np.array(fresh), *buffers[5:]])
    with pytest.raises(error):
        Harness(holder.streams, 1, 1 << 22, 64).operator.install([*blocks, tail])
