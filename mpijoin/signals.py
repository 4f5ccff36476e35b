"""Ctrl-C and SIGTERM as something a runtime asks about between two pieces of work."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from typing import Iterator

from mpijoin.errors import EXIT_SIGINT, EXIT_SIGTERM, Interrupted

HANDLED = {signal.SIGINT: ("Ctrl-C", EXIT_SIGINT), signal.SIGTERM: ("SIGTERM", EXIT_SIGTERM)}
REPEAT_S = 1.0  # one key press may arrive twice: from the terminal and from the launcher
AGAIN_S = 0.5  # after so long an exception that did not get out of foreign code is raised again


class SignalFlag:
    """Remembers the first signal. `install` only works in the main thread; elsewhere the flag just stays down.

    A second Ctrl-C, a second or more after the first signal, raises KeyboardInterrupt at once, for whoever cannot wait.
    """

    def __init__(self) -> None:
        self._received: signal.Signals | None = None
        self._received_s = 0.0
        self._at_once = False
        self._before: dict[signal.Signals, object] = {}

    def install(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in HANDLED}

    def restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _handle(self, number: int, frame: object) -> None:
        if self._received is None:
            self._received, self._received_s = signal.Signals(number), time.monotonic()
        elif number == signal.SIGINT and time.monotonic() - self._received_s >= REPEAT_S:
            raise KeyboardInterrupt
        if self._at_once:
            again = threading.Timer(AGAIN_S, self._remind)
            again.daemon = True
            again.start()
            self.check()

    def _remind(self) -> None:
        """Foreign code may have caught what was raised in it; then the signal is sent once more."""
        if self._at_once:
            os.kill(os.getpid(), self._received)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Inside, a signal raises Interrupted where it finds the thread: for long work that nobody else waits for."""
        self._at_once, told_before = True, sys.unraisablehook
        # Raised inside a callback of C code it is lost, with a complaint; then the next `check` raises it.
        sys.unraisablehook = lambda told: None if isinstance(told.exc_value, Interrupted) else told_before(told)
        try:
            self.check()
            yield
        finally:
            self._at_once, sys.unraisablehook = False, told_before

    def check(self) -> None:
        """Raises Interrupted if a signal has come."""
        if self._received is not None:
            raise Interrupted(*HANDLED[self._received])
