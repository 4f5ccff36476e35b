"""Memory that comes and goes as [inject] memory says."""

from mpijoin.config.inject import Pressure
from mpijoin.slave.pressure import MemoryPressure

BUDGET = 1000


def limits(schedule, *moments):
    """What the slave is told at each of these moments; None where it is told nothing."""
    told = []
    pressure = MemoryPressure(schedule, BUDGET, told.append)
    found = []
    for now_ns in moments:
        before = len(told)
        assert pressure.hold(now_ns) == (len(told) > before)
        found.append(told[-1] if len(told) > before else None)
    return found


def test_nothing_is_told_without_a_schedule():
    assert limits([], 0, 5, 10**12) == [None, None, None]


def test_a_window_begins_with_its_first_moment_and_ends_before_its_last():
    assert limits([Pressure(1, 300, 10, 20)], 9.9, 10, 15, 19.9, 20, 30) == [None, 300, None, None, BUDGET, None]


def test_a_window_that_nobody_looked_into_changes_nothing():
    assert limits([Pressure(1, 300, 10, 20)], 9, 21) == [None, None]


def test_the_smallest_of_several_limits_holds():
    schedule = [Pressure(1, 300, 10, 40), Pressure(1, 100, 20, 30), Pressure(1, 200, 25, 50), Pressure(1, 300, 35)]
    moments = (10, 20, 25, 30, 40, 50)
    assert limits(schedule, *moments) == [300, 100, None, 200, None, 300]
    assert limits(schedule[:3], *moments)[-1] == BUDGET


def test_a_limit_above_the_budget_gives_no_more():
    assert limits([Pressure(1, BUDGET + 1)], 0, 5) == [None, None]


def test_what_the_node_allows_is_asked_every_two_seconds_and_bounds_the_rest():
    told, answers = [], iter([BUDGET, 400, 2 * BUDGET])
    pressure = MemoryPressure([Pressure(1, 300, 0, 10**9)], BUDGET, told.append, lambda: next(answers))
    seconds = [0, 0.5, 1, 1.9, 2, 3.9, 4, 5.9]
    changed = [pressure.hold(second * 1e9) for second in seconds]
    assert told == [300, BUDGET, 400, BUDGET]
    assert [second for second, has in zip(seconds, changed) if has] == [0, 1, 2, 4]


def test_a_limit_for_the_whole_run_holds_from_the_beginning():
    assert limits([Pressure(1, 300)], 0, 5) == [300, None]
