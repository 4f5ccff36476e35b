"""The log file of each rank."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from io import TextIOWrapper

from mpijoin.launch.roles import RunSetup


class LogFile(logging.FileHandler):
    """A rank's log. It never ends a run. A line that the disk refuses because it is full is dropped, and so is a line
    that a link would lead elsewhere."""

    def _open(self) -> TextIOWrapper:
        how = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        return open(os.open(self.baseFilename, how, 0o666), "a", encoding=self.encoding, errors=self.errors)

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Says nothing, because the terminal belongs to the run's own message."""

    def close(self) -> None:
        with suppress(OSError):
            super().close()


def rank_log(setup: RunSetup, rank: int) -> logging.Logger:
    """Returns the logger of the rank's own log file. It is never the root logger, because local ranks share a process.
    """
    log = logging.Logger(f"mpijoin.rank-{rank}", logging.INFO)
    if setup.directory:
        handler = LogFile(setup.directory.log(rank), delay=True)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        log.addHandler(handler)
    else:
        # Without any handler, Python would write what is logged to the terminal.
        log.addHandler(logging.NullHandler())
    return log
