"""A relocation, step by step. The quotations are LAD-TR's, section 5.1."""

from itertools import product

import numpy as np
import pytest

from mover_harness import Side
from mpijoin.coordinator.events import Ask, Chosen, Compute, Moved, Stepped
from mpijoin.coordinator.master import MasterCore
from mpijoin.coordinator.reorganization import Loaded, Reorganization
from mpijoin.coordinator.setup import MasterSetup
from mpijoin.errors import ProtocolError
from mpijoin.moving import relocation
from mpijoin.orders import ComputePartitions, Partitions
from mpijoin.partitioning.table import PartitionTable
from mpijoin.policy.plan import Plan, Relocate, Spill
from mpijoin.producer.events import CloseInput, Command, Deliver, Held, Hold, Ingested, SourceEnded

STATES = ["computing", "moving", "withdrawn", "relocated"]
LEGAL = {
    ("computing", "partitions"): ("moving", ("begin",)),
    ("computing", "cancel"): ("withdrawn", ()),
    ("withdrawn", "partitions"): ("relocated", ("close",)),
    ("moving", "ended"): ("relocated", ("close",)),
}
WANTED = Relocate(1, 2, 4096, "most productive")


@pytest.mark.parametrize("state, event", [*product(STATES, ["partitions", "ended", "cancel"])])
def test_every_event_in_every_state_is_carried_out_or_refused_by_name(state, event):
    if (state, event) in LEGAL:
        assert relocation.advance(3, state, event) == LEGAL[state, event]
        return
    with pytest.raises(ProtocolError, match=f"relocation 3 is {state} and got '{event}', wanted "):
        relocation.advance(3, state, event)


def test_the_table_has_no_other_states_or_events():
    assert dict(relocation.TRANSITIONS) == LEGAL


def asked(*plans):
    """A master of two slaves with three groups each, whose policy gives these plans. Slave 1 was just asked for groups.
    Returns it with its last actions."""
    left = list(plans or [Plan((WANTED,))])
    own = Reorganization(lambda view: left.pop(0) if left else Plan(), 1, 2)
    core = MasterCore(MasterSetup(PartitionTable.even(6, (1, 2)), (1, 2), 1 << 20, 1 << 20, reorganization=own))
    core.step(Ingested({1: 10, 2: 10}, {}, (1, 1)))
    core.step(Loaded(1, 0, 0.0, 0.5, 0.0, ()))
    return core, core.step(Loaded(2, 0, 0.0, 0.5, 0.0, ()))


def kinds(actions, kind):
    return [action for action in actions if isinstance(action, kind)]


def hand_over(core, command):
    """All that follows until the group has moved."""
    told = core.step(Stepped(command.move, 1, "shipped"))
    core.step(Held(command.group, (0,) * len(core.slaves[1].waiting)))
    told += core.step(Stepped(command.move, 2, "installed"))
    return told + core.step(Stepped(command.move, 1, "dropped"))


def test_step_1_the_sender_is_told_how_much():
    """ "In step 1, the distribution manager sends a ComputePartitionsToMove message to the sender. This message is used
    to tell the sender that the amount of operator states that will be moved out." """
    core, told = asked()
    assert told[1:] == [Compute(0, 1, 4096, "most productive")] and core.open_moves == 1


def test_step_2_the_sender_finds_the_actual_partitions():
    """ "Then, in step 2, the sender calls the local adaptation manager to find the actual partitions that will be
    moved. After that, the IDs of the partition groups to be moved are returned to the distribution manager via a
    PartitionsToMove message." """
    side = Side(1)
    side.add(300, 0, 0)
    side.add(90, 1000, 1)
    side.mover.compute(ComputePartitions(4, 1 << 20, "largest"), {0, 1})
    side.mover.compute(ComputePartitions(5, 0, "largest"), {0, 1})
    held = side.harness.operator.memory().held
    blocks = side.harness.operator.info(np.array([0, 1])).blocks
    side.mover.compute(ComputePartitions(6, held * int(blocks[0]) // int(blocks.sum()), "largest"), {0, 1})
    side.mover.compute(ComputePartitions(7, held * int(blocks[0]) // int(blocks.sum()) - 1, "largest"), {0, 1})
    side.mover.compute(ComputePartitions(8, 1 << 20, "largest"), {1})
    answers = [message for to, message in side.desk.taken() if to == 0]
    wanted = [(4, (0, 1)), (5, ()), (6, (0,)), (7, (1,)), (8, (1,))]
    assert answers == [Partitions(number, 1, chosen) for number, chosen in wanted]


def test_steps_3_to_8_follow_for_each_of_them():
    """ "In step 3, after receiving the PartitionsToMove message from the sender, the distribution manager sends a
    DeactivatePartitions message ... In step 5, the distribution manager sends a SendPartitions message to the sender
    ... In step 8, the distribution manager sends the ReactivatePartitions message". The input of a group is held back,
    then the rest of it is sent, then the receiver gets what was held back."""
    core, _ = asked()
    orders = core.step(Chosen(0, 1, (4, 0)))
    assert orders == [Command(0, "ship", 1, 4, 2), Command(1, "ship", 1, 0, 2)] and core.open_moves == 3
    first, second = (hand_over(core, order) for order in orders)
    for told, order in ((first, orders[0]), (second, orders[1])):
        steps = [action for action in told if isinstance(action, (Hold, Command, Deliver, Moved))]
        assert [type(step).__name__ for step in steps] == ["Hold", "Command", "Deliver", "Command", "Moved"]
        assert core.table.owner_of(order.group) == 2
    assert kinds(first, Ask) == [] and kinds(second, Ask) == [Ask(1, 2), Ask(2, 2)] and core.open_moves == 0


def test_a_relocation_of_no_group_ends_at_once_and_nothing_is_measured_anew():
    core, _ = asked()
    assert core.step(Chosen(0, 1, ())) == [] and core.open_moves == 0


def test_nothing_is_decided_while_a_supplier_chooses():
    core, _ = asked(Plan((WANTED,)), Plan((WANTED,)))
    assert kinds(core.step(Ingested({1: 10, 2: 10}, {}, (2, 2))), Ask) == []
    core.step(Chosen(0, 1, ()))
    assert len(kinds(core.step(Ingested({1: 10, 2: 10}, {}, (3, 3))), Ask)) == 2


def test_the_end_waits_for_the_choice_and_nothing_moves_then():
    core, _ = asked()
    assert kinds(core.step(SourceEnded((99, 99))), CloseInput) == []
    told = core.step(Chosen(0, 1, (0, 2)))
    assert kinds(told, Command) == [] and len(kinds(told, CloseInput)) == 1 and core.open_moves == 0


@pytest.mark.parametrize(
    "said, fault",
    [
        (Chosen(1, 1, ()), "slave 1 has chosen groups for relocation 1, for which it was not asked"),
        (Chosen(0, 2, ()), "slave 2 has chosen groups for relocation 0, for which it was not asked"),
        (Chosen(0, 1, (0, 1)), r"slave 1 has chosen groups \(0, 1\) for relocation 0, wanted groups of its own"),
        (Chosen(0, 1, (0, 0)), r"slave 1 has chosen groups \(0, 0\) for relocation 0, wanted .* each once"),
    ],
)
def test_a_choice_that_cannot_be_carried_out_is_refused_by_name(said, fault):
    core, _ = asked()
    with pytest.raises(ProtocolError, match=fault):
        core.step(said)
    assert core.open_moves == 1


def test_a_supplier_chooses_once():
    core, _ = asked()
    core.step(Chosen(0, 1, (0,)))
    with pytest.raises(ProtocolError, match="relocation 0, for which it was not asked"):
        core.step(Chosen(0, 1, (2,)))


def test_an_order_to_spill_goes_to_its_slave():
    wanted = Spill(2, 4096, "least productive")
    core, told = asked(Plan((wanted,)))
    assert told[1:] == [wanted] and core.open_moves == 0
