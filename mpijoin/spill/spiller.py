"""A slave's part of spilling by generations: what goes to disk, what is owed for it, and how that is found.

It does what the slave's core has decided, in bounded pieces, and says how far it has come. Groups of which something is
owed are in *debt*.
"""

from __future__ import annotations

from collections import deque
from typing import Collection, Iterable, Sequence

import numpy as np

from mpijoin.config.job import GENERATIONS, LARGEST
from mpijoin.data.codec import decode, encode
from mpijoin.data.room import Room
from mpijoin.join.window_join import WindowJoin
from mpijoin.operators.base import Out, Progress
from mpijoin.records import SpillFigures
from mpijoin.spill.abreast import Abreast, Course, next_courses
from mpijoin.spill.cleanup import CleanUp
from mpijoin.spill.comeback import SPREAD, Comeback
from mpijoin.spill.generations import Debt, Generation, Part, begins_to_be_over, is_over, new_generation, row_counts
from mpijoin.spill.leaving import Leaving
from mpijoin.spill.marked import MarkedCleanUp
from mpijoin.spill.owed import Owed
from mpijoin.spill.packs import Packs
from mpijoin.spill.ranking import ranked
from mpijoin.spill.runs import Runs
from mpijoin.store.rows import ROWS_KIND, RowsBatch, rows_of
from mpijoin.store.shipment import meta_of
from mpijoin.store.state import TIME_MAX_VALUE, TIME_MIN_VALUE

DEBT_KIND = 19  # This is the kind of frames after those of rows.
# A clean-up before the end of the input waits until this share of the memory is free. With less, it would have to read
# the same rows again and again, for one small part of them after the other.
IDLE_ROOM = 0.1
# So many bytes are spilled between two looks at the network.
PIECE_BYTES = 1 << 20
# A group comes back if then no more is held than this share of what is held when groups are spilled.
BACK_SHARE = 0.6


class Spiller:
    form = GENERATIONS

    def __init__(self, operator: WindowJoin, table: WindowJoin, runs: Runs, seed: int = 0, threshold: float = 1.0):
        """table: for clean-ups; it shares the operator's pool, and its fresh rows do not meet each other · seed: of the
        ranking "random" · threshold: the share of the memory above which groups are spilled."""
        self._operator, self._table, self._runs, self._packs = operator, table, runs, Packs(runs)
        self._windows, self._seed = [stream.window for stream in operator.streams], seed
        self._marks = any(stream.flagged for stream in operator.streams)  # rows that have partners
        self._held_share_max = BACK_SHARE * threshold
        self._debts: dict[int, Debt] = {}
        self._aside: dict[int, Debt] = {}  # of groups that are not here yet
        self._owed, self._room = Owed(self._windows), Room()
        self._keeping, self._victims, self._ending = (Leaving(operator.page_bytes) for _ in range(3))
        self._left_bytes = 0
        self._has_ended = False
        self._owing: deque[int] = deque()
        self._alone: set[int] = set()  # those of them that did not fit into memory beside others
        self._cleaning: tuple[list[int], CleanUp | Abreast | Comeback] | None = None
        self.spills = self._disk_bytes_max = 0
        # Rows of each stream whose copy on disk is done with. None of them can meet anything any more.
        self.let_go = np.zeros(len(self._windows), np.int64)

    @property
    def open_groups(self) -> int:
        """How many groups have something on disk. All may owe results for what comes, if they do not already."""
        return len(self._debts)

    def disk_bytes(self, groups: np.ndarray) -> np.ndarray:
        """What each of these groups has on disk: int64[m]."""
        debts = [self._debts.get(group) for group in groups.tolist()]
        return np.array([debt.octets if debt else 0 for debt in debts], np.int64)

    @property
    def figures(self) -> SpillFigures:
        """What was done so far and is left to do, without times."""
        owing = [debt for debt in self._debts.values() if not debt.is_paid]
        return SpillFigures(
            spills=self.spills,
            write_s=self._runs.write_s,
            spilled_bytes=self._runs.written_bytes,
            read_back_bytes=self._runs.read_bytes,
            disk_bytes=self._runs.held_bytes,
            disk_bytes_max=self._disk_bytes_max,
            owed_groups=len(owing),
            owed_bytes=sum(debt.octets for debt in owing),
            owed_generations=sum(len(debt.generations) for debt in owing),
            owed_results=self._owed.results,
        )

    def count_owed(self) -> bool:
        """Counts anew how many results are owed at least, for `figures`. It takes some ms. Returns whether there was
        anything to count, and that is not known where not all pairs are results."""
        if not self._operator.finds_pairs:
            return False
        owing = {group: debt.merged for group, debt in self._debts.items() if not debt.is_paid}
        self._owed.count(owing)
        return bool(owing)

    @property
    def page_bytes(self) -> int:
        return self._operator.page_bytes

    @property
    def is_between(self) -> bool:
        """Whether no clean-up of a group is under way."""
        return self._cleaning is None

    @property
    def may_lose_memory(self) -> bool:
        """Whether there may be less memory from now on. There may not, while a clean-up has to finish what it holds."""
        return self._cleaning is None or not self._cleaning[1].holds_chunk

    def begin_spill(self, octets: int, ranking: str, groups: Collection[int], fixed: Collection[int] = ()) -> None:
        """Chooses what goes to disk, to make about so many bytes free. groups: those of the slave · fixed: those of
        them that must stay, as must all that hold fresh tuples."""
        self.spills += 1
        others = np.array([group for group in groups if group not in fixed], np.int64)
        able = others[~self._operator.hold_fresh(others)]
        info, kept = self._operator.info(able), self._operator.kept()
        going = ranked(info, able, ranking, self._seed + self.spills)
        self._victims.fill(able[going], info.blocks[going])
        self._keeping.fill(kept, self._operator.info(kept).blocks if len(kept) else kept)
        self._left_bytes = octets

    def spill_next(self) -> bool:
        """Spills the next groups, until `PIECE_BYTES` are free. What expired and is only kept goes first. Returns
        whether there are more to go."""
        before, freed = self._operator.memory().free, 0
        while (self._keeping or self._victims) and freed < (wanted := min(self._left_bytes, PIECE_BYTES)):
            if self._keeping:
                self.write_kept(self._keeping.first(wanted - freed))
            else:
                self._spill(self._victims.first(wanted - freed))
            freed = self._operator.memory().free - before
        self._left_bytes -= freed
        return self._left_bytes > 0 and bool(self._keeping or self._victims)

    def _spill(self, groups: Sequence[int]) -> None:
        """Writes all rows of groups, kept ones included, to their generations on disk, and begins the next ones.

        The next one begins even if nothing was in memory, because the rows to come must not be of a generation that a
        clean-up takes for complete.
        """
        own = np.array(groups)
        self.write_kept(groups)
        self._write(self._operator.rows(own))
        self._operator.empty(own)
        self._set_bounds([group for group in groups if group in self._debts])

    def settle(self) -> None:
        """Brings to disk what has expired and is only kept, because groups are to be saved and their rows counted."""
        self.write_kept(self._operator.kept().tolist())

    def write_kept(self, groups: Sequence[int]) -> None:
        """Brings to disk what has expired and is only kept, because these groups are to be read out."""
        if len(kept := self._operator.kept()) and (chosen := set(kept.tolist()).intersection(groups)):
            own = np.array(sorted(chosen))
            self._write(self._operator.kept_rows(own))
            self._operator.drop_kept(own)

    def _write(self, batches: Iterable[RowsBatch]) -> None:
        """Writes rows that are in memory now to their generations on disk."""
        for batch in batches:
            places = self._packs.append(batch.data, batch.starts, batch.sizes)
            for (group, number), spans, size, place in zip(batch.names.tolist(), batch.spans, batch.sizes, places):
                if group not in self._debts:
                    self._debts[group] = Debt(self._windows)
                self._debts[group].add(number, spans, size, place, self._packs)
            self._owed.add(batch)
        self._disk_bytes_max = max(self._disk_bytes_max, self._runs.held_bytes)

    def _set_bounds(self, groups: Sequence[int]) -> None:
        if groups:
            bounds = [self._debts[group].keep_until() for group in groups]
            self._operator.keep_until(np.array(groups), np.array(bounds))

    def _keep_nothing(self, group: int) -> None:
        self._operator.keep_until(np.array([group]), np.full((1, len(self._windows)), TIME_MIN_VALUE))

    def begin_end(self, groups: Collection[int], out: Out) -> None:
        """The input has ended, so nothing can meet what is in memory, except for what is on disk.

        All memory is made free for the clean-up.
        """
        self._has_ended = True
        own = np.array(sorted(groups), np.int64)
        progress = self._operator.expire(own, [TIME_MAX_VALUE] * len(self._windows), out)
        assert progress is Progress.DONE  # What has no partner in memory nor on disk left with the last message.
        for group, tuples in zip(own.tolist(), self._operator.info(own).tuples):
            if group not in self._debts and tuples.any():  # With unbounded windows nothing ever expires.
                self._operator.empty(np.array([group]))
                self.let_go += tuples
        owing = sorted(set(self._debts) & set(groups))  # Another slave cleans up for a group that has just left.
        ending = np.array(owing, np.int64)
        self._ending.fill(ending, self._operator.info(ending).blocks)
        self._owing = deque(owing)

    def clean_up(self, out: Out, fixed: Collection[int] = ()) -> bool:
        """Does a bounded piece of the clean-up. The results in `out` must be consumed before the next call.

        fixed: groups that change hands. Returns whether there is more to do.
        """
        if self._ending:
            self._spill(self._ending.first(PIECE_BYTES))
            return True
        if self._cleaning is None:
            if not self._has_ended:
                self._owing = deque(self._most_urgent(fixed))
            if not self._owing:
                return False
            self._cleaning = self._next_work()
        groups, work = self._cleaning
        if work.step(out) is Progress.DONE:
            self._cleaning = None
            if isinstance(work, Abreast):
                self._settle_all(groups, work)
            elif isinstance(work, CleanUp):
                self._settle(groups[0], work.left)
            else:
                self._end_comeback(groups[0], work)
        return True

    def _next_work(self) -> tuple[list[int], CleanUp | Abreast]:
        """Begins the clean-up of the next group that owes. After the input has ended, all rows are on disk, and several
        groups may be cleaned up at once."""
        courses = list[Course]()
        if self._has_ended and not self._marks:
            courses = next_courses(self._owing, self._alone, self._debts, self._table)
        groups = [one.group for one in courses] or [self._owing.popleft()]
        if len(groups) > 1:
            return groups, Abreast(self._table, courses, self._windows, self._room)
        self._spill(groups)
        return groups, self._new_clean_up(groups[0])

    def _settle_all(self, groups: Sequence[int], work: Abreast) -> None:
        """Each of these groups owes nothing any more, or what is left of it comes next."""
        for group in groups:
            if group not in work.joined:
                self._settle(group)
                continue
            debt = self._debts[group]
            for own in debt.classes[: work.joined[group]]:
                debt.merged = own[-1].number
            self._owed.changed(group)
            self._owing.appendleft(group)
            self._alone.add(group)

    def _new_clean_up(self, group: int) -> CleanUp:
        """The clean-up of a group of which everything is on disk."""
        debt, info = self._debts[group], self._operator.info(np.array([group]))
        watermarks, given = info.watermarks[0].tolist(), (self._table, group, debt.classes, self._windows, self._room)
        is_over = any(begins_to_be_over(one.rows, self._windows, watermarks) for one in debt.generations)
        if len(debt.classes) == 1 and not (self._marks and (is_over or self._has_ended)):
            return CleanUp(self._table, group, [], self._windows)
        if not self._marks:
            return CleanUp(*given)
        left = None if self._has_ended else self._new_generation(int(info.generations[0]))
        self._operator.empty(np.array([group]))  # What comes now is of a later generation than what is left.
        return MarkedCleanUp(*given, watermarks, left, self._new_generation, self._owed.add)

    def _new_generation(self, number: int = 0) -> Generation:
        return new_generation(number, len(self._windows), self._packs)

    def _most_urgent(self, fixed: Collection[int]) -> list[int]:
        """The group that owes results for the most bytes, if there is one and memory for it. Else the smallest that
        may come back."""
        memory = self._operator.memory()
        if memory.free < IDLE_ROOM * memory.budget:
            return []
        able = sorted((debt.octets, group) for group, debt in self._debts.items() if group not in fixed)
        owing = [group for _, group in able if not self._debts[group].is_paid or self._answers(group)]
        return owing[-1:] or [group for _, group in able if self._may_come_back(group)][:1]

    def _answers(self, group: int) -> bool:
        """Whether rows of the group leave alone now, although nothing is owed among those on disk."""
        if not self._marks:
            return False
        watermarks = self._operator.info(np.array([group])).watermarks[0].tolist()
        return any(is_over(one.rows, self._windows, watermarks) for one in self._debts[group].generations)

    def _may_come_back(self, group: int) -> bool:
        memory, octets = self._operator.memory(), SPREAD * self._debts[group].octets
        return self._debts[group].fits and memory.budget - memory.free + octets <= self._held_share_max * memory.budget

    def _end_comeback(self, group: int, work: Comeback) -> None:
        if not work.is_whole:
            self._operator.empty(np.array([group]))
            self._debts[group].fits = False
            return
        self.forget(group)
        self._keep_nothing(group)

    def _settle(self, group: int, left: Generation | None = None) -> None:
        """Nothing is owed among what a group has on disk: what no row to come can meet is forgotten. left: takes the
        place of all that it has, if there is one."""
        debt = self._debts[group]
        watermarks = self._operator.info(np.array([group])).watermarks[0].tolist()
        if left is not None:
            gone = debt.replace(left)
            self.let_go -= row_counts([left], len(self._windows))
        else:
            gone = list(debt.generations) if self._has_ended else debt.let_go(watermarks)
        debt.merge()
        for generation in gone:
            generation.run.remove()
        self.let_go += row_counts(gone, len(self._windows))
        self._owed.paid(group, [generation.number for generation in gone])
        if self._has_ended or not debt.generations:
            del self._debts[group]
            self._keep_nothing(group)
        else:
            self._set_bounds([group])
            if self._may_come_back(group):
                self._cleaning = [group], Comeback(self._operator, group, debt.generations)

    def portion(self, group: int, skip: int, octets_max: int) -> list[np.ndarray]:
        """Returns copies of the group's frames of rows on disk, but for the first `skip`: about `octets_max` bytes."""
        frames, octets = [], 0
        for frame in self._debts[group].frames(skip) if group in self._debts else ():
            frames.append(frame.copy())
            octets += len(frame)
            if octets >= octets_max:
                break
        return frames

    def is_inactive(self, group: int) -> bool:
        """Whether the group is on disk as a whole: no group is."""
        return False

    def marks(self, group: int) -> list[np.ndarray]:
        """Returns the frame that goes with a group's frames of rows, if it has any on disk."""
        if group not in self._debts:
            return []
        meta = {"group": group, "merged": self._debts[group].merged}
        return [encode(DEBT_KIND, meta, [], checksum=True)]

    def parts(self, group: int) -> list[Part]:
        """What the group has on disk, the oldest generation first."""
        generations = self._debts[group].generations if group in self._debts else []
        return [Part(one.number, one.run.frames_from) for one in generations]

    def take_aside(self, group: int, frame: np.ndarray) -> bool:
        """Takes a frame of rows, or that of `marks`, of a group that comes from elsewhere. Returns whether it is one.

        Raises CodecError and ProtocolError.
        """
        decoded = decode(frame)
        if decoded.kind not in (ROWS_KIND, DEBT_KIND):
            return False
        debt = self._aside.setdefault(group, Debt(self._windows))
        if decoded.kind == DEBT_KIND:
            debt.merged = meta_of(decoded, "merged")
        else:
            rows = rows_of(frame, self._operator.streams)
            (place,) = self._packs.append(frame, [0], [len(frame)])
            debt.add(rows.generation, rows.spans.tolist(), len(frame), place, self._packs)
            self._owed.add(RowsBatch.of(rows))
            self._disk_bytes_max = max(self._disk_bytes_max, self._runs.held_bytes)
        return True

    def adopt(self, group: int) -> None:
        """The group is here now, and what was taken aside is its debt."""
        if group in self._aside:
            self._debts[group] = self._aside.pop(group)

    def refuse(self, group: int) -> None:
        """The group does not come, so what was taken aside is of no use."""
        if group in self._aside:
            self._aside.pop(group).remove()
            self._owed.forget(group)

    def forget(self, group: int) -> None:
        """The group is elsewhere now, with its debt."""
        if group in self._debts:
            self._debts.pop(group).remove()
            self._owed.forget(group)

    def make_way(self, groups: Collection[int]) -> None:
        """Spills one of these groups if memory was taken away amid a clean-up, which needs some itself."""
        if self._cleaning is not None and self._operator.memory().free <= 0:
            self.make_room([group for group in groups if group not in self._cleaning[0]])

    def make_room(self, groups: Collection[int]) -> bool:
        """Spills the largest of these groups that holds no fresh tuple. Returns whether any memory is free for that."""
        free = self._operator.memory().free
        self.begin_spill(1, LARGEST, groups)
        self.spill_next()
        return self._operator.memory().free > free

    def abandon(self) -> None:
        """Gives all space back. The operator is of no use any more."""
        for debt in (*self._debts.values(), *self._aside.values()):
            debt.remove()
        self._debts, self._aside = {}, {}
