"""One binary join of a tree: a two-way window join of two states, which knows what to make of the pairs it finds."""

from __future__ import annotations

from typing import Sequence

import numpy as np

from mpijoin.config.plan import Binary, Plan
from mpijoin.data.batch import read_only
from mpijoin.join.state import Ask, Call, JoinState
from mpijoin.join.window_join import Setup, WindowJoin
from mpijoin.named import NamedTuple
from mpijoin.operators.base import Out, Progress
from mpijoin.plans.kernels import (
    MEMBERS,
    combine,
    copy_tuples,
    count_tuples,
    expand,
    keep_valid,
    keep_with_old_member,
)
from mpijoin.store.insert import Fresh
from mpijoin.store.pool import Pool, StreamSpec
from mpijoin.store.state import BLOCKS, COMPARED, COMPARISONS, RESULTS, SPENT, WINDOW, StoreState

NO_BLOB = read_only(np.empty(0, np.uint8))


class State(NamedTuple):
    """What one side of a binary join holds. members: the streams, in the order of the plan · window: the smallest of
    theirs."""

    members: tuple[int, ...]
    window: int


class Made(NamedTuple):
    """Tuples of a state: rows bounds[i, 0]:bounds[i, 1] belong to group groups[i]. Their arrays are used again."""

    groups: np.ndarray
    bounds: np.ndarray
    tuples: np.ndarray


class Valid:
    """Implements `Ask`: keeps the pairs whose members all lie in each other's windows."""

    def __call__(self, state: JoinState, left: np.ndarray, right: np.ndarray) -> Call:
        return keep_valid, (state.words, left, right, *state.layout[:, WINDOW].tolist())


class WithOldMember:
    """Implements `Ask`: drops the pairs all of whose members are new, at the root of a tree. "When a joined tuple is
    outputted from a join operator, the joined tuple is set to be new only when all its sub-tuples are new as well"
    (DCAPE, section 3.2). Flags are those of the streams' tuples, so that states need none."""

    def __init__(self, table: StoreState, states: tuple[State, State]):
        """table: holds the streams' tuples."""
        self._table = table
        self._members = tuple(read_only(np.array(state.members)) for state in states)

    def __call__(self, state: JoinState, left: np.ndarray, right: np.ndarray) -> Call:
        return keep_with_old_member, (self._table, left, right, *self._members)


class Node(WindowJoin):
    """A binary join of a tree over the pool of the tree.

    states: of both sides · parent: the node above it and the side of that to which its tuples go; None for the root ·
    found: the pairs that nobody has taken yet.
    """

    def __init__(
        self, setup: Setup, number: int, states: tuple[State, State], pool: Pool, capacity: int,
        table: StoreState | None = None,
    ):
        """setup: of the tree · number: among the operators that share the pool · capacity: how many pairs are found at
        a time · table: holds the streams' tuples, if this is the root of a tree whose tuples may be new."""
        specs = tuple(StreamSpec(len(state.members), False, state.window) for state in states)
        self.states = states
        self.parent: tuple[Node, int] | None = None
        asks: tuple[Ask, ...] = (Valid(),) if table is None else (Valid(), WithOldMember(table, states))
        super().__init__(Setup(setup.partitions, setup.theta, specs, number, asks=asks), pool)
        self.found = Out(2, capacity, certifies=False)
        self.state = state_of([*states[0].members, *states[1].members], [state.window for state in states])
        self._sizes = np.array([len(state.members) for state in states])
        self._stream_of = np.array(self.state.members)
        self._groups, self._ends = np.zeros((2, capacity), np.int64)
        self._count, self._copy = count_tuples.bound(self._table), copy_tuples.bound(self._table)
        self._made = np.zeros((capacity, MEMBERS + len(self.state.members)), np.int64)

    @property
    def _is_probing(self) -> bool:
        """Groups that are not among those of the probe may go meanwhile. The tree sees to it that the others stay."""
        return False

    def find(self, groups: np.ndarray, budget: int) -> tuple[Progress, int]:
        """Fills the empty `found`. Returns how that ended, and how much of the budget is left."""
        progress = super().probe(groups, budget, self.found)
        return progress, budget - int(self._table.counters[SPENT])

    def give_up(self) -> None:
        """Forgets how far the probe came. What the groups hold then means nothing."""
        self._probed, self.found.count = None, 0

    def make(self) -> Made:
        """Returns the tuples that the pairs make, and forgets these."""
        count, self.found.count = self.found.count, 0
        pairs = self.found.slots
        out = self._made, self._groups, self._ends
        groups = combine(self._table, pairs, count, self._sizes, self.state.window, *out)
        return Made(self._groups[:groups].copy(), bounds_of(self._ends[:groups]), self._made[:count])

    def expand(self, first: int, end: int, slots: np.ndarray, times: np.ndarray) -> None:
        """Makes results of the pairs first..end, as of `kernels.expand`."""
        expand(self._table, self.found.slots, first, end, self._sizes, self._stream_of, slots, times)

    def take(self, side: int, made: Made) -> tuple[int, int]:
        """Inserts tuples of one side. Returns how many groups are in, and how many pages the next one lacks."""
        return self.insert(made.groups, side, Fresh(read_only(made.tuples), NO_BLOB), made.bounds)

    def let_go(self, groups: np.ndarray, watermarks: np.ndarray) -> None:
        """Lets expired tuples go. watermarks: int64[m, n] or int64[1, n], of the streams."""
        reached = [self._reached_by_others(state, watermarks) for state in self.states]
        super().expire(groups, np.stack(reached[::-1], axis=1), self.found)

    def _reached_by_others(self, state: State, watermarks: np.ndarray) -> np.ndarray:
        """A tuple of the state is not wanted any more when all streams that are not in it are beyond its deadline."""
        others = [stream for stream in range(watermarks.shape[1]) if stream not in state.members]
        return np.asarray(watermarks[:, others].min(axis=1))

    def count(self, groups: np.ndarray, side: int, ends: np.ndarray) -> None:
        """Counts the tuples of a state, as of `kernels.count_tuples`."""
        self._count(groups, side, False, ends)

    def copy(self, groups: np.ndarray, side: int, out: np.ndarray) -> None:
        """Copies the tuples of a state, as of `kernels.copy_tuples`."""
        self._copy(groups, side, out)

    def told(self, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        """Returns the comparisons and the pairs of each group, int64[m], and all comparisons, since this was last
        asked."""
        places = np.ix_(groups, np.array([COMPARISONS, RESULTS]))
        counts = self._table.groups[places]
        self._table.groups[places] = 0
        compared = int(self._table.counters[COMPARED])
        self._table.counters[COMPARED] = 0
        return counts[:, 0], counts[:, 1], compared

    def pages_of(self, groups: np.ndarray) -> np.ndarray:
        return self._table.groups[groups, BLOCKS]


def bounds_of(ends: np.ndarray) -> np.ndarray:
    """Returns int64[m, 2]: where each of m pieces that lie one behind the other begins and ends."""
    return np.stack([np.append(0, ends[:-1]), ends], axis=1) if len(ends) else np.zeros((0, 2), np.int64)


def state_of(members: Sequence[int], windows: Sequence[int]) -> State:
    return State(tuple(members), min(windows))


def nodes_of(
    plan: Binary, setup: Setup, pool: Pool, capacity: int, number: int, table: StoreState
) -> tuple[list[Node], dict[int, tuple[Node, int]]]:
    """Returns the nodes of a tree, each behind those below it, and for each stream the node and the side to which its
    tuples go. setup: of the tree · capacity: as of `Node` · number: of the first node · table: holds the streams'
    tuples."""
    nodes: list[Node] = []
    leaves: dict[int, tuple[Node, int]] = {}

    def state_below(below: Plan) -> State:
        if isinstance(below, int):
            return State((below,), setup.streams[below].window)
        return node_for(below).state

    made: dict[int, Node] = {}

    def node_for(join: Binary) -> Node:
        states = state_below(join.left), state_below(join.right)
        marked = table if setup.tracks and join is plan else None
        node = Node(setup, number + len(nodes), states, pool, capacity, marked)
        for side, below in enumerate(join):
            if isinstance(below, int):
                leaves[below] = node, side
            else:
                made[id(below)].parent = node, side
        made[id(join)] = node
        nodes.append(node)
        return node

    node_for(plan)
    return nodes, leaves
