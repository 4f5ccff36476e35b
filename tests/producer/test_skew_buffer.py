"""The transient-skew buffer (Flux, section 4): what a slave that stands still does to the others."""

import pytest

from mpijoin.coordinator.setup import MasterSetup
from mpijoin.partitioning.table import PartitionTable
from mpijoin.producer.core import ProducerCore
from mpijoin.producer.events import Consumed, Ingested, Read, Serve

STALLED, SLAVES, BUFFER, WAITING, ROW_BYTES = 1, (1, 2, 3, 4), 100, 4000, 50


def ticks_until_the_source_pauses(divided):
    """Every tick has as many bytes for each slave. All of them join at once what they get, but for one that stands
    still. Returns the ticks until the source pauses, and the bytes that each slave has had by then."""
    setup = MasterSetup(PartitionTable.even(8, SLAVES), SLAVES, BUFFER, WAITING, divided=divided)
    core, got = ProducerCore(setup.producer), dict.fromkeys(SLAVES, 0)
    for tick in range(1000):
        if not isinstance(core.next_input(), Read):
            return tick, got
        for action in core.step(Ingested(dict.fromkeys(SLAVES, ROW_BYTES), {}, (tick, tick), tick, tick)):
            if isinstance(action, Serve):
                got[action.slave] += ROW_BYTES * action.items
                if action.slave != STALLED:
                    core.step(Consumed(action.slave, ROW_BYTES * action.items))
    raise AssertionError("the source never pauses")


def test_a_slave_that_stands_still_may_fill_the_whole_of_a_shared_buffer():
    """ "With this design, the buffer space is flexibly allocated to the destinations on demand, as opposed to dividing
    the space among the destinations beforehand." """
    ticks, got = ticks_until_the_source_pauses(divided=False)
    assert ticks == (WAITING + BUFFER) // ROW_BYTES
    assert got == {1: BUFFER, 2: ticks * ROW_BYTES, 3: ticks * ROW_BYTES, 4: ticks * ROW_BYTES}


def test_with_the_same_memory_in_fixed_queues_it_blocks_the_source_as_soon_as_its_own_is_full():
    """ "when a queue to that instance is filled, an Ex-Prod instance must block until that queue has available space.
    This effects the delivery rate to the other consumers" """
    ticks, got = ticks_until_the_source_pauses(divided=True)
    assert ticks == (WAITING // len(SLAVES) + BUFFER) // ROW_BYTES
    assert got == {1: BUFFER, 2: ticks * ROW_BYTES, 3: ticks * ROW_BYTES, 4: ticks * ROW_BYTES}


@pytest.mark.parametrize("divided", [False, True])
def test_while_it_joins_nobody_waits(divided):
    setup = MasterSetup(PartitionTable.even(8, SLAVES), SLAVES, BUFFER, WAITING, divided=divided)
    core = ProducerCore(setup.producer)
    for tick in range(300):
        assert isinstance(core.next_input(), Read)
        for action in core.step(Ingested(dict.fromkeys(SLAVES, ROW_BYTES), {}, (tick, tick), tick, tick)):
            if isinstance(action, Serve):
                core.step(Consumed(action.slave, ROW_BYTES * action.items))
