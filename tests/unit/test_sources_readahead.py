"""Decoding ahead: the same chunks, bounded, with errors in their place, and a thread that ends."""

import threading
import time

import numpy as np
import pytest

from mpijoin.data.batch import Batch
from mpijoin.errors import InputError
from mpijoin.sources.base import TIME_MAX, Chunk, SourceCounts
from mpijoin.sources.readahead import ReadAhead


class Counting:
    """Gives `chunks` chunks of 10 rows, then raises `error` if there is one."""

    def __init__(self, chunks, error=None):
        self.counts, self.given, self.closed = SourceCounts(), 0, 0
        self._chunks, self._error = chunks, error

    def read(self, rows):
        if self.given == self._chunks:
            if self._error:
                raise self._error
            return None
        first = 10 * self.given
        self.given += 1
        number = np.arange(first, first + 10)
        none = np.empty(0, np.int64)
        batch = Batch(number, number, number, np.empty((10, 0), np.int64), none, np.empty(0, np.uint8))
        return Chunk(batch, number, TIME_MAX if self.given == self._chunks else first + 10)

    def progress(self):
        return self.given / self._chunks

    def close(self):
        self.closed += 1


def test_the_same_rows_come_cut_as_asked():
    source = ReadAhead(Counting(5), depth=2)
    rows, sizes = [], []
    while (chunk := source.read(4)) is not None:
        rows += chunk.batch.row.tolist()
        sizes.append(chunk.batch.rows)
    assert rows == list(range(50)) and sizes == [4, 4, 2] * 5
    assert source.read(4) is None and source.progress() == 1.0
    source.close()


def test_no_more_than_depth_chunks_wait():
    inner = Counting(1000)
    source = ReadAhead(inner, depth=3)
    source.read(10)
    time.sleep(0.2)
    assert inner.given <= 5
    source.close()


def test_an_error_comes_after_the_chunks_before_it_and_only_once():
    source = ReadAhead(Counting(2, InputError("b.parquet: broken")))
    assert [source.read(10).batch.rows for _ in range(2)] == [10, 10]
    with pytest.raises(InputError, match="b.parquet: broken"):
        source.read(10)
    assert source.read(10) is None
    source.close()


def test_close_ends_a_thread_that_waits_for_room():
    inner = Counting(1000)
    before = threading.active_count()
    source = ReadAhead(inner, depth=1)
    source.read(10)
    source.close()
    source.close()
    assert threading.active_count() == before and inner.closed == 2 and source.read(10) is None
