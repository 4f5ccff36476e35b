"""The contracts between a slave and its operators: all that distribution, moving, spill, checkpoints, simulation and
tests know of them.

    GroupState   what moves, rests on a disk or is counted: the state of groups (partitions)
    Operator     a GroupState that takes tuples, finds results and lets go of what no tuple to come can join
    Rows         the stored tuples of results, by slot id
    Filter       drops results that are none after all, before anybody consumes them
    Consumer     counts, times, writes or sends results

An operator is driven in rounds: `insert` batches of any streams as fresh tuples, `probe` until DONE, then `expire`
until DONE. Groups are tuned only while they hold no fresh tuple; they are read out and dropped only while no probe is
under way, and what they hold of fresh tuples goes with them. Nothing here blocks,
reads a clock or touches a file; memory is what the constructor was given. Streams are numbered from 0 in the job's
order.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple, Protocol, Sequence

import numpy as np

from mpijoin.errors import MemoryBudgetError

CERTIFICATE_MASK = (1 << 64) - 1
# A larger buffer of slot ids is of no use, since their tuples, which are looked at again, do not stay in the caches;
# times suffice.
TIMES_PER_RESULT = 16


class Progress(IntEnum):
    """How a bounded piece of work ended: all done, the budget is spent, or the result buffer must be consumed first."""

    DONE = 0
    BUDGET = 1
    OUT_FULL = 2


class Keep(IntEnum):
    """What stays of results until they are consumed: nothing, they are only counted and certified; the slot ids of
    their tuples; or the latest time of each."""

    NOTHING = 0
    SLOT_IDS = 1
    LATEST_TIMES = 2


class Out:
    """Results found and not yet consumed.

    slots: int64[n, capacity], one row of slot ids per stream (-1: none), of which `count` columns are filled; where
    only times are kept, int64[1, capacity] times · weights: int64[capacity], how many results each column stands for ·
    certifies: whether the operator certifies what it finds, since nothing of it is dropped by a filter · found,
    certificate: of all results so far, kept or not; certificate modulo 2**64.
    """

    def __init__(self, streams: int, capacity: int, keep: Keep = Keep.SLOT_IDS, certifies: bool = True):
        """capacity: results whose slot ids fit; of times, TIMES_PER_RESULT as many."""
        times = capacity * TIMES_PER_RESULT if keep is Keep.LATEST_TIMES else 0
        self.slots = np.zeros((1, times) if times else (streams, capacity), np.int64)
        self.weights = np.ones(times, np.int64)
        self.keep, self.certifies = keep, certifies
        self.count = self.found = self.certificate = 0

    def clear(self) -> None:
        """All that was kept is consumed."""
        self.count = 0

    def add_times(self, times: np.ndarray, weights: np.ndarray) -> None:
        """weights[i] results whose latest time is times[i]: int64[k] both, of which any number finds room."""
        end = self.count + len(times)
        if end > len(self.weights):
            self.slots, self.weights = np.resize(self.slots, (1, 2 * end)), np.resize(self.weights, 2 * end)
        self.slots[0, self.count : end], self.weights[self.count : end] = times, weights
        self.count = end

    def counted(self, found: int, certificate: int) -> None:
        """So many results more, whose certificate is this."""
        self.found += found
        self.certificate = self.certificate + certificate & CERTIFICATE_MASK

    @property
    def filled(self) -> np.ndarray:
        """int64[n, count]: the columns that are filled, as a view."""
        return self.slots[:, : self.count]


class Taken(NamedTuple):
    """What an operator took of a batch: so many leading groups; and if not all, the pages that the next one lacks."""

    groups: int
    lacking_pages: int = 0


class Memory(NamedTuple):
    """An operator's memory account, in bytes: of the pool, held by this operator, and free for all operators over
    it."""

    budget: int
    held: int
    free: int


class Totals(NamedTuple):
    """What an operator has done and holds, of all groups. Per stream, in the job's order: tuples joined, expired, held,
    and those of groups that came and went · results: found, before any filter · live_bytes: of tuples held · blocks:
    held, and at most held."""

    joined: tuple[int, ...]
    expired: tuple[int, ...]
    held: tuple[int, ...]
    moved_in: tuple[int, ...]
    moved_out: tuple[int, ...]
    comparisons: int
    results: int
    splits: int
    merges: int
    live_bytes: int
    blocks: int
    blocks_max: int


class GroupInfo(NamedTuple):
    """Statistics per group, int64[m] each; tuples, live_bytes and watermarks are int64[m, streams]."""

    tuples: np.ndarray
    live_bytes: np.ndarray
    watermarks: np.ndarray
    blocks: np.ndarray
    buckets: np.ndarray
    depth: np.ndarray
    comparisons: np.ndarray
    results: np.ndarray
    splits: np.ndarray
    merges: np.ndarray
    generations: np.ndarray


class GroupState(Protocol):
    """The state of groups, as it moves between holders."""

    def get(self, group: int, since: int, octets_max: int | None = None, checksum: bool = False) -> list[np.ndarray]:
        """The group's state as encoded frames: sealed blocks with an id above `since`, then what still changes.

        octets_max: of about so many bytes of sealed blocks, the oldest first; what still changes only if none is left
        out · checksum: for frames that rest on a disk.
        """

    def blocks_of(self, frame: np.ndarray) -> np.ndarray:
        """int64[n]: ids of the blocks in a frame of `get`; of the last one: of all blocks that count."""

    def reached(self, frames: Sequence[np.ndarray]) -> tuple[int, bool]:
        """Of the frames of a `get`: the id with which the next one goes on, and whether nothing was left out."""

    def install(self, parts: Sequence[np.ndarray], generation: int | None = None) -> int:
        """Takes over a group from the frames of `get`, all in one; returns the group. generation: of the blocks that it
        takes from now on; None: the one that it came with. CodecError, ProtocolError and MemoryBudgetError leave all as
        it was."""

    def drop(self, group: int) -> None:
        """Forgets a group and returns its memory."""

    def info(self, groups: np.ndarray) -> GroupInfo: ...

    def memory(self) -> Memory: ...


class Rows(Protocol):
    """Read access to stored tuples by slot id, good until the operator's next call."""

    @property
    def words(self) -> np.ndarray:
        """int64[]: a tuple's words begin at its slot id; not to be written to."""

    def copy_blobs(self, slots: np.ndarray, starts: np.ndarray, out: np.ndarray) -> None:
        """Copies the blobs of tuples slots[i] to out[starts[i]:]; slots, starts: int64[m], out: uint8[]."""

    def keep_equal_keys(self, out: Out, key: Any) -> None:
        """Drops the results in `out` whose tuples' key bytes are not all equal. key: where in a record they are."""


class Operator(GroupState, Rows, Protocol):
    def insert(self, groups: np.ndarray, stream: int, batch: Any, bounds: np.ndarray) -> Taken:
        """Appends rows bounds[i, 0]:bounds[i, 1] of `batch` to groups[i] as fresh tuples.

        A group is inserted whole or not at all. Where memory for the next group is lacking, the caller makes room (or
        fails) and calls again with the rest.
        """

    def probe(self, groups: np.ndarray, budget: int, out: Out) -> Progress:
        """Joins the groups' fresh tuples for about `budget` comparisons, and adds to `out` what is found, each result
        once. Unless DONE it must be called again with the same groups before anything else is asked of them."""

    def pause(self, budget: int, out: Out) -> Progress:
        """Goes on with a probe that is not DONE until its groups can be read out with their fresh tuples: those that
        are fresh still are what the next probe of these groups has to join. Unless DONE it must be called again."""

    def expire(self, groups: np.ndarray, watermarks: Sequence[int], out: Out) -> Progress:
        """Advances each group's watermark per stream and lets go of what no tuple to come can join.

        It may find results in that. Then it returns OUT_FULL or BUDGET, and goes on where it stopped when it is called
        again, once they are consumed; DONE leaves nothing to be consumed."""

    @property
    def totals(self) -> Totals: ...

    @property
    def theta_bytes(self) -> int:
        """Groups above twice this are split, below it merged."""

    def out_of_memory(self) -> MemoryBudgetError:
        """What to raise when `insert` stopped short and nobody makes room."""


class Filter(Protocol):
    """Stands between probe and consumers."""

    def keep(self, out: Out, rows: Rows) -> None:
        """Moves up the results that are some, in their order, and sets `out.count` to how many there are."""


class Consumer(Protocol):
    """Takes results in the order they are found. May block on files, never on another rank."""

    def consume(self, out: Out, rows: Rows, epoch: int) -> None:
        """Takes what `out` holds, of this epoch; slot ids are good only until it returns. Raises OutputError."""

    def end_epoch(self, epoch: int, last: bool) -> None:
        """All results up to this epoch have been consumed; `last`: there will be none after."""
