"""A tree of binary joins: its nodes, and the groups of which it has states."""

from __future__ import annotations

from typing import Callable, Iterator, Protocol

import numpy as np

from mpijoin.config.plan import Binary
from mpijoin.join.results import certificate_of
from mpijoin.join.window_join import Setup
from mpijoin.named import NamedTuple
from mpijoin.operators.base import Keep, Out, Progress
from mpijoin.plans.kernels import MEMBERS, count_tuples, list_tuples
from mpijoin.plans.node import Made, Node, State, bounds_of, nodes_of
from mpijoin.store.pool import Pool
from mpijoin.store.state import COMPARED, COMPARISONS, RESULTS, StoreState


class NoRoom(Exception):
    """There is no room for a state, even without those of all other groups."""


class Work:
    """How much of the budget of a probe is left, where its results go, and how many it has found."""

    def __init__(self, out: Out):
        self.left, self.out, self.results = 0, out, 0


class Base(NamedTuple):
    """What trees work on. setup: of the join · table: holds the streams' tuples · pool: where states lie, too ·
    capacity: how many pairs of a node are found at a time · make_room: drops states that nobody needs just now, until
    so many pages are free, and returns whether they are."""

    setup: Setup
    table: StoreState
    pool: Pool
    capacity: int
    make_room: Callable[[int], bool]


class Found(NamedTuple):
    """A state, and the tuples that it has of some groups."""

    state: State
    made: Made


class Source(Protocol):
    """Has states of groups. "We define a state's ID as the same to its tuple's schema" (DCAPE, section 4.1): here it is
    the set of its members."""

    def find(self, groups: np.ndarray, members: frozenset[int]) -> Found | None:
        """Returns the state of these members; None: it has none. The tuples may be changed."""


class Tree:
    """Joins groups by a plan. holds: bool[partitions], of which groups it has states."""

    def __init__(self, plan: Binary, base: Base, number: int):
        """number: of its first node, among the operators that share the pool."""
        self.plan, self.number, self._base = plan, number, base
        self.nodes, self._leaves = nodes_of(plan, base.setup, base.pool, base.capacity, number, base.table)
        self.holds = np.zeros(base.setup.partitions, bool)
        # Where the states of more than one member are: by the set of their members, the node and its side.
        self._states = {frozenset(node.state.members): node.parent for node in self.nodes if node.parent}
        streams = len(base.setup.streams)
        self._room = np.empty(0, np.int64)
        # Of some results: the slot ids of their tuples, and the times of their latest ones.
        self._slots, self._times = np.zeros((streams, base.capacity), np.int64), np.zeros(base.capacity, np.int64)
        self._count, self._list = count_tuples.bound(base.table), list_tuples.bound(base.table)

    def join(self, groups: np.ndarray, work: Work) -> Iterator[Progress]:
        """Joins the fresh tuples of groups that it holds. It yields BUDGET and OUT_FULL. It raises NoRoom before it has
        found any result, because the root comes last."""
        *others, root = self.nodes
        self._feed(groups, fresh=True)
        for node in others:
            yield from self._run(node, groups, work)
        yield from self._run(root, groups, work)

    def restore(self, groups: np.ndarray, source: Source | None, work: Work) -> Iterator[Progress]:
        """Makes the states of groups, bottom-up, of which all results have been found. Raises NoRoom.

        source: what has states of these groups. Those that this tree has as well are taken over.
        """
        self.holds[groups] = True
        self._feed(groups, fresh=False)
        *others, root = self.nodes
        for node in others:
            assert node.parent
            if source and (found := source.find(groups, frozenset(node.state.members))):
                self._take_over(found, *node.parent)
                node.settle(groups)
            else:
                yield from self._run(node, groups, work)
        root.settle(groups)

    def find(self, groups: np.ndarray, members: frozenset[int]) -> Found | None:
        """Implements `Source`. It uses the room of this tree."""
        if members not in self._states:
            return None
        node, side = self._states[members]
        ends = np.zeros(len(groups), np.int64)
        node.count(groups, side, ends)
        rows = self._rows_of(ends, len(members))
        node.copy(groups, side, rows)
        return Found(node.states[side], Made(groups, bounds_of(ends), rows))

    def states_of(self, group: int) -> Iterator[Found]:
        """Yields its states of more than one member of a group. Each is valid until the next one is asked for."""
        for members in self._states:
            if (found := self.find(np.array([group]), members)) and len(found.made.tuples):
                yield found

    def give_up(self) -> None:
        """Forgets how far the nodes came. What the groups hold then means nothing."""
        for node in self.nodes:
            node.give_up()

    def drop(self, groups: np.ndarray) -> None:
        for group in groups[self.holds[groups]].tolist():
            self.holds[group] = False
            for node in self.nodes:
                node.drop(group)

    def expire(self, groups: np.ndarray, watermarks: np.ndarray) -> None:
        """watermarks: int64[m, n] or int64[1, n]."""
        is_held = self.holds[groups]
        if is_held.any():
            own, marks = groups[is_held], watermarks if len(watermarks) == 1 else watermarks[is_held]
            for node in self.nodes:
                node.let_go(own, marks)

    @property
    def held_bytes(self) -> int:
        return sum(node.memory().held for node in self.nodes)

    def pages_of(self, groups: np.ndarray) -> np.ndarray:
        return sum((node.pages_of(groups) for node in self.nodes), np.zeros(len(groups), np.int64))

    def _feed(self, groups: np.ndarray, fresh: bool) -> None:
        """Hands the streams' tuples to the nodes. fresh: the fresh ones, or the others."""
        ends = np.zeros(len(groups), np.int64)
        for stream, (node, side) in self._leaves.items():
            self._count(groups, stream, fresh, ends)
            rows = self._rows_of(ends, 1)
            self._list(groups, stream, fresh, rows)
            self._pass_on(node, side, Made(groups, bounds_of(ends), rows))

    def _take_over(self, found: Found, parent: Node, at: int) -> None:
        """Copies a state to one of this tree."""
        theirs, own, rows = found.state.members, parent.states[at].members, found.made.tuples
        if theirs != own:
            rows[:, MEMBERS:] = rows[:, [MEMBERS + theirs.index(member) for member in own]]
        self._pass_on(parent, at, found.made)

    def _rows_of(self, ends: np.ndarray, members: int) -> np.ndarray:
        """Returns room for tuples of a state, in memory that is used again. ends: as of `count_tuples`."""
        rows, width = int(ends[-1]) if len(ends) else 0, MEMBERS + members
        if rows * width > len(self._room):
            self._room = np.empty(2 * rows * width, np.int64)
        return self._room[: rows * width].reshape(rows, width)

    def _run(self, node: Node, groups: np.ndarray, work: Work) -> Iterator[Progress]:
        progress = Progress.BUDGET
        while progress is not Progress.DONE:
            progress, work.left = node.find(groups, work.left)
            if node.parent:
                self._pass_on(*node.parent, node.make())
            else:
                yield from self._emit(node, work)
            if progress is Progress.BUDGET or (progress is not Progress.DONE and work.left <= 0):
                yield Progress.BUDGET
        table, (comparisons, found, compared) = self._base.table, node.told(groups)
        table.counters[COMPARED] += compared
        table.groups[groups, COMPARISONS] += comparisons
        if not node.parent:
            table.groups[groups, RESULTS] += found

    def _pass_on(self, node: Node, side: int, made: Made) -> None:
        while len(made.groups):
            taken, lacking = node.take(side, made)
            if taken < len(made.groups) and not self._base.make_room(lacking):
                raise NoRoom
            made = Made(made.groups[taken:], made.bounds[taken:], made.tuples)

    def _emit(self, root: Node, work: Work) -> Iterator[Progress]:
        """Counts the results that the root has found, and hands them to `out` as far as they are wanted."""
        at, count, root.found.count = 0, root.found.count, 0
        while at < count:
            keep = work.out.keep
            room = count if keep is Keep.NOTHING else work.out.slots.shape[1] - work.out.count
            if room == 0:
                yield Progress.OUT_FULL
                continue
            end = min(count, at + room)
            root.expand(at, end, self._slots, self._times)
            self._tell(end - at, work)
            at = end
        if work.out.keep is not Keep.NOTHING and work.out.count == work.out.slots.shape[1]:
            yield Progress.OUT_FULL

    def _tell(self, count: int, work: Work) -> None:
        out = work.out
        work.results += count
        if out.certifies:
            out.counted(count, int(certificate_of(self._base.table.words, self._slots, count)))
        if out.keep is Keep.SLOT_IDS:
            out.slots[:, out.count : out.count + count] = self._slots[:, :count]
        elif out.keep is Keep.LATEST_TIMES:
            out.slots[0, out.count : out.count + count] = self._times[:count]
        out.count += count if out.keep is not Keep.NOTHING else 0
