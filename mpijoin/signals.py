"""Ctrl-C and SIGTERM as something a runtime asks about between two pieces of work."""

from __future__ import annotations

import signal
import threading

from mpijoin.errors import EXIT_SIGINT, EXIT_SIGTERM, Interrupted

HANDLED = {signal.SIGINT: ("Ctrl-C", EXIT_SIGINT), signal.SIGTERM: ("SIGTERM", EXIT_SIGTERM)}


class SignalFlag:
    """Remembers the first signal. `install` only works in the main thread; elsewhere the flag just stays down.

    A second Ctrl-C raises KeyboardInterrupt at once, for whoever cannot wait.
    """

    def __init__(self) -> None:
        self._received: signal.Signals | None = None
        self._before: dict[signal.Signals, object] = {}

    def install(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in HANDLED}

    def restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _handle(self, number: int, frame: object) -> None:
        if self._received is signal.SIGINT and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._received = signal.Signals(number)

    def check(self) -> None:
        """Raises Interrupted if a signal has come."""
        if self._received is not None:
            raise Interrupted(*HANDLED[self._received])
