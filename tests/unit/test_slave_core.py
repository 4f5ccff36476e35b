"""The slave's decisions: slices, in order, one action under way at a time."""

import numpy as np
import pytest

from mpijoin.errors import ProtocolError
from mpijoin.operators.base import Progress
from mpijoin.slave.core import (
    Arrived,
    Consume,
    EndMessage,
    Expire,
    Expired,
    Finish,
    Insert,
    Inserted,
    Probe,
    Probed,
    SlaveCore,
    cut_slices,
)


def message(*rows, epoch=0, octets=24, last=False):
    return Arrived(epoch, octets, np.array(rows, np.int64), last)


def core_of(*messages, slice_rows=10, budget=5):
    core = SlaveCore(slice_rows, budget)
    for one in messages:
        core.step(one)
    return core


def test_a_slice_is_inserted_probed_consumed_and_expired():
    core = SlaveCore(slice_rows=10, budget=5)
    assert core.step(message(3, 4, epoch=7, octets=100)) == [Insert(0, 2)]
    assert core.busy and core.backlog_bytes == 100
    assert core.step(Inserted()) == [Probe(0, 2, 5)]
    assert core.step(Probed(Progress.DONE)) == [Consume(), Expire(0, 2)]
    assert core.step(Expired()) == [EndMessage(7, 100)]
    assert not core.busy and core.backlog_bytes == 0


def test_a_probe_goes_on_after_its_budget_and_after_its_results_were_taken():
    core = core_of(message(1))
    core.step(Inserted())
    assert core.step(Probed(Progress.BUDGET)) == [Probe(0, 1, 5)]
    assert core.step(Probed(Progress.OUT_FULL)) == [Consume(), Probe(0, 1, 5)]
    assert core.step(Probed(Progress.DONE)) == [Consume(), Expire(0, 1)]


def test_slices_of_a_message_follow_each_other():
    core = core_of(message(6, 6, 1))
    done = [Inserted(), Probed(Progress.DONE), Expired()]
    found = [action for event in done * 2 for action in core.step(event)]
    probes_and_expiries = [Probe(0, 1, 5), Consume(), Expire(0, 1), Insert(1, 3), Probe(1, 3, 5), Consume(), Expire(1, 3)]
    assert found == [*probes_and_expiries, EndMessage(0, 24)]


def test_a_message_that_arrives_meanwhile_waits_for_its_turn():
    core = core_of(message(1))
    assert core.step(message(2, epoch=1, octets=50)) == []
    assert core.backlog_bytes == 74
    core.step(Inserted())
    core.step(Probed(Progress.DONE))
    assert core.step(Expired()) == [EndMessage(0, 24), Insert(0, 1)]
    assert core.backlog_bytes == 50


def test_a_message_without_groups_ends_at_once_and_the_last_one_ends_the_run():
    assert SlaveCore().step(message(epoch=3, octets=0)) == [EndMessage(3, 0)]
    assert SlaveCore().step(message(epoch=3, octets=0, last=True)) == [EndMessage(3, 0), Finish()]


def test_finish_waits_for_the_messages_before_it():
    core = core_of(message(1), message(epoch=1, octets=0, last=True))
    core.step(Inserted())
    core.step(Probed(Progress.DONE))
    assert core.step(Expired()) == [EndMessage(0, 24), EndMessage(1, 0), Finish()]


def after(*events):
    core = core_of(message(1))
    for event in events:
        core.step(event)
    return core


@pytest.mark.parametrize(
    "core, event, text",
    [
        (SlaveCore(), Inserted(), "slave got Inserted while it waits for a message"),
        (after(), Probed(Progress.DONE), "slave got Probed while it waits for Inserted"),
        (after(Inserted()), Expired(), "slave got Expired while it waits for Probed"),
        (after(Inserted(), Probed(Progress.DONE)), Inserted(), "slave got Inserted while it waits for Expired"),
        (core_of(message(1, last=True)), message(1), "slave got a message after the last one"),
    ],
)
def test_an_illegal_event_is_refused_by_name_and_changes_nothing(core, event, text):
    before = repr(vars(core))
    with pytest.raises(ProtocolError, match=text):
        core.step(event)
    assert repr(vars(core)) == before


@pytest.mark.parametrize(
    "rows, slices",
    [
        ([], []),
        ([0], [(0, 1)]),
        ([0, 0, 0], [(0, 3)]),
        ([10, 1], [(0, 1), (1, 2)]),
        ([1, 10, 1], [(0, 1), (1, 2), (2, 3)]),
        ([50], [(0, 1)]),
        ([0, 50, 0, 0, 3], [(0, 2), (2, 5)]),
        ([5, 5, 5], [(0, 2), (2, 3)]),
    ],
)
def test_slices_hold_whole_groups(rows, slices):
    assert cut_slices(np.array(rows, np.int64), 10) == slices
