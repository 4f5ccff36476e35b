"""How far each slave of a paced run is behind. Its oldest message tells, whatever the order in which slaves report."""

import random

import pytest

from mpijoin.producer.backlog import EPOCHS_BEHIND, Backlog

S = 10**9


def test_at_first_nobody_is_behind():
    backlog = Backlog((1, 2, 3))
    assert backlog.behind_s == backlog.behind_s_max == {1: 0.0, 2: 0.0, 3: 0.0}
    assert backlog.overload_s(S) == 0 and not backlog.is_overloaded(S)


def test_a_report_is_of_the_oldest_message_of_that_slave():
    backlog = Backlog((1, 2))
    backlog.sent(1, 1.0)
    backlog.sent(2, 5.0)
    backlog.sent(1, 2.0)
    backlog.joined(1, 3.0)
    backlog.joined(2, 5.5)
    assert backlog.behind_s == {1: 2.0, 2: 0.5}
    backlog.joined(1, 3.0)
    assert backlog.behind_s == {1: 1.0, 2: 0.5} and backlog.behind_s_max == {1: 2.0, 2: 0.5}


@pytest.mark.parametrize("late_s, is_late", [(2.0, False), (2.125, True)])
def test_two_epochs_are_the_load_buffer_and_more_is_an_overload(late_s, is_late):
    assert EPOCHS_BEHIND == 2
    slow, lagging = Backlog((1, 2)), Backlog((1, 2))
    slow.sent(2, 10.0)
    slow.joined(2, 10.0 + late_s)
    lagging.lagged(late_s)
    for backlog in (slow, lagging):
        assert backlog.overload_s(S) == (late_s if is_late else 0.0)
        assert backlog.is_overloaded(S) is is_late
        assert not backlog.is_overloaded(2 * S)


def test_an_overload_that_has_passed_is_remembered_until_one_starts_over():
    backlog = Backlog((1,))
    for due_s, joined_s in ((0.0, 9.0), (10.0, 10.5)):
        backlog.sent(1, due_s)
        backlog.joined(1, joined_s)
    assert backlog.overload_s(S) == 0 and backlog.is_overloaded(S)
    backlog.start_over()
    assert not backlog.is_overloaded(S)
    assert backlog.behind_s == {1: 0.5}  # The present state is not forgotten.


def test_the_worst_of_slaves_and_master_is_told():
    backlog = Backlog((1, 2))
    for slave, late_s in ((1, 3.0), (2, 7.0)):
        backlog.sent(slave, 0.0)
        backlog.joined(slave, late_s)
    backlog.lagged(5.0)
    assert backlog.overload_s(S) == 7.0
    backlog.lagged(8.0)
    assert backlog.overload_s(S) == 8.0


@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_reports_gives_each_message_s_own_delay(seed):
    chance, slaves = random.Random(seed), (1, 2, 3)
    backlog, waiting, most, now_s = Backlog(slaves), {slave: [] for slave in slaves}, dict.fromkeys(slaves, 0.0), 0.0
    for _ in range(300):
        now_s += chance.random()
        slave = chance.choice(slaves)
        if waiting[slave] and chance.random() < 0.5:
            behind_s = now_s - waiting[slave].pop(0)
            most[slave] = max(most[slave], behind_s)
            backlog.joined(slave, now_s)
            assert backlog.behind_s[slave] == behind_s
        else:
            waiting[slave].append(now_s)
            backlog.sent(slave, now_s)
        assert backlog.behind_s_max == most
