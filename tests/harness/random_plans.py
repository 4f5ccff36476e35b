"""Random trees of binary joins, as a job names them, and slaves that change from one to another."""

import random
from contextlib import ExitStack
from unittest import mock

import mpijoin.plans.operator
from mpijoin.config.plan import parse_plan


def random_plan(chance, names):
    """Any tree: two neighbours in any order of the streams are joined, then again. chance: random.Random."""
    plans = chance.sample(names, len(names))
    while len(plans) > 1:
        at = chance.randrange(len(plans) - 1)
        plans[at : at + 2] = [f"({plans[at]} {plans[at + 1]})"]
    return plans[0]


class RandomChoice:
    """A slave that begins m-way, and changes to any plan at each decision."""

    is_content = False
    took_ns = takes_ns = 0.0

    def __init__(self, streams):
        self.plan, self._names, self._chance = None, list(map(str, range(streams))), random.Random(streams)

    def decide(self, sample, tuple_ns):
        """sample, tuple_ns: what is known of the streams and of the plan of now, which must be possible."""
        assert tuple_ns >= 0 and (sample.rates >= 0).all() and all((own >= 0).all() for own in sample.partners)
        before, some = self.plan, self._chance.random() < 0.3
        self.plan = None if some else parse_plan(random_plan(self._chance, self._names), self._names)
        return self.plan != before


def plans_change():
    """A context in which jobs of plan "auto" change their plans at random, after a few tuples, and few groups at a
    time."""
    stack = ExitStack()
    for name, value in (("Choice", RandomChoice), ("period_of", lambda streams: 4), ("RESTORED_MIN", 20)):
        stack.enter_context(mock.patch.object(mpijoin.plans.operator, name, value))
    return stack
