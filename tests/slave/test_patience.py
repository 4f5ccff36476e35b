"""A slave with several producers waits a little, so that it joins the messages of an epoch at once."""

from unittest import mock

import numpy as np
import pyarrow.parquet as pq
import pytest

import mpijoin
from mpijoin.operators.base import Progress, Taken
from mpijoin.slave.core import SlaveCore
from mpijoin.slave.events import (
    Arrived,
    Carry,
    EndMessage,
    Expired,
    Finish,
    Insert,
    Inserted,
    Marked,
    Ordered,
    Probed,
    Save,
    SpillOrdered,
)
from mpijoin.slave.patience import PATIENCE_S, Patience
from mpijoin.slave.rotating import new_core
from mpijoin.slave.rule import SpillRule
from mpijoin.slave.runtime import Slave
from mpijoin.time_events import Rest, Ticked

DONE = [Inserted(Taken(1 << 30)), Probed(Progress.DONE), Expired(Progress.DONE)]


def message(producer, epoch=1, rows=2, joint=True, last=False, rests=False):
    groups = np.array([10, 11])
    counts = np.array([rows, rows])
    return Arrived(epoch, 24, groups, counts, last, not joint, joint, producer, rests)


def core_of(*events, joint_max=3, slice_rows=100, rule=None):
    """Returns a core that has joined the messages of all producers up to epoch 0, and waits after these events."""
    core = SlaveCore(slice_rows, 5, rule=rule, joint_max=joint_max)
    for producer in range(3):
        core.step(message(producer, 0))
        joined(core)
    for event in events:
        assert core.step(event) == [] and not core.busy
    return core


def joined(core):
    return [action for event in DONE for action in core.step(event)]


def test_it_joins_the_messages_of_all_producers_at_once():
    core = core_of(message(2), message(0))
    assert core.step(message(1)) == [Insert(0, 2, messages=3)]
    assert joined(core)[-3:] == [EndMessage(1, 24, False, True)] * 2 + [EndMessage(1, 24, False)]
    assert core.step(message(0, 2)) == [], "so it is in the next epoch"


def test_what_comes_while_it_is_busy_waits_for_the_others_too():
    core = core_of(message(0), message(1))
    core.step(message(2))
    core.step(message(1, 2))
    assert not any(isinstance(action, Insert) for action in joined(core)) and not core.busy
    core.step(message(0, 2))
    assert core.step(message(2, 2)) == [Insert(0, 2, messages=3)]


def test_it_waits_no_longer_than_it_may():
    core = core_of(message(0))
    assert core.step(Ticked(0.0)) == [Rest(PATIENCE_S)]
    assert core.step(Ticked(PATIENCE_S / 2)) == [Rest(PATIENCE_S / 2)]
    assert core.step(Ticked(PATIENCE_S)) == [Insert(0, 2)]


def test_each_message_that_comes_makes_it_wait_anew():
    core = core_of(message(0))
    core.step(Ticked(0.0))
    assert core.step(message(1)) == []
    assert core.step(Ticked(PATIENCE_S)) == [Rest(PATIENCE_S)]
    assert core.step(Ticked(2 * PATIENCE_S)) == [Insert(0, 2, messages=2)]


def test_it_does_not_wait_for_producers_that_are_ahead():
    """They may have to wait for the slowest themselves, which has little credit until its rows are joined."""
    core = core_of()
    for producer in (1, 2):
        core.step(message(producer, 9))
        core.step(Ticked(0.0))
        core.step(Ticked(1.0))
        joined(core)
    assert core.step(message(0, 8)) == [Insert(0, 2)]
    joined(core)
    assert core.step(message(1, 10)) == [], "but those that are behind may come soon"


def test_it_does_not_wait_for_a_producer_of_which_it_has_something():
    core = core_of(message(2, 2))
    core.step(Ticked(0.0))
    core.step(Ticked(1.0))
    core.step(message(0, 1))
    core.step(message(1, 2))
    assert joined(core)[-1] == Insert(0, 2, messages=2)


def test_only_producers_are_waited_for():
    core = core_of(message(0, rests=True))
    core.step(message(9, joint=False))
    joined(core)
    joined(core)
    assert core.step(message(1, 2)) == []
    assert core.step(message(2, 2)) == [Insert(0, 2, messages=2)]


def test_it_does_not_wait_for_a_producer_that_has_no_more_input():
    core = core_of(message(0, rests=True), message(1, rests=True))
    core.step(message(2))
    joined(core)
    assert core.step(message(2, 2)) == [Insert(0, 2)]


def test_it_waits_in_vain_but_once_for_a_producer_that_does_not_send():
    """One may have ended while the slave had no groups, and told it nothing."""
    core = core_of(message(0), message(1))
    core.step(Ticked(0.0))
    assert core.step(Ticked(1.0)) == [Insert(0, 2, messages=2)]
    joined(core)
    assert core.step(message(0, 2)) == []
    assert core.step(message(1, 2)) == [Insert(0, 2, messages=2)], "the third one has not been heard of since"
    core.step(message(2, 2))
    joined(core)
    joined(core)
    assert core.step(message(0, 3)) == core.step(message(1, 3)) == [], "now it has"


def test_it_does_not_wait_for_a_producer_that_it_has_never_heard_of():
    core = SlaveCore(100, 5, joint_max=3)
    assert core.step(message(0)) == [Insert(0, 2)]


def test_it_does_not_wait_with_as_many_rows_as_a_slice_has():
    core = core_of(message(0, rows=20))
    assert core.step(message(1, rows=30)) == [Insert(0, 2, messages=2)]


@pytest.mark.parametrize(
    "event, action",
    [
        (message(9, joint=False), Insert(0, 2)),
        (Marked(3), Insert(0, 2)),
        (Marked(3, stops=True), Save(3, True, False, (0,))),
    ],
    ids=["input of a group that moved", "mark", "mark that stops"],
)
def test_what_has_a_place_of_its_own_is_not_kept_waiting(event, action):
    assert core_of(message(0)).step(event) == [action]


def test_the_end_does_not_wait():
    core = core_of(message(0, rests=True), message(1, rests=True))
    assert core.step(message(2, last=True, rests=True)) == [Insert(0, 2, messages=3)]
    assert joined(core)[-1] == Finish()


def test_a_group_leaves_at_once_while_it_waits():
    core = core_of(message(0), message(1))
    assert core.step(Ordered(1, "freeze", 11)) == [Carry(1, "freeze", 11, ((0, 1), (1, 1)))]
    assert core.step(Ticked(0.0)) == [Rest(PATIENCE_S)]
    assert core.step(Ticked(1.0)) == [Insert(0, 1, messages=2)]


def test_it_spills_while_it_waits():
    core = core_of(message(0), rule=SpillRule(0.9, 0.3, "id", True, 64))
    (action,) = core.step(SpillOrdered(100, "id"))
    assert action.octets == 100 and core.busy


@pytest.mark.parametrize("paced, producers, waits", [(False, 3, True), (False, 1, False), (True, 3, False)])
def test_only_a_slave_of_several_producers_that_is_not_paced_waits(paced, producers, waits):
    core = new_core(paced, None, 0, producers)
    for producer in range(producers):
        core.step(message(producer, 0))
        joined(core)
    assert core.step(message(0)) == ([] if waits else [Insert(0, 2)])


def test_in_a_run_each_producer_is_known_and_known_to_rest_and_each_record_is_one_of_an_epoch(tmp_path):
    stream = {"kind": "synthetic", "rate": 1000, "tuples": 50_000, "domain": 5000, "window": "2 s"}
    streams = {"left": {**stream, "seed": 1}, "right": {**stream, "seed": 2}}
    cluster = {"producers": 3, "partitions": 8, "distribution_epoch": "3 s"}
    job = {**streams, "cluster": cluster, "output": {"path": str(tmp_path / "run"), "results": "count"}}
    heard, ended = [], []
    came, end_message = Patience.came, Slave._end_message

    def hear(patience, message, rests):
        heard.append((message.producer, rests))
        came(patience, message, rests)

    def end(slave, epoch, octets, own, goes_on):
        ended.append((slave._rank.number, goes_on))
        end_message(slave, epoch, octets, own, goes_on)

    with mock.patch.object(Patience, "came", hear), mock.patch.object(Slave, "_end_message", end):
        mpijoin.run(job, slaves=2)
    assert len(set(heard)) == 6, "each of three producers has sent something, and said that it has no more"
    read = 0
    for slave in {slave for slave, _ in ended}:
        records = pq.read_table(tmp_path / "run" / "metrics" / f"rank-{slave}.parquet").to_pydict()
        assert len(records["epoch"]) == ended.count((slave, False)) > 5
        read += sum(records["tuples_left"]) + sum(records["tuples_right"])
    assert read == 100_000
