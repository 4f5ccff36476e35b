"""Standard streams that end no command: one that was closed before it began, one whose reader leaves before the end,
and one whose encoding lacks a letter."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, Iterator

NAMES = ("stdin", "stdout", "stderr")


class PatientStream:
    """A stream for writing. Once its reader has left, as `head` does, the rest goes nowhere."""

    def __init__(self, stream: Any):
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except UnicodeEncodeError:  # The locale may be ASCII, where a path is not.
            encoding = self._stream.encoding
            return self.write(text.encode(encoding, "backslashreplace").decode(encoding))
        except BrokenPipeError:
            return self._leave(len(text))

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._leave()

    def _leave(self, written: int = 0) -> int:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def patient_streams() -> Iterator[None]:
    """Inside, standard output and standard error take everything."""
    open_missing()
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(PatientStream, before)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = before


def open_missing() -> None:
    """Has something behind each standard stream that was closed when the process began (`2>&-`): else the next file
    that is opened gets its number, and what libraries complain about is written into that file."""
    for number, name in enumerate(NAMES):
        if getattr(sys, name) is not None:
            continue
        nowhere = os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
        if nowhere > number:
            os.close(nowhere)  # the number has been given away already
        setattr(sys, name, open(os.devnull, "w" if number else "r"))


@contextmanager
def silent() -> Iterator[None]:
    """Nothing that the block prints is seen."""
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield
