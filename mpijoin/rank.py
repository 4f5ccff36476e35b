"""What the runtimes of all roles share: sending and receiving messages, sleeping, heartbeats, and leaving together."""

from __future__ import annotations

import logging
import time
from typing import Any, Collection, Iterator

from mpijoin.clock import RunClock
from mpijoin.errors import MpijoinError, PeerError
from mpijoin.messages import EpochEnd, Failed, Report, Rows, Slot, Stop, parse
from mpijoin.signals import SignalFlag
from mpijoin.transport.base import Channel, Transport

MASTER = 0
HEARTBEAT_S = 1.0  # every rank says at least so often that it is alive
SILENCE_S = 60.0  # a peer silent for longer is lost: longer than any write to a slow disk should take
LEAVE_S = 5.0  # how long a failing run waits for its peers before it takes them down (DESIGN, section 5)

CHANNELS = {Slot: Channel.DATA, Rows: Channel.RESULT, EpochEnd: Channel.RESULT}


class Stopped(MpijoinError):
    """The master said to leave."""

    def __init__(self, stop: Stop):
        super().__init__(stop.reason)
        self.exit_code = stop.exit_code


class Rank:
    """One rank's end of the run. Not a role: master, slave and collector each hold one."""

    def __init__(self, transport: Transport, clock: RunClock, signals: SignalFlag, log: logging.Logger):
        self.transport, self.clock, self.signals, self.log = transport, clock, signals, log
        self.idle_s = 0.0
        self._sent_s = time.monotonic()
        peers = range(1, transport.size) if transport.rank == MASTER else (MASTER,)
        self._heard_s = dict.fromkeys(peers, time.monotonic())

    @property
    def number(self) -> int:
        return self.transport.rank

    @property
    def comm_s(self) -> float:
        """Wall seconds spent in the transport, sleeping not included."""
        return self.transport.stats.send_s + self.transport.stats.poll_s

    def send(self, to: int, message: Any) -> None:
        self.transport.send(to, CHANNELS.get(type(message), Channel.CONTROL), message.encode())

    def receive(self, refuse: Collection[int] = ()) -> Iterator[tuple[int, Any]]:
        """Messages that have arrived. Raises Stopped, PeerError (a rank failed or is lost) and Interrupted."""
        self.signals.check()
        for source, _, data in self.transport.poll(refuse):
            message = parse(data)
            self._heard_s[source] = time.monotonic()
            if isinstance(message, Stop):
                raise Stopped(message)
            if isinstance(message, Failed):
                raise PeerError(f"rank {message.rank}: {message.reason}", message.exit_code)
            yield source, message
        self._beat()

    def wait(self, timeout_s: float = 0.1) -> None:
        """Sleeps until something may have arrived; counted as idle."""
        start = time.perf_counter()
        self.transport.wait(timeout_s)
        self.idle_s += time.perf_counter() - start

    def _beat(self) -> None:
        now = time.monotonic()
        if now - self._sent_s < HEARTBEAT_S:
            return
        silence_s = now - self._sent_s  # if this rank itself was stopped, the others' silence says nothing
        self._sent_s = now
        for peer, heard_s in self._heard_s.items():
            self.send(peer, Report(self.number))
            if now - heard_s > SILENCE_S + silence_s:
                raise PeerError(f"rank {peer} has been silent for {now - heard_s:.0f} s")

    def report_failure(self, error: BaseException, trace: str) -> int:
        """A rank that is not the master cannot go on: tells the master and waits for its word; returns the exit code."""
        if isinstance(error, Stopped):
            return error.exit_code
        exit_code = getattr(error, "exit_code", 3)
        self.send(MASTER, Failed(self.number, exit_code, describe(error), trace))
        return self._await_stop(exit_code)

    def _await_stop(self, exit_code: int) -> int:
        deadline = time.monotonic() + LEAVE_S
        while time.monotonic() < deadline:
            for _, _, data in self.transport.poll():
                message = parse(data)
                if isinstance(message, Stop):
                    return message.exit_code
            self.transport.wait(0.05)
        self.transport.abort(exit_code)
        return exit_code

    def stop_all(self, stop: Stop) -> None:
        """The master's last word to everybody."""
        for peer in range(1, self.transport.size):
            self.send(peer, stop)

    def leave(self, exit_code: int) -> int:
        """Leaves together with the others; takes them down if they do not come."""
        try:
            self.transport.close(LEAVE_S if exit_code else 60.0)
        except PeerError:
            self.transport.abort(exit_code or 3)
        return exit_code


def describe(error: BaseException) -> str:
    """One line for users: mpijoin's own errors speak for themselves, others are named by type."""
    if isinstance(error, MpijoinError):
        return str(error)
    if isinstance(error, KeyboardInterrupt):
        return "stopped by Ctrl-C"
    return f"{type(error).__name__}: {error}"


