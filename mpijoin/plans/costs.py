"""What plans cost, from what is known of the streams, and the cheapest of them.

Of a fresh tuple, the combinations of some streams that end with it are the products of the numbers of its partners in
each of them: all of these have come before it and still wait for it, which is all that a result asks. So a sample of
fresh tuples, each with its partners in each other stream, tells how many tuples any state of any plan would get, also
where partners in one stream go with partners in another.
"""

from __future__ import annotations

from typing import Sequence

import numpy as np

from mpijoin.config.plan import Binary, Plan
from mpijoin.named import NamedTuple

# What a step takes, in nanoseconds, as scripts/measure_plan_costs.py found it on one machine. A slave begins with this,
# and measures what it takes there (`StepTimes`). Whatever any plan does for each tuple that comes:
TUPLE = 44.0
# The m-way operator: for each partner that a tuple finds in one more stream · for each result.
PARTNER, MWAY_RESULT = 8.0, 18.0
# A tree: to look a tuple of a state up in another state · to make a tuple of a state of a pair, and take it in · for
# each result.
LOOK_UP, MADE, TREE_RESULT = 26.0, 97.0, 58.0
STEPS = np.array([TUPLE, PARTNER, MWAY_RESULT, LOOK_UP, MADE, TREE_RESULT])


class Sample(NamedTuple):
    """What is known of the streams.

    rates: float64[n], how many tuples each of them brings · held: float64[n], how many are held of each · partners: for
    each stream float64[k, n], how many partners k of its tuples have in each other stream; 1 in its own.
    """

    rates: np.ndarray
    held: np.ndarray
    partners: Sequence[np.ndarray]


def equal_guesses(streams: int) -> Sample:
    """What to think of streams of which nothing is known yet: all are alike, and each tuple has one partner in each."""
    return Sample(np.ones(streams), np.ones(streams), [np.ones((1, streams))] * streams)


class Costs:
    """What any plan over some streams costs, in nanoseconds, for as many tuples as the sample's rates say.

    step_ns: float64[6], what a step takes. It is set before costs are asked for, or not at all.
    """

    def __init__(self, sample: Sample):
        self._sample = sample
        self._streams = len(sample.rates)
        self.step_ns = STEPS
        self._made = self._all_made()
        self._best: dict[int, tuple[float, Plan]] = {}

    def of(self, plan: Binary | None) -> float:
        """The cost of a tree, or of joining m-way."""
        return float(self.steps(plan) @ self.step_ns)

    def steps(self, plan: Binary | None) -> np.ndarray:
        """Returns float64[6]: how often each of STEPS is done."""
        tuples, results = self._sample.rates.sum(), self._made[-1]
        if plan is None:
            return np.array([tuples, self._partners_mway(), results, 0, 0, 0])
        looked_up, made, _ = self._steps_of(plan)
        return np.array([tuples, 0, 0, looked_up, made - results, results])

    def _partners_mway(self) -> float:
        """How many partners are found. A tuple looks stream by stream, where the fewest are first, until it finds
        none."""
        rates, held, partners = self._sample
        found = 0.0
        for stream, own in enumerate(partners):
            left = np.ones(len(own))
            for other in np.argsort(held, kind="stable"):
                if other != stream:
                    found += float(rates[stream] * (left * own[:, other]).mean())
                    left *= own[:, other] > 0
        return found

    def _steps_of(self, plan: Plan) -> tuple[float, float, int]:
        """Returns how many tuples of states are looked up and made in a tree, and its streams, as a mask."""
        if isinstance(plan, int):
            return 0.0, 0.0, 1 << plan
        (one_up, one_made, one), (other_up, other_made, other) = map(self._steps_of, plan)
        looked_up = one_up + other_up + float(self._made[one] + self._made[other])
        return looked_up, one_made + other_made + float(self._made[one | other]), one | other

    def best_tree(self) -> Binary:
        """The cheapest tree. Of trees that cost the same, it is always the same one."""
        tree = self._tree((1 << self._streams) - 1)[1]
        assert isinstance(tree, Binary)
        return tree

    def best(self) -> Binary | None:
        """The cheapest plan; None: to join m-way."""
        tree = self.best_tree()
        return tree if self.of(tree) < self.of(None) else None

    def _join(self, one: int, other: int, is_root: bool) -> float:
        *_, look_up, made, tree_result = self.step_ns
        result = tree_result if is_root else made
        return float(look_up * (self._made[one] + self._made[other]) + result * self._made[one | other])

    def _tree(self, streams: int) -> tuple[float, Plan]:
        """Returns the cheapest tree over a set of streams, and its cost."""
        if streams in self._best:
            return self._best[streams]
        if streams & (streams - 1) == 0:
            stream = streams.bit_length() - 1
            return 0.0, stream
        found = self._best[streams] = min(self._trees(streams), key=lambda one: one[0])
        return found

    def _trees(self, streams: int) -> list[tuple[float, Plan]]:
        """Returns the cheapest tree for each way to divide a set of streams in two."""
        is_root, lowest = streams == (1 << self._streams) - 1, streams & -streams
        found: list[tuple[float, Plan]] = []
        part = (streams - 1) & streams
        while part:
            if part & lowest:  # Else it is the other side of one that is looked at.
                left, right = self._tree(part), self._tree(streams & ~part)
                cost = left[0] + right[0] + self._join(part, streams & ~part, is_root)
                found.append((cost, Binary(left[1], right[1])))
            part = (part - 1) & streams
        return found

    def _all_made(self) -> np.ndarray:
        """Returns float64[2^n]: how many combinations there are of each set of streams."""
        made = np.zeros(1 << self._streams)
        for stream, partners in enumerate(self._sample.partners):
            products = np.ones((1 << self._streams, len(partners)))
            for other in range(self._streams):
                # The sets whose highest stream this is are those below it, each with this stream added.
                low = 1 << other
                products[low : 2 * low] = products[:low] * partners[:, other]
            is_in = np.arange(len(made)) >> stream & 1
            made += is_in * products.mean(axis=1) * self._sample.rates[stream]
        return made
