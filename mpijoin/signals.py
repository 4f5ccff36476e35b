"""Signals as something that a runtime asks about between two pieces of work."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from typing import Any, Collection, Iterator

from mpijoin.errors import EXIT_CHECKPOINTED, EXIT_SIGINT, EXIT_SIGTERM, Interrupted

ENDING = {signal.SIGINT: ("Ctrl-C", EXIT_SIGINT), signal.SIGTERM: ("SIGTERM", EXIT_SIGTERM)}
# Whoever has lost the terminal can no longer press Ctrl-C: this counts as SIGTERM, unless nohup has it ignored.
COUNTS_AS = {signal.SIGHUP: signal.SIGTERM}
HANDLED = (*ENDING, *COUNTS_AS, signal.SIGUSR1, signal.SIGUSR2)  # the last two do nothing unless asked to save
REPEAT_S = 1.0  # one key press may arrive twice: from the terminal and from the launcher
AGAIN_S = 0.5  # after so long an exception that did not get out of foreign code is raised again


class SignalFlag:
    """Remembers the first signal. `install` only works in the main thread; elsewhere the flag just stays down.

    `asked` is the first of those that do not end the run but ask for a checkpoint (`save_at`). A second Ctrl-C, a
    second or more after the first signal, raises KeyboardInterrupt at once, for whoever cannot wait.
    """

    def __init__(self) -> None:
        self.asked: signal.Signals | None = None
        self._saves: frozenset[signal.Signals] = frozenset()
        self._early: set[signal.Signals] = set()  # came before it was known which of them save
        self._ended_by: tuple[str, int] | None = None  # what is named as the reason, and the exit code
        self._first_s = math.inf  # of the clock that only rises: when the first signal came
        self._at_once = False
        self._before: dict[signal.Signals, Any] = {}

    def install(self) -> None:
        if threading.current_thread() is threading.main_thread():
            wanted = [one for one in HANDLED if one not in COUNTS_AS or signal.getsignal(one) != signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._handle) for number in wanted}

    def restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def save_at(self, names: Collection[str]) -> None:
        """From now on these signals ask for a checkpoint. Of those that came before, one that ends runs still does, and
        one that only saves has asked for a checkpoint."""
        self._saves = frozenset(signal.Signals[name] for name in names)
        self.asked = self.asked or next((one for one in self._early if one in self._saves), None)

    def end(self, by: str) -> None:
        """Asks for what Ctrl-C asks for: a checkpoint if the job says so, else the end. Any thread may call it, and
        nothing is raised here. by: what the error names as the reason."""
        if signal.SIGINT in self._saves:
            self.asked = self.asked or signal.SIGINT
        else:
            self._ended_by = self._ended_by or (by, EXIT_SIGINT)

    def _handle(self, came: int, frame: object) -> None:
        number = COUNTS_AS.get(signal.Signals(came), signal.Signals(came))
        known = number in self._saves or number in ENDING
        if known and self._first_s == math.inf:
            self._first_s = time.monotonic()
        elif number == signal.SIGINT and time.monotonic() - self._first_s >= REPEAT_S:
            raise KeyboardInterrupt
        if number in self._saves:
            self.asked = self.asked or number
        elif number in ENDING:
            self._ended_by = self._ended_by or ENDING[number]
        else:
            self._early.add(number)
        if known and self._at_once:
            again = threading.Timer(AGAIN_S, self._remind, (number,))
            again.daemon = True
            again.start()
            self.check_before_start()

    def _remind(self, number: int) -> None:
        """Foreign code may have caught what was raised in it; then the signal is sent once more."""
        if self._at_once:
            os.kill(os.getpid(), number)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Inside, a signal raises Interrupted wherever it finds the thread: for long work that nobody else waits
        for."""
        self._at_once, told_before = True, sys.unraisablehook
        # Raised inside a callback of C code it is lost, with a complaint; then it is raised again.
        sys.unraisablehook = lambda told: None if isinstance(told.exc_value, Interrupted) else told_before(told)
        try:
            self.check_before_start()
            yield
        except Exception:
            self.check_before_start()  # Foreign code may have made another exception of what was raised in it.
            raise
        finally:
            self._at_once, sys.unraisablehook = False, told_before

    def check(self) -> None:
        """Raises Interrupted if a signal has come that ends the run."""
        if self._ended_by is not None:
            raise Interrupted(*self._ended_by)

    def check_before_start(self) -> None:
        """Likewise; and if one has come that asks for a checkpoint, of which there is nothing yet to save."""
        self.check()
        if self.asked is not None:
            raise Interrupted(self.asked.name, EXIT_CHECKPOINTED)


class Terminated(KeyboardInterrupt):
    """SIGTERM has come. It ends a command as Ctrl-C does, by an exception, so that half-done work is cleared away."""


@contextmanager
def terminable() -> Iterator[None]:
    """Inside, SIGTERM raises Terminated in the main thread, unless this process has its own way with it.

    A batch system sends it to every process of a job: what fails because another one has ended first ends as
    Terminated, too.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    came = []

    def terminate(number: int, frame: object) -> None:
        came.append(number)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a launcher may send it twice: clearing away goes on
        raise Terminated

    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    except Exception as error:
        if came:
            raise Terminated from error
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def die_of(number: int) -> None:
    """Ends this process as the signal would without us, which is how a launcher sees that it was stopped."""
    sys.stderr.flush()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
