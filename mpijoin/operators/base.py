"""The contracts between a slave and its operators.

Distribution, moving, spilling, checkpoints, simulation and tests know no more of an operator than this.

    GroupState   the state of groups (partitions): what moves, rests on a disk, or is counted
    Operator     a GroupState that takes tuples, finds results, and lets go of tuples that cannot join any more
    Rows         the stored tuples of results, by slot id
    Filter       drops what turns out to be no result, before anybody consumes it
    Consumer     counts, times, writes or sends results

An operator is driven in rounds. Batches of any streams are inserted as fresh tuples, then `probe` is called until DONE,
then `expire` until DONE. A group is tuned only while it holds no fresh tuple. It is read out and dropped only while no
probe is under way, and its fresh tuples go with it.

No call blocks, reads a clock or touches a file, and an operator has only the memory that its constructor was given.
Streams are numbered from 0 in the job's order.
"""

from __future__ import annotations

from copy import copy
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Iterator, Protocol, Sequence

import numpy as np

from mpijoin.config.plan import Binary
from mpijoin.errors import MORE_MEMORY, MemoryBudgetError
from mpijoin.named import NamedTuple

if TYPE_CHECKING:
    from mpijoin.store.rows import RowsBatch

CERTIFICATE_MASK = (1 << 64) - 1
# A buffer of latest times has room for this many times as many results as one of slot ids. Slot ids gain nothing from
# a larger buffer, because their tuples are looked at again and must stay in the caches until then.
TIMES_PER_RESULT = 16


class Progress(IntEnum):
    """How a bounded piece of work ended: all is done, the budget is spent, or the results must be consumed first."""

    DONE = 0
    BUDGET = 1
    OUT_FULL = 2


class Keep(IntEnum):
    """What is kept of results until they are consumed.

    NOTHING: they are only counted and certified · SLOT_IDS: the slot ids of their tuples · LATEST_TIMES: the time of
    the latest tuple of each.
    """

    NOTHING = 0
    SLOT_IDS = 1
    LATEST_TIMES = 2


class Out:
    """The results that were found and are not consumed yet.

    slots: int64[n, capacity], a row of slot ids for each stream (-1: no tuple), of which `count` columns are filled.
    Where only times are kept, it is int64[1, capacity] · table: int64[n + answers, capacity], the slot ids and, below
    them, what the operator has worked out of each result · weights: int64[capacity], where times are kept: how many
    results each column stands for · certifies: whether the operator certifies what it finds, because no filter drops
    any of it · is_final: whether what it holds was found in `expire`, so that no filter is asked · query: to which of
    several queries that belongs · found, certificate: the count of all results so far, kept or not, and their
    certificate modulo 2**64.
    """

    def __init__(
        self, streams: int, capacity: int, keep: Keep = Keep.SLOT_IDS, certifies: bool = True, answers: int = 0
    ):
        """capacity: how many results fit by their slot ids. By their times, TIMES_PER_RESULT times as many fit ·
        answers: how many words the operator works out of each result."""
        times = capacity * TIMES_PER_RESULT if keep is Keep.LATEST_TIMES else 0
        self.table = np.zeros((1, times) if times else (streams + answers, capacity), np.int64)
        self.slots = self.table[:streams]
        self.weights = np.ones(times, np.int64)
        self.keep, self.certifies = keep, certifies
        self.count = self.found = self.certificate = 0
        self.is_final, self.query = False, 0

    def clear(self) -> None:
        """Says that everything that was kept has been consumed."""
        self.count, self.is_final = 0, False

    def add_times(self, times: np.ndarray, weights: np.ndarray) -> None:
        """Adds weights[i] results whose latest time is times[i]. Both are int64[k], and any number of them fits."""
        end = self.count + len(times)
        if end > len(self.weights):
            self.table, self.weights = np.resize(self.table, (1, 2 * end)), np.resize(self.weights, 2 * end)
            self.slots = self.table
        self.slots[0, self.count : end], self.weights[self.count : end] = times, weights
        self.count = end

    def counted(self, found: int, certificate: int) -> None:
        """Adds so many results, and the sum of their hashes, to `found` and `certificate`."""
        self.found += found
        self.certificate = self.certificate + certificate & CERTIFICATE_MASK

    def first_rows(self, answers: int) -> Out:
        """Returns what it holds, with no more than so many answers of each result. It shares its memory."""
        few = copy(self)
        few.table = self.table[: len(self.slots) + answers]
        return few

    @property
    def filled(self) -> np.ndarray:
        """The columns of the table that are filled, as a view: int64[n + answers, count]."""
        return self.table[:, : self.count]


class Left(IntEnum):
    """As what the tuples of a dropped group count: it has moved, or went to a disk, or another holder has all of it."""

    MOVED = 0
    SPILLED = 1
    DISCARDED = 2


class Taken(NamedTuple):
    """How many leading groups of a batch an operator took and, if not all, how many pages the next group lacks."""

    groups: int
    lacking_pages: int = 0


class Memory(NamedTuple):
    """An operator's memory account, in bytes.

    budget: of the pool · held: what this operator holds · free: what all operators over the pool can still take, which
    is negative if the budget fell below what they hold.
    """

    budget: int
    held: int
    free: int


class PlanChange(NamedTuple):
    """An operator joins by a plan from when so many tuples had come to it.

    plan: None is m-way · took_ns: what a tuple took by the plan before · takes_ns: what it is expected to take by this
    one. Each is 0 if it is not known."""

    tuples: int
    plan: Binary | None
    took_ns: float = 0.0
    takes_ns: float = 0.0


class Totals(NamedTuple):
    """What an operator has done with all of its groups, and what it holds. `Operator.compared` is its `comparisons`.

    The tuples per stream, in the job's order: joined, expired and held, and those that came and left with moved groups
    (moved_in, moved_out) · discarded: those that another holder has as well · replicas_in, replicas_out: those that
    came from a holder that kept them, too, and those that this one kept and another one got · results: found, before
    any filter · live_bytes: of the tuples held · blocks, blocks_max: how many are held now, and the most that were ever
    held · spilled, taken_back: the tuples per stream that went to a disk, and those that came back from one.
    """

    joined: tuple[int, ...]
    expired: tuple[int, ...]
    held: tuple[int, ...]
    moved_in: tuple[int, ...]
    moved_out: tuple[int, ...]
    discarded: tuple[int, ...]
    replicas_in: tuple[int, ...]
    replicas_out: tuple[int, ...]
    comparisons: int
    results: int
    splits: int
    merges: int
    live_bytes: int
    blocks: int
    blocks_max: int
    spilled: tuple[int, ...]
    taken_back: tuple[int, ...]


class GroupInfo(NamedTuple):
    """Statistics of m groups, each int64[m], except that tuples, live_bytes and watermarks are int64[m, streams].

    tuples, live_bytes: without those of kept blocks, which count as blocks · outputs: the results since the group's
    generation began.
    """

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
    outputs: np.ndarray


class GroupState(Protocol):
    """The state of groups, as it moves between holders."""

    def get(self, group: int, since: int, octets_max: int | None = None, checksum: bool = False) -> list[np.ndarray]:
        """Returns the group's state as encoded frames: sealed blocks with an id above `since`, then what still changes.

        octets_max: about how many bytes of sealed blocks there may be, the oldest first. What still changes then comes
        only if no block is left out · checksum: whether the frames get a checksum, because they rest on a disk.
        """

    def blocks_of(self, frame: np.ndarray) -> np.ndarray:
        """Returns int64[n], the ids of the blocks in a frame of `get`. The last frame names all blocks that count."""

    def reached(self, frames: Sequence[np.ndarray]) -> tuple[int, bool]:
        """Returns the `since` with which to go on after the frames of a `get`, and whether these left nothing out."""

    def states_of(self, group: int) -> list[np.ndarray]:
        """Returns, as frames, what the operator has made of the group's tuples, and can make of them again.

        The group must not change until `get` has given its tail.
        """

    def install(self, parts: Sequence[np.ndarray], generation: int | None = None, replica: bool = False) -> int:
        """Takes over a whole group from the frames of `get`, and returns the group.

        Frames of `states_of` may stand anywhere among them but at the end. What they hold is used where it is of use.

        generation: the generation of the blocks that the group takes from now on. None: the one that it came with ·
        replica: whoever gave it keeps it, too.
        CodecError, ProtocolError and MemoryBudgetError leave everything as it was.
        """

    def drop(self, group: int, left: Left = Left.MOVED) -> None:
        """Forgets a group and frees its memory. left: as what its tuples count."""

    def old_until(self, group: int) -> np.ndarray:
        """Returns int64[n]: the last time at which old tuples of each stream wait, or the smallest int64 if the group
        has none. Tuples that were inserted as new ones are not old."""

    def make_all_old(self, group: int) -> None:
        """Makes the tuples old that were inserted as new ones. From then on they meet all that comes."""

    def deal(self, group: int, stream: int, deal: int, part: int) -> None:
        """Keeps the tuples of one stream that deal number `deal` gives to this part, 0 or 1, of a group that two
        holders have. The others are discarded. Part 0 has given the whole group, whose tuples it counts as
        `replicas_out` here. The group holds no fresh tuple. MemoryBudgetError leaves a part of the stream out, and the
        group must not be used any more."""

    def give_dealt(self, group: int, stream: int) -> list[np.ndarray]:
        """Returns the rows of one stream as frames, and forgets the group. Its tuples of the other streams count as
        discarded. The group holds no fresh tuple."""

    def take_dealt(self, group: int, stream: int, frames: Sequence[np.ndarray]) -> None:
        """Takes the rows of `give_dealt` as tuples that have met all that is here. MemoryBudgetError: they do not fit,
        some of them are here, and the group must not be used any more."""

    def rows(self, groups: np.ndarray) -> Iterator[RowsBatch]:
        """Yields the rows of groups, int64[m], that hold no fresh tuple, as frames of one group each and of about 1 MiB
        at most, in batches of about as much.

        Each batch is valid until the next one of any groups. The groups must not change before all of them were taken.
        """

    def empty(self, groups: np.ndarray) -> None:
        """Frees what `rows` gave, counts it as spilled, and begins the groups' next generations.

        Watermarks and statistics stay. The groups must hold no fresh tuple.
        """

    def keep_until(self, groups: np.ndarray, times: np.ndarray) -> None:
        """Says for each group and stream until when its tuples may meet some that are on a disk: int64[m, n].

        A block that expires is kept if it begins no later than that. It leaves its chain, and counts as held. The
        smallest int64 keeps nothing. The times go along with the group.
        """

    def kept(self) -> np.ndarray:
        """Returns int64[m]: the groups that have kept blocks. Without any, this takes next to no time."""

    def kept_rows(self, groups: np.ndarray) -> Iterator[RowsBatch]:
        """Yields the rows of the groups' kept blocks, as frames of `rows`, each of one group and generation.

        A group with kept blocks is neither read out by `get` nor installed nor dropped (ProtocolError).
        """

    def drop_kept(self, groups: np.ndarray) -> None:
        """Frees the groups' kept blocks, and counts them as spilled."""

    def holds_fresh(self, group: int) -> bool:
        """Whether the group holds tuples that no probe has joined yet."""

    def settle(self, groups: np.ndarray) -> None:
        """Makes the groups' fresh tuples old without a probe, because their results are known already."""

    def info(self, groups: np.ndarray) -> GroupInfo: ...

    def memory(self) -> Memory: ...

    def limit(self, octets: int) -> None:
        """Makes this the budget of the pool from now on, but no more than it was made with.

        It may be less than what is held. Then nothing can be inserted before enough was freed. The system gets back the
        memory of free pages that are too many.
        """


class Rows(Protocol):
    """Read access to stored tuples by slot id. It is valid until the operator is called again."""

    @property
    def words(self) -> np.ndarray:
        """int64[], in which the words of a tuple begin at its slot id. Nobody may write to it."""

    def copy_blobs(self, slots: np.ndarray, starts: np.ndarray, out: np.ndarray) -> None:
        """Copies the blob of tuple slots[i] to out[starts[i]:], for each i. slots, starts: int64[m] · out: uint8[]."""

    def keep_equal_keys(self, out: Out, key: Any) -> None:
        """Drops the results in `out` whose tuples do not all have the same key bytes. key: where a record has them."""


class Operator(GroupState, Rows, Protocol):
    def insert(self, groups: np.ndarray, stream: int, batch: Any, bounds: np.ndarray, new: bool = False) -> Taken:
        """Appends rows bounds[i, 0]:bounds[i, 1] of `batch` to groups[i] as fresh tuples.

        new: another holder gets them, too, and finds the results of which all tuples are new (DCAPE, section 3). Only
        inner joins that were made for that take them.

        A group is inserted whole or not at all. If memory for the next group is lacking, the caller makes room (or
        fails) and calls again with the rest.
        """

    def probe(self, groups: np.ndarray, budget: int, out: Out) -> Progress:
        """Joins the groups' fresh tuples for about `budget` comparisons, and adds each result that it finds to `out`.

        Each result is found once. Unless it returns DONE, it must be called again with the same groups before anything
        else is asked of them.
        """

    def pause(self, budget: int, out: Out) -> Progress:
        """Goes on with an unfinished probe to a point at which its groups can be read out with their fresh tuples.
        These are what the next probe of the groups has to join. Unless it returns DONE, it must be called again."""

    def expire(self, groups: np.ndarray, watermarks: Sequence[int] | np.ndarray, out: Out) -> Progress:
        """Advances each group's watermarks, one per stream, and lets go of what no tuple to come can join.

        watermarks: int64[m, n], a row for each of the groups, or one per stream for all of them.

        It may find results on the way. Then it returns OUT_FULL or BUDGET. Once the results are consumed it is called
        again, and goes on where it stopped. After DONE there is nothing to consume.
        """

    @property
    def marker(self) -> Filter | None:
        """The last filter that results of a probe have to pass where the Out does not certify them, if there is one.
        What `expire` finds needs none."""

    @property
    def compared(self) -> int: ...

    @property
    def totals(self) -> Totals: ...

    @property
    def plans(self) -> Sequence[PlanChange]:
        """The plans that it has followed, if there are several ways to join."""

    def spent(self, seconds: float) -> None:
        """Says how long the processor was in `insert`, `probe`, `pause` or `expire`, to find the fastest plan."""

    @property
    def theta_bytes(self) -> int:
        """The size, in bytes, below which buckets are merged. Above twice this size they are split."""

    def out_of_memory(self, advice: str = MORE_MEMORY) -> MemoryBudgetError:
        """Returns the error to raise when `insert` stopped early and nobody can make room. advice: what to do then."""


class Filter(Protocol):
    """Stands between the probe and the consumers, and drops what is no result."""

    def keep(self, out: Out, rows: Rows) -> None:
        """Moves the true results to the front of `out`, in their order, and sets `out.count` to their number."""


class Consumer(Protocol):
    """Takes results in the order in which they are found. It may block on files, but never on another rank."""

    def consume(self, out: Out, rows: Rows, epoch: int) -> None:
        """Takes what `out` holds of this epoch. Slot ids are valid only until it returns. Raises OutputError."""

    def end_epoch(self, epoch: int, last: bool) -> None:
        """Says that all results up to this epoch have been consumed. last: there will be no more of them."""
