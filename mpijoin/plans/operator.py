"""The operator: a window join of three or more streams as a tree of binary joins (DCAPE, section 2).

The streams' tuples lie in a table of their own, which is never tuned, so that their slot ids hold until they leave. The
nodes of the tree hold states, which refer to these tuples. The states of a group can go at any time: when the group
moves or is spilled, or if memory is short. The next probe of the group makes them again, bottom-up, before it joins
what is fresh. So moves, checkpoints, disks and clean-ups know of the streams' tuples alone.
"""

from __future__ import annotations

from typing import Iterator, Sequence

import numpy as np

from mpijoin.config.plan import Binary
from mpijoin.data.batch import read_only
from mpijoin.join.results import certificate_of
from mpijoin.join.window_join import Setup, WindowJoin
from mpijoin.operators.base import Keep, Memory, Out, Progress, Taken
from mpijoin.plans.kernels import MEMBERS, count_tuples, list_tuples
from mpijoin.plans.node import Made, Node, bounds_of, nodes_of
from mpijoin.store.fresh import settle_groups
from mpijoin.store.insert import Fresh
from mpijoin.store.pool import Pool
from mpijoin.store.state import COMPARED, COMPARISONS, RESULTS, THETA, THETA_OFF

# States take at most this share of the memory once a probe is done with.
STATES_SHARE = 0.5
# After states did not fit, two probes do without. It is twice as many after each further time, up to so many.
PATIENCE_MAX = 64


class _NoRoom(Exception):
    """There is no room for a state, even without those of all other groups."""


class TreeJoin(WindowJoin):
    """Implements `Operator`: the inner join of three or more streams."""

    def __init__(self, setup: Setup, plan: Binary, pool: Pool, capacity: int):
        """setup: without marks and asks; its theta is that of the nodes · capacity: how many pairs of a node are found
        at a time."""
        super().__init__(setup, pool)
        self._table.counters[THETA] = THETA_OFF
        self._nodes, self._leaves = nodes_of(plan, setup, pool, capacity)
        self._has_states = np.zeros(setup.partitions, bool)
        self._work: Iterator[Progress] | None = None
        self._left, self._out = 0, Out(len(setup.streams), 0)
        self._waits, self._patience = 0, 1
        self._rows = np.empty((0, MEMBERS + 1), np.int64)
        # Of some results: the slot ids of their tuples, and the times of their latest ones.
        self._slots, self._times = np.zeros((len(setup.streams), capacity), np.int64), np.zeros(capacity, np.int64)
        self._count, self._list = count_tuples.bound(self._table), list_tuples.bound(self._table)

    @property
    def theta_bytes(self) -> int:
        return self._setup.theta

    def insert(self, groups: np.ndarray, stream: int, batch: Fresh, bounds: np.ndarray) -> Taken:
        taken = super().insert(groups, stream, batch, bounds)
        if taken.groups == len(groups) or not self._make_room(taken.lacking_pages):
            return taken
        rest = self.insert(groups[taken.groups :], stream, batch, bounds[taken.groups :])
        return rest._replace(groups=taken.groups + rest.groups)

    def probe(self, groups: np.ndarray, budget: int, out: Out) -> Progress:
        if self._work is None:
            self._probed = self._start(groups)
            self._work = self._join_by_tree(self._probed) if self._waits == 0 else self._join_mway(self._probed)
            self._waits = max(0, self._waits - 1)
        return self._go_on(budget, out)

    def pause(self, budget: int, out: Out) -> Progress:
        """Does the rest of the probe: what of it is joined, no marks of tuples would tell."""
        return Progress.DONE if self._work is None else self._go_on(budget, out)

    def _go_on(self, budget: int, out: Out) -> Progress:
        assert self._work is not None
        self._left, self._out = budget, out
        progress = next(self._work, Progress.DONE)
        if progress is Progress.DONE:
            self._work = self._probed = None
            self._shrink()
        return progress

    def expire(self, groups: np.ndarray, watermarks: Sequence[int] | np.ndarray, out: Out) -> Progress:
        marks = np.atleast_2d(np.asarray(watermarks, np.int64))
        has_states = self._has_states[groups]
        own, own_marks = read_only(groups[has_states]), marks if len(marks) == 1 else marks[has_states]
        for node in self._nodes if len(own) else ():
            node.let_go(own, own_marks)
        return super().expire(groups, watermarks, out)

    def _join_by_tree(self, groups: np.ndarray) -> Iterator[Progress]:
        """Joins the fresh tuples of groups. It yields BUDGET and OUT_FULL.

        The root comes last. So if states do not fit, no result has been found yet, and the groups are joined without
        states.
        """
        *others, root = self._nodes
        try:
            new = groups[~self._has_states[groups]]
            if len(new):
                yield from self._restore(new)
            self._feed(groups, fresh=True)
            for node in others:
                yield from self._run(node, groups)
        except _NoRoom:
            for node in self._nodes:
                node.give_up()
            for group in groups.tolist():
                self._forget(group)
            self._waits = self._patience = min(2 * self._patience, PATIENCE_MAX)
            yield from self._join_mway(groups)
            return
        self._patience = 1
        yield from self._run(root, groups)
        settle_groups(self._table, groups)

    def _join_mway(self, groups: np.ndarray) -> Iterator[Progress]:
        """Does what `_join_by_tree` does, without states. Those that the groups had are not up to date any more."""
        for group in groups.tolist():
            self._forget(group)
        self._probe.start()
        while (progress := self._find(self._probe.go_on, groups, self._left, self._out)) is not Progress.DONE:
            yield progress

    def _restore(self, groups: np.ndarray) -> Iterator[Progress]:
        """Makes the states of groups out of their old tuples, bottom-up. All results of these have been found."""
        self._has_states[groups] = True
        self._feed(groups, fresh=False)
        *others, root = self._nodes
        for node in others:
            yield from self._run(node, groups)
        root.settle(groups)

    def _feed(self, groups: np.ndarray, fresh: bool) -> None:
        """Hands the streams' tuples to the nodes. fresh: the fresh ones, or the others."""
        ends = np.zeros(len(groups), np.int64)
        for stream, (node, side) in self._leaves.items():
            self._count(groups, stream, fresh, ends)
            if (total := int(ends[-1]) if len(ends) else 0) > len(self._rows):
                self._rows = np.empty((2 * total, MEMBERS + 1), np.int64)
            self._list(groups, stream, fresh, self._rows)
            self._pass_on(node, side, Made(groups, bounds_of(ends), self._rows))

    def _run(self, node: Node, groups: np.ndarray) -> Iterator[Progress]:
        progress = Progress.BUDGET
        while progress is not Progress.DONE:
            progress, self._left = node.find(groups, self._left)
            if node.parent:
                self._pass_on(*node.parent, node.make())
            else:
                yield from self._emit(node)
            if progress is Progress.BUDGET or (progress is not Progress.DONE and self._left <= 0):
                yield Progress.BUDGET
        comparisons, found, compared = node.told(groups)
        self._table.counters[COMPARED] += compared
        self._table.groups[groups, COMPARISONS] += comparisons
        if not node.parent:
            self._table.groups[groups, RESULTS] += found

    def _pass_on(self, node: Node, side: int, made: Made) -> None:
        while len(made.groups):
            taken, lacking = node.take(side, made)
            if taken < len(made.groups) and not self._make_room(lacking):
                raise _NoRoom
            made = Made(made.groups[taken:], made.bounds[taken:], made.tuples)

    def _emit(self, root: Node) -> Iterator[Progress]:
        """Counts the results that the root has found, and hands them to `out` as far as they are wanted."""
        at, count, root.found.count = 0, root.found.count, 0
        while at < count:
            keep = self._out.keep
            room = count if keep is Keep.NOTHING else self._out.slots.shape[1] - self._out.count
            if room == 0:
                yield Progress.OUT_FULL
                continue
            end = min(count, at + room)
            root.expand(at, end, self._slots, self._times)
            self._tell(end - at)
            at = end
        if self._out.keep is not Keep.NOTHING and self._out.count == self._out.slots.shape[1]:
            yield Progress.OUT_FULL

    def _tell(self, count: int) -> None:
        out = self._out
        self._results += count
        if out.certifies:
            out.counted(count, int(certificate_of(self._table.words, self._slots, count)))
        if out.keep is Keep.SLOT_IDS:
            out.slots[:, out.count : out.count + count] = self._slots[:, :count]
        elif out.keep is Keep.LATEST_TIMES:
            out.slots[0, out.count : out.count + count] = self._times[:count]
        out.count += count if out.keep is not Keep.NOTHING else 0

    def drop(self, group: int, to_disk: bool = False) -> None:
        self._refuse_probed(group)
        self._forget(group)
        super().drop(group, to_disk)

    def empty(self, group: int) -> None:
        self._forget(group)
        super().empty(group)

    def clear(self, group: int, stream: int) -> None:
        self._forget(group)
        super().clear(group, stream)

    def settle(self, groups: np.ndarray) -> None:
        for group in groups.tolist():
            self._forget(group)
        super().settle(groups)

    def limit(self, octets: int) -> None:
        super().limit(octets)
        if self._pool.free_bytes < 0:
            self._make_room(0)

    def memory(self) -> Memory:
        own = super().memory()
        return own._replace(held=own.held + sum(node.memory().held for node in self._nodes))

    def forget_states(self) -> None:
        """Drops the states of all groups that are not being probed."""
        for group in np.flatnonzero(self._spare()).tolist():
            self._forget(group)

    def _forget(self, group: int) -> None:
        if self._has_states[group]:
            self._has_states[group] = False
            for node in self._nodes:
                node.drop(group)

    def _spare(self) -> np.ndarray:
        """bool[partitions]: which groups have states that nobody needs just now."""
        spare = self._has_states.copy()
        if self._probed is not None:
            spare[self._probed] = False
        return spare

    def _make_room(self, lacking_pages: int) -> bool:
        """Drops states, the largest first, until so many more pages are free. Returns whether they are."""
        wanted = max(0, self._pool.free_bytes + lacking_pages * self.page_bytes)
        spare = np.flatnonzero(self._spare())
        sizes = sum((node.pages_of(spare) for node in self._nodes), np.zeros(len(spare), np.int64))
        for group in spare[np.argsort(-sizes, kind="stable")].tolist():
            if self._pool.free_bytes >= wanted:
                break
            self._forget(group)
        return self._pool.free_bytes >= wanted

    def _shrink(self) -> None:
        """Drops states if they take more than their share of the memory."""
        held = sum(node.memory().held for node in self._nodes)
        excess = held - int(STATES_SHARE * self._pool.budget_bytes)
        if excess > 0:
            self._make_room(excess // self.page_bytes)
