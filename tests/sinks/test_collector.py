"""The collector: epochs in order, bounded memory, and slaves that are ahead wait for the one that is not."""

import random

import numpy as np
import pyarrow as pa
import pytest

from mpijoin.config.check import resolve
from mpijoin.config.load import load_job
from mpijoin.errors import ProtocolError
from mpijoin.launch.collecting import new_collector
from mpijoin.launch.roles import Roles, RunSetup, merged_schemas
from mpijoin.messages import EpochEnd, ResultRows
from mpijoin.sinks.collector import Collector, Writers

SCHEMA = pa.schema([("row", pa.int64())])


class Writer:
    def __init__(self, column="row"):
        self.rows, self._column, self.is_full = [], column, False

    def write(self, table):
        self.rows += table[self._column].to_pylist()


def rows(slave, epoch, *values):
    batch = pa.record_batch([pa.array(values, pa.int64())], schema=SCHEMA)
    return ResultRows(slave, epoch, 0, np.frombuffer(batch.serialize(), np.uint8))


def collector(held_bytes_max=1 << 20, slaves=(1, 2), idle=()):
    writer = Writer()
    return Collector(slaves, [SCHEMA], Writers([writer]), held_bytes_max, idle=idle), writer


def test_rows_of_the_oldest_epoch_are_written_as_they_come_and_later_ones_wait():
    merged, writer = collector()
    merged.take(rows(1, 0, 10))
    merged.take(EpochEnd(1, 0))
    merged.take(rows(1, 1, 11))
    assert writer.rows == [10]
    merged.take(rows(2, 0, 20))
    assert writer.rows == [10, 20]
    merged.take(EpochEnd(2, 0))
    assert writer.rows == [10, 20, 11]
    assert merged.rows == 3


def test_a_slave_that_is_ahead_is_refused_and_one_that_is_not_never_is():
    merged, _ = collector(held_bytes_max=100)
    merged.take(EpochEnd(1, 0))
    assert merged.refuse == set()
    merged.take(rows(1, 1, *range(100)))
    assert merged.refuse == {1}
    merged.take(EpochEnd(2, 0))
    assert merged.refuse == set()


def test_no_slave_sends_anything_while_the_writer_is_full():
    merged, writer = collector()
    writer.is_full = True
    assert merged.refuse == {1, 2}
    merged.take(rows(1, 0, 10))
    assert writer.rows == [10]
    writer.is_full = False
    assert merged.refuse == set()


def test_slaves_for_whom_there_is_no_partition_are_not_waited_for():
    stream = {"table": pa.table({"ts": [1], "key": [1]}), "time": "ts", "time_unit": "s", "window": "1 s"}
    job = load_job({"left": stream, "right": stream, "cluster": {"partitions": 2}, "output": {"columns": ["left_row"]}})
    setup = RunSetup(job, resolve(job), Roles(6, True), None)
    writer = Writer("left_row")
    merged = new_collector(setup, Writers([writer]))
    for slave in (1, 2):
        merged.take(EpochEnd(slave, 0))
    batch = pa.record_batch([pa.array([7], pa.int64())], schema=merged_schemas(setup)[0])
    merged.take(ResultRows(1, 1, 0, np.frombuffer(batch.serialize(), np.uint8)))
    assert writer.rows == [7]


def test_a_slave_that_has_ended_holds_nobody_back():
    merged, writer = collector()
    merged.take(EpochEnd(2, 0, last=True))
    merged.take(EpochEnd(1, 4))
    merged.take(rows(1, 5, 7))
    assert writer.rows == [7] and not merged.finished
    merged.take(EpochEnd(1, 5, last=True))
    assert merged.finished and merged.refuse == set()


def test_epochs_may_be_skipped():
    merged, writer = collector()
    for slave in (1, 2):
        merged.take(rows(slave, 9, slave))
        merged.take(EpochEnd(slave, 9))
    assert writer.rows == [1, 2]


def test_a_message_may_bring_more_of_the_epoch_that_was_ended_last():
    merged, writer = collector(slaves=(1,))
    merged.take(EpochEnd(1, 3))
    merged.take(rows(1, 3, 5))
    assert writer.rows == [5]


@pytest.mark.parametrize("message", [rows(1, 2, 1), EpochEnd(1, 2), rows(2, 5, 1)])
def test_what_comes_after_its_epoch_or_after_the_end_is_refused(message):
    merged, _ = collector()
    merged.take(EpochEnd(1, 3))
    merged.take(EpochEnd(2, 1, last=True))
    with pytest.raises(ProtocolError, match=rf"epoch {message.epoch} from slave {message.slave} late"):
        merged.take(message)


def test_a_slave_that_begins_without_groups_does_not_hold_the_merge():
    merged, writer = collector(idle=(2,))
    for epoch in range(3):
        merged.take(rows(1, epoch, epoch))
        merged.take(EpochEnd(1, epoch))
    assert writer.rows == [0, 1, 2]


def test_without_being_named_idle_it_does():
    merged, writer = collector()
    for epoch in range(3):
        merged.take(rows(1, epoch, epoch))
        merged.take(EpochEnd(1, epoch))
    assert writer.rows == [0]


def test_a_slave_that_loses_its_groups_lets_the_others_go_on():
    merged, writer = collector()
    merged.take(rows(1, 0, 10))
    merged.take(EpochEnd(1, 0))
    merged.take(rows(1, 1, 11))
    assert writer.rows == [10]
    merged.take(EpochEnd(2, 0, idle=True))
    merged.take(EpochEnd(1, 7))
    merged.take(rows(1, 8, 18))
    assert writer.rows == [10, 11, 18]


def test_a_slave_that_gets_groups_again_is_waited_for_from_its_first_epoch_on():
    merged, writer = collector(idle=(2,))
    merged.take(EpochEnd(1, 4))
    merged.take(rows(2, 5, 25))
    merged.take(EpochEnd(1, 5))
    merged.take(rows(1, 6, 16))
    assert writer.rows == [25]  # 16 waits: slave 2 has not ended epoch 5
    merged.take(EpochEnd(2, 5))
    assert writer.rows == [25, 16]


def test_a_slave_that_comes_back_with_an_older_epoch_than_the_others_is_not_late():
    merged, writer = collector(idle=(2,))
    merged.take(EpochEnd(1, 9))
    merged.take(rows(2, 6, 26))
    assert writer.rows == [26]
    merged.take(EpochEnd(2, 6))
    with pytest.raises(ProtocolError, match="Rows of epoch 5 from slave 2 late"):
        merged.take(rows(2, 5, 0))


def test_what_an_idle_slave_ended_before_stays_ended():
    merged, _ = collector()
    merged.take(EpochEnd(2, 4, idle=True))
    with pytest.raises(ProtocolError, match="EpochEnd of epoch 3 from slave 2 late"):
        merged.take(EpochEnd(2, 3))


def test_with_no_slave_but_idle_ones_all_that_came_is_written():
    merged, writer = collector()
    merged.take(EpochEnd(1, 0))
    merged.take(rows(1, 9, 19))
    merged.take(EpochEnd(2, 0, idle=True))
    assert writer.rows == []
    merged.take(EpochEnd(1, 9, idle=True))
    assert writer.rows == [19] and not merged.finished and merged.refuse == set()


def test_an_idle_slave_refuses_nobody_and_is_not_refused():
    merged, _ = collector(held_bytes_max=100, slaves=(1, 2, 3), idle=(3,))
    merged.take(EpochEnd(1, 0))
    merged.take(rows(1, 1, *range(100)))
    assert merged.refuse == {1}
    merged.take(EpochEnd(2, 0, idle=True))
    assert merged.refuse == set()


def test_an_idle_slave_ends_with_the_run():
    merged, writer = collector(idle=(2,))
    merged.take(rows(1, 3, 13))
    merged.take(EpochEnd(1, 3, last=True))
    assert not merged.finished
    merged.take(EpochEnd(2, 0, last=True))
    assert merged.finished and writer.rows == [13]


class Slaves:
    """Three slaves that run ahead of each other, and lose and get groups. ended: the last epoch of each that has
    groups."""

    def __init__(self, chance):
        self.chance, self.going, self.epoch = chance, {1, 2, 3}, dict.fromkeys((1, 2, 3), 0)
        self.idle = {slave for slave in (1, 2, 3) if chance.random() < 0.4}
        self.ended = dict.fromkeys(self.going - self.idle, -1)
        self.given = {}  # row -> epoch

    def says(self, slave):
        epoch, kinds = self.epoch[slave], ["rows", "rows", "end", "rest"] + ["last"] * (len(self.given) > 60)
        kind = self.chance.choice(kinds)
        if kind == "rows":
            self.ended.setdefault(slave, epoch - 1)
            self.given[len(self.given)] = epoch
            return rows(slave, epoch, len(self.given) - 1)
        self.ended[slave] = epoch
        self.epoch[slave] += self.chance.randint(1, 2)
        if kind != "end":
            del self.ended[slave]
        if kind == "last":
            self.going.discard(slave)
        return EpochEnd(slave, epoch, last=kind == "last", idle=kind == "rest")

    @property
    def open_epoch(self):
        return min(self.ended.values(), default=1 << 40) + 1


@pytest.mark.parametrize("seed", range(40))
def test_in_any_order_every_row_is_written_once_when_all_that_have_groups_have_ended_what_was_before(seed):
    chance = random.Random(seed)
    slaves = Slaves(chance)
    merged, writer = collector(200, (1, 2, 3), idle=slaves.idle)
    while slaves.going:
        free = sorted(slaves.going - merged.refuse)
        assert free, "everybody waits for ever"
        before = len(writer.rows)
        merged.take(slaves.says(chance.choice(free)))
        assert all(slaves.given[row] <= slaves.open_epoch for row in writer.rows[before:])
        held = set(slaves.given) - set(writer.rows)
        assert all(slaves.given[row] > slaves.open_epoch for row in held)
    assert merged.finished and sorted(writer.rows) == sorted(slaves.given) and merged.rows == len(slaves.given)
