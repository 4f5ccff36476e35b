"""One simulated rank. It has the interface of `Rank` on a simulated transport, without heartbeats or signals."""

from __future__ import annotations

import logging
from typing import Any, Collection, Iterator

import numpy as np

from mpijoin.config.inject import Inject
from mpijoin.errors import PeerError
from mpijoin.messages import Failed, ResultRows, Slot, State, Stop, encode_message, parse
from mpijoin.orders import PER_GROUP, Loads
from mpijoin.rank import CHANNELS, Stopped
from mpijoin.simulate.engine import Process, SimulatedClock
from mpijoin.transport.base import Channel
from mpijoin.transport.simulated import SimulatedTransport

HEAD_BYTES = 128  # The header and the meta of a message take so much beside its buffers.


class SimulatedRank:
    """A simulated rank.

    encodes: messages travel as the bytes of the wire and are parsed. Otherwise the objects themselves change hands.
    """

    wakes_late = False  # To stay awake would make no time pass.

    def __init__(self, transport: SimulatedTransport, clock: SimulatedClock, inject: Inject, encodes: bool):
        self.transport, self.clock = transport, clock
        self.log = logging.Logger("mpijoin")
        self.log.addHandler(logging.NullHandler())
        self.process: Process | None = None  # It is set when the rank begins to have turns.
        self.asked = ""  # This is the signal that asked for a checkpoint. None comes here by itself.
        self._inject, self._encodes = inject, encodes

    @property
    def number(self) -> int:
        return self.transport.rank

    @property
    def idle_s(self) -> float:
        return self.process.idle_s if self.process else 0.0

    @property
    def comm_s(self) -> float:
        """The seconds spent in the transport, and asleep while a message was on its way here."""
        waited_s = self.process.waited_s if self.process else 0.0
        return self.transport.stats.send_s + self.transport.stats.poll_s + waited_s

    def send(self, to: int, message: Any) -> None:
        channel = CHANNELS.get(type(message), Channel.CONTROL)
        if self._encodes:
            self.transport.send(to, channel, encode_message(message))
        else:
            self.transport.hand_over(to, channel, message, octets_of(message))

    def receive(self, refuse: Collection[int] = ()) -> Iterator[tuple[int, Any]]:
        """Does the same as `Rank.receive`."""
        for source, _, data in self.transport.poll(refuse):
            message = parse(data) if type(data) in (np.ndarray, tuple) else data
            if isinstance(message, Stop):
                raise Stopped(message)
            if isinstance(message, Failed):
                raise PeerError(f"rank {message.rank}: {message.reason}", message.exit_code, message.trace)
            self._suffer(getattr(message, "epoch", -1))
            yield source, message

    def _suffer(self, epoch: int) -> None:
        """Fails or dies on purpose if the job wants that of this rank at this epoch."""
        never = epoch + 1
        if epoch >= self._inject.fail.get(self.number, never):
            raise RuntimeError(f"[inject] fail: epoch {epoch} has come")
        if epoch >= self._inject.kill.get(self.number, never):
            raise PeerError(f"rank {self.number} was killed: [inject] kill: epoch {epoch} has come")


def octets_of(message: Any) -> int:
    """Returns about how many bytes a message has on the wire.

    >>> octets_of(Stop(0))
    128
    """
    match message:
        case Slot():
            return (
                HEAD_BYTES + message.octets + message.groups.nbytes + sum(one.counts.nbytes for one in message.pieces)
            )
        case State():
            final = sum(map(octets_of, message.input))
            return HEAD_BYTES + final + sum(frame.nbytes for frame in message.frames)
        case Loads():
            return HEAD_BYTES + len(PER_GROUP) * message.groups.nbytes
        case ResultRows():
            return HEAD_BYTES + message.batch.nbytes
        case _:
            return HEAD_BYTES
