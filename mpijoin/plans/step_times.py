"""What the steps of plans take on the machine and the data at hand, as it is measured while running."""

from __future__ import annotations

import math

import numpy as np

from mpijoin.plans.costs import STEPS

# Once it is known how fast the machine is, all steps together may take a third more or less than is thought, and so may
# each by itself.
COMMON, OWN = 0.3, 0.3
# What the steps explain of what is measured is wrong by about this share.
NOISE = 0.2
# From one measurement to the next, so much of what was not known at first is not known again.
DRIFT = 0.01
# A measurement that is further off than e to this counts as no further: something else may have taken the time.
FAR = 1.0


class StepTimes:
    """What each step takes, in nanoseconds.

    What is measured is the time of all steps of one plan together. The first two measurements that agree tell how fast
    the machine is, whatever plan they belong to. Each later one corrects the steps by how much they had to do with it
    and by how little is known of them: a Kalman filter, over the logarithm of what each step takes as a multiple of
    STEPS.
    """

    def __init__(self) -> None:
        count = len(STEPS)
        self._logs = np.zeros(count)
        self._at_first = COMMON**2 * np.ones((count, count)) + OWN**2 * np.eye(count)
        self._unknown = self._at_first.copy()  # the covariance of the errors of the logarithms
        self._is_scaled, self._off_before = False, math.inf

    @property
    def step_ns(self) -> np.ndarray:
        """float64[6]: what each of STEPS takes."""
        return STEPS * np.exp(self._logs)

    def measured(self, steps: np.ndarray, nanoseconds: float) -> None:
        """Takes note of what so many steps took. steps: float64[6], as of `Costs.steps` · nanoseconds: above 0."""
        each = steps * self.step_ns
        expected = float(each.sum())
        if expected <= 0:
            return
        off = math.log(nanoseconds / expected)
        if not self._is_scaled:
            self._is_scaled = abs(off - self._off_before) < FAR
            self._off_before = off
            if not self._is_scaled:
                return
            self._logs += off
            off = 0.0
        self._correct(each / expected, min(FAR, max(-FAR, off)))

    def _correct(self, shares: np.ndarray, off: float) -> None:
        reach = self._unknown @ shares
        gain = reach / (float(shares @ reach) + NOISE**2)
        self._logs += gain * off
        self._unknown += DRIFT * self._at_first - np.outer(gain, reach)
