"""A slave without a network. What it is to receive is put into a list, and so is what it sends."""

import logging
from types import SimpleNamespace

from mpijoin.messages import parse
from mpijoin.simulate.engine import SimulatedClock
from mpijoin.transport.base import TransportStats


class Desk:
    """A rank without a network. `inbox` is what it receives next, `sent` all that it sends."""

    number, wakes_late, idle_s, comm_s = 1, False, 0.0, 0.0

    def __init__(self):
        self.inbox, self.sent, self.clock, self.log = [], [], SimulatedClock(), logging.Logger("test")
        self.transport = SimpleNamespace(stats=TransportStats(), send=self._send_frame, unsent_bytes=lambda to=None: 0)

    def _send_frame(self, to, channel, data):
        self.sent.append(parse(data))

    def send(self, to, message):
        self.sent.append(message)

    def receive(self, refuse=()):
        inbox, self.inbox = self.inbox, []
        return iter(inbox)
