"""A slave's part of a checkpoint: it saves group by group, and tells the master once all of it is on disk."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Callable, Collection, Sequence

import numpy as np

from mpijoin.checkpoint.saver import Saver
from mpijoin.messages import Saved
from mpijoin.rank import MASTER, Rank
from mpijoin.records import Counts, PartInfo
from mpijoin.sinks.base import Sink
from mpijoin.slave.batches import Batches, unjoined
from mpijoin.slave.events import Save
from mpijoin.slave.report import EpochMeter


@dataclass
class Saving:
    """A checkpoint that is under way. message: what the master is told once the checkpoint is on disk · since_s: when
    joining stopped for it · is_written: joining goes on again, and the slave waits only for the disk."""

    message: Saved
    since_s: float
    is_written: bool = False


class Savings:
    """Saves one checkpoint after the other."""

    def __init__(
        self,
        rank: Rank,
        saver: Saver | None,
        sinks: Sequence[Sink],
        epochs: EpochMeter,
        counts: Callable[[list[PartInfo], np.ndarray], Counts],
    ):
        """saver: None where no marks come · counts: from the closed part files and the rows received."""
        self._rank, self._saver, self._sinks, self._epochs, self._counts = rank, saver, sinks, epochs, counts
        self._saving: Saving | None = None

    def save(self, action: Save, messages: deque[Batches], groups: Collection[int], received: np.ndarray) -> bool:
        """Saves one group, and returns whether more is to be saved: the slave looks at the network in between.

        received: as of `counts_of`, before the mark. Nothing that waits is a copy, because no group is on its way.
        """
        assert self._saver is not None  # Without a folder for checkpoints no marks come.
        saving = self._saving
        if saving is None or saving.is_written:
            saving = self._saving = self._begin(self._saver, action, messages, groups, received)
        if self._saver.save_next():
            return True
        self._saver.finish(self._sync_results)
        saving.message = saving.message._replace(seconds=self._rank.clock.wall_s - saving.since_s)
        saving.is_written = True
        return False

    def _begin(
        self, saver: Saver, action: Save, messages: deque[Batches], groups: Collection[int], received: np.ndarray
    ) -> Saving:
        since_s, number = self._rank.clock.wall_s, action.number
        waiting = unjoined(messages, action.unjoined, self._rank.number)
        parts = [part for sink in self._sinks for part in sink.cut(number)]
        if action.cuts_metrics:
            self._epochs.cut(number)
        saver.settle()
        joined = received.copy()
        joined[0] -= sum((slot.rows_per_stream for slot in waiting), np.zeros_like(joined[0]))
        counts = self._counts(parts, joined)
        saver.begin(number, sorted(groups), action.anew, [slot.frame(True) for slot in waiting])
        return Saving(Saved(self._rank.number, number, counts, parts=tuple(parts)), since_s)

    def _sync_results(self) -> None:
        for sink in self._sinks:
            sink.sync()

    def report(self) -> None:
        """Tells the master of a checkpoint once all of it is on disk."""
        saving = self._saving
        if self._saver is None or saving is None or not saving.is_written:
            return
        if (outcome := self._saver.poll()) is not None:
            self._rank.send(MASTER, saving.message._replace(**outcome._asdict()))
            self._saving = None
