"""Groups that move between slaves at random, and one that goes over a real transport in portions of the real size."""

import random

import numpy as np
import pytest

from join_harness import NEVER, Harness, Stream, groups_of
from mover_harness import ALLOWANCE, PORTION, STREAM, Side, rows_of, states, steps_in
from mpijoin.clock import RunClock
from mpijoin.data.batch import read_only
from mpijoin.data.codec import decode
from mpijoin.moving import steps
from mpijoin.operators.base import Out
from mpijoin.orders import Order
from mpijoin.rank import Rank
from mpijoin.signals import SignalFlag
from mpijoin.slave import moving
from mpijoin.slave.inputs import Inputs
from mpijoin.slave.moving import Mover
from mpijoin.store import state as st
from mpijoin.store.insert import Fresh
from mpijoin.store.shipment import BLOCKS_KIND, TAIL_DTYPES
from mpijoin.transport.local import LocalTransport


@pytest.mark.parametrize("seed", range(25))
def test_random_moves_to_and_fro_lose_nothing(seed, monkeypatch):
    """Three groups move between three slaves and are joined all the while. Some moves are given up half way."""
    monkeypatch.setattr(moving, "PORTION_BYTES", PORTION)
    monkeypatch.setattr(moving, "SLOT_BYTES", ALLOWANCE)
    chance = random.Random(seed)
    sides = {number: Side(number, partitions=3, theta=chance.choice([300, 2000, st.THETA_OFF])) for number in (1, 2, 3)}
    owner, joined = {group: 1 + group for group in range(3)}, {group: [] for group in range(3)}
    for move in range(12):
        group = chance.randrange(3)
        supplier, peer = sides[owner[group]], chance.choice([one for one in sides if one != owner[group]])
        if wander(chance, move, group, supplier, sides[peer], joined[group]):
            owner[group] = peer
    for group, rows in joined.items():
        for number, side in sides.items():
            there = number == owner[group]
            assert side.harness.operator.info(groups_of(group)).tuples.tolist() == [[len(rows) * there] * 2]
        held = sides[owner[group]].walk(group)
        assert [sorted(row.row for row in side) for side in held] == [sorted(rows)] * 2
    for side in sides.values():
        assert side.mover.staged_bytes == 0


def wander(chance, move, group, supplier, consumer, joined):
    """Makes one move. Returns whether it was carried out, not given up.

    joined: the rows of the group, to which those joined meanwhile are added.
    """
    peer, arrived, all_shipped, given_up = consumer.desk.number, [], False, False
    supplier.order(steps.SHIP, move, group, peer)
    while not all_shipped and not given_up:
        given_up = chance.random() < 0.05
        rows = rows_of(group, STREAM, 10_000 * move + len(joined), chance.choice([0, 0, 3, 30]), 3)
        supplier.harness.round(groups_of(group), rows, rows, (NEVER, NEVER))
        joined += [row.row for row in rows]
        supplier.mover.ship(chance.random() < 0.5)
        if chance.random() < 0.7:
            sent = supplier.desk.taken()
            arrived += states(sent)
            all_shipped = bool(steps_in(sent))
        if chance.random() < 0.5:
            supplier.mover.slot_came()
    supplier.order(steps.RESTORE if given_up else steps.FREEZE, move, group, peer)
    arrived += states(supplier.desk.taken())
    assert [consumer.mover.take(state) for state in arrived][-1] is not given_up
    if given_up:
        return False
    assert [slot.groups.tolist() for slot in consumer.mover.install(move)] == [[group]]
    assert consumer.walk(group) == supplier.walk(group)
    supplier.order(steps.DROP, move, group, peer)
    assert [step for _, step in steps_in(consumer.desk.taken() + supplier.desk.taken())] == ["installed", "dropped"]
    return True


def rows_in(frames):
    """Returns the row numbers of the left tuples in all frames of a group, in rising order."""
    found = []
    for frame in map(decode, frames):
        tuples = frame.buffers[2] if frame.kind == BLOCKS_KIND else frame.buffers[len(TAIL_DTYPES) + 2]
        found += tuples[:, st.ROW].tolist()
    return sorted(found)


def test_over_a_real_transport_with_portions_of_the_real_size():
    clock, signals = RunClock(), SignalFlag()
    master, *ranks = [Rank(end, clock, signals) for end in LocalTransport.create(3)]
    rows, operators = 600_000, [Harness([Stream(1 << 40)] * 2, 1, 1 << 26).operator for _ in range(2)]
    number = np.arange(rows)
    everything = Fresh(read_only(np.stack([number * 7919, number, number], axis=1)), read_only(np.empty(0, np.uint8)))
    out = Out(2, 1)
    assert operators[0].insert(groups_of(0), 0, everything, np.array([[0, rows]])).groups == 1
    operators[0].probe(groups_of(0), 1 << 40, out)
    operators[0].expire(groups_of(0), (NEVER, NEVER), out)
    supplier, consumer = (Mover(*both, Inputs((0,), 1, 2)) for both in zip(ranks, operators))
    supplier.expects(Order(0, steps.SHIP, 0, 2))
    supplier.carry_out(0, steps.SHIP, 0, [])
    portions, whole = 0, False
    while not whole:
        if supplier.ship(False):
            portions += ranks[0].transport.unsent_bytes(2) > 0
            assert not supplier.ship(False)  # The consumer has not taken it yet.
        for _, message in ranks[1].receive():
            whole = consumer.take(message)
        for _, step in master.receive():
            supplier.carry_out(0, step.step.replace("shipped", steps.FREEZE), 0, [])
    assert [slot.groups.tolist() for slot in consumer.install(0)] == [[0]]
    assert portions == rows * 24 // moving.PORTION_BYTES > 0
    assert rows_in(operators[1].get(0, 0)) == rows_in(operators[0].get(0, 0)) == list(range(rows))
    supplier.carry_out(0, steps.DROP, 0, [])
    told = {step.step: step.figures for _, step in master.receive()}
    assert told.keys() == {"installed", "dropped"} and told["dropped"].octets >= rows * 24
    assert 0 < told["dropped"].transfer_s < clock.wall_s
