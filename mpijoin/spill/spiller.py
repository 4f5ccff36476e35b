"""A slave's part of spilling by generations: what goes to disk, what is owed for it, and how that is found.

It does what the slave's core has decided, in bounded pieces, and says how far it has come. Groups of which something is
owed are in *debt*.
"""

from __future__ import annotations

from collections import deque
from typing import Collection, Iterable

import numpy as np

from mpijoin.data.codec import decode
from mpijoin.join.window_join import WindowJoin
from mpijoin.operators.base import Out, Progress
from mpijoin.records import SpillFigures
from mpijoin.spill.cleanup import CleanUp
from mpijoin.spill.generations import Debt, Generation, Rows, row_counts
from mpijoin.spill.ranking import ranked
from mpijoin.spill.runs import Runs
from mpijoin.store.state import TIME_MAX_VALUE


class Spiller:
    def __init__(self, operator: WindowJoin, table: WindowJoin, runs: Runs, seed: int = 0):
        """table: for clean-ups; it shares the operator's pool, and its fresh rows do not meet each other · seed: of the
        ranking "random"."""
        self._operator, self._table, self._runs = operator, table, runs
        self._windows, self._seed = [stream.window for stream in operator.streams], seed
        self._debts: dict[int, Debt] = {}
        self._keeping: deque[int] = deque()
        self._victims: deque[int] = deque()
        self._left_bytes = 0
        self._has_ended = False
        self._ending: deque[int] = deque()
        self._owing: deque[int] = deque()
        self._cleaning: tuple[int, CleanUp] | None = None
        self.spills = self._disk_bytes_max = 0
        # Rows of each stream whose copy on disk is done with. None of them can meet anything any more.
        self.let_go = np.zeros(len(self._windows), np.int64)

    @property
    def owed_groups(self) -> int:
        """How many groups owe results."""
        return sum(1 for debt in self._debts.values() if not debt.is_paid)

    @property
    def owed_bytes(self) -> int:
        return sum(debt.octets for debt in self._debts.values())

    def disk_bytes(self, groups: np.ndarray) -> np.ndarray:
        """What each of these groups has on disk: int64[m]."""
        debts = [self._debts.get(group) for group in groups.tolist()]
        return np.array([debt.octets if debt else 0 for debt in debts], np.int64)

    @property
    def figures(self) -> SpillFigures:
        """What was done so far and is left to do, without times. It is asked for around every spill, so it adds up only
        what is paid, which is little."""
        paid_bytes = sum(debt.octets for debt in self._debts.values() if debt.is_paid)
        return SpillFigures(
            spills=self.spills,
            spilled_bytes=self._runs.written_bytes,
            read_back_bytes=self._runs.read_bytes,
            disk_bytes=self._runs.held_bytes,
            disk_bytes_max=self._disk_bytes_max,
            owed_groups=self.owed_groups,
            owed_bytes=self._runs.held_bytes - paid_bytes,
        )

    @property
    def page_bytes(self) -> int:
        return self._operator.page_bytes

    @property
    def is_between(self) -> bool:
        """Whether no clean-up of a group is under way."""
        return self._cleaning is None

    def begin_spill(self, octets: int, ranking: str, groups: Collection[int], fixed: Collection[int] = ()) -> None:
        """Chooses what goes to disk, to make about so many bytes free. groups: those of the slave · fixed: those of
        them that must stay."""
        self.spills += 1
        able = np.array(sorted(set(groups) - set(fixed)), np.int64)
        info = self._operator.info(able)
        self._keeping = deque(self._operator.kept().tolist())
        self._victims = deque(able[ranked(info, able, ranking, self._seed + self.spills)].tolist())
        self._left_bytes = octets

    def spill_next(self) -> bool:
        """Spills the next group. What expired and is only kept goes first. Returns whether there are more to go."""
        free = self._operator.memory().free
        while self._keeping or self._victims:
            if self._keeping:
                self._write_kept(self._keeping.popleft())
            else:
                self._spill(self._victims.popleft())
            if freed := self._operator.memory().free - free:
                self._left_bytes -= freed
                break
        return self._left_bytes > 0 and bool(self._keeping or self._victims)

    def _spill(self, group: int) -> None:
        """Writes all rows of a group, kept ones included, to its generation on disk, and begins the next one."""
        self._write_kept(group)
        if not self._operator.info(np.array([group])).tuples.any():
            return
        self._write(group, self._operator.rows(group))
        self._operator.empty(group)
        self._set_bounds(group)

    def _write_kept(self, group: int) -> None:
        if group in self._operator.kept():
            self._write(group, self._operator.kept_rows(group))
            self._operator.drop_kept(group)

    def _write(self, group: int, frames: Iterable[np.ndarray]) -> None:
        generation = self._generation(group)
        for frame in frames:
            generation.run.append(frame)
            # The frame was made just now, so there is no need to check it.
            meta = decode(frame, trusted=True).meta
            generation.add(meta["stream"], Rows(meta["tuples"], meta["earliest"], meta["latest"]))
        self._disk_bytes_max = max(self._disk_bytes_max, self._runs.held_bytes)

    def _generation(self, group: int) -> Generation:
        """The generation on disk to which rows belong that are in memory now."""
        number = int(self._operator.info(np.array([group])).generations[0])
        debt = self._debts.setdefault(group, Debt(self._windows))
        newest = debt.newest
        if newest is None or newest.number != number:
            newest = Generation(number, self._runs.new_run(), [Rows()] * len(self._windows))
            debt.classes.append([newest])
        debt.is_paid = False
        return newest

    def _set_bounds(self, group: int) -> None:
        self._operator.keep_until(group, Debt.keep_until(self._debts[group]))

    def begin_end(self, groups: Collection[int], out: Out) -> None:
        """The input has ended, so nothing can meet what is in memory, except for what is on disk.

        All memory is made free for the clean-up.
        """
        self._has_ended = True
        own = np.array(sorted(groups), np.int64)
        self._operator.expire(own, [TIME_MAX_VALUE] * len(self._windows), out)
        for group, tuples in zip(own.tolist(), self._operator.info(own).tuples):
            if group not in self._debts and tuples.any():  # With unbounded windows nothing ever expires.
                self._operator.empty(group)
                self.let_go += tuples
        self._ending, self._owing = deque(sorted(self._debts)), deque(sorted(self._debts))

    def clean_up(self, out: Out) -> bool:
        """Does a bounded piece of the clean-up. The results in `out` must be consumed before the next call.

        Returns whether there is more to do.
        """
        if self._ending:
            self._spill(self._ending.popleft())
            return True
        if self._cleaning is None:
            if not self._has_ended:
                self._owing = deque(self._most_urgent())
            if not self._owing:
                return False
            group = self._owing.popleft()
            self._spill(group)
            classes = self._debts[group].classes
            self._cleaning = group, CleanUp(self._table, group, classes if len(classes) > 1 else [], self._windows)
        group, work = self._cleaning
        if work.step(out) is Progress.DONE:
            self._cleaning = None
            self._settle(group)
        return True

    def _most_urgent(self) -> list[int]:
        """The group that owes results for the most bytes, if there is one."""
        owing = {group: debt.octets for group, debt in self._debts.items() if not debt.is_paid}
        return sorted(owing, key=owing.__getitem__)[-1:]

    def _settle(self, group: int) -> None:
        """Nothing is owed among what a group has on disk: what no row to come can meet is forgotten."""
        debt = self._debts[group]
        debt.merge()
        watermarks = self._operator.info(np.array([group])).watermarks[0].tolist()
        gone = debt.generations if self._has_ended else debt.let_go(watermarks)
        for generation in gone:
            generation.run.remove()
        self.let_go += row_counts(gone, len(self._windows))
        if self._has_ended or not debt.classes:
            del self._debts[group]
