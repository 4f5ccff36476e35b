"""The loop of a rank that only merges the results of slaves."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NoReturn

from mpijoin.errors import OutputError, ProtocolError
from mpijoin.messages import EpochEnd, Finished, ResultMarker, ResultRows, Saved
from mpijoin.rank import MASTER, WAIT_S, Rank

if TYPE_CHECKING:
    from mpijoin.sinks.collector import Collector


class CollectorRank:
    def __init__(self, rank: Rank, collector: Collector):
        self._rank, self._collector = rank, collector
        self._said = False

    def run(self) -> NoReturn:
        """Runs until the master says stop (rank.Stopped). Raises whatever goes wrong."""
        while True:
            self._rank.wait(self.turn())

    def turn(self) -> float:
        """Takes the messages that have arrived. Returns for how many seconds there is nothing else to do."""
        received = 0
        for _, message in self._rank.receive(self._collector.refuse):
            received += 1
            if isinstance(message, (ResultRows, EpochEnd, ResultMarker)):
                self._collector.take(message)
        if self._collector.cut_number is not None:
            self._rank.send(MASTER, cut_results(self._rank.number, self._collector))
        if self._collector.finished and not self._said:
            self._said = True
            self._rank.send(MASTER, Finished(self._rank.number, rows=self._collector.rows, files=self._close()))
        return 0.0 if received else WAIT_S

    def _close(self) -> tuple[str, ...]:
        return tuple(part.name for part in self._collector.writers.close())

    def abandon(self) -> None:
        self._collector.writers.abandon()


def cut_results(rank: int, collector: Collector) -> Saved:
    """Closes the part files at the marks of a checkpoint, and goes on after them. Returns what to tell the master."""
    start_s, writers, number = time.perf_counter(), collector.writers, collector.cut_number
    if number is None:
        raise ProtocolError(f"rank {rank} is to cut its results, but marks of some slaves are missing")
    parts, fault = writers.cut(), ""
    try:
        writers.sync()
    except OutputError as error:
        fault = str(error)
    rows = collector.rows
    collector.go_on()
    return Saved(rank, number, rows=rows, parts=tuple(parts), seconds=time.perf_counter() - start_s, fault=fault)
