"""The operator: a sliding-window join of the streams of one job, over the groups of one slave."""

from __future__ import annotations

from typing import Callable, Iterator, NamedTuple, Sequence

import numpy as np

from mpijoin.data.batch import read_only
from mpijoin.errors import MORE_MEMORY, MemoryBudgetError, ProtocolError
from mpijoin.join.probes import new_probe
from mpijoin.operators.base import GroupInfo, Memory, Out, Progress, Taken, Totals
from mpijoin.store import transfer
from mpijoin.store.directory import start_group
from mpijoin.store.expire import expire_groups
from mpijoin.store.fresh import settle_groups
from mpijoin.store.insert import Fresh, Scratch, insert_groups
from mpijoin.store.kept import drop_kept
from mpijoin.store.pool import Pool, StreamSpec, new_pool, new_table, reserve_words
from mpijoin.store.prepare import clear_stream, split_for
from mpijoin.store.read import KeyWords, gather_blobs, keep_equal_keys
from mpijoin.store.rows import group_rows, kept_rows
from mpijoin.store.state import (
    APART,
    BLOCKS,
    BUCKETS,
    COMPARED,
    COMPARISONS,
    DEPTH,
    EXPIRED,
    FOUND,
    FRESH,
    GENERATION,
    GROUP_BYTES,
    GROUP_TUPLES,
    HASHED,
    INSERTED,
    KEEP_UNTIL,
    KEEPS,
    KEPT,
    KEPT_TUPLES,
    LACKING,
    MERGED,
    MERGES,
    NONE,
    OUT_COUNT,
    OWN_PAGES,
    OWN_PAGES_MAX,
    RESULTS,
    RESULTS_BEFORE,
    SPILLED,
    SPLIT,
    SPLITS,
    THETA,
    WATERMARK,
    words_of,
)
from mpijoin.store.transfer_kernels import drop_group, empty_group

# A group is not split further than this ahead of its tuples, because many of them may have the same key.
EXPECTED_DEPTH_MAX = 16


class Setup(NamedTuple):
    """What a join is made for.

    partitions: how many groups there may be · theta: in bytes · streams: in the job's order · number: the operator's
    number among those that share its pool · symmetric: as of `new_probe` · fresh_meets_fresh: whether a result may
    consist of fresh tuples alone. If not, a probe finds only those with at least one tuple that was old before. A
    clean-up needs this, and what is inserted was taken back from a disk, and not joined for the first time.
    """

    partitions: int
    theta: int
    streams: tuple[StreamSpec, ...]
    number: int = 0
    symmetric: bool | None = None
    fresh_meets_fresh: bool = True


class WindowJoin:
    """Implements `Operator`: the inner join of n streams, over a pool of pages that other operators may share."""

    def __init__(self, setup: Setup, pool: Pool):
        self._setup, self._pool = setup, pool
        self._table = new_table(pool, setup.partitions, setup.theta, setup.streams, setup.number)
        self._table.counters[APART] = not setup.fresh_meets_fresh
        self._certificate = np.zeros(1, np.uint64)
        self._probe = new_probe(self._table, self._certificate, setup.symmetric)
        # The groups of an unfinished probe.
        self._probed: np.ndarray | None = None
        self._results = 0
        per_bucket = (reserve_words(-(-len(self._table.buckets) // 2)).view(np.int32) for _ in range(3))
        self._use(Scratch(**_scratch_of_rows(0), **dict(zip(("incoming", "start", "touched"), per_bucket))))
        self._expire = expire_groups.bound(self._table)
        self._started = np.zeros(setup.partitions, bool)
        # For the ledger: how many tuples of each stream came with groups, and left with them.
        self._moved_in, self._moved_out = np.zeros((2, len(setup.streams)), np.int64)
        # The same of groups that went to a disk and came back as a whole.
        self._from_disk, self._to_disk = np.zeros((2, len(setup.streams)), np.int64)

    def touch(self, octets: int) -> None:
        """Makes the system find memory for the first `octets` of blocks, and for the arrays that go with them.

        The operator must still be empty.
        """
        self._pool.touch(octets)
        per_bucket = self._scratch.incoming, self._scratch.start, self._scratch.touched
        for array in (self._table.buckets, self._table.directory, *per_bucket):
            array.flat[0] = 0

    def insert(self, groups: np.ndarray, stream: int, batch: Fresh, bounds: np.ndarray) -> Taken:
        groups = self._start(groups)
        rows = int((bounds[:, 1] - bounds[:, 0]).max(initial=0))
        if rows > len(self._scratch.bucket):
            self._use(self._scratch._replace(**_scratch_of_rows(2 * rows)))
        taken = self._insert(stream, groups, bounds, batch, 0)
        return Taken(taken, 0 if taken == len(groups) else int(self._table.counters[LACKING]))

    def probe(self, groups: np.ndarray, budget: int, out: Out) -> Progress:
        if self._probed is None:
            self._probe.start()
            self._probed = self._start(groups)
        return self._find(self._probe.go_on, self._probed, budget, out)

    def pause(self, budget: int, out: Out) -> Progress:
        if self._probed is None:
            return Progress.DONE
        # A tuple that has become old while others are still fresh would meet these in the next probe.
        find = self._probe.go_on if self._table.counters[APART] else self._probe.pause
        return self._find(find, self._probed, budget, out)

    def settle(self, groups: np.ndarray) -> None:
        self._refuse_probed(groups)
        settle_groups(self._table, self._start(groups))

    def _find(
        self, find: Callable[[np.ndarray, int, np.ndarray], int], groups: np.ndarray, budget: int, out: Out
    ) -> Progress:
        """Goes on with the probe of the groups, or pauses it, as `find` does, and counts what it finds."""
        counters = self._table.counters
        counters[KEEPS], counters[HASHED], counters[OUT_COUNT] = out.keep, not out.certifies, out.count
        counters[FOUND] = self._certificate[0] = 0
        progress = Progress(find(groups, budget, out.slots))
        found = int(counters[FOUND])
        self._results += found
        out.count = int(counters[OUT_COUNT])
        if out.certifies:
            out.counted(found, int(self._certificate[0]))
        if progress is Progress.DONE:
            self._probed = None
        return progress

    def expire(self, groups: np.ndarray, watermarks: Sequence[int], out: Out) -> Progress:
        self._expire(self._start(groups), np.asarray(watermarks, np.int64))
        self._pool.trim()
        return Progress.DONE

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

    def install(
        self, parts: Sequence[np.ndarray], generation: int | None = None, from_disk: bool = False
    ) -> int:
        group = transfer.install(self._table, parts, self._started, generation)
        self._started[group] = True
        came = self._from_disk if from_disk else self._moved_in
        came += transfer.held(self._table, group)
        return group

    def drop(self, group: int, to_disk: bool = False) -> None:
        if not self._started[group]:
            return
        self._refuse_probed(group)
        self._refuse_kept(group)
        left = self._to_disk if to_disk else self._moved_out
        left += transfer.held(self._table, group)
        drop_group(self._table, group)
        self._pool.trim()
        self._started[group] = False

    def rows(self, group: int) -> Iterator[np.ndarray]:
        self._refuse_fresh(group)
        return group_rows(self._table, group)

    def empty(self, group: int) -> None:
        self._refuse_fresh(group)
        empty_group(self._table, group)
        self._pool.trim()

    def keep_until(self, group: int, times: Sequence[int]) -> None:
        self._start(np.array([group]))
        self._table.groups[group, words_of(KEEP_UNTIL, len(times))] = times

    def kept(self) -> np.ndarray:
        if not self._counts(KEPT_TUPLES).any():
            return np.zeros(0, np.int64)
        return np.flatnonzero(self._started & (self._table.groups[:, KEPT] != NONE))

    def kept_rows(self, group: int) -> Iterator[np.ndarray]:
        self._start(np.array([group]))
        return kept_rows(self._table, group)

    def drop_kept(self, group: int) -> None:
        self._start(np.array([group]))
        drop_kept(self._table, group)
        self._pool.trim()

    def _refuse_kept(self, group: int) -> None:
        if self._table.groups[group, KEPT] != NONE:
            raise ProtocolError(f"partition {group} has kept blocks: wanted them on a disk before it moves or goes")

    def beside(self, number: int) -> WindowJoin:
        """Returns an empty table over the same pool, for clean-ups: its fresh tuples do not meet each other.

        number: its number among the operators that share the pool.
        """
        return WindowJoin(self._setup._replace(number=number, fresh_meets_fresh=False), self._pool)

    def expect(self, group: int, octets: int) -> None:
        """Prepares a group that holds no tuple for so many bytes of all streams, because they come in many batches
        before the group can be tuned."""
        self._start(np.array([group]))
        depth = max(0, octets // self.theta_bytes).bit_length()
        split_for(self._table, group, min(depth, EXPECTED_DEPTH_MAX))

    def clear(self, group: int, stream: int) -> None:
        """Forgets the tuples of one stream of a group that holds no fresh tuple, and counts them nowhere."""
        self._refuse_fresh(group)
        clear_stream(self._table, group, stream)

    @property
    def streams(self) -> tuple[StreamSpec, ...]:
        return self._setup.streams

    @property
    def page_bytes(self) -> int:
        return self._pool.page_bytes

    def holds_fresh(self, group: int) -> bool:
        return bool(self._started[group]) and int(self._table.groups[group, FRESH]) != NONE

    def _refuse_fresh(self, group: int) -> None:
        self._refuse_probed(group)
        self._start(np.array([group]))
        if self._table.groups[group, FRESH] != NONE:
            raise ProtocolError(f"partition {group} holds fresh tuples: wanted it probed before it is spilled")

    def _refuse_probed(self, groups: int | np.ndarray) -> None:
        if self._probed is not None:
            raise ProtocolError(f"partition {groups} is wanted while a probe is under way: wanted it done or paused")

    def info(self, groups: np.ndarray) -> GroupInfo:
        rows = self._table.groups[groups]
        single = (BLOCKS, BUCKETS, DEPTH, COMPARISONS, RESULTS, SPLITS, MERGES, GENERATION)
        per_stream = (self._per_stream(rows, first) for first in (GROUP_TUPLES, GROUP_BYTES, WATERMARK))
        columns = [*per_stream, *(rows[:, column] for column in single), rows[:, RESULTS] - rows[:, RESULTS_BEFORE]]
        return GroupInfo(*columns)

    def memory(self) -> Memory:
        held = int(self._table.counters[OWN_PAGES]) * self._pool.page_bytes
        return Memory(self._pool.budget_bytes, held, self._pool.free_bytes)

    def limit(self, octets: int) -> None:
        self._pool.limit(octets)

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
            comparisons=int(counters[COMPARED]),
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
    def theta_bytes(self) -> int:
        return int(self._table.counters[THETA])

    def out_of_memory(self) -> MemoryBudgetError:
        """Returns an error that names the budget, what is held, and the largest groups."""
        memory, sizes = self.memory(), self._table.groups[:, BLOCKS] * self._pool.page_bytes
        largest = np.argsort(-sizes)[:3]
        listed = ", ".join(f"partition {group} ({sizes[group] / 1e6:.3g} MB)" for group in largest if sizes[group])
        return MemoryBudgetError(
            f"the window state needs more than [memory] limit allows: budget {memory.budget / 1e6:.3g} MB, held "
            f"{memory.held / 1e6:.3g} MB, largest groups: {listed or 'none'}; {MORE_MEMORY}"
        )

    def _use(self, scratch: Scratch) -> None:
        """Makes this the scratch memory of inserts from now on."""
        self._scratch, self._insert = scratch, insert_groups.bound(self._table, scratch)

    def _counts(self, first: int) -> np.ndarray:
        """Returns int64[n]: one of the counters for each stream. first: where stream 0 has it."""
        return self._table.counters[first : first + len(self._table.layout)]

    def _per_stream(self, rows: np.ndarray, first: int) -> np.ndarray:
        """Returns int64[m, n]: one word for each stream, of m rows of `groups`. first: where stream 0 has it."""
        return rows[:, words_of(first, len(self._table.layout))]

    def _start(self, groups: np.ndarray) -> np.ndarray:
        """Starts those of the groups that do not exist yet. Returns all of them in the one form that kernels take."""
        started = self._started[groups]
        if not started.all():
            for group in groups[~started]:
                start_group(self._table, group)
                self._started[group] = True
        return read_only(groups)


def window_join(
    partitions: int, memory_bytes: int, block_bytes: int, theta: int, streams: Sequence[tuple[int, bool, int]],
    symmetric: bool | None = None,
) -> WindowJoin:
    """Returns a join with a pool of its own.

    streams: (record_words, has_blob, window in time units) of each · theta, memory and block: in bytes · symmetric: as
    of `new_probe`.
    """
    specs = tuple(StreamSpec(*stream) for stream in streams)
    pool = new_pool(memory_bytes, block_bytes, max(spec.tuple_words for spec in specs))
    return WindowJoin(Setup(partitions, theta, specs, symmetric=symmetric), pool)


def _scratch_of_rows(rows: int) -> dict[str, np.ndarray]:
    return {"bucket": np.empty(rows, np.int32), "order": np.empty(rows, np.int32), "tag": np.empty(rows, np.uint16)}
