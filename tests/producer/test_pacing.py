"""Paced runs: when ticks are due, how long they are, and how far behind their time they are joined."""

import pytest

from mpijoin.config.job import Balance, Cluster, Job, Run, StreamJob, SyntheticSource, Tuning
from mpijoin.data.schema import JoinSchema
from mpijoin.producer.backlog import Backlog
from mpijoin.producer.pacing import ADVICE_EPOCHS, EPOCHS_PER_REORGANIZATION, FIRST_EPOCH_NS
from mpijoin.producer.start import pacing_of as pacing_of_job

S = 10**9


def pacing_of(unit="us", window_s=600, producers=1, **fields):
    streams = tuple(StreamJob(name, SyntheticSource(tuples=1), window_ns=window_s * S) for name in ("left", "right"))
    sections = {"cluster": Cluster, "run": Run, "tuning": Tuning, "balance": Balance}
    made = {name: sections[name](**values) for name, values in fields.items()}
    return pacing_of_job(Job(streams, **made), JoinSchema((), unit), producers)


def test_as_fast_as_possible_a_slot_is_of_event_time_and_nothing_is_due():
    pacing = pacing_of(cluster={"distribution_epoch_ns": 2 * S, "subgroups_asked": 4})
    assert not pacing.paced and pacing.origin is None
    assert pacing.pace.length == 500_000  # This is in us.
    assert pacing.slots == 40  # These are slots of half a second for 20 s.


def test_automatic_epochs_are_reorganized_after_ten():
    pacing = pacing_of(cluster={"subgroups_asked": 3})
    assert pacing.slots == 3 * EPOCHS_PER_REORGANIZATION


def test_only_where_several_ranks_produce_an_automatic_epoch_is_shorter_than_a_window():
    assert [pacing_of(producers=number).pace.length_max for number in (1, 2, 8)] == [1200 * 10**6, *[200 * 10**6] * 2]


@pytest.mark.parametrize("speed", [0.5, 1.0, 10.0])
def test_a_paced_epoch_is_of_the_wall_clock_and_due_when_it_has_passed(speed):
    pacing = pacing_of(run={"speed": speed}, cluster={"distribution_epoch_ns": 2 * S, "subgroups_asked": 2})
    length = pacing.pace.length
    assert length == speed * 1_000_000
    pacing.begin(7 * length, now_s=3.0)  # The first tick begins to pass at second 3.
    assert pacing.due_s(7 * length) == pytest.approx(4.0)
    assert pacing.due_s(9 * length) == pytest.approx(6.0)
    assert pacing.slots == 20


def test_a_unit_coarser_than_the_epoch_gives_ticks_of_one_unit():
    assert pacing_of(unit="s", run={"speed": 1.0}, cluster={"distribution_epoch_ns": S // 10}).pace.length == 1


def test_automatic_paced_epochs_grow_until_communication_is_within_its_bound_and_shrink_again():
    pacing = pacing_of(run={"speed": 1.0})
    assert pacing.adapts and pacing.epoch_ns == FIRST_EPOCH_NS
    now_s, spent_s = 0.0, 0.0
    lengths = []
    # One epoch costs so much communication, whatever its length.
    for cost_s in [0.2] * 40 + [0.002] * 60:
        passed_s = max(1.0, ADVICE_EPOCHS * pacing.epoch_ns / 1e9)
        now_s += passed_s
        spent_s += cost_s * passed_s / (pacing.epoch_ns / 1e9)
        pacing.advise({1: (spent_s, 0.0), 2: (spent_s / 2, 0.0)}, False, now_s)
        lengths.append(pacing.epoch_ns / 1e9)
    assert 0.2 / lengths[39] <= 0.1  # The slave with the highest cost counts.
    assert lengths[39] <= 2 * 0.2 / 0.1
    assert 0.002 / lengths[-1] <= 0.1
    assert lengths[-1] <= 0.1


def test_epochs_of_a_stated_length_keep_it():
    pacing = pacing_of(run={"speed": 1.0}, cluster={"distribution_epoch_ns": S})
    assert not pacing.advise({1: (100.0, 0.0)}, True, 100.0)
    assert pacing.epoch_ns == S


def test_no_advice_before_enough_epochs_have_passed():
    pacing = pacing_of(run={"speed": 1.0})
    assert not pacing.advise({1: (100.0, 0.0)}, True, 0.9 * ADVICE_EPOCHS * FIRST_EPOCH_NS / 1e9)


def test_epochs_grow_while_the_run_is_far_behind_and_stay_until_there_is_time_to_spare():
    """A slave needs 0.6 s per epoch and 0.2 s for the rows of each second, so it keeps up only with long epochs."""
    pacing = pacing_of(run={"speed": 1.0})
    now_s = busy_s = behind_s = 0.0
    lengths = []
    for _ in range(60):
        epoch_s = pacing.epoch_ns / 1e9
        passed_s = max(1.0, ADVICE_EPOCHS * epoch_s)
        work_s = passed_s / epoch_s * 0.6 + 0.2 * passed_s
        behind_s = max(0.0, behind_s + work_s - passed_s)
        now_s, busy_s = now_s + passed_s, busy_s + min(passed_s, work_s + behind_s)
        pacing.advise({1: (0.0, busy_s), 2: (0.0, 0.0)}, behind_s > 0.5, now_s)
        lengths.append(pacing.epoch_ns / 1e9)
    assert behind_s == 0 and len(set(lengths[20:])) == 1 and 0.75 < lengths[-1] <= 4


def test_behind_is_the_time_from_due_to_joined():
    backlog = Backlog((1, 2))
    for due_s in (1.0, 2.0, 3.0):
        backlog.sent(1, due_s)
        backlog.sent(2, due_s)
    for now_s in (1.4, 3.5, 5.25):
        backlog.joined(1, now_s)
    backlog.joined(2, 1.1)
    assert backlog.behind_s == {1: pytest.approx(2.25), 2: pytest.approx(0.1)}
    assert backlog.behind_s_max == {1: pytest.approx(2.25), 2: pytest.approx(0.1)}
    backlog.lagged(0.5)
    backlog.lagged(0.25)
    assert (backlog.lag_s, backlog.lag_s_max) == (0.25, 0.5)
    backlog.start_over()
    assert backlog.lag_s_max == 0 and set(backlog.behind_s_max.values()) == {0}


def test_a_run_is_overloaded_when_it_is_behind_by_more_than_two_epochs():
    backlog = Backlog((1, 2))
    backlog.sent(1, 1.0)
    backlog.joined(1, 4.9)
    assert backlog.overload_s(2 * S) == 0
    backlog.sent(1, 2.0)
    backlog.joined(1, 6.5)
    assert backlog.overload_s(2 * S) == pytest.approx(4.5)
    backlog.lagged(9.0)
    assert backlog.overload_s(2 * S) == pytest.approx(9.0)


def test_some_slave_is_joining_until_all_have_reported():
    backlog = Backlog((1, 2))
    backlog.sent(1, 2.0)
    backlog.sent(2, 2.0)
    backlog.joined(2, 2.1)
    assert backlog.joining
    backlog.joined(1, 2.2)
    assert not backlog.joining


def test_a_short_stall_is_no_overload_however_short_the_epochs():
    backlog = Backlog((1,))
    backlog.lagged(0.5)
    assert backlog.overload_s(S // 50) == 0 and not backlog.is_overloaded(S // 50)
    backlog.lagged(0.75)
    assert backlog.overload_s(S // 50) == 0.75 and backlog.is_overloaded(S // 50)
