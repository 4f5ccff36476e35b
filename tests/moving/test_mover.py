"""Groups that a slave gives away go in bounded portions, one by one. What is installed is what was there."""

from collections import Counter

import pytest

import oracle
from join_harness import NEVER, check_accounts, groups_of, walk
from mover_harness import (
    ALLOWANCE,
    CONSUMER,
    PORTION,
    STREAM,
    SUPPLIER,
    Side,
    blocks_in,
    rows_of,
    sealed_bytes,
    ship_all,
    slot_of,
    states,
    steps_in,
    supplier_of,
    whole_bytes,
)
from mpijoin.data.codec import decode
from mpijoin.errors import ProtocolError
from mpijoin.moving import steps
from mpijoin.orders import Step
from mpijoin.partitioning import runs
from mpijoin.rank import MASTER
from mpijoin.records import Transfer
from mpijoin.slave import moving
from mpijoin.slave.batches import Batches
from mpijoin.store.shipment import BLOCKS_KIND, TAIL_KIND


@pytest.fixture(autouse=True)
def small_portions(monkeypatch):
    monkeypatch.setattr(moving, "PORTION_BYTES", PORTION)
    monkeypatch.setattr(moving, "SLOT_BYTES", ALLOWANCE)


def test_a_whole_move_and_what_is_installed_is_what_was_there():
    supplier, consumer = supplier_of(), Side(CONSUMER)
    before = supplier.walk()
    supplier.order(steps.SHIP)
    portions = ship_all(supplier)
    assert steps_in(portions.pop()) == [(MASTER, "shipped")] and len(portions) > 5
    assert supplier.order(steps.FREEZE) == ()
    portions.append(supplier.desk.taken())
    arrived = [message for portion in portions for message in states(portion)]
    assert [consumer.mover.take(state) for state in arrived] == [False] * (len(arrived) - 1) + [True]
    (given,) = consumer.mover.install(7)
    assert given.groups.tolist() == [1] and given.pieces == () and given.watermarks == (30, 40)
    assert check_accounts(consumer.harness, [1])[1].tuples == before
    assert supplier.order(steps.DROP) == () and supplier.harness.operator.memory().held == 0
    octets = sum(whole_bytes(state.frames) for state in arrived)
    (_, dropped), (_, installed) = supplier.desk.taken()[-1], consumer.desk.taken()[-1]
    assert (dropped.step, dropped.figures.octets) == ("dropped", octets)
    pages = walk(consumer.harness.state, 1, (STREAM, STREAM)).pages
    assert (installed.step, installed.figures) == ("installed", Transfer(blocks=len(pages)))
    assert consumer.mover.staged_bytes == 0


def test_portions_are_bounded_and_bring_each_sealed_block_once():
    supplier = supplier_of()
    whole = supplier.harness.operator.get(1, 0)
    supplier.order(steps.SHIP)
    portions = ship_all(supplier)[:-1]
    ids = []
    for portion in portions:
        frames = [frame for state in states(portion) for frame in state.frames]
        assert all(decode(frame).kind == BLOCKS_KIND for frame in frames)
        assert 0 < sealed_bytes(frames) <= PORTION or blocks_in(frames) == 1
        ids += [number for frame in frames for number in sorted(decode(frame).buffers[0].tolist())]
        assert all(state.input == () and not state.cancelled for state in states(portion))
    assert len(ids) == len(set(ids))
    supplier.order(steps.FREEZE)
    rest = [frame for state in states(supplier.desk.taken()) for frame in state.frames]
    assert sealed_bytes(rest) <= PORTION and decode(rest[-1]).kind == TAIL_KIND
    ids += [number for frame in rest[:-1] for number in decode(frame).buffers[0].tolist()]
    assert sorted(ids) == sorted(number for frame in whole[:-1] for number in decode(frame).buffers[0].tolist())


def test_each_frame_is_a_message_and_only_the_last_of_all_brings_input():
    supplier = supplier_of()
    supplier.order(steps.SHIP)
    portions = ship_all(supplier)
    supplier.order(steps.FREEZE)
    final = states(supplier.desk.taken())
    assert all(
        len(state.frames) == 1
        for portion in [*portions, [(CONSUMER, one) for one in final]]
        for state in states(portion)
    )
    assert [bool(state.input) for state in final] == [False] * (len(final) - 1) + [True]
    assert {(state.move, state.supplier, state.group) for state in final} == {(7, SUPPLIER, 1)}


def test_a_group_that_fits_one_portion_is_shipped_without_a_portion():
    supplier = supplier_of(rows=4)
    supplier.order(steps.SHIP)
    assert supplier.mover.ship(False)
    assert [(to, type(message)) for to, message in supplier.desk.taken()] == [(MASTER, Step)]
    assert not supplier.mover.ship(True)


def test_a_group_that_was_never_used_moves_too():
    supplier, consumer = Side(SUPPLIER), Side(CONSUMER)
    supplier.order(steps.SHIP)
    supplier.mover.ship(True)
    supplier.order(steps.FREEZE)
    (state,) = states(supplier.desk.taken())
    assert consumer.mover.take(state)
    assert [slot.watermarks for slot in consumer.mover.install(7)] == [(NEVER, NEVER)]
    assert not consumer.harness.operator.info(groups_of(1)).tuples.any()


def test_the_next_portion_waits_until_the_consumer_has_taken_the_one_before():
    supplier = supplier_of()
    supplier.order(steps.SHIP)
    assert supplier.mover.ship(True)
    assert not supplier.mover.ship(True) and not supplier.mover.ship(True)
    supplier.desk.unsent[CONSUMER] = 1
    assert not supplier.mover.ship(True)
    supplier.desk.unsent[CONSUMER] = 0
    supplier.desk.unsent[3] = 10**9  # What others have not taken does not matter.
    assert supplier.mover.ship(True)


def test_while_there_is_something_to_join_a_slot_allows_so_many_bytes_and_the_next_slot_as_many_again():
    supplier = supplier_of(rows=900)
    supplier.order(steps.SHIP)
    shipped = []
    for _ in range(3):
        portions = ship_all(supplier, nothing_to_join=False)
        shipped.append(sum(whole_bytes(state.frames) for portion in portions for state in states(portion)))
        assert not supplier.mover.ship(False)
        supplier.mover.slot_came()
        supplier.mover.slot_came()  # What was not used is not saved up.
    largest = 2 * PORTION  # This includes what frames need beside blocks.
    assert all(ALLOWANCE <= octets < ALLOWANCE + largest for octets in shipped)


def test_with_nothing_to_join_no_allowance_holds_it_up():
    supplier = supplier_of(rows=900)
    supplier.order(steps.SHIP)
    ship_all(supplier, nothing_to_join=False)
    assert supplier.mover.ship(True)


def test_it_is_joined_on_while_it_ships_and_nothing_is_lost():
    supplier, consumer, arrived, first = supplier_of(theta=2000), Side(CONSUMER, theta=2000), [], 1000
    supplier.order(steps.SHIP)
    while supplier.mover.ship(True):
        arrived += states(supplier.desk.taken())
        supplier.add(5, first, watermarks=(first - 900, first - 900))
        first += 10
        assert first < 3000, "it ships for ever"
    supplier.add(40, first, watermarks=(first - 900, first - 900))  # This comes between the step and the order.
    supplier.order(steps.FREEZE)
    arrived += states(supplier.desk.taken())
    for state in arrived:
        consumer.mover.take(state)
    consumer.mover.install(7)
    assert check_accounts(consumer.harness, [1])[1].tuples == supplier.walk()


@pytest.mark.parametrize("least", [1, 1 << 14])
def test_what_was_not_joined_goes_with_it_up_to_the_newest_message(monkeypatch, least):
    """Each part has the watermarks of the message that it ends with. What is small goes in one."""
    monkeypatch.setattr(runs, "ITEM_BYTES_MIN", least)
    supplier, consumer, origin = supplier_of(), Side(CONSUMER), (5, 0.25)
    rows = rows_of(1, STREAM, 500, 30)
    messages = [Batches(slot_of(1, rows[:10], (50, 60), 4)), Batches(slot_of(1, rows[10:], (70, 80), 5, origin=origin))]
    taken = [(message, message.take_out(1)) for message in messages]
    supplier.order(steps.SHIP)
    arrived = [state for portion in ship_all(supplier) for state in states(portion)]
    supplier.order(steps.FREEZE, taken=taken)
    for state in arrived + states(supplier.desk.taken()):
        consumer.mover.take(state)
    given = consumer.mover.install(7)
    told = [(slot.epoch, slot.watermarks, slot.origin, slot.rows.tolist()) for slot in given]
    parts = [(4, (50, 60), None, [10]), (5, (70, 80), origin, [20])]
    assert told == (parts if least == 1 else [(5, (70, 80), origin, [30])])
    assert all((slot.producer, slot.last, slot.groups.tolist()) == (SUPPLIER, False, [1]) for slot in given)
    found = [words[2] for slot in given for piece in slot.pieces for words in piece.columns[0].tuples.tolist()]
    assert found == [row.row for row in rows]


def test_what_was_not_joined_is_joined_there_with_all_that_came_before():
    """The pairs of both sides together are those of the oracle."""
    supplier, consumer = Side(SUPPLIER), Side(CONSUMER)
    rows = rows_of(1, STREAM, 0, 200)
    for row in range(0, 160, 40):
        supplier.harness.round(groups_of(1), rows[row : row + 40], rows[row : row + 40], (row, row))
    message = Batches(slot_of(1, rows[160:], (200, 200), 9))
    supplier.order(steps.SHIP)
    arrived = [state for portion in ship_all(supplier) for state in states(portion)]
    supplier.order(steps.FREEZE, taken=[(message, message.take_out(1))])
    for state in arrived + states(supplier.desk.taken()):
        consumer.mover.take(state)
    given = Batches(*consumer.mover.install(7))
    for stream, (fresh, bounds) in ((stream, part) for piece in given.pieces for stream, part in enumerate(piece)):
        assert consumer.harness.operator.insert(given.groups, stream, fresh, bounds).groups == 1
    consumer.harness.probe(given.groups)
    found = supplier.harness.row_pairs() + consumer.harness.row_pairs()
    sides = [[(row.time, row.key, row.row) for row in own] for own in (rows, rows[:160])]
    assert found == Counter(oracle.join(sides, [1000, 1000])) and consumer.harness.pairs == []


def test_a_group_that_no_message_has_goes_with_the_watermarks_it_reached():
    supplier = supplier_of()
    supplier.order(steps.SHIP)
    ship_all(supplier)
    supplier.order(steps.FREEZE)
    (given,) = states(supplier.desk.taken())[-1].input
    assert (given.watermarks, given.epoch, given.origin, given.pieces) == ((30, 40), 0, None, ())


def shipped(rows=300):
    supplier = supplier_of(rows)
    supplier.order(steps.SHIP)
    ship_all(supplier)
    return supplier


def test_a_frozen_group_is_taken_back_with_the_input_that_was_taken_out():
    supplier = shipped()
    before = supplier.walk()
    message = Batches(slot_of(1, rows_of(1, STREAM, 500, 6), (70, 80), 5))
    supplier.order(steps.FREEZE, taken=[(message, message.take_out(1))])
    (final,) = states(supplier.desk.taken())[-1].input
    (kept,) = supplier.order(steps.RESTORE)
    assert kept.frame().tobytes() == final.frame().tobytes() and kept.rows.tolist() == [6]
    (to, told), (master, step) = supplier.desk.taken()
    assert (to, told.cancelled, told.frames, told.input, told.group) == (CONSUMER, True, (), (), 1)
    assert (master, step.step) == (MASTER, "restored")
    assert supplier.walk() == before and not supplier.mover.ship(True)


@pytest.mark.parametrize("portions", [0, 1, 3])
def test_a_group_that_is_not_frozen_yet_just_stays(portions):
    supplier = supplier_of()
    supplier.order(steps.SHIP)
    for _ in range(portions):
        assert supplier.mover.ship(True)
        supplier.desk.taken()
    assert supplier.order(steps.RESTORE) == ()
    assert [message.cancelled for message in states(supplier.desk.sent)] == [True]
    assert steps_in(supplier.desk.taken()) == [(MASTER, "restored")]
    assert not supplier.mover.ship(True)


def test_after_the_step_and_before_the_freeze_it_can_be_taken_back():
    supplier = shipped()
    assert supplier.order(steps.RESTORE) == ()
    assert steps_in(supplier.desk.taken()) == [(MASTER, "restored")]


def test_a_group_that_came_back_can_go_in_another_move_from_the_start():
    supplier, consumer = shipped(), Side(CONSUMER)
    supplier.order(steps.FREEZE)
    supplier.order(steps.RESTORE)
    supplier.desk.taken()
    supplier.order(steps.SHIP, move=8)
    arrived = [state for portion in ship_all(supplier) for state in states(portion)]
    supplier.order(steps.FREEZE, move=8)
    for state in arrived + states(supplier.desk.taken()):
        assert state.move == 8
        consumer.mover.take(state)
    consumer.mover.install(8)
    assert check_accounts(consumer.harness, [1])[1].tuples == supplier.walk()


def test_two_groups_go_to_two_slaves_side_by_side():
    supplier = supplier_of()
    supplier.add(300, 5000, group=0)
    supplier.order(steps.SHIP, move=1, group=0, peer=2)
    supplier.order(steps.SHIP, move=2, group=1, peer=3)
    assert supplier.mover.ship(True) and supplier.mover.ship(True) and not supplier.mover.ship(True)
    assert {(to, state.move, state.group) for to, state in supplier.desk.sent} == {(2, 1, 0), (3, 2, 1)}
    supplier.desk.unsent[3] = 0
    assert supplier.mover.ship(True)
    assert {to for to, _ in supplier.desk.sent[-1:]} == {3}
    supplier.order(steps.RESTORE, move=1, group=0, peer=2)
    supplier.desk.taken()
    assert steps_in(ship_all(supplier)[-1]) == [(MASTER, "shipped")]


ORDERS = {
    "before ship": ([], steps.FREEZE, "knows nothing of"),
    "drop before ship": ([], steps.DROP, "ordered to drop group 1 to 2 in move 7, which it knows nothing of"),
    "ship twice": ([steps.SHIP], steps.SHIP, "move 7 is shipping at its supplier and got 'ship'"),
    "freeze while shipping": ([steps.SHIP], steps.FREEZE, "got 'freeze', wanted 'ready' or 'restore'"),
    "drop while shipping": ([steps.SHIP], steps.DROP, "shipping at its supplier and got 'drop'"),
    "drop before freeze": ([steps.SHIP, "all"], steps.DROP, "shipped at its supplier and got 'drop'"),
    "freeze twice": ([steps.SHIP, "all", steps.FREEZE], steps.FREEZE, "frozen at its supplier and got 'freeze'"),
    "after drop": ([steps.SHIP, "all", steps.FREEZE, steps.DROP], steps.RESTORE, "knows nothing of"),
    "after restore": ([steps.SHIP, steps.RESTORE], steps.FREEZE, "knows nothing of"),
}


@pytest.mark.parametrize("name", ORDERS)
def test_an_order_out_of_turn_is_refused_by_name(name):
    before, step, text = ORDERS[name]
    supplier = supplier_of()
    for one in before:
        ship_all(supplier) if one == "all" else supplier.order(one)
    with pytest.raises(ProtocolError, match=text):
        supplier.order(step)


@pytest.mark.parametrize("group, peer", [(0, CONSUMER), (1, 3)])
def test_an_order_of_another_group_or_consumer_is_refused(group, peer):
    supplier = shipped()
    with pytest.raises(ProtocolError, match=f"slave 1 was ordered to freeze group {group} to {peer} in move 7"):
        supplier.order(steps.FREEZE, group=group, peer=peer)


def test_the_time_of_a_transfer_is_that_during_which_state_was_under_way():
    supplier, portions, sent = supplier_of(), 0, []
    clock = supplier.desk.clock
    supplier.order(steps.SHIP)
    while not steps_in(sent):
        supplier.mover.slot_came()
        while supplier.mover.ship(False):
            clock.charge(0.5)
            sent = supplier.desk.taken()
            portions += bool(states(sent))
        clock.charge(3.0)  # The next slot then allows more.
    supplier.order(steps.FREEZE)
    clock.charge(0.25)
    supplier.desk.taken()
    supplier.order(steps.DROP)
    (_, dropped) = supplier.desk.taken()[-1]
    assert dropped.figures.transfer_s == pytest.approx(portions * 0.5 + 0.25)
