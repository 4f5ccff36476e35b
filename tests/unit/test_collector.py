"""The collector: epochs in order, bounded memory, and slaves that are ahead wait for the one that is not."""

import numpy as np
import pyarrow as pa
import pytest

from mpijoin.errors import ProtocolError
from mpijoin.messages import EpochEnd, Rows
from mpijoin.sinks.collector import Collector

SCHEMA = pa.schema([("row", pa.int64())])


class Writer:
    def __init__(self):
        self.rows = []

    def write(self, table):
        self.rows += table["row"].to_pylist()


def rows(slave, epoch, *values):
    batch = pa.record_batch([pa.array(values, pa.int64())], schema=SCHEMA)
    return Rows(slave, epoch, np.frombuffer(batch.serialize(), np.uint8))


def collector(held_bytes_max=1 << 20, slaves=(1, 2)):
    writer = Writer()
    return Collector(slaves, SCHEMA, writer, held_bytes_max), writer


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
