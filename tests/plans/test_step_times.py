"""What the steps of plans take is measured while running, so that the constants of one machine do not decide on another
one. "The optimizer of each machine" changes its plan when "statistics" say so (DCAPE, section 5.1, local optimization).
"""

import numpy as np
import pytest

from mpijoin.config.plan import Binary
from mpijoin.plans.choice import AGREEING, Choice
from mpijoin.plans.costs import STEPS, Costs, Sample
from mpijoin.plans.step_times import NOISE, StepTimes

TREE = Binary(Binary(0, 1), 2)


def sample_of(many):
    """Streams 0 and 1 never meet, and have `many` partners in stream 2."""
    partners = [[[1, 0, many]], [[0, 1, many]], [[many, 0, 1], [0, many, 1]]]
    return Sample(np.ones(3), np.ones(3), [np.array(own, float) for own in partners])


def measure(times, true_ns, steps, often, noise=0.0, random=None):
    for number in range(often):
        error = 1.0 if random is None else float(np.exp(random.normal(0, noise)))
        chosen = steps[number % len(steps)]
        times.measured(chosen, float(chosen @ true_ns) * error)


def test_of_a_slower_machine_all_steps_are_slower_also_those_not_done_yet():
    times, steps = StepTimes(), Costs(sample_of(10)).steps(None)
    measure(times, 2 * STEPS, [steps], 20)
    assert steps @ times.step_ns == pytest.approx(2 * steps @ STEPS, rel=0.02)
    assert times.step_ns / STEPS == pytest.approx(2 * np.ones(6), rel=0.15)


def test_steps_that_take_longer_than_others_are_found_out():
    """As soon as plans differ in their steps, their times tell the steps apart."""
    true_ns, times = STEPS * [1, 1, 1, 3, 3, 3], StepTimes()
    samples = [Costs(sample_of(many)) for many in (1, 4, 16)]
    measure(times, true_ns, [one.steps(plan) for one in samples for plan in (None, TREE)], 60)
    for one in samples:
        for plan in (None, TREE):
            assert one.steps(plan) @ times.step_ns == pytest.approx(one.steps(plan) @ true_ns, rel=0.15)


def test_measurements_that_scatter_do_not_lead_astray():
    random, times = np.random.default_rng(3), StepTimes()
    steps = [Costs(sample_of(9)).steps(one) for one in (None, TREE)]
    measure(times, STEPS, steps, 400, NOISE, random)
    for one in steps:
        assert one @ times.step_ns == pytest.approx(one @ STEPS, rel=NOISE)


def test_how_fast_the_machine_is_two_times_must_agree_on():
    times, steps = StepTimes(), Costs(sample_of(10)).steps(None)
    usual_ns = float(steps @ STEPS)
    for factor in (1, 1000, 70):
        times.measured(steps, factor * usual_ns)
        assert times.step_ns.tolist() == STEPS.tolist()
    times.measured(steps, 50 * usual_ns)
    assert times.step_ns == pytest.approx(50 * STEPS)


def test_one_time_that_is_far_off_counts_for_little():
    times, steps = StepTimes(), Costs(sample_of(10)).steps(None)
    measure(times, STEPS, [steps], 30)
    times.measured(steps, 1e6 * float(steps @ STEPS))
    assert float(steps @ STEPS) < steps @ times.step_ns < 1.5 * float(steps @ STEPS)


def test_no_steps_tell_nothing():
    times = StepTimes()
    times.measured(np.zeros(6), 5.0)
    assert times.step_ns.tolist() == STEPS.tolist()


@pytest.mark.parametrize("scale", [1, 4000])
def test_a_choice_by_wrong_costs_is_taken_back(scale):
    """Where a tree costs ten times as much as m-way, guesses lead to the tree, and its time leads back for good."""
    sample = sample_of(40)
    costs, choice, plans = Costs(sample), Choice(3), []
    true_ns = {one: scale * float(costs.steps(None) @ STEPS) / 3 * factor for one, factor in ((None, 1), ("tree", 10))}
    for _ in range(40):
        choice.decide(sample, true_ns["tree" if choice.plan else None])
        plans.append(choice.plan)
    changes = sum(one != other for one, other in zip([None, *plans], plans))
    assert changes == 2 and plans[-1] is None and any(plans[: 3 * AGREEING + 2])


def test_a_change_says_what_a_tuple_took_and_what_it_is_expected_to_take():
    sample, choice = sample_of(40), Choice(3)
    took_ns = 1.3 * float(Costs(sample).steps(None) @ STEPS) / 3
    assert [choice.decide(sample, took_ns) for _ in range(AGREEING)] == [False] * (AGREEING - 1) + [True]
    assert choice.took_ns == took_ns and 0 < choice.takes_ns < took_ns
    expected = Costs(sample).steps(choice.plan) @ choice.times.step_ns / 3
    assert choice.takes_ns == pytest.approx(float(expected))
