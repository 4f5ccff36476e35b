"""Which plan a slave shall follow: the cheapest one, but it does not change for a little, or too often."""

from __future__ import annotations

from mpijoin.plans.costs import Costs, Sample, equal_guesses
from mpijoin.plans.step_times import StepTimes

# Another plan must save this share of what the present one costs, in so many decisions in a row.
SAVING_MIN, AGREEING = 0.15, 2


class Choice:
    """Chooses from sample to sample.

    plan: that of now; None: to join m-way · is_content: whether no other plan would have saved enough when this was
    last asked · took_ns, takes_ns: why it changed last, as of `PlanChange`.
    """

    def __init__(self, streams: int):
        self.plan = Costs(equal_guesses(streams)).best()
        self.times = StepTimes()
        self.took_ns = self.takes_ns = 0.0
        self.is_content = False
        self._agreed = 0

    def decide(self, sample: Sample, tuple_ns: float = 0.0) -> bool:
        """Returns whether the plan changes. tuple_ns: what a tuple has taken since this was last asked, by the plan of
        now; 0: that is not known."""
        costs, tuples = Costs(sample), float(sample.rates.sum())
        if tuple_ns and tuples:
            self.times.measured(costs.steps(self.plan) / tuples, tuple_ns)
        costs.step_ns = self.times.step_ns
        best = costs.best()
        own_ns, best_ns = costs.of(self.plan), costs.of(best)
        self._agreed = self._agreed + 1 if best_ns < (1 - SAVING_MIN) * own_ns else 0
        self.is_content = self._agreed == 0
        if self._agreed < AGREEING:
            return False
        self.took_ns, self.takes_ns = tuple_ns, best_ns / tuples
        self.plan, self._agreed = best, 0
        return True
