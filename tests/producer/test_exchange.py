"""The order in which a producer serves slaves: WSJ's predefined, blocking communication, and the overlapped one."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from mpijoin.config.job import ORDERED, OVERLAPPED
from mpijoin.messages import Marker, Slot
from mpijoin.orders import Order
from mpijoin.producer.exchange import new_exchange
from mpijoin.simulate.engine import SimulatedClock

SEND_S = 0.5


class Wire:
    """A rank whose sends take half a second each. `unsent` are the bytes that each slave has not taken."""

    def __init__(self):
        self.clock, self.sent, self.unsent = SimulatedClock(), [], {}
        self.transport = SimpleNamespace(unsent_bytes=lambda to: self.unsent.get(to, 0))

    def send(self, to, message):
        self.sent.append((to, message))
        self.unsent[to] = 1
        self.clock.charge(SEND_S)

    @property
    def order(self):
        return [to for to, _ in self.sent]

    @property
    def turns_s(self):
        return [message.turn_s for _, message in self.sent]


def slot(epoch=0):
    return Slot(0, epoch, (0, 0), np.empty(0, np.int64), ())


def opened(name, slaves):
    wire = Wire()
    exchange = new_exchange(name, wire)
    for slave in slaves:
        exchange.give(slave, slot())
    exchange.turn()
    return wire, exchange


def test_ordered_tuples_are_sent_to_every_node_in_a_serial_order():
    """WSJ, section V-B: "As the tuples are sent to every node in a serial order, such an approach might increase
    average idle time in waiting for the tuples. For example, in a system with slaves, a slave, in the worst case,
    should have wait in idle until the master node transmits the tuples to other slaves." """
    wire, exchange = opened(ORDERED, (3, 1, 2))
    assert wire.order == [1]
    exchange.turn()
    assert wire.order == [1]  # It has not taken its message.
    for slave in (1, 2, 3):
        wire.clock.sleep(1.0)
        wire.unsent[slave] = 0
        exchange.turn()
    assert wire.order == [1, 2, 3]
    assert wire.turns_s == [0.0, 1.0 + SEND_S, 2.0 + 2 * SEND_S]


def test_ordered_a_slave_that_is_served_again_waits_for_those_behind_it():
    wire, exchange = opened(ORDERED, (1, 2, 3))
    exchange.give(1, slot(1))
    for slave in (1, 2, 3):
        wire.unsent[slave] = 0
        exchange.turn()
    assert wire.order == [1, 2, 3, 1]


def test_ordered_all_that_waits_for_a_slave_goes_in_its_order():
    wire, exchange = opened(ORDERED, (1, 2))
    order, marker = Order(0, "freeze", 2, 1), Marker(1)
    for message in (slot(1), order, marker):
        exchange.give(2, message)
    wire.unsent[1] = 0
    exchange.turn()
    assert [type(message) for to, message in wire.sent if to == 2] == [Slot, Slot, Order, Marker]


def test_ordered_the_first_is_first_again_after_a_rest():
    wire, exchange = opened(ORDERED, (2,))
    wire.unsent[2] = 0
    exchange.turn()
    for slave in (3, 1):
        exchange.give(slave, slot(1))
    exchange.turn()
    assert wire.order == [2, 1]


def test_overlapped_nobody_waits_for_another_slave_but_for_the_sending_itself():
    wire, exchange = opened(OVERLAPPED, (3, 1, 2))
    assert wire.order == [3, 1, 2]
    assert wire.turns_s == pytest.approx([0.0, SEND_S, 2 * SEND_S])
    wire.clock.sleep(1.0)
    exchange.give(1, slot(1))
    assert wire.turns_s[-1] == 0.0
