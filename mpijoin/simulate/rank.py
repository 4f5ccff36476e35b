"""One simulated rank: `Rank`'s interface over a simulated transport, without heartbeats, signals and bytes."""

from __future__ import annotations

import logging
from typing import Any, Collection, Iterator

import numpy as np

from mpijoin.config.job import Inject
from mpijoin.errors import PeerError
from mpijoin.messages import Failed, Loads, ResultRows, Slot, State, Stop, encode_message, parse
from mpijoin.rank import CHANNELS, Stopped
from mpijoin.simulate.engine import Process, SimulatedClock
from mpijoin.transport.base import Channel
from mpijoin.transport.simulated import SimulatedTransport

HEAD_BYTES = 128  # of a message beside its buffers: header and meta


class SimulatedRank:
    """encodes: messages travel as the bytes of the wire and are parsed; else the objects themselves change hands."""

    wakes_late = False  # and to stay awake would make no time pass

    def __init__(self, transport: SimulatedTransport, clock: SimulatedClock, inject: Inject, encodes: bool):
        self.transport, self.clock = transport, clock
        self.log = logging.Logger("mpijoin")
        self.log.addHandler(logging.NullHandler())
        self.process: Process | None = None  # from when it has turns
        self.asked = ""  # the signal that has asked for a checkpoint: none comes here by itself
        self._inject, self._encodes = inject, encodes

    @property
    def number(self) -> int:
        return self.transport.rank

    @property
    def idle_s(self) -> float:
        return self.process.idle_s if self.process else 0.0

    @property
    def comm_s(self) -> float:
        """In the transport, and asleep while a message was on its way here."""
        waited_s = self.process.waited_s if self.process else 0.0
        return self.transport.stats.send_s + self.transport.stats.poll_s + waited_s

    def send(self, to: int, message: Any) -> None:
        channel = CHANNELS.get(type(message), Channel.CONTROL)
        if self._encodes:
            self.transport.send(to, channel, encode_message(message))
        else:
            self.transport.hand_over(to, channel, message, octets_of(message))

    def receive(self, refuse: Collection[int] = ()) -> Iterator[tuple[int, Any]]:
        """As `Rank.receive`."""
        for source, _, data in self.transport.poll(refuse):
            message = parse(data) if type(data) in (np.ndarray, tuple) else data
            if isinstance(message, Stop):
                raise Stopped(message)
            if isinstance(message, Failed):
                raise PeerError(f"rank {message.rank}: {message.reason}", message.exit_code, message.trace)
            self._suffer(getattr(message, "epoch", -1))
            yield source, message

    def _suffer(self, epoch: int) -> None:
        """Fails or dies on purpose, if the job wants that of this rank at this epoch."""
        never = epoch + 1
        if epoch >= self._inject.fail.get(self.number, never):
            raise RuntimeError(f"[inject] fail: epoch {epoch} has come")
        if epoch >= self._inject.kill.get(self.number, never):
            raise PeerError(f"rank {self.number} was killed: [inject] kill: epoch {epoch} has come")


def octets_of(message: Any) -> int:
    """About the bytes of a message on the wire.

    >>> octets_of(Stop(0))
    128
    """
    match message:
        case Slot():
            return (
                HEAD_BYTES + message.octets + message.groups.nbytes + sum(one.counts.nbytes for one in message.pieces)
            )
        case State():
            final = 0 if message.input is None else octets_of(message.input)
            return HEAD_BYTES + final + sum(frame.nbytes for frame in message.frames)
        case Loads():
            return HEAD_BYTES + 3 * message.groups.nbytes  # it has three columns
        case ResultRows():
            return HEAD_BYTES + message.batch.nbytes
        case _:
            return HEAD_BYTES
