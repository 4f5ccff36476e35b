"""What every operator has that keeps its tuples in a table of the store: all of the contract but finding results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Iterator, Protocol, Sequence

import numpy as np

from mpijoin.data.batch import read_only
from mpijoin.data.room import Room
from mpijoin.errors import MORE_MEMORY, MemoryBudgetError, ProtocolError
from mpijoin.operators.base import Filter, GroupInfo, Left, Memory, Out, PlanChange, Progress, Taken, Totals
from mpijoin.store import transfer
from mpijoin.store.directory import start_group
from mpijoin.store.fresh import settle_groups
from mpijoin.store.insert import Fresh, Scratch, insert_groups
from mpijoin.store.kept import drop_kept
from mpijoin.store.pool import SMALL_BYTES, Pool, StreamSpec, new_table, reserve_words
from mpijoin.store.prepare import clear_stream
from mpijoin.store.read import KeyWords, gather_blobs, keep_equal_keys
from mpijoin.store.row_reader import RowReader
from mpijoin.store.rows import RowsBatch, part_of_deal, rows_of
from mpijoin.store.state import (
    APART,
    BLOCKS,
    BUCKETS,
    COMES,
    COMPARED,
    COMPARISONS,
    DEPTH,
    EXPIRED,
    FRESH,
    GENERATION,
    GROUP_BYTES,
    GROUP_STREAM_WORDS,
    GROUP_TUPLES,
    INSERTED,
    KEEP_UNTIL,
    KEPT,
    KEPT_TUPLES,
    LACKING,
    MERGED,
    MERGES,
    NEW,
    NONE,
    OWN_PAGES,
    OWN_PAGES_MAX,
    RESULTS,
    RESULTS_BEFORE,
    SPILLED,
    SPLIT,
    SPLITS,
    THETA,
    WATERMARK,
)
from mpijoin.store.tracks import make_all_old, old_until
from mpijoin.store.transfer_kernels import drop_group, empty_groups


class Finder(Protocol):
    """Finds the results that tuples have once their windows are over."""

    def find(self, groups: np.ndarray, watermarks: np.ndarray, out: Out) -> Progress:
        """Advances the groups' watermarks, and fills an empty `out` with results of tuples that are over.

        groups: int64[m]; they hold no fresh tuple · watermarks: int64[m, n], or int64[1, n] for all of them. Unless it
        returns DONE, it is called again with the same groups and watermarks, after what it found was consumed. With
        DONE it has found nothing more, and the next call begins anew. It counts nothing in `out`.
        """


class TableOperator(ABC):
    """Implements `Operator` but for `probe`, `pause` and `expire`, which each operator has of its own.

    Its groups lie in a table over a pool of pages, which other operators may share.
    """

    def __init__(self, pool: Pool, partitions: int, theta: int, streams: tuple[StreamSpec, ...], number: int = 0):
        """partitions: how many groups there may be · theta: in bytes · streams: in the job's order · number: the
        operator's number among those that share the pool."""
        self._pool, self._streams = pool, streams
        self._table = new_table(pool, partitions, theta, streams, number)
        self._results = 0
        words = -(-len(self._table.buckets) // 2)
        per_bucket = (reserve_words(words, SMALL_BYTES).view(np.int32) for _ in range(3))
        self._use(Scratch(**_scratch_of_rows(0), **dict(zip(("incoming", "start", "touched"), per_bucket))))
        self._empty, self._drop_kept = empty_groups.bound(self._table), drop_kept.bound(self._table)
        self._reader, self._frame_memory = RowReader(self._table), Room().take_one
        self._started = np.zeros(partitions, bool)
        # For the ledger: how many tuples of each stream came with groups, and left with them.
        self._moved_in, self._moved_out = np.zeros((2, len(streams)), np.int64)
        # The same of groups that went to a disk and came back as a whole.
        self._from_disk, self._to_disk = np.zeros((2, len(streams)), np.int64)
        self._discarded, self._replicas_in, self._replicas_out = np.zeros((3, len(streams)), np.int64)

    @abstractmethod
    def probe(self, groups: np.ndarray, budget: int, out: Out) -> Progress:
        """As `Operator.probe`."""

    @abstractmethod
    def pause(self, budget: int, out: Out) -> Progress:
        """As `Operator.pause`."""

    @abstractmethod
    def expire(self, groups: np.ndarray, watermarks: Sequence[int] | np.ndarray, out: Out) -> Progress:
        """As `Operator.expire`."""

    @property
    def _is_probing(self) -> bool:
        """Whether a probe is under way, so that groups cannot be read out."""
        return False

    def touch(self, octets: int) -> None:
        """Makes the system find memory for the first `octets` of blocks, and for the arrays that go with them.

        The operator must still be empty.
        """
        self._pool.touch(octets)
        per_bucket = self._scratch.incoming, self._scratch.start, self._scratch.touched
        for array in (self._table.buckets, self._table.directory, *per_bucket):
            array.flat[0] = 0

    def insert(self, groups: np.ndarray, stream: int, batch: Fresh, bounds: np.ndarray, new: bool = False) -> Taken:
        groups = self._start(groups)
        self._table.counters[COMES] = NEW * new
        rows = int((bounds[:, 1] - bounds[:, 0]).max(initial=0))
        if rows > len(self._scratch.bucket):
            self._use(self._scratch._replace(**_scratch_of_rows(2 * rows)))
        taken = self._insert(stream, groups, bounds, batch, 0)
        return Taken(taken, 0 if taken == len(groups) else int(self._table.counters[LACKING]))

    def settle(self, groups: np.ndarray) -> None:
        self._refuse_probed(groups)
        settle_groups(self._table, self._start(groups))

    @property
    def words(self) -> np.ndarray:
        return self._table.words

    def copy_blobs(self, slots: np.ndarray, starts: np.ndarray, out: np.ndarray) -> None:
        gather_blobs(self._table, slots, starts, out)

    def keep_equal_keys(self, out: Out, key: KeyWords) -> None:
        out.count = keep_equal_keys(self._table, out.slots, out.count, *key)

    def get(self, group: int, since: int, octets_max: int | None = None, checksum: bool = False) -> list[np.ndarray]:
        self._refuse_probed(group)
        self._start(np.array([group]))
        self._refuse_kept(group)
        return transfer.get(self._table, group, since, octets_max, checksum)

    def blocks_of(self, frame: np.ndarray) -> np.ndarray:
        return transfer.blocks_of(frame)

    def reached(self, frames: Sequence[np.ndarray]) -> tuple[int, bool]:
        return transfer.newest(frames[-1]), transfer.is_tail(frames[-1])

    def states_of(self, group: int) -> list[np.ndarray]:
        return []

    def install(self, parts: Sequence[np.ndarray], generation: int | None = None, replica: bool = False) -> int:
        group = transfer.install(self._table, parts, self._started, generation)
        came = self._replicas_in if replica else self._moved_in
        came += transfer.held(self._table, group)
        return group

    def to_disk(self, group: int) -> Iterator[np.ndarray]:
        """Yields the whole group as frames with a checksum, uint8[n] each, valid until the next one of any group."""
        self._refuse_probed(group)
        self._start_one(group)
        self._refuse_kept(group)
        return transfer.whole(self._table, group, self._frame_memory)

    def from_disk(self, parts: Sequence[np.ndarray], own: bool) -> None:
        """Takes back the frames of `to_disk`. own: this operator has made them. It raises what `install` raises."""
        group = transfer.install(self._table, parts, self._started, own=own)
        self._from_disk += transfer.held(self._table, group)

    def drop(self, group: int, left: Left = Left.MOVED) -> None:
        if not self._started[group]:
            return
        self._refuse_probed(group)
        self._refuse_kept(group)
        counts = {Left.MOVED: self._moved_out, Left.SPILLED: self._to_disk, Left.DISCARDED: self._discarded}[left]
        counts += transfer.held(self._table, group)
        drop_group(self._table, group)
        self._pool.trim()
        self._started[group] = False

    def old_until(self, group: int) -> np.ndarray:
        self._start_one(group)
        until = np.empty(len(self._streams), np.int64)
        old_until(self._table, group, until)
        return until

    def make_all_old(self, group: int) -> None:
        self._start_one(group)
        make_all_old(self._table, group)

    def clear(self, group: int, stream: int) -> None:
        """Forgets the tuples of one stream of a group that holds no fresh tuple, and counts them nowhere."""
        self._refuse_fresh(np.array([group]))
        clear_stream(self._table, group, stream)

    def deal(self, group: int, stream: int, deal: int, part: int) -> None:
        self._refuse_fresh(np.array([group]))
        held = transfer.held(self._table, group).copy()
        if part == 0:
            self._replicas_out += held
        dealt = deque(rows.fresh[stream] for rows in self._reader.of_group(group, stream=stream))
        self.clear(group, stream)
        kept = 0
        while dealt:  # What is put back is not held twice.
            rows = dealt.popleft()
            own = rows.tuples[part_of_deal(rows.tuples, deal) == part]
            kept += self._put_back(group, stream, rows._replace(tuples=own))
        self._discarded[stream] += held[stream] - kept

    def give_dealt(self, group: int, stream: int) -> list[np.ndarray]:
        self._refuse_fresh(np.array([group]))
        frames = [rows.data for rows in self._reader.of_group(group, stream=stream)]
        self._moved_out[stream] += transfer.held(self._table, group)[stream]
        self.clear(group, stream)
        self.drop(group, Left.DISCARDED)
        return frames

    def take_dealt(self, group: int, stream: int, frames: Sequence[np.ndarray]) -> None:
        self._refuse_fresh(np.array([group]))
        for frame in frames:
            self._moved_in[stream] += self._put_back(group, stream, rows_of(frame, self._streams).fresh[stream])

    def _put_back(self, group: int, stream: int, rows: Fresh) -> int:
        """Stores tuples that were joined before, and returns how many."""
        own, count = np.array([group]), len(rows.tuples)
        # They are no arrivals for those who choose a plan by these.
        if not TableOperator.insert(self, own, stream, Fresh(*map(read_only, rows)), np.array([[0, count]])).groups:
            raise self.out_of_memory()
        self._counts(INSERTED)[stream] -= count
        self.settle(own)
        return count

    def rows(self, groups: np.ndarray) -> Iterator[RowsBatch]:
        return self._reader.of_groups(self._refuse_fresh(groups))

    def empty(self, groups: np.ndarray) -> None:
        self._empty(self._refuse_fresh(groups))
        self._pool.trim()

    def keep_until(self, groups: np.ndarray, times: np.ndarray) -> None:
        self._table.groups[self._start(groups), KEEP_UNTIL::GROUP_STREAM_WORDS] = times

    def kept(self) -> np.ndarray:
        if not np.count_nonzero(self._counts(KEPT_TUPLES)):
            return np.zeros(0, np.int64)
        return np.flatnonzero(self._started & (self._table.groups[:, KEPT] != NONE))

    def kept_rows(self, groups: np.ndarray) -> Iterator[RowsBatch]:
        return self._reader.of_kept(self._start(groups))

    def drop_kept(self, groups: np.ndarray) -> None:
        self._drop_kept(self._start(groups))
        self._pool.trim()

    def _refuse_kept(self, group: int) -> None:
        if self._table.groups[group, KEPT] != NONE:
            raise ProtocolError(f"partition {group} has kept blocks: wanted them on a disk before it moves or goes")

    @property
    def marker(self) -> Filter | None:
        return None

    @property
    def answers_late(self) -> bool:
        """Whether `expire` may find results, so that watermarks alone are input."""
        return True

    @property
    def streams(self) -> tuple[StreamSpec, ...]:
        return self._streams

    @property
    def page_bytes(self) -> int:
        return self._pool.page_bytes

    def holds_fresh(self, group: int) -> bool:
        return bool(self._started[group]) and int(self._table.groups[group, FRESH]) != NONE

    def hold_fresh(self, groups: np.ndarray) -> np.ndarray:
        """Returns bool[m]: which of these groups hold tuples that no probe has joined yet."""
        return np.where(self._started[groups], self._table.groups[groups, FRESH] != NONE, False)

    def _refuse_fresh(self, groups: np.ndarray) -> np.ndarray:
        """Returns the groups as `_start` does. Raises ProtocolError if one of them holds fresh tuples."""
        self._refuse_probed(groups)
        own = self._start(groups)
        if np.count_nonzero(fresh := self._table.groups[own, FRESH] != NONE):
            raise ProtocolError(f"partition {own[fresh][0]} holds fresh tuples: wanted it probed before it is spilled")
        return own

    def _refuse_probed(self, groups: int | np.ndarray) -> None:
        if self._is_probing:
            raise ProtocolError(f"partition {groups} is wanted while a probe is under way: wanted it done or paused")

    def info(self, groups: np.ndarray) -> GroupInfo:
        rows = self._table.groups[groups]
        single = (BLOCKS, BUCKETS, DEPTH, COMPARISONS, RESULTS, SPLITS, MERGES, GENERATION)
        per_stream = (self._per_stream(rows, first) for first in (GROUP_TUPLES, GROUP_BYTES, WATERMARK))
        columns = [*per_stream, *(rows[:, column] for column in single), rows[:, RESULTS] - rows[:, RESULTS_BEFORE]]
        return GroupInfo(*columns)

    def memory(self) -> Memory:
        held = self._table.counters.item(OWN_PAGES) * self._pool.page_bytes
        return Memory(self._pool.budget_bytes, held, self._pool.free_bytes)

    def limit(self, octets: int) -> None:
        self._pool.limit(octets)

    @property
    def compared(self) -> int:
        return int(self._table.counters[COMPARED])

    @property
    def totals(self) -> Totals:
        groups, counters = self._table.groups, self._table.counters
        inserted, expired = (tuple(self._counts(first).tolist()) for first in (INSERTED, EXPIRED))
        none = (0,) * len(inserted)
        return Totals(
            joined=none if counters[APART] else inserted,
            expired=expired,
            held=tuple((self._per_stream(groups, GROUP_TUPLES).sum(axis=0) + self._counts(KEPT_TUPLES)).tolist()),
            moved_in=tuple(self._moved_in.tolist()),
            moved_out=tuple(self._moved_out.tolist()),
            discarded=tuple(self._discarded.tolist()),
            replicas_in=tuple(self._replicas_in.tolist()),
            replicas_out=tuple(self._replicas_out.tolist()),
            comparisons=self.compared,
            results=self._results,
            splits=int(counters[SPLIT]),
            merges=int(counters[MERGED]),
            live_bytes=int(self._per_stream(groups, GROUP_BYTES).sum()),
            blocks=int(counters[OWN_PAGES]),
            blocks_max=int(counters[OWN_PAGES_MAX]),
            spilled=tuple((self._counts(SPILLED) + self._to_disk).tolist()),
            taken_back=inserted if counters[APART] else tuple(self._from_disk.tolist()),
        )

    @property
    def plans(self) -> Sequence[PlanChange]:
        return ()

    def spent(self, seconds: float) -> None:
        """There is only one way to join, so it makes no difference."""
        return

    @property
    def theta_bytes(self) -> int:
        return int(self._table.counters[THETA])

    def out_of_memory(self, advice: str = MORE_MEMORY) -> MemoryBudgetError:
        """Returns an error that names the budget, what is held, and the largest groups. advice: what to do."""
        memory, sizes = self.memory(), self._table.groups[:, BLOCKS] * self._pool.page_bytes
        largest = np.argsort(-sizes)[:3]
        listed = ", ".join(f"partition {group} ({sizes[group] / 1e6:.3g} MB)" for group in largest if sizes[group])
        return MemoryBudgetError(
            f"the window state needs more than [memory] limit allows: budget {memory.budget / 1e6:.3g} MB, held "
            f"{memory.held / 1e6:.3g} MB, largest groups: {listed or 'none'}; {advice}"
        )

    def _use(self, scratch: Scratch) -> None:
        """Makes this the scratch memory of inserts from now on."""
        self._scratch, self._insert = scratch, insert_groups.bound(self._table, scratch)

    def _counts(self, first: int) -> np.ndarray:
        """Returns int64[n]: one of the counters for each stream. first: where stream 0 has it."""
        return self._table.counters[first : first + len(self._table.layout)]

    def _per_stream(self, rows: np.ndarray, first: int) -> np.ndarray:
        """Returns int64[m, n]: one word for each stream, of m rows of `groups`. first: where stream 0 has it."""
        words: np.ndarray = rows[:, first::GROUP_STREAM_WORDS]
        return words

    def _start_one(self, group: int) -> None:
        if not self._started[group]:
            self._start(np.array([group]))

    def _start(self, groups: np.ndarray) -> np.ndarray:
        """Starts those of the groups that do not exist yet. Returns all of them in the one form that kernels take."""
        started = self._started[groups]
        if np.count_nonzero(started) < len(groups):  # This is faster than `all` for a few groups.
            for group in groups[~started]:
                start_group(self._table, group)
                self._started[group] = True
        return read_only(groups)


def _scratch_of_rows(rows: int) -> dict[str, np.ndarray]:
    return {"bucket": np.empty(rows, np.int32), "order": np.empty(rows, np.int32), "tag": np.empty(rows, np.uint16)}
