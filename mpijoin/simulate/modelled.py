"""A join without tuples.

It keeps counts and directories, and says what the real join would have compared, found and moved.
"""

from __future__ import annotations

from typing import Any, Iterator, Sequence

import numpy as np

from mpijoin.errors import MORE_MEMORY, JobError, MemoryBudgetError, ProtocolError
from mpijoin.named import NamedTuple
from mpijoin.operators.base import GroupInfo, Keep, Left, Memory, Out, PlanChange, Progress, Taken, Totals
from mpijoin.simulate.costs import JoinTally
from mpijoin.simulate.groups import Groups
from mpijoin.simulate.hollow import content_of, ticks_of
from mpijoin.simulate.keys import Matches
from mpijoin.simulate.travel import Snapshot, deal_out, give_out, read_out, take_in
from mpijoin.simulate.windows import in_reach, least_of_others
from mpijoin.store.rows import RowsBatch
from mpijoin.store.state import TIME_MAX_VALUE, TIME_MIN_VALUE

# Results are spread over this many moments of the tick in which their later tuples arrived.
DELAY_STEPS = 8
RESULTS_MAX = 9e18  # Figures are 64-bit integers.
FEWER_RESULTS = "shorten the windows, lower the rates, or let the streams have more keys (domain)"
STEPS, MIDDLES = np.arange(DELAY_STEPS + 1), 2 * np.arange(DELAY_STEPS) + 1


class Shape(NamedTuple):
    """The sizes of a join."""

    partitions: int
    memory_bytes: int
    block_bytes: int
    theta: int
    tuple_bytes: tuple[int, ...]
    """The bytes of a tuple of each stream."""
    windows: tuple[int, ...]
    """The window of each stream, in time units."""

    @property
    def block_tuples(self) -> np.ndarray:
        """int64[n]: how many tuples of each stream fit in a block."""
        return np.array([max(1, self.block_bytes // octets) for octets in self.tuple_bytes])


class ModelledProbe(NamedTuple):
    """A probe that is under way, with the comparisons that it takes and the results that it finds in each row."""

    rows: np.ndarray
    comparisons: np.ndarray
    results: np.ndarray
    total: int
    found: int


class ModelledJoin:
    """Implements `Operator` for hollow tuples.

    The key model says how fresh tuples are spread over buckets and how many of them match. A block expires as a whole,
    so each chain also holds about half a block of tuples that no longer count. These are compared and take memory, but
    give no results.
    """

    def __init__(self, shape: Shape, matches: Matches):
        self._shape = shape
        self.tally = JoinTally()
        self._moved_in, self._moved_out, self._expired, self._joined = np.zeros((4, len(shape.windows)), np.int64)
        self._spilled, self._discarded = np.zeros((2, len(shape.windows)), np.int64)
        self._replicas_in, self._replicas_out = np.zeros((2, len(shape.windows)), np.int64)
        self._groups = Groups(shape.partitions, shape.theta, matches)
        self._tuple_bytes = np.array(shape.tuple_bytes)
        self._window = np.array(shape.windows)[:, None]
        # Each chain has so many tuples that no longer count, once tuples expire.
        self._dead = (shape.block_tuples - 1) / 2
        self._dead_bytes = float((self._dead * self._tuple_bytes).sum())
        # This maps the first and last instant of a tick to the number of its fresh tuples.
        self._pending: dict[tuple[int, int], int] = {}
        self._probe: ModelledProbe | None = None
        self._done = self._given = 0  # The comparisons made by the probe, and its results.
        self._splits = self._merges = 0
        self._tuples_bytes = self._held_bytes_max = 0

    def insert(self, groups: np.ndarray, stream: int, batch: Any, bounds: np.ndarray, new: bool = False) -> Taken:
        rows = self._groups.rows(groups)
        lacking_bytes = self._lacking_bytes(len(batch.tuples), stream)
        if lacking_bytes > 0:
            return Taken(0, -(-lacking_bytes // self._shape.block_bytes))
        for first, last, counts in ticks_of(batch.tuples, bounds):
            self._groups.windows.add(stream, rows, last, counts)
            self._groups.fresh[stream, rows] += counts
            self._groups.inserted[stream, rows] += counts
            if new:
                self._groups.new[stream, rows] += counts
            else:
                self._groups.old_end[stream, rows] = last
            total = int(counts.sum())
            self._joined[stream] += total
            self._tuples_bytes += total * self._shape.tuple_bytes[stream]
            self.tally.inserted += total
            self._pending[first, last] = self._pending.get((first, last), 0) + total
        return Taken(len(groups))

    def _lacking_bytes(self, coming: int, stream: int) -> int:
        """Returns how many bytes are lacking for so many more tuples. It is not above 0 if there is enough memory."""
        held_bytes = self._held_bytes
        self._held_bytes_max = max(self._held_bytes_max, held_bytes)
        return held_bytes + coming * self._shape.tuple_bytes[stream] - self._shape.memory_bytes

    def probe(self, groups: np.ndarray, budget: int, out: Out) -> Progress:
        if self._probe is None:
            self._probe = self._begin(self._groups.rows(groups))
        probe = self._probe
        step = min(max(1, budget), probe.total - self._done)
        self._done += step
        self.tally.comparisons += step
        found = probe.found * self._done // probe.total if probe.total else probe.found
        self._give(found - self._given, out)
        self._given = found
        if self._done < probe.total:
            return Progress.BUDGET
        self._groups.compared[probe.rows] += probe.comparisons
        self._groups.results[probe.rows] += probe.results
        self._groups.fresh[:, probe.rows] = 0
        self._pending.clear()
        self._probe = None
        return Progress.DONE

    def pause(self, budget: int, out: Out) -> Progress:
        """Finishes the probe, because a model cannot tell which tuples are still fresh."""
        return Progress.DONE if self._probe is None else self.probe(self._probe.rows, budget, out)

    def _begin(self, rows: np.ndarray) -> ModelledProbe:
        """Begins a probe of the rows' fresh tuples, stream by stream. Those of a stream are compared with all tuples of
        the streams before it and the old tuples of those behind it."""
        self._done = self._given = 0
        fresh, cross, chance = self._groups.fresh[:, rows], self._groups.cross[rows], self._groups.chance[rows]
        old = self._groups.windows.live[:, rows] - fresh
        expires = self._groups.gone[:, rows] > 0
        dead = self._dead[:, None] * expires
        (near, since), oldest = in_reach(self._window, self._pending), self._groups.windows.oldest(rows).clip(max=old)
        within = np.where(since < 1, oldest * since / 2, old - oldest / 2 * expires)
        new, has_new = self._groups.new[:, rows], self._groups.new[:, rows].any(axis=0)
        compared, found = np.zeros((2, len(rows)))
        met, met_dead = old.sum(axis=0), dead.sum(axis=0)
        for stream, own in enumerate(fresh):
            met -= old[stream]
            compared += own * (met * cross + (met_dead - dead[stream]))
            met += old[stream] + own
            before, behind = slice(None, stream), slice(stream + 1, None)
            meeting = fresh[before] * (near[before] + near[stream]) / 2
            found += own * (within[before] + meeting).prod(axis=0) * within[behind].prod(axis=0)
            # The other holder finds the results of which all tuples are new. While there are any, no fresh one is old.
            if has_new.any():
                found -= own * new[before].prod(axis=0) * (new - fresh).clip(0)[behind].prod(axis=0) * has_new
        expected = np.maximum(0, found) * chance + self._groups.carry[rows]
        if self.tally.results + expected.sum() > RESULTS_MAX:
            raise JobError([f"more than {RESULTS_MAX:.0e} results at one slave: {FEWER_RESULTS}"])
        results = np.floor(expected).astype(np.int64)
        self._groups.carry[rows] = expected - results
        comparisons = np.rint(compared).astype(np.int64)
        return ModelledProbe(rows, comparisons, results, int(comparisons.sum()), int(results.sum()))

    def _give(self, results: int, out: Out) -> None:
        """Gives out so many results. Their later tuples lie evenly over the ticks that are joined."""
        if results <= 0:
            return
        out.counted(results, 0)  # Nobody knows which results they are, so there is no certificate.
        self.tally.results += results
        if out.keep is not Keep.LATEST_TIMES:
            return
        total = sum(self._pending.values())
        for (first, last), tuples in self._pending.items():
            steps = STEPS * (results * tuples) // (DELAY_STEPS * total)
            times = first + MIDDLES * (last + 1 - first) // (2 * DELAY_STEPS)
            out.add_times(times, steps[1:] - steps[:-1])

    def expire(self, groups: np.ndarray, watermarks: Sequence[int] | np.ndarray, out: Out) -> Progress:
        rows = self._groups.rows(groups)
        marks = np.maximum(self._groups.marks[:, rows], np.atleast_2d(watermarks).T)
        self._groups.marks[:, rows] = marks
        bounds = np.maximum(least_of_others(marks), TIME_MIN_VALUE + self._window) - self._window
        gone = self._groups.windows.expire(rows, bounds)
        if gone.any():
            self._groups.gone[:, rows] += gone
            self._groups.new[:, rows] = np.minimum(self._groups.new[:, rows], self._groups.windows.live[:, rows])
            expired = gone.sum(axis=1)
            self._expired += expired
            self._tuples_bytes -= int(self._tuple_bytes @ expired)
        self._tune(rows)
        return Progress.DONE

    def _tune(self, rows: np.ndarray) -> None:
        octets = self._live_bytes(rows)
        for at in np.flatnonzero((octets > self._groups.split_above[rows]) | (octets < self._groups.merge_below[rows])):
            row = int(rows[at])
            tuned = self._groups.directories[row].tune(
                float(octets[at]), self._dead_bytes if self._groups.gone[:, row].any() else 0.0
            )
            self._splits += tuned.splits
            self._merges += tuned.merges
            self.tally.rewritten += tuned.moved * float(self._groups.windows.live[:, row].sum())
            self._groups.note(row)

    def _live_bytes(self, rows: np.ndarray) -> np.ndarray:
        return self._tuple_bytes @ self._groups.windows.live[:, rows]

    def _dead_tuples(self, rows: np.ndarray) -> np.ndarray:
        """Returns float64[n, m]: how many tuples in all chains of each group no longer count."""
        return self._dead[:, None] * self._groups.buckets[rows] * (self._groups.gone[:, rows] > 0)

    def info(self, groups: np.ndarray) -> GroupInfo:
        rows = self._groups.rows(groups)
        live = self._groups.windows.live[:, rows].T
        directories = [self._groups.directories[row] for row in rows]
        depth, splits, merges = (
            np.array([getattr(one, name) for one in directories]) for name in ("depth", "splits", "merges")
        )
        blocks = (live // self._shape.block_tuples).sum(axis=1) + len(self._shape.windows) * self._groups.buckets[rows]
        results, none = self._groups.results[rows], np.zeros_like(splits)
        figures = (self._groups.compared[rows], results, splits, merges, none, results)
        octets = ((live + self._dead_tuples(rows).T) * self._tuple_bytes).astype(np.int64)
        return GroupInfo(
            live, octets, self._groups.marks[:, rows].T, blocks, self._groups.buckets[rows], depth, *figures
        )

    def get(self, group: int, since: int, octets_max: int | None = None, checksum: bool = False) -> list[np.ndarray]:
        self._groups.rows(np.array([group]))
        self._refuse_fresh(group)
        block_tuples, tuple_bytes = int(self._shape.block_tuples.sum()), float(self._tuple_bytes.mean())
        return read_out(self._groups, group, since, octets_max, block_tuples, tuple_bytes)

    def states_of(self, group: int) -> list[np.ndarray]:
        return []

    def reached(self, frames: Sequence[np.ndarray]) -> tuple[int, bool]:
        newest, snapshot = content_of(frames[-1])
        return newest, snapshot is not None

    def install(self, parts: Sequence[np.ndarray], generation: int | None = None, replica: bool = False) -> int:
        snapshot: Snapshot = content_of(parts[-1])[1]
        group, octets = snapshot.group, int(snapshot.kept.counts.sum(axis=1) @ self._tuple_bytes)
        row = self._groups.row(group)
        if row >= 0 and self._groups.windows.live[:, row].any():
            raise ProtocolError(f"partition {group} came, but tuples of it are held here: wanted it dropped first")
        if self._held_bytes + octets > self._shape.memory_bytes:
            raise MemoryBudgetError(
                f"partition {group} needs {octets} bytes here, more than [memory] limit leaves free"
            )
        # This may make room, and the arrays of the groups are others then.
        row = take_in(self._groups, snapshot)
        came = self._replicas_in if replica else self._moved_in
        came += self._groups.windows.live[:, row]
        self._tuples_bytes += octets
        return group

    def drop(self, group: int, left: Left = Left.MOVED) -> None:
        row = self._groups.row(group)
        if row >= 0:
            self._refuse_fresh(group)
            counts = {Left.MOVED: self._moved_out, Left.SPILLED: self._spilled, Left.DISCARDED: self._discarded}[left]
            counts += self._groups.windows.live[:, row]
            self._tuples_bytes -= int(self._tuple_bytes @ self._groups.windows.live[:, row])
            self._groups.forget(group)

    def deal(self, group: int, stream: int, deal: int, part: int) -> None:
        self._refuse_fresh(group)
        row = self._groups.row(group)
        if part == 0:
            self._replicas_out += self._groups.windows.live[:, row]
        dropped = deal_out(self._groups, row, stream, part)
        self._discarded[stream] += dropped
        self._tuples_bytes -= self._shape.tuple_bytes[stream] * dropped

    def give_dealt(self, group: int, stream: int) -> list[np.ndarray]:
        self._refuse_fresh(group)
        row = self._groups.row(group)
        frames = give_out(self._groups, row, stream, self._shape.tuple_bytes[stream])
        given = self._groups.windows.live[stream, row]
        self.drop(group, Left.DISCARDED)
        self._discarded[stream] -= given
        self._moved_out[stream] += given
        return frames

    def take_dealt(self, group: int, stream: int, frames: Sequence[np.ndarray]) -> None:
        row, kept = self._groups.rows(np.array([group])), [content_of(frame) for frame in frames]
        came = sum(int(one.counts.sum()) for one in kept)
        if self._lacking_bytes(came, stream) > 0:
            raise self.out_of_memory()
        for one in kept:
            for end, count in zip(one.ends.tolist(), one.counts):
                self._groups.windows.add(stream, row, end, count)
        self._moved_in[stream] += came
        self._groups.inserted[stream, row] += came
        self._tuples_bytes += self._shape.tuple_bytes[stream] * came

    def old_until(self, group: int) -> np.ndarray:
        row = self._groups.row(group)
        ends = self._groups.old_end[:, row]
        window = self._window[:, 0]
        return np.where(ends == TIME_MIN_VALUE, ends, np.minimum(ends, TIME_MAX_VALUE - window) + window)

    def make_all_old(self, group: int) -> None:
        row = self._groups.row(group)
        self._groups.old_end[:, row] = self._groups.marks[:, row]
        self._groups.new[:, row] = 0

    def rows(self, groups: np.ndarray) -> Iterator[RowsBatch]:
        raise ProtocolError(f"partitions {groups} are to be spilled: a modelled join has counts, but no rows")

    kept_rows = rows

    def empty(self, groups: np.ndarray) -> None:
        self.rows(groups)

    drop_kept = empty

    def keep_until(self, groups: np.ndarray, times: np.ndarray) -> None:
        self.rows(groups)

    def kept(self) -> np.ndarray:
        return np.zeros(0, np.int64)

    def holds_fresh(self, group: int) -> bool:
        return bool(self._groups.fresh[:, self._groups.row(group)].any())

    def settle(self, groups: np.ndarray) -> None:
        raise ProtocolError(f"partitions {groups} are to be settled: a modelled join takes nothing back from a disk")

    def _refuse_fresh(self, group: int) -> None:
        if self.holds_fresh(group):
            raise ProtocolError(f"partition {group} holds fresh tuples: wanted it probed before it is read or dropped")

    @property
    def _held_bytes(self) -> int:
        """The bytes of the blocks: those of live tuples, and those of about one block for each chain.

        About half of this block is tuples that no longer count, and the rest is empty.
        """
        chains = len(self._shape.windows) * self._groups.bucket_count
        return self._tuples_bytes + chains * self._shape.block_bytes

    def memory(self) -> Memory:
        held = self._held_bytes
        return Memory(self._shape.memory_bytes, held, self._shape.memory_bytes - held)

    def limit(self, octets: int) -> None:
        self._shape = self._shape._replace(memory_bytes=octets)

    @property
    def marker(self) -> None:
        """Its results are only counted."""

    @property
    def plans(self) -> Sequence[PlanChange]:
        return ()

    def spent(self, seconds: float) -> None:
        """There is only one way to join."""

    @property
    def theta_bytes(self) -> int:
        return self._shape.theta

    @property
    def compared(self) -> int:
        return self.tally.comparisons

    @property
    def totals(self) -> Totals:
        every = np.arange(self._groups.windows.rows)
        live_bytes = int((self._live_bytes(every) + self._tuple_bytes @ self._dead_tuples(every)).sum())
        self._held_bytes_max = max(self._held_bytes_max, self._held_bytes)
        return Totals(
            joined=tuple(self._joined.tolist()),
            expired=tuple(self._expired.tolist()),
            held=tuple(self._groups.windows.live.sum(axis=1).tolist()),
            moved_in=tuple(self._moved_in.tolist()),
            moved_out=tuple(self._moved_out.tolist()),
            discarded=tuple(self._discarded.tolist()),
            replicas_in=tuple(self._replicas_in.tolist()),
            replicas_out=tuple(self._replicas_out.tolist()),
            comparisons=self.tally.comparisons,
            results=self.tally.results,
            splits=self._splits,
            merges=self._merges,
            live_bytes=live_bytes,
            blocks=self._held_bytes // self._shape.block_bytes,
            blocks_max=self._held_bytes_max // self._shape.block_bytes,
            spilled=tuple(self._spilled.tolist()),
            taken_back=(0,) * len(self._spilled),
        )

    def out_of_memory(self, advice: str = MORE_MEMORY) -> MemoryBudgetError:
        return MemoryBudgetError(
            f"the window state needs more than [memory] limit allows: budget {self._shape.memory_bytes / 1e6:.3g} MB,"
            f" held {self._held_bytes / 1e6:.3g} MB; {advice}"
        )
