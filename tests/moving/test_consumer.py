"""Groups that a slave is given are staged until they are whole, and refused without room. Damaged ones are not
installed."""

import numpy as np
import pytest

from join_harness import check_accounts
from mover_harness import (
    ALLOWANCE,
    BLOCK,
    CONSUMER,
    PORTION,
    SUPPLIER,
    Side,
    frozen_states,
    ship_all,
    states,
    supplier_of,
    whole_bytes,
)
from mpijoin.errors import CodecError, ProtocolError
from mpijoin.messages import State
from mpijoin.moving import steps
from mpijoin.rank import MASTER
from mpijoin.slave import moving

CANCELLED = State(7, SUPPLIER, 1, (), cancelled=True)


@pytest.fixture(autouse=True)
def small_portions(monkeypatch):
    monkeypatch.setattr(moving, "PORTION_BYTES", PORTION)
    monkeypatch.setattr(moving, "SLOT_BYTES", ALLOWANCE)


def test_what_is_staged_is_counted_and_not_joined():
    consumer, octets = Side(CONSUMER), 0
    for state in frozen_states()[:-1]:
        octets += whole_bytes(state.frames)
        assert not consumer.mover.take(state)
        assert consumer.mover.staged_bytes == octets
    assert consumer.harness.operator.memory().held == 0 and consumer.desk.sent == []


@pytest.mark.parametrize("at", [0, 3])
def test_what_is_cancelled_is_forgotten(at):
    consumer, arrived = Side(CONSUMER), frozen_states()
    for state in arrived[:at]:
        consumer.mover.take(state)
    assert not consumer.mover.take(CANCELLED)
    assert consumer.mover.staged_bytes == 0 and consumer.desk.sent == []
    assert [consumer.mover.take(state) for state in arrived][-1] and consumer.mover.install(7)


def test_state_of_another_group_or_after_the_whole_is_refused():
    consumer, arrived = Side(CONSUMER), frozen_states()
    consumer.mover.take(arrived[0])
    other = State(7, SUPPLIER, 0, arrived[1].frames)
    with pytest.raises(ProtocolError, match="slave 2 got state of group 0 in move 7, wanted that of group 1"):
        consumer.mover.take(other)
    for state in arrived[1:]:
        consumer.mover.take(state)
    for late, event in (arrived[0], "portion"), (arrived[-1], "rest"), (CANCELLED, "cancel"):
        text = f"move 7 is whole at its consumer and got '{event}', wanted 'install' or 'no room'"
        with pytest.raises(ProtocolError, match=text):
            consumer.mover.take(late)
    assert consumer.mover.install(7)  # What was out of turn has changed nothing.


def test_a_group_that_is_not_whole_is_not_installed():
    consumer = Side(CONSUMER)
    consumer.mover.take(frozen_states()[0])
    with pytest.raises(ProtocolError, match="move 7 is staging at its consumer and got 'install', wanted 'portion' or"):
        consumer.mover.install(7)
    assert consumer.desk.sent == [] and consumer.harness.operator.memory().held == 0


def test_damaged_state_is_noticed_when_it_is_installed():
    consumer, arrived = Side(CONSUMER), frozen_states()
    for state in arrived:
        cut = tuple(frame[:-8] for frame in state.frames)
        consumer.mover.take(state if state is not arrived[2] else State(7, SUPPLIER, 1, cut))
    with pytest.raises(CodecError, match="but it says"):
        consumer.mover.install(7)


def test_a_portion_that_did_not_come_is_noticed_when_it_is_installed():
    consumer, arrived = Side(CONSUMER), frozen_states()
    for state in arrived[:1] + arrived[2:]:
        consumer.mover.take(state)
    with pytest.raises(ProtocolError, match="partition 1: .* blocks did not come"):
        consumer.mover.install(7)


def test_without_room_it_is_refused_at_once_and_what_still_comes_is_ignored_until_it_is_cancelled():
    consumer, arrived = Side(CONSUMER, memory=BLOCK * 20), frozen_states()
    came = 0
    while not consumer.desk.sent:
        assert not consumer.mover.take(arrived[came])
        came += 1
    (to, refused), octets = consumer.desk.taken()[0], sum(whole_bytes(state.frames) for state in arrived[:came])
    assert (to, refused.step, refused.move) == (MASTER, "refused", 7)
    assert refused.reason == f"it has no room for group 1: {octets} bytes have come so far" and octets > BLOCK * 20
    for state in arrived[came:]:
        assert not consumer.mover.take(state)
    assert consumer.mover.staged_bytes == 0 and consumer.desk.sent == []
    assert not consumer.mover.take(CANCELLED)
    assert not consumer.mover.take(State(7, SUPPLIER, 1, arrived[0].frames)) and consumer.mover.staged_bytes > 0


def test_room_counts_all_that_is_staged():
    consumer = Side(CONSUMER, memory=BLOCK * 60)
    first = frozen_states()[:4]
    for state in first:
        consumer.mover.take(state)
    room = consumer.harness.operator.memory().free - consumer.mover.staged_bytes
    frame = np.zeros(room + 1, np.uint8)
    consumer.mover.take(State(8, SUPPLIER, 0, (frame,)))
    assert [(message.step, message.move) for _, message in consumer.desk.sent] == [("refused", 8)]
    assert consumer.mover.staged_bytes == sum(whole_bytes(state.frames) for state in first)


def test_a_group_for_which_there_is_no_room_any_more_is_refused_when_it_is_installed():
    one_group_bytes = supplier_of(group=0).harness.operator.memory().held
    consumer, arrived = Side(CONSUMER, memory=one_group_bytes * 3 // 2), frozen_states()
    assert [consumer.mover.take(state) for state in arrived][-1]
    consumer.add(300, 0, group=0)  # It goes on joining meanwhile.
    own, held_bytes = consumer.walk(0), consumer.harness.operator.memory().held
    assert consumer.mover.install(7) == ()
    ((to, refused),) = consumer.desk.taken()
    assert (to, refused.step) == (MASTER, "refused") and "partition 1 needs" in refused.reason
    assert consumer.mover.staged_bytes == 0 and consumer.harness.operator.memory().held == held_bytes
    assert consumer.walk(0) == own and not consumer.mover.take(CANCELLED)


def test_two_groups_are_staged_side_by_side():
    consumer = Side(CONSUMER)
    other = supplier_of(group=0)
    other.order(steps.SHIP, move=9, group=0)
    arrived = [state for portion in ship_all(other) for state in states(portion)]
    other.order(steps.FREEZE, move=9, group=0)
    arrived += states(other.desk.taken())
    own = frozen_states()
    for at in range(max(len(own), len(arrived))):
        whole = [consumer.mover.take(state) for some in (own, arrived) for state in some[at : at + 1]]
    assert any(whole)
    assert [slot.groups.tolist() for move in (9, 7) for slot in consumer.mover.install(move)] == [[0], [1]]
    assert check_accounts(consumer.harness, [0, 1])[0].tuples == other.walk(0)
