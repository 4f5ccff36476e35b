"""The operator: a sliding-window join of two streams over the groups of one slave."""

from __future__ import annotations

from typing import Sequence

import numpy as np

from mpijoin.data.batch import read_only
from mpijoin.data.record import RecordLayout
from mpijoin.errors import MemoryBudgetError
from mpijoin.join.gather import gather_latest, keep_equal_keys
from mpijoin.join.mway import probe_groups_mway
from mpijoin.join.mway_state import MWAY_CURSOR_WORDS, new_scratch, start_probe_mway
from mpijoin.join.probe import probe_groups, start_probe
from mpijoin.join.state import CURSOR_WORDS, LATER_TIMES, SLOT_IDS, JoinState, new_state
from mpijoin.operators.base import GroupInfo, Progress, Results
from mpijoin.store import transfer
from mpijoin.store.directory import start_group
from mpijoin.store.expire import expire_groups
from mpijoin.store.insert import Fresh, Scratch, insert_groups
from mpijoin.store.pool import StreamSpec, new_pool, new_table, reserve_words
from mpijoin.store.state import (
    BLOCKS,
    BUCKETS,
    COMPARED,
    COMPARISONS,
    DEPTH,
    EXPIRED,
    FOUND,
    GROUP_BYTES,
    GROUP_TUPLES,
    INSERTED,
    MERGED,
    MERGES,
    OUT_COUNT,
    OWN_PAGES,
    OWN_PAGES_MAX,
    RESULTS,
    SPLIT,
    SPLITS,
    THETA,
    WATERMARK,
    words_of,
)
from mpijoin.store.transfer_kernels import drop_group

# A larger buffer of pairs is of no use, since their tuples, which are looked at again, do not stay in the caches; times
# suffice.
TIMES_PER_PAIR = 16


class WindowJoin:
    """Joins left and right; `state` is read by the consumers of results and by nobody else."""

    def __init__(
        self,
        partitions: int,
        memory_bytes: int,
        block_bytes: int,
        theta: int,
        streams: list[tuple[int, bool, int]],
        result_buffer: int,
        keeps: int = SLOT_IDS,
        hashed: RecordLayout | None = None,
        symmetric: bool | None = None,
    ):
        """streams: (record_words, has_blob, window in time units) of left and right · theta, memory and block in bytes
        · result_buffer: pairs that may be found before they must be consumed · keeps: what of them stays until then,
        NOTHING, SLOT_IDS or LATER_TIMES · hashed: of keys that are hashes, the layout of either stream's keys; slot ids
        then stay · symmetric: by the probe for any number of streams, which is not as fast for two as theirs; None:
        unless there are two."""
        keeps = SLOT_IDS if hashed else keeps
        specs = [StreamSpec(*stream) for stream in streams]
        self.pool = new_pool(memory_bytes, block_bytes, max(spec.tuple_words for spec in specs))
        self.state = new_state(new_table(self.pool, partitions, theta, specs), keeps, hashed is not None)
        self._keeps = keeps
        self._key = (hashed.key_words, hashed.key_fixed_words, hashed.key_count_var) if hashed else None
        self._out = np.zeros((len(specs), result_buffer * (TIMES_PER_PAIR if keeps == LATER_TIMES else 1)), np.int64)
        self._ones = np.ones(self._out.shape[1] if keeps == LATER_TIMES else 0, np.int64)
        self._mway = new_scratch(self.state) if symmetric or (symmetric is None and len(specs) != 2) else None
        self._cursor = np.zeros(MWAY_CURSOR_WORDS if self._mway else CURSOR_WORDS, np.int64)
        self._probed: np.ndarray | None = None  # the groups of an unfinished probe
        per_bucket = (reserve_words(-(-len(self.state.buckets) // 2)).view(np.int32) for _ in range(3))
        self._scratch = Scratch(**_scratch_of_rows(0), **dict(zip(("incoming", "start", "touched"), per_bucket)))
        self._started = np.zeros(partitions, bool)
        # tuples per stream that came with groups, and that left with them: ledger
        self.moved_in = np.zeros(len(specs), np.int64)
        self.moved_out = np.zeros(len(specs), np.int64)

    def touch(self, octets: int) -> None:
        """Has the system find memory for the first `octets` of blocks of an operator that is still empty, and what goes
        with them."""
        self.pool.touch(octets)
        per_bucket = self._scratch.incoming, self._scratch.start, self._scratch.touched
        for array in (self.state.buckets, self.state.directory, *per_bucket):
            array.flat[0] = 0

    def insert(self, groups: np.ndarray, stream: int, fresh: Fresh, bounds: np.ndarray) -> int:
        groups = self._start(groups)
        rows = int((bounds[:, 1] - bounds[:, 0]).max(initial=0))
        if rows > len(self._scratch.bucket):
            self._scratch = self._scratch._replace(**_scratch_of_rows(2 * rows))
        return insert_groups(self.state, stream, groups, bounds, fresh, self._scratch, 0)

    def probe(self, groups: np.ndarray, budget: int) -> Progress:
        if self._probed is None:
            (start_probe_mway if self._mway else start_probe)(self._cursor)
            self._probed = self._start(groups)
        first = self.state.counters[OUT_COUNT]
        progress = self._probe(self._probed, budget)
        if self._key:
            keep_equal_keys(self.state, self._out, first, *self._key)
        if progress is Progress.DONE:
            self._probed = None
        return progress

    def _probe(self, groups: np.ndarray, budget: int) -> Progress:
        if self._mway:
            return Progress(probe_groups_mway(self.state, self._mway, groups, self._cursor, budget, self._out))
        return Progress(probe_groups(self.state, groups, self._cursor, budget, self._out))

    def results(self) -> Results:
        count = self.state.counters[OUT_COUNT] if self._keeps == SLOT_IDS else 0
        rows = self._out[:, :count]
        return Results(*rows) if len(rows) == 2 else tuple(rows)

    def clear_results(self) -> None:
        self.state.counters[OUT_COUNT] = 0

    def expire(self, groups: np.ndarray, watermarks: Sequence[int]) -> Progress:
        groups = self._start(groups)
        expire_groups(self.state, groups, np.asarray(watermarks, np.int64))
        return Progress.DONE

    def get(self, group: int, since: int, octets_max: int | None = None, checksum: bool = False) -> list[np.ndarray]:
        self._start(np.array([group]))
        return transfer.get(self.state, group, since, octets_max, checksum)

    def blocks_of(self, frame: np.ndarray) -> np.ndarray:
        return transfer.blocks_of(frame)

    def reached(self, frames: Sequence[np.ndarray]) -> tuple[int, bool]:
        return transfer.newest(frames[-1]), transfer.is_tail(frames[-1])

    def install(self, parts: Sequence[np.ndarray]) -> int:
        group = transfer.install(self.state, parts, self._started)
        self._started[group] = True
        self.moved_in += transfer.held(self.state, group)
        return group

    def drop(self, group: int) -> None:
        if not self._started[group]:
            return
        transfer.refuse_fresh(self.state, group)
        self.moved_out += transfer.held(self.state, group)
        drop_group(self.state, group)
        self._started[group] = False

    @property
    def found(self) -> int:
        return int(self.state.counters[OUT_COUNT])

    @property
    def found_in_all(self) -> int:
        return int(self.state.counters[FOUND])

    @property
    def certificate(self) -> int:
        return int(self.state.certificate[0])

    def later_times(self) -> tuple[np.ndarray, np.ndarray]:
        if self._keeps == LATER_TIMES:
            return self._out[0, : self.found], self._ones[: self.found]
        times = np.empty(self.found, np.int64)
        gather_latest(self.state.words, self._out, times)
        return times, np.ones(self.found, np.int64)

    def info(self, groups: np.ndarray) -> GroupInfo:
        rows = self.state.groups[groups]
        single = (BLOCKS, BUCKETS, DEPTH, COMPARISONS, RESULTS, SPLITS, MERGES)
        of_streams = (
            rows[:, words_of(first, len(self.state.layout))] for first in (GROUP_TUPLES, GROUP_BYTES, WATERMARK)
        )
        return GroupInfo(*of_streams, *(rows[:, column] for column in single))

    @property
    def page_bytes(self) -> int:
        return self.pool.page_bytes

    @property
    def totals(self) -> dict[str, int]:
        """Of all groups: what a run reports of its join."""
        groups, counters = self.state.groups, self.state.counters
        streams = len(self.state.layout)
        tuples = groups[:, words_of(GROUP_TUPLES, streams)].sum(axis=0)
        return {
            "comparisons": int(counters[COMPARED]),
            "splits": int(counters[SPLIT]),
            "merges": int(counters[MERGED]),
            "live_bytes": int(groups[:, words_of(GROUP_BYTES, streams)].sum()),
            "blocks": int(counters[OWN_PAGES]),
            "blocks_max": int(counters[OWN_PAGES_MAX]),
            "joined_left": int(counters[INSERTED]),
            "joined_right": int(counters[INSERTED + 1]),
            "expired_left": int(counters[EXPIRED]),
            "expired_right": int(counters[EXPIRED + 1]),
            "held_left": int(tuples[0]),
            "held_right": int(tuples[1]),
            "moved_in_left": int(self.moved_in[0]),
            "moved_in_right": int(self.moved_in[1]),
            "moved_out_left": int(self.moved_out[0]),
            "moved_out_right": int(self.moved_out[1]),
        }

    @property
    def held_bytes(self) -> int:
        """The memory account: bytes of the pages in use."""
        return int(self.state.counters[OWN_PAGES]) * self.page_bytes

    @property
    def theta_bytes(self) -> int:
        return int(self.state.counters[THETA])

    @property
    def free_bytes(self) -> int:
        return self.pool.free_bytes

    def out_of_memory(self) -> MemoryBudgetError:
        """What to raise when `insert` stopped short: names the budget, what is held, and the largest groups."""
        sizes = self.state.groups[:, BLOCKS] * self.page_bytes
        largest = np.argsort(-sizes)[:3]
        listed = ", ".join(f"partition {group} ({sizes[group] / 1e6:.3g} MB)" for group in largest if sizes[group])
        budget = self.pool.budget_bytes
        return MemoryBudgetError(
            f"the window state needs more than [cluster] memory allows: budget {budget / 1e6:.3g} MB, held"
            f" {self.held_bytes / 1e6:.3g} MB, largest groups: {listed or 'none'}; give each slave more memory, use"
            " more slaves, or shorten the windows"
        )

    def _start(self, groups: np.ndarray) -> np.ndarray:
        """Makes those of the groups that do not exist yet; returns them all in the one form that kernels compile
        for."""
        started = self._started[groups]
        if not started.all():
            for group in groups[~started]:
                start_group(self.state, group)
                self._started[group] = True
        return read_only(groups)


def _scratch_of_rows(rows: int) -> dict[str, np.ndarray]:
    return {"bucket": np.empty(rows, np.int32), "order": np.empty(rows, np.int32), "tag": np.empty(rows, np.uint16)}


__all__ = ["JoinState", "WindowJoin"]
