"""What the runtimes of all roles share: sending and receiving messages, sleeping, heartbeats, and leaving together."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections import deque
from contextlib import suppress
from typing import Any, Callable, Collection, Iterator

from mpijoin.clock import RunClock
from mpijoin.config.inject import Inject, holds_at
from mpijoin.errors import EXIT_FAILED, EXIT_SIGINT, EXIT_SIGTERM, MpijoinError, PeerError
from mpijoin.machine import host_name
from mpijoin.messages import (
    AnyMessage,
    EpochEnd,
    Failed,
    Marker,
    Ready,
    Report,
    ResultMarker,
    ResultRows,
    Signalled,
    Slot,
    State,
    Stop,
    encode_message,
    parse,
)
from mpijoin.orders import Order
from mpijoin.signals import SignalFlag, Terminated
from mpijoin.transport.base import Channel, Transport, nothing

MASTER = 0
WAIT_S = 0.1  # how long a rank sleeps at most before it looks at signals and heartbeats
HEARTBEAT_S = 1.0  # a rank that makes progress tells so often how far it has come
# A rank that makes none tells every REST_S that it is alive, and at least so many times within the silence after which
# it would be taken for lost.
REST_S, SILENCE_PARTS = 5.0, 12
SILENCE_S = 60.0  # a peer silent for longer is lost: longer than any write to a slow disk should take
SIGNALLED_S = 0.5  # so much later a signal may reach the master than another rank
START_S = 600.0  # the same before ranks have met, since the first of a node may have to compile everything
LEAVE_S = 5.0  # how long a failing run waits for its peers before it takes them down
LEAVE_EARLY_S = 2.0  # the same before they have met, since a rank that compiles hears nobody
LEAVE_DONE_S = 60.0  # the same at the end of a good run

CHANNELS = {
    Slot: Channel.DATA,
    Order: Channel.DATA,
    State: Channel.STATE,
    ResultRows: Channel.RESULT,
    EpochEnd: Channel.RESULT,
    Marker: Channel.DATA,
    ResultMarker: Channel.RESULT,
}


class Stopped(MpijoinError):
    """The master said to leave."""

    def __init__(self, stop: Stop):
        super().__init__(stop.reason)
        self.exit_code = stop.exit_code


class Rank:
    """One rank's connection to the others. It is not a role: master, slave and collector each have one."""

    # A sleep ends later than something arrives, so whoever expects it soon had better stay awake.
    wakes_late = True

    def __init__(self, transport: Transport, clock: RunClock, signals: SignalFlag):
        self.transport, self.clock, self.signals = transport, clock, signals
        self.log = logging.Logger("mpijoin")  # until there is a setup: to nowhere
        self.log.addHandler(logging.NullHandler())
        self.idle_s = 0.0
        self.compile_s = 0.0  # until its kernels were ready; once they have met, the master has that of the last rank
        self.hosts = {self.number: host_name()}  # where ranks run; the master knows of all, once they have met
        # what a heartbeat tells of this rank; a slave says how far it has come
        self.progress = lambda: Report(transport.rank)
        self._told: Report | None = None
        self._inject = Inject()
        self._early: list[tuple[int, AnyMessage]] = []  # received before this rank knew that all are ready
        self._late: deque[tuple[float, int, AnyMessage]] = deque()  # received, and held back on purpose: until when
        self._told_signal = False  # the master of it
        self._met = False
        self._silence_s = START_S
        self._sent_s = self._looked_s = time.monotonic()
        peers = range(1, transport.size) if transport.rank == MASTER else (MASTER,)
        self._heard_s = dict.fromkeys(peers, time.monotonic())

    @property
    def number(self) -> int:
        return self.transport.rank

    @property
    def comm_s(self) -> float:
        """Wall seconds spent in the transport, without those spent asleep."""
        return self.transport.stats.send_s + self.transport.stats.poll_s

    def send(self, to: int, message: AnyMessage) -> None:
        self.transport.send(to, CHANNELS.get(type(message), Channel.CONTROL), encode_message(message))

    def inject(self, faults: Inject) -> None:
        """From now on this rank suffers the faults that the job injects."""
        self._inject = faults

    def receive(self, refuse: Collection[int] = ()) -> Iterator[tuple[int, AnyMessage]]:
        """Yields the messages that have arrived, each with its sender. Raises Stopped, Interrupted, and PeerError if a
        rank has failed or is lost."""
        self.signals.check()
        self._tell_signal()
        early, self._early = self._early, []
        yield from early
        for source, _, data in self.transport.poll(refuse):
            message = parse(data)
            if source in self._heard_s:
                self._heard_s[source] = time.monotonic()
            if isinstance(message, Stop):
                raise Stopped(message)
            if isinstance(message, Failed):
                self._let_signal_come(message.exit_code)
                raise PeerError(f"rank {message.rank}: {message.reason}", message.exit_code, message.trace)
            self._suffer(getattr(message, "epoch", -1))
            if self._inject.delay:
                self._late.append((self.clock.wall_s + self._delay_s(), source, message))
            else:
                yield source, message
        while self._late and self._late[0][0] <= self.clock.wall_s:
            yield self._late.popleft()[1:]
        self._beat()

    @property
    def asked(self) -> str:
        """The signal that has asked this rank for a checkpoint, "" if none has."""
        return self.signals.asked.name if self.signals.asked else ""

    def keep_in_touch(self) -> None:
        """Hears the others and is heard during long work before the start. What comes is kept for later. Raises what
        `receive` does."""
        self._early = [*self.receive()]
        self.signals.check_before_start()

    def _tell_signal(self) -> None:
        """Tells the master of a signal, which may have reached this rank only."""
        if self.asked and self.number != MASTER and not self._told_signal:
            self._told_signal = True
            self.send(MASTER, Signalled(self.number, self.asked))

    def _let_signal_come(self, exit_code: int) -> None:
        """Raises Interrupted if the signal that has ended a peer reaches this rank, too. exit_code: the peer's own.

        A launcher passes a signal on to one process after the other, so a peer's report may be here before it. Then the
        run was stopped, and no single rank is to be named.
        """
        deadline_s = time.monotonic() + SIGNALLED_S
        while exit_code in (EXIT_SIGINT, EXIT_SIGTERM) and time.monotonic() < deadline_s:
            self.signals.check()
            time.sleep(SIGNALLED_S / 100)

    def _suffer(self, epoch: int) -> None:
        """Fails or dies on purpose, if the job wants that of this rank at this epoch."""
        never = epoch + 1
        if epoch >= self._inject.fail.get(self.number, never):
            raise RuntimeError(f"[inject] fail: epoch {epoch} has come")
        if epoch >= self._inject.kill.get(self.number, never):
            os.kill(os.getpid(), signal.SIGKILL)

    def _delay_s(self) -> float:
        now_ns = int(self.clock.wall_s * 1e9)
        own = (one for one in self._inject.delay if one.rank == self.number)
        return (
            sum(one.by_ns for one in own if holds_at(one, now_ns))
            / 1e9
        )

    def wait(self, timeout_s: float = WAIT_S) -> None:
        """Sleeps until something may have arrived, and counts that as idle. Returns at once where there is no time to
        sleep."""
        if timeout_s <= 0:
            return
        start = self.clock.wall_s
        self.transport.wait(timeout_s)
        self.idle_s += self.clock.wall_s - start

    def gather(self, kinds: tuple[type, ...], sources: Collection[int]) -> dict[int, Any]:
        """Sleeps until one message of these kinds has come from each source, before the start. All others are kept for
        later."""
        found: dict[int, Any] = {}
        while len(found) < len(sources):
            for source, message in self.receive():
                if isinstance(message, kinds) and source in sources and source not in found:
                    found[source] = message
                else:
                    self._early.append((source, message))
            if len(found) < len(sources):
                self.signals.check_before_start()
                self.wait()
        return found

    def meet(self, elapsed_s: float = 0.0) -> None:
        """Sleeps until all ranks are ready, and starts the clock. Raises what `receive` does.

        elapsed_s: that the run has gone on for already, of which the master knows. Not by a barrier: one that a failing
        rank does not enter would be taken for the one at the end.
        """
        if self.number == MASTER:
            others = self.gather((Ready,), self._heard_s)
            self.hosts |= {rank: ready.host for rank, ready in others.items()}
            self.compile_s = max(self.compile_s, *(ready.compile_s for ready in others.values()))
            self.clock.start(time.time() - elapsed_s if elapsed_s else None)
            self._send_all(Ready(MASTER, self.clock.started_s))
        else:
            self.send(MASTER, Ready(self.number, host=host_name(), compile_s=self.compile_s))
            self.clock.start(self.gather((Ready,), (MASTER,))[MASTER].started_s)
        self._met = True
        self.idle_s = 0.0
        self._silence_s = SILENCE_S
        self._heard_s = dict.fromkeys(self._heard_s, time.monotonic())

    def _beat(self) -> None:
        now = time.monotonic()
        stopped_s = now - self._looked_s  # if this rank itself was stopped, the others' silence says nothing
        if stopped_s < HEARTBEAT_S:
            return
        self._looked_s, report = now, self.progress()
        rests = self._told is not None and report._replace(comm_s=self._told.comm_s) == self._told
        speaks = not rests or now - self._sent_s >= min(REST_S, self._silence_s / SILENCE_PARTS)
        if speaks:
            self._sent_s, self._told = now, report
        for peer, heard_s in self._heard_s.items():
            if speaks:
                self.send(peer, report)
            if now - heard_s > self._silence_s + stopped_s:
                raise PeerError(f"rank {peer} has been silent for {now - heard_s:.0f} s")

    def report_failure(self, error: BaseException, trace: str) -> int:
        """Tells the master that this rank cannot go on, and waits for its word. Returns the exit code."""
        if isinstance(error, Stopped):
            return error.exit_code
        self.log.error("%s", trace)
        exit_code = exit_code_of(error)
        with suppress(PeerError):  # others may have taken the run down already
            self.send(MASTER, Failed(self.number, exit_code, describe(error), trace))
            stop = self._await_stop()
            if stop is not None:
                return stop.exit_code
            said = f"mpijoin: rank {self.number}: {describe(error)} (no answer from the master)\n"
            print(said, end="", file=sys.stderr)  # in one write: other ranks write there, too
            self.transport.abort(exit_code)
        return exit_code

    def _await_stop(self) -> Stop | None:
        deadline_s = time.monotonic() + LEAVE_S
        while time.monotonic() < deadline_s:
            for _, _, data in self.transport.poll():
                message = parse(data)
                if isinstance(message, Stop):
                    return message
            self.transport.wait(0.05)
        return None

    def stop_all(self, stop: Stop) -> None:
        """Says the master's last word to everybody."""
        with suppress(PeerError):  # the run was taken down: nobody listens
            self._send_all(stop)

    def _send_all(self, message: AnyMessage) -> None:
        for peer in range(1, self.transport.size):
            self.send(peer, message)

    def leave(self, exit_code: int, last: Callable[[], None] = nothing) -> int:
        """Leaves together with the others, or takes them down if they do not come. last: is called when nobody writes
        any more."""
        try:
            failing_s = LEAVE_S if self._met else LEAVE_EARLY_S
            self.transport.close(failing_s if exit_code else LEAVE_DONE_S, last)
        except PeerError:
            last()  # those that hang: the next line ends this process, too
            self.transport.abort(exit_code or EXIT_FAILED)
        for handler in self.log.handlers:
            handler.close()
        return exit_code


def exit_code_of(error: BaseException) -> int:
    """The exit code of a run that ends in this error."""
    if isinstance(error, Terminated):
        return EXIT_SIGTERM
    if isinstance(error, KeyboardInterrupt):
        return EXIT_SIGINT
    return error.exit_code if isinstance(error, MpijoinError) else EXIT_FAILED


def describe(error: BaseException) -> str:
    """Describes an error to users in one line. mpijoin's own errors speak for themselves, others are named by their
    type.

    >>> describe(ZeroDivisionError("oh"))
    'internal error: ZeroDivisionError: oh (--debug shows where)'
    """
    if isinstance(error, MpijoinError):
        return str(error)
    if isinstance(error, KeyboardInterrupt):
        return "stopped by SIGTERM" if isinstance(error, Terminated) else "stopped by Ctrl-C"
    return f"internal error: {type(error).__name__}: {error} (--debug shows where)"
