"""The epochs under which a slave's results go out never fall, whatever overtakes what.

Otherwise the collector would refuse the results.
"""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from engine_harness import Stream, section
from mpijoin.config.check import resolve
from mpijoin.config.load import load_job
from mpijoin.launch.roles import Roles, RunSetup
from mpijoin.messages import EpochEnd, Slot, State
from mpijoin.orders import Step
from mpijoin.rank import MASTER, WAIT_S
from mpijoin.slave.joining import new_operator
from mpijoin.slave.runtime import Slave
from slave_desk import Desk

CONSUMER, SUPPLIER, COLLECTOR = 1, 2, 3


@pytest.fixture
def consumer():
    sides = [Stream(name, ([],), "ms", pa.int64(), (pa.int64(),), form="table") for name in ("left", "right")]
    job = load_job(
        {**{side.name: section(side, None) for side in sides}, "output": {"path": "none", "results": "collect"}}
    )
    schema = resolve(job)
    desk = Desk()
    setup = RunSetup(job, schema, Roles(1 + COLLECTOR, True), None)
    slave, supplier = Slave(setup, desk, new_operator(job, schema, 1 << 24)), new_operator(job, schema, 1 << 24)

    def takes(*messages):
        """Lets the slave join these messages, each before the next one comes. Returns the epochs that it ends."""
        before = len(desk.sent)
        for message in messages:
            desk.inbox.append((MASTER, message))
            while slave.turn() == 0.0:
                pass
        return [one.epoch for one in desk.sent[before:] if isinstance(one, EpochEnd)]

    def group(number, epoch):
        return State(number, SUPPLIER, number, tuple(supplier.get(number, 0)), (slot(epoch, number),))

    return SimpleNamespace(takes=takes, group=group, sent=desk.sent, desk=desk, turn=slave.turn)


def slot(epoch, *groups):
    return Slot(MASTER, epoch, (0, 0), np.array(groups, np.int64), ())


def test_a_group_of_a_later_epoch_does_not_end_what_is_still_to_come(consumer):
    assert consumer.takes(slot(3, 0), consumer.group(1, 9), slot(4, 0), slot(9, 0, 1)) == [3, 3, 4, 9]
    assert [one.step for one in consumer.sent if isinstance(one, Step)] == ["installed"]


def test_the_first_group_of_an_idle_slave_keeps_its_epoch(consumer):
    assert consumer.takes(consumer.group(1, 9), consumer.group(2, 11), slot(10, 1, 2)) == [9, 9, 10]


def test_a_group_that_overtakes_the_first_slots_makes_them_of_its_epoch(consumer):
    assert consumer.takes(consumer.group(1, 9), slot(3, 0), slot(10, 0, 1)) == [9, 9, 10]


def test_a_slave_does_not_sleep_while_a_group_comes(consumer):
    """It sleeps only if its clock is a simulated one, which moves only while it sleeps."""
    desk = consumer.desk
    for wakes_late in (True, False):
        desk.wakes_late = wakes_late
        desk.inbox.append((SUPPLIER, consumer.group(1 + wakes_late, 4)._replace(input=())))
        assert consumer.turn() == 0.0  # Something came.
        assert (consumer.turn() == 0.0) is wakes_late
        desk.clock.charge(1.0)
        assert consumer.turn() == WAIT_S
