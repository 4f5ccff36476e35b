"""Which plan a slave shall follow: the cheapest one, but it does not change for a little, or too often."""

from __future__ import annotations

from mpijoin.plans.costs import Costs, Sample, equal_guesses

# Another plan must save this share of what the present one costs, in so many decisions in a row.
SAVING_MIN, AGREEING = 0.15, 2


class Choice:
    """Chooses from sample to sample. plan: that of now; None: to join m-way · is_content: whether no other plan would
    have saved enough when this was last asked."""

    def __init__(self, streams: int):
        self.plan = Costs(equal_guesses(streams)).best()
        self._agreed = 0
        self.is_content = False

    def decide(self, sample: Sample) -> bool:
        """Returns whether the plan changes."""
        costs = Costs(sample)
        best = costs.best()
        self._agreed = self._agreed + 1 if costs.of(best) < (1 - SAVING_MIN) * costs.of(self.plan) else 0
        self.is_content = self._agreed == 0
        if self._agreed < AGREEING:
            return False
        self.plan, self._agreed = best, 0
        return True
