"""The contract of a sink: where a slave's results go."""

from __future__ import annotations

from typing import Protocol

from mpijoin.operators.base import Consumer
from mpijoin.records import PartInfo


class Sink(Consumer, Protocol):
    """A consumer that brings results out of the slave."""

    def rest(self, epoch: int) -> None:
        """The slave has nothing to join; there will be no results until it is given groups again."""

    def cut(self, number: int) -> list[PartInfo]:
        """A checkpoint cuts the results here: returns the part files so far, all closed. Raises OutputError."""

    def sync(self) -> None:
        """Flushes the closed part files to disk. This may take long, and may be called in another thread. Raises
        OutputError."""

    def close(self) -> list[PartInfo]:
        """Ends the output; returns the part files it made. Raises OutputError."""

    def abandon(self) -> None:
        """The run has failed: closes everything and drops what waits."""
