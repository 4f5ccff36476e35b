"""Moves by MSLB (DCAPE, section 4): the group is deactivated at once, and all of it goes while nobody joins it."""

import pytest

from mover_harness import (
    ALLOWANCE,
    BLOCK,
    CONSUMER,
    PORTION,
    STREAM,
    Side,
    rows_of,
    sealed_bytes,
    ship_all,
    slot_of,
    states,
    steps_in,
    supplier_of,
)
from mpijoin.config.moves import MSLB
from mpijoin.coordinator.core import CoordinatorCore
from mpijoin.coordinator.setup import MasterSetup
from mpijoin.errors import ProtocolError
from mpijoin.moving import coordinator, steps
from mpijoin.partitioning.table import PartitionTable
from mpijoin.policy.plan import Move
from mpijoin.producer.events import Command, Pause
from mpijoin.rank import MASTER
from mpijoin.slave import moving
from mpijoin.slave.batches import Batches


@pytest.fixture(autouse=True)
def small_portions(monkeypatch):
    monkeypatch.setattr(moving, "PORTION_BYTES", PORTION)
    monkeypatch.setattr(moving, "SLOT_BYTES", ALLOWANCE)


def frozen():
    """Returns a supplier that was told to freeze its group of 300 rows in each stream, of which 5 were not joined."""
    supplier = supplier_of(300, kind=MSLB)
    batches = Batches(slot_of(1, rows_of(1, STREAM, 1000, 5), (50, 60), 3))
    assert supplier.order(steps.FREEZE, taken=[(batches, batches.take_out(1))]) == ()
    return supplier


def test_the_group_goes_as_a_whole_portion_by_portion_and_its_input_behind_it():
    """Section 4.2: "as Step 6 the sender machine packs all the partition groups with the selected IDs and sends them to
    the receiver machine"."""
    supplier, consumer = frozen(), Side(CONSUMER, kind=MSLB)
    assert supplier.desk.taken() == []
    portions = ship_all(supplier)
    arrived = [state for portion in portions for state in states(portion)]
    assert len(portions) > 3 and all(sealed_bytes(one.frames) < PORTION + BLOCK * 4 for one in arrived)
    assert [bool(one.input) for one in arrived] == [False] * (len(arrived) - 1) + [True]
    assert not any(steps_in(portion) for portion in portions)
    assert [consumer.mover.take(state) for state in arrived] == [False] * (len(arrived) - 1) + [True]
    assert [slot.rows.tolist() for slot in consumer.mover.install(7)] == [[5]]
    assert consumer.walk() == supplier.walk()
    supplier.order(steps.DROP)
    said = steps_in(consumer.desk.taken() + supplier.desk.taken())
    assert said == [(MASTER, steps.INSTALLED), (MASTER, steps.DROPPED)]


@pytest.mark.parametrize("portions", [0, 1, 2, 1000])
def test_a_group_that_comes_back_has_its_input(portions):
    supplier = frozen()
    while portions and supplier.mover.ship(True):
        supplier.desk.taken()
        portions -= 1
    assert [slot.rows.tolist() for slot in supplier.order(steps.RESTORE)] == [[5]]
    assert [one.cancelled for one in states(supplier.desk.taken())] == [True]
    assert not supplier.mover.is_moving and len(supplier.walk()[0]) == 300


def test_a_move_of_the_other_kind_is_refused():
    with pytest.raises(ProtocolError, match="ordered to ship group 1 to 2 in move 7, which it knows nothing of"):
        Side(1, kind=MSLB).order(steps.SHIP)


def test_the_master_deactivates_the_group_at_all_producers_before_anything_is_sent():
    """Section 4.2: "the processing of the to-be-moved partitions needs to be stopped before they can be safely moved to
    another machine"."""
    master = CoordinatorCore(MasterSetup(PartitionTable((1, 2)), (1, 2), 1000, 10_000, move_kind=MSLB))
    move = master.moves.begin(Move(0, 1, 2))
    assert move.state == coordinator.BEGUN
    (said,) = master._begin([move])
    assert said.directive == Pause(move.number, 0, 1, 2) and move.state == coordinator.FROZEN
    assert master.table.owner_of(0) not in (1, 2)
    done = master._advance(move, steps.INSTALLED)
    assert isinstance(done[-1], Command) and done[-1].step == steps.DROP and master.table.owner_of(0) == 2
