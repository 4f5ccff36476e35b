"""A slave's spills and clean-ups, as the job wants them, and what they cost."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Collection, Iterator, cast

import numpy as np

from mpijoin.clock import RunClock
from mpijoin.config.job import GENERATIONS, ROTATE, WHEN_IDLE, Job
from mpijoin.errors import MORE_MEMORY
from mpijoin.operators.base import Out, Totals
from mpijoin.records import SpillFigures
from mpijoin.slave.batches import Batches
from mpijoin.slave.events import Cleaned, Diverted, Rotate, Rotated, Spill, Spilled
from mpijoin.slave.inputs import Inputs
from mpijoin.slave.rule import SpillRule

if TYPE_CHECKING:
    from mpijoin.spill.forms import AnySpiller
    from mpijoin.spill.rotator import Rotator
    from mpijoin.spill.spiller import Spiller


def spill_rule(job: Job, spiller: AnySpiller | None) -> SpillRule | None:
    """When a slave spills, as the job wants it. None: never."""
    if spiller is None:
        return None
    memory = job.memory
    rotates = memory.spill == ROTATE
    idle = rotates or memory.cleanup == WHEN_IDLE
    return SpillRule(memory.threshold, memory.share, memory.rank, spiller.page_bytes, idle, rotates)

# What is owed is counted anew after so many seconds, and after so many times what it took the last time.
COUNT_S, COUNT_REST = 1.0, 50


class Spilling:
    """Carries out what the core has decided, and adds up time and results. Without a spiller it only has zeros."""

    def __init__(self, spiller: AnySpiller | None, out: Out, clock: RunClock):
        """out: where the slave's results go."""
        self._spiller, self._out, self._clock = spiller, out, clock
        self._spill_s = self._cleanup_s = 0.0
        self._cleanup_results = 0
        self._cleans = False
        self._counts_at_s = 0.0

    @property
    def spiller(self) -> AnySpiller:
        assert self._spiller is not None  # A core without a rule never spills.
        return self._spiller

    @property
    def by_generations(self) -> Spiller | None:
        """The spiller where it keeps generations on disk, which go along with groups that move."""
        own = self._spiller
        return cast("Spiller", own) if own and own.form == GENERATIONS else None

    @property
    def rotator(self) -> Rotator:
        assert self._spiller and self._spiller.form == ROTATE  # Only a core whose rule says so rotates.
        return cast("Rotator", self._spiller)

    @property
    def figures(self) -> SpillFigures:
        """What was done since the clock started, and what is left to do."""
        if self._spiller is None:
            return SpillFigures()
        if self._clock.wall_s >= self._counts_at_s:
            self._count_owed()
        return self._spiller.figures._replace(
            spill_s=self._spill_s, cleanup_s=self._cleanup_s, cleanup_results=self._cleanup_results
        )

    @property
    def open_groups(self) -> int:
        """How many groups have something on disk."""
        return self._spiller.open_groups if self._spiller else 0

    @property
    def owed(self) -> str:
        """What results are owed for, in words."""
        self._count_owed()
        figures = self.figures
        groups = f"{figures.owed_groups} groups, {figures.owed_generations} generations"
        return f"{groups}, {figures.owed_bytes / 1e6:.3g} MB: at least {figures.owed_results} results"

    def _count_owed(self) -> None:
        start_s = self._clock.wall_s
        if self.spiller.count_owed():
            self._counts_at_s = self._clock.wall_s + max(COUNT_S, COUNT_REST * (self._clock.wall_s - start_s))

    @property
    def may_lose_memory(self) -> bool:
        """Whether what is under way still works with less memory."""
        return self._spiller is None or self._spiller.may_lose_memory

    def disk_bytes(self, groups: np.ndarray) -> np.ndarray:
        """What each of these groups has on disk: int64[m]."""
        return np.zeros(len(groups), np.int64) if self._spiller is None else self._spiller.disk_bytes(groups)

    def in_memory(self, groups: Collection[int]) -> list[int]:
        """Those of the groups of which nothing is on disk. LAD-TR, section 6: "The distributed adaptation will not
        choose partitions that have been pushed into disks to adapt. This is to avoid unnecessary overhead and
        complexity in the clean up stage." """
        own = np.array(sorted(groups), np.int64)
        chosen: list[int] = own[self.disk_bytes(own) == 0].tolist()
        return chosen

    def spill(self, action: Spill, groups: Collection[int], fixed: Collection[int]) -> Spilled:
        """Writes the next group to disk. groups: those of the slave · fixed: those that must stay in memory."""
        start_s = self._clock.wall_s
        if action.begins:
            self.spiller.begin_spill(action.octets, action.ranking, groups, fixed)
        more = self.spiller.spill_next()
        self._spill_s += self._clock.wall_s - start_s
        return Spilled(more, self.spiller.open_groups)

    def clean_up(self, ends: bool, groups: Collection[int], fixed: Collection[int]) -> Cleaned:
        """Finds some of what is owed. The slave consumes it as the next thing that it does. groups, fixed: as in
        `spill`."""
        start_s, found, self._cleans = self._clock.wall_s, self._out.found, True
        if ends:
            self.spiller.begin_end(groups, self._out)
        if self.by_generations is not None:
            self.by_generations.make_way(set(groups) - set(fixed))
        more = self.spiller.clean_up(self._out, fixed)
        now_s = self._clock.wall_s
        self._cleanup_s += now_s - start_s
        self._cleanup_results += self._out.found - found
        return Cleaned(more, self.spiller.is_between, self.spiller.open_groups, now_s)

    def rotate(
        self,
        action: Rotate,
        messages: deque[Batches],
        groups: Collection[int],
        fixed: Collection[int],
        newest_epoch: int,
    ) -> Rotated:
        """Does a part of an activation. Pending input that is to be joined now becomes the oldest message.

        What it finds belongs to the oldest epoch that has not ended here. groups, fixed: as for `spill`.
        """
        start_s = self._clock.wall_s
        if action.begins:
            self.rotator.begin_activation(action.group, action.at_once, groups, start_s)
        turn = self.rotator.activate(fixed, self._clock.wall_s)
        self._spill_s += self._clock.wall_s - start_s
        outcome = Rotated(turn.more, self.rotator.open_groups, is_blocked=turn.is_blocked)
        if turn.input is None:
            return outcome
        epoch = messages[0].slot.epoch if messages else newest_epoch + 1
        messages.appendleft(Batches(turn.input._replace(epoch=epoch)))
        return outcome._replace(groups=turn.input.groups, rows=turn.input.rows)

    def divert(self, message: Batches, low: int, inputs: Inputs) -> Diverted:
        """Spools what the message has of groups on disk, from the group at place `low` on. Some have no rows in it."""
        start_s, slot, groups = self._clock.wall_s, message.slot, message.groups.tolist()
        places = [at for at in range(low, len(groups)) if self.rotator.is_inactive(groups[at])]
        for at in places:
            self.rotator.spool(inputs.diverted(slot, groups[at], tuple(message.rows_of(at))))
        if places:
            message.forget(places)
        self._spill_s += self._clock.wall_s - start_s
        return Diverted(tuple(places), self.rotator.open_groups)

    @contextmanager
    def consuming(self) -> Iterator[None]:
        """Adds the results that are counted within the block to those of the clean-up that has found them, if any."""
        found = self._out.found
        yield
        self._cleanup_results += (self._out.found - found) * self._cleans
        self._cleans = False

    def advice(self, lacking_pages: int) -> str:
        """What to do about a memory into which not even one row more fits. lacking_pages: that row's."""
        if self._spiller is None:
            return MORE_MEMORY
        if self._spiller and self._spiller.form == ROTATE:
            return (
                "partitions that rotate must fit one at a time, with the rows that come for them: set more [cluster]"
                ' partitions, or give each slave more memory, or set [memory] spill = "generations" if the job may'
            )
        lacking_bytes = lacking_pages * self._spiller.page_bytes
        return f"all else is on the disk, and the next row lacks {lacking_bytes} bytes: give each slave more memory"

    def totals(self, totals: Totals) -> Totals:
        """Adds what has been let go of on disk to the operator's totals: these rows came back, and have expired."""
        if self._spiller is None:
            return totals
        let_go = self._spiller.let_go.tolist()
        expired = tuple(own + more for own, more in zip(totals.expired, let_go))
        taken_back = tuple(own + more for own, more in zip(totals.taken_back, let_go))
        return totals._replace(expired=expired, taken_back=taken_back)
