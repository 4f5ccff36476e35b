"""The operator: a window join of three or more streams, m-way or as a tree of binary joins (DCAPE, section 2).

The streams' tuples lie in a table of their own. The nodes of a tree hold states, which refer to these tuples. While a
group has states, it is pinned: its tuples stay where they are, in one mini-partition. The states of a group can go at
any time: when the group moves or is spilled, or if memory is short. They are made again, bottom-up, before what is
fresh is joined. So checkpoints, disks and clean-ups know of the streams' tuples alone. Only a move by MSLB takes states
along (`travel`).

A group that has no states is joined m-way. To make them takes as long as to join all tuples that the group holds, so
it is done group by group, and never for many more tuples at a time than are joined anyway. If the plan changes, a group
is joined by the tree of before until it is its turn, and what states both trees have are taken over.
"""

from __future__ import annotations

from typing import Iterator, Sequence

import numpy as np

from mpijoin.config.plan import Binary
from mpijoin.data.batch import read_only
from mpijoin.join.window_join import Setup, WindowJoin
from mpijoin.operators.base import Left, Memory, Out, PlanChange, Progress, Taken
from mpijoin.plans import travel
from mpijoin.plans.choice import Choice
from mpijoin.plans.kernels import merge_mini_partitions
from mpijoin.plans.statistics import Statistics
from mpijoin.plans.tree import Base, NoRoom, Tree, Work
from mpijoin.store.fresh import settle_groups
from mpijoin.store.insert import Fresh
from mpijoin.store.pool import Pool
from mpijoin.store.state import BUCKETS, GROUP_TUPLES, PINNED, STREAMS_MAX, TUNED, words_of

# States take at most this share of the memory once a probe is done with.
STATES_SHARE = 0.5
# After states did not fit, two probes do without. It is twice as many after each further time, up to so many.
PATIENCE_MAX = 64
# The states of so many held tuples may be made for each fresh one: then no probe takes more than about twice as long as
# without. A few thousand may always be.
RESTORED_PER_FRESH, RESTORED_MIN = 2, 1 << 12
# So many comparisons are made at a time while the states of a group that has come are made.
ADOPTED_BUDGET = 1 << 26
# The operators that are nodes have numbers from here on. Those of joins and of their clean-ups are smaller.
FIRST_NUMBER = 16


def period_of(streams: int) -> int:
    """Returns how many tuples there are at least between two decisions about the plan, so that these are cheap.

    >>> period_of(3), period_of(8)
    (131072, 2097152)
    """
    return min(1 << 21, 1 << 11 + 2 * streams)


class PlannedJoin(WindowJoin):
    """Implements `Operator`: the inner join of three or more streams."""

    def __init__(self, setup: Setup, plan: Binary | None, pool: Pool, capacity: int, period: int = 0):
        """setup: without marks and asks · plan: a tree; None: whatever is cheapest, from time to time · capacity: how
        many pairs of a node are found at a time · period: as of `Statistics`; 0: as of `period_of`."""
        super().__init__(setup, pool)
        streams = len(setup.streams)
        self._base = Base(setup, self._table, pool, capacity, self._make_room)
        self._chooser = Choice(streams) if plan is None else None
        self.statistics = Statistics(self._table, period or period_of(streams))
        self._tuples_at = np.array(words_of(GROUP_TUPLES, streams))
        self.merge_mini_partitions = merge_mini_partitions.bound(self._table)
        self._tree: Tree | None = None
        self._former: Tree | None = None  # It holds groups whose turn to change has not come yet.
        self._followed: list[PlanChange] = []
        self._came = 0
        self._allowance = 0
        self._under_way: tuple[Iterator[Progress], Work] | None = None
        self._waits, self._patience = 0, 1
        self.follow(self._chooser.plan if self._chooser else plan)

    @property
    def plans(self) -> Sequence[PlanChange]:
        return self._followed

    @property
    def plan(self) -> Binary | None:
        return self._followed[-1].plan

    def follow(self, plan: Binary | None, took_ns: float = 0.0, takes_ns: float = 0.0) -> None:
        """Joins by another plan from now on, each group when it is its turn. None: m-way. No probe may be under way.

        took_ns, takes_ns: why, as of `PlanChange`.
        """
        self._refuse_probed(-1)
        self._followed.append(PlanChange(self._came, plan, took_ns, takes_ns))
        self._allowance = 0
        if self._former and self._former.plan == plan:
            self._tree, self._former = self._former, self._tree
            return
        if self._former:
            self._forget(np.flatnonzero(self._former.holds))
        self._former = self._tree
        is_taken = self._former is not None and self._former.number == FIRST_NUMBER
        number = FIRST_NUMBER + STREAMS_MAX * is_taken
        self._tree = None if plan is None else Tree(plan, self._base, number)

    def insert(self, groups: np.ndarray, stream: int, batch: Fresh, bounds: np.ndarray, new: bool = False) -> Taken:
        taken = super().insert(groups, stream, batch, bounds, new)
        came = int((bounds[: taken.groups, 1] - bounds[: taken.groups, 0]).sum())
        self._came += came
        self._allowance += RESTORED_PER_FRESH * came
        self.statistics.came(stream, came)
        if taken.groups == len(groups) or not self._make_room(taken.lacking_pages):
            return taken
        rest = self.insert(groups[taken.groups :], stream, batch, bounds[taken.groups :], new)
        return rest._replace(groups=taken.groups + rest.groups)

    def probe(self, groups: np.ndarray, budget: int, out: Out) -> Progress:
        if self._under_way is None:
            work = Work(out)
            if self._chooser and self.statistics.look(groups):
                self._decide(self._chooser)
            self._probed = self._start(groups)
            self._under_way = self._join(self._probed, work), work
        return self._go_on(budget, out)

    def _decide(self, chooser: Choice) -> None:
        known = self.statistics.known()
        if chooser.decide(known, self.statistics.tuple_ns):
            self.follow(chooser.plan, chooser.took_ns, chooser.takes_ns)
        self.statistics.decided(float(known.held.sum()), chooser.is_content)

    def spent(self, seconds: float) -> None:
        self.statistics.spent(seconds)

    def pause(self, budget: int, out: Out) -> Progress:
        """Does the rest of the probe: what of it is joined, no marks of tuples would tell."""
        return Progress.DONE if self._under_way is None else self._go_on(budget, out)

    def _go_on(self, budget: int, out: Out) -> Progress:
        assert self._under_way
        steps, work = self._under_way
        work.left, work.out, work.results = budget, out, 0
        progress = next(steps, Progress.DONE)
        self._results += work.results
        if progress is Progress.DONE:
            self._under_way = self._probed = None
            self._shrink()
        return progress

    def expire(self, groups: np.ndarray, watermarks: Sequence[int] | np.ndarray, out: Out) -> Progress:
        marks = np.atleast_2d(np.asarray(watermarks, np.int64))
        for tree in self._trees:
            tree.expire(groups, marks)
        progress = super().expire(groups, watermarks, out)
        if self._tree and not self._waits:
            self._merge(groups)
        return progress

    def _merge(self, groups: np.ndarray) -> None:
        """Merges the mini-partitions of groups whose turn it is, so that the next probe can make their states."""
        table = self._table
        wants = (table.groups[groups, BUCKETS] > 1) & (table.groups[groups, PINNED] == 0)
        if not wants.any():
            return
        own = self._within_allowance(groups[wants])
        if len(own):
            self.merge_mini_partitions(own)
            table.groups[own, PINNED] = table.groups[own, BUCKETS] == 1
            if not table.groups[own, PINNED].all():
                self._wait()

    @property
    def _trees(self) -> list[Tree]:
        return [tree for tree in (self._tree, self._former) if tree]

    def _join(self, groups: np.ndarray, work: Work) -> Iterator[Progress]:
        """Joins the fresh tuples of groups, each by the tree that holds it, or m-way. It yields BUDGET and OUT_FULL."""
        turn, rest = self._take_turns(groups), np.ones(len(groups), bool)
        if self._former or (self._tree and not self._tree.holds[groups].all()):
            self.statistics.mixed()
        if self._tree:
            own = turn | self._tree.holds[groups]
            rest &= ~own
            yield from self._join_by(self._tree, groups[own], work)
        if self._former:
            own = rest & self._former.holds[groups]
            rest &= ~own
            yield from self._join_by(self._former, groups[own], work)
            if not self._tree:  # They are tuned when what has expired goes.
                self._forget(groups[own & turn])
            if not self._former.holds.any():
                self._former = None
        yield from self._join_mway(groups[rest], work)

    def _join_by(self, tree: Tree, groups: np.ndarray, work: Work) -> Iterator[Progress]:
        """Joins groups by a tree, or m-way if there is no room for their states."""
        if not len(groups):
            return
        try:
            yield from self._restore(tree, groups[~tree.holds[groups]], work)
            yield from tree.join(groups, work)
        except NoRoom:
            tree.give_up()
            self._forget(groups)
            self._wait()
            self.statistics.mixed()
            yield from self._join_mway(groups, work)
            return
        self._patience = 1
        settle_groups(self._table, groups)

    def _restore(self, tree: Tree, groups: np.ndarray, work: Work) -> Iterator[Progress]:
        """Makes the states of groups that the tree does not hold yet."""
        former = self._former.holds[groups] if self._former else np.zeros(len(groups), bool)
        self._table.groups[groups, PINNED] = 1
        for own, source in ((groups[former], self._former), (groups[~former], None)):
            if len(own):
                yield from tree.restore(own, source, work)
        if self._former:
            self._former.drop(groups)

    def _join_mway(self, groups: np.ndarray, work: Work) -> Iterator[Progress]:
        if not len(groups):
            return
        probed, groups = self._probed, read_only(groups)
        self._probe.start()
        while (progress := self._find(self._probe.go_on, groups, work.left, work.out)) is not Progress.DONE:
            yield progress
        self._probed = probed  # It may be a part of a probe.

    def _take_turns(self, groups: np.ndarray) -> np.ndarray:
        """Returns bool[m]: which of the groups have states of the present tree from now on, or, if there is no tree, no
        states any more. A group of several mini-partitions has to wait until these are merged."""
        turn = np.zeros(len(groups), bool)
        if self._waits:
            self._waits -= 1
        elif self._tree and not self._tree.holds[groups].all():
            flat, merged = (self._table.groups[groups, one] == 1 for one in (BUCKETS, PINNED))
            if self._former:
                merged &= ~self._former.holds[groups]
            turn = ~self._tree.holds[groups] & flat
            # What was merged for this was allowed when it was merged.
            wait = np.flatnonzero(turn & ~merged)
            turn[wait[len(self._within_allowance(groups[wait])) :]] = False
        elif self._former and not self._tree:
            wait = np.flatnonzero(self._former.holds[groups])
            turn[wait[: len(self._within_allowance(groups[wait]))]] = True
        return turn

    def _within_allowance(self, groups: np.ndarray) -> np.ndarray:
        """Returns the first of the groups, for as many tuples as may be worked on beside those that are joined."""
        held = self._table.groups[np.ix_(groups, self._tuples_at)].sum(axis=1)
        count = int(np.searchsorted(np.cumsum(held), max(RESTORED_MIN, self._allowance), "right"))
        self._allowance = max(0, self._allowance - int(held[:count].sum()))
        return read_only(groups[:count])

    def _wait(self) -> None:
        """Does without new states for a while, because there was no room for them."""
        self._waits = self._patience = min(2 * self._patience, PATIENCE_MAX)

    def states_of(self, group: int) -> list[np.ndarray]:
        self._refuse_probed(group)
        holder = next((tree for tree in self._trees if tree.holds[group]), None)
        if holder is None or self.holds_fresh(group):
            return []
        return [frame for found in holder.states_of(group) for frame in travel.encode(self._table, group, found)]

    def install(self, parts: Sequence[np.ndarray], generation: int | None = None, replica: bool = False) -> int:
        came, own = travel.split(parts)
        group = super().install(own, generation, replica)
        groups = np.array([group])
        is_whole = self._table.groups[group, BUCKETS] == 1 and not self.holds_fresh(group)
        if came and is_whole and self._tree and not self._waits:
            self._adopt(self._tree, groups, travel.Arrived(self._table, groups, came))
        return group

    def _adopt(self, tree: Tree, groups: np.ndarray, source: travel.Arrived) -> None:
        """Makes the states of a group that has come, of which some have come along."""
        work = Work(Out(1, 1))
        self._table.groups[groups, PINNED] = 1
        try:
            for _ in tree.restore(groups, source, work):
                work.left = ADOPTED_BUDGET
        except NoRoom:
            tree.give_up()
            self._forget(groups)
            self._wait()

    def drop(self, group: int, left: Left = Left.MOVED) -> None:
        self._refuse_probed(group)
        self._forget(np.array([group]))
        super().drop(group, left)

    def empty(self, groups: np.ndarray) -> None:
        self._forget(groups)
        super().empty(groups)

    def clear(self, group: int, stream: int) -> None:
        self._forget(np.array([group]))
        super().clear(group, stream)

    def settle(self, groups: np.ndarray) -> None:
        self._forget(groups)
        super().settle(groups)

    def limit(self, octets: int) -> None:
        super().limit(octets)
        if self._pool.free_bytes < 0:
            self._make_room(0)

    def memory(self) -> Memory:
        own = super().memory()
        return own._replace(held=own.held + sum(tree.held_bytes for tree in self._trees))

    def forget_states(self) -> None:
        """Drops the states of all groups that are not being probed."""
        self._forget(self._spare())

    def _forget(self, groups: np.ndarray) -> None:
        """Drops the states of groups, whose mini-partitions may be tuned again."""
        for tree in self._trees:
            tree.drop(groups)
        pinned = groups[self._table.groups[groups, PINNED] == 1]
        self._table.groups[pinned, PINNED] = self._table.groups[pinned, TUNED] = 0

    def _spare(self) -> np.ndarray:
        """Returns the groups that have states which nobody needs just now."""
        spare = self._table.groups[:, PINNED] == 1
        if self._probed is not None:
            spare[self._probed] = False
        return np.flatnonzero(spare)

    def _make_room(self, lacking_pages: int) -> bool:
        """Drops states, the largest first, until so many more pages are free. Returns whether they are."""
        wanted = max(0, self._pool.free_bytes + lacking_pages * self.page_bytes)
        spare = self._spare()
        sizes = sum((tree.pages_of(spare) for tree in self._trees), np.zeros(len(spare), np.int64))
        for at in np.argsort(-sizes, kind="stable"):
            if self._pool.free_bytes >= wanted:
                break
            self._forget(spare[at : at + 1])
        return self._pool.free_bytes >= wanted

    def _shrink(self) -> None:
        """Drops states if they take more than their share of the memory."""
        excess = sum(tree.held_bytes for tree in self._trees) - int(STATES_SHARE * self._pool.budget_bytes)
        if excess > 0:
            self._make_room(excess // self.page_bytes)
