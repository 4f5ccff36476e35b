"""Ticks are prefix cuts of both streams at shared borders. Large ones come in parts, with the watermarks they reach."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import oracle
from mpijoin.data.batch import Batch
from mpijoin.errors import ProtocolError
from mpijoin.policy.epoch import AUTO_ROWS
from mpijoin.producer.pacing import LEAST_ROWS, Pace, pace_of
from mpijoin.producer.ticks import TickReader
from mpijoin.sources.base import TIME_MAX, TIME_MIN, Chunk, End, SourceCounts


class ListSource:
    """A source of rows at the given times, in any order.

    It gives `block` rows at a time, and empty chunks may come between.
    """

    def __init__(self, times, block=3, empty_between=False):
        self.counts = SourceCounts()
        self._times = list(times)
        self._running = np.maximum.accumulate(np.array(self._times, np.int64)) if self._times else np.empty(0, np.int64)
        self._block, self._at, self._empty_next = block, 0, empty_between
        self._empty_between = empty_between

    def read(self, rows):
        if self._at >= len(self._times):
            return End()
        low, high = self._at, self._at + min(rows, self._block)
        if self._empty_next:
            self._empty_next = False
            return chunk([], [], [], int(self._running[low]))
        self._at, self._empty_next = high, self._empty_between
        times = self._times[low:high]
        horizon = int(self._running[high]) if high < len(self._times) else TIME_MAX
        return chunk(times, range(low, low + len(times)), self._running[low:high], horizon)

    def progress(self):
        return 1.0

    def save(self):
        return None

    def close(self):
        pass


def chunk(times, rows, running, horizon):
    times, rows = np.array(times, np.int64), np.array(rows, np.int64)
    none = np.empty(0, np.int64)
    batch = Batch(
        np.zeros(len(times), np.int64), times, rows, np.empty((len(times), 0), np.int64), none, np.empty(0, np.uint8)
    )
    return Chunk(batch, np.array(running, np.int64), horizon)


def fixed(length):
    return Pace(length, 1, 1, 1)


def read_all(reader):
    """Returns [(rows of left, rows of right, watermarks)] with an entry for every part."""
    parts = []
    while not isinstance(tick := reader.next(), End):
        rows = [[int(row) for batch in side for row in batch.row] for side in tick.batches]
        parts.append((*rows, tick.watermarks))
    return parts


ROW_BYTES = 24  # A row has its key, time and row number.


def reader_of(left, right, pace, latenesses=(0, 0), part_rows=1000, shared=False, **source):
    sources = ListSource(left, **source), ListSource(right, **source)
    return TickReader(sources, latenesses, pace, ROW_BYTES * part_rows, shared=shared)


def test_both_streams_are_cut_at_the_same_borders():
    parts = read_all(reader_of([1, 5, 12, 29], [3, 10, 11, 30], fixed(10)))
    assert parts == [
        ([0, 1], [0], (10, 10)),
        ([2], [1, 2], (20, 20)),
        ([3], [], (30, 30)),
        ([], [3], (TIME_MAX, 40)),
    ]


def test_a_late_row_belongs_to_the_tick_of_the_running_maximum_before_it():
    assert read_all(reader_of([11, 4, 12, 25], [], fixed(10)))[0] == ([0, 1, 2], [], (20, TIME_MAX))


def test_watermarks_are_the_border_less_each_stream_s_own_lateness():
    first = read_all(reader_of([1, 15], [1, 15], fixed(10), latenesses=(3, 7)))[0]
    assert first[2] == (7, 3)


def test_a_time_years_ahead_costs_nothing():
    parts = read_all(reader_of([0, 10**15], [1], fixed(1)))
    assert [marks for *_, marks in parts] == [(1, 1), (2, 2), (10**15 + 1, TIME_MAX)]


def test_a_large_tick_comes_in_parts_of_which_only_the_last_completes_it():
    parts = read_all(reader_of(range(10), range(10), fixed(100), part_rows=4, block=2))
    assert [marks for *_, marks in parts] == [None, None, (100, 100)]
    assert [len(left) for left, *_ in parts] == [4, 4, 2]
    assert [row for left, *_ in parts for row in left] == list(range(10))


def test_a_reader_is_saved_at_the_border_of_a_tick_only():
    reader = reader_of(range(10), range(10), fixed(100), part_rows=4)
    streams = reader.save()
    assert [(stream.chunks, stream.horizon, stream.ended) for stream in streams] == [((), TIME_MIN, False)] * 2
    reader.next()
    with pytest.raises(ProtocolError, match="cannot be saved inside the tick that ends at 100"):
        reader.save()
    while reader.next().watermarks is None:
        pass
    assert [stream.horizon for stream in reader.save()] == [TIME_MAX, TIME_MAX]


def test_what_was_read_ahead_is_handed_out_first_after_a_save():
    sources = ListSource([1, 2, 12, 13]), ListSource([3])
    first = TickReader(sources, (0, 0), fixed(10), 1000)
    assert first.next().watermarks == (10, 10)
    again = TickReader(sources, (0, 0), fixed(1), 1000, first.save())
    assert read_all(again) == [([2], [], (13, TIME_MAX)), ([3], [], (14, TIME_MAX))]


def test_streams_without_rows_have_no_ticks():
    assert read_all(reader_of([], [], fixed(10))) == []
    assert read_all(reader_of([], [], pace_of(None, (10, 10), 1))) == []


def test_chunks_without_rows_do_not_end_anything():
    parts = read_all(reader_of([1, 2, 3, 14], [2, 13], fixed(10), block=1, empty_between=True))
    assert [(left, right) for left, right, _ in parts] == [([0, 1, 2], [0]), ([3], [1])]


@pytest.mark.parametrize("block", [1, 3])
@pytest.mark.parametrize("pace", [fixed(1), fixed(TIME_MAX), Pace(1, TIME_MAX, 2, 1), pace_of(None, (0, 0), 1)])
def test_a_stream_has_not_ended_while_rows_of_the_last_moment_are_to_come(pace, block):
    """A slave takes this watermark for the end, at which all rows without partner leave."""
    times = [TIME_MAX - 1, *[TIME_MAX] * 7]
    parts = read_all(reader_of(times, times[:3], pace, part_rows=2, block=block))
    for stream in range(2):
        has_ended = False
        for *rows, watermarks in parts:
            assert not (has_ended and rows[stream])
            has_ended |= watermarks is not None and watermarks[stream] == TIME_MAX


@pytest.mark.parametrize("times", [[TIME_MAX], [TIME_MIN, TIME_MAX], [TIME_MAX - 1, TIME_MAX, TIME_MAX]])
@pytest.mark.parametrize("pace", [fixed(1), fixed(TIME_MAX), pace_of(None, (5, 5), 1)])
def test_the_ends_of_time_are_ordinary_times(times, pace):
    parts = read_all(reader_of(times, times, pace, latenesses=(4, 4)))
    assert [row for left, *_ in parts for row in left] == list(range(len(times)))
    assert all(mark >= TIME_MIN for *_, marks in parts for mark in marks)


TIMES = some.lists(some.integers(-3, 6), max_size=40).map(lambda gaps: np.cumsum(gaps).tolist() if gaps else [])


@settings(max_examples=200, deadline=None, derandomize=True)
@given(TIMES, TIMES, some.integers(1, 30), some.integers(1, 8), some.integers(1, 9), some.booleans())
def test_fixed_ticks_are_the_oracles_epochs(left, right, length, part_rows, block, empty_between):
    reader = reader_of(left, right, fixed(length), part_rows=part_rows, block=block, empty_between=empty_between)
    found = ({}, {})
    border_rows = ([], [])
    for *sides, marks in read_all(reader):
        for side, rows in enumerate(sides):
            border_rows[side].extend(rows)
        if marks is not None:
            for side in range(2):
                found[side][len(found[side])] = border_rows[side][:]
                border_rows[side].clear()
    wanted = [oracle.epochs([(time, row) for row, time in enumerate(times)], length) for times in (left, right)]
    numbers = sorted(set(wanted[0]) | set(wanted[1]))
    for side in range(2):
        assert list(found[side].values()) == [[row for _, row in wanted[side].get(number, [])] for number in numbers]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(TIMES, TIMES, some.integers(0, 50), some.integers(1, 4), some.integers(1, 9), some.booleans())
def test_automatic_ticks_bring_every_row_once_and_no_row_after_its_watermark(
    left, right, window, subgroups, block, shared
):
    pace = pace_of(None, (window, window), subgroups)._replace(rows=6, rows_min=2)
    seen, marks_before = ([], []), (TIME_MIN, TIME_MIN)
    for *sides, marks in read_all(reader_of(left, right, pace, block=block, shared=shared)):
        for side, (rows, times) in enumerate(zip(sides, (left, right))):
            running = np.maximum.accumulate(np.array(times or [0]))
            assert all(running[row] >= marks_before[side] for row in rows)
            seen[side].extend(rows)
        marks_before = marks or marks_before
    assert seen == (list(range(len(left))), list(range(len(right))))


def test_automatic_ticks_have_about_the_rows_wanted_and_are_no_longer_than_two_windows_or_a_share_of_one():
    assert pace_of(None, (60, 6000), 1) == Pace(None, AUTO_ROWS, LEAST_ROWS, 12_000)
    pace = pace_of(None, (6000, 60), 1, shared=True)
    assert pace == Pace(None, AUTO_ROWS, LEAST_ROWS, 2000)
    many = read_all(reader_of(range(1000), range(1000), pace._replace(rows=100, rows_min=10)))
    assert all(len(left) == len(right) == 50 for left, right, _ in many)
    few = read_all(reader_of(range(0, 10**6, 100), [], pace._replace(rows=100, rows_min=10)))
    assert all(len(left) == 20 for left, *_ in few[:-1])


@settings(max_examples=200, deadline=None, derandomize=True)
@given(TIMES, TIMES, some.integers(0, 50), some.integers(1, 8), some.integers(1, 4), some.booleans())
def test_automatic_ticks_do_not_depend_on_how_much_was_read_when_they_were_cut(
    left, right, window, part_rows, block, shared
):
    pace = pace_of(None, (window, window), 1)._replace(rows=8, rows_min=2)
    readers = (reader_of(left, right, pace, part_rows=part_rows, shared=shared, block=one) for one in (block, 100))
    piecewise, at_once = ({tick.border: None for tick in iter(reader.next, End())} for reader in readers)
    assert [*piecewise] == [*at_once]


def test_what_lies_beyond_the_longest_tick_is_not_read_before_it_is_cut():
    sources = ListSource(range(100), block=5), ListSource(range(0, 100, 4), block=5)
    reader = TickReader(sources, (0, 0), Pace(None, 60, 2, 12), 10**6)
    assert reader.next().border == 12
    assert [source._at for source in sources] == [15, 5]
    few = ListSource(range(0, 100, 9), block=1), ListSource([], block=1)
    assert TickReader(few, (0, 0), Pace(None, 60, 6, 12), 10**6).next().border == 27  # three rows, half of the least
    assert few[0]._at == 4


def borders(left, right, shared=True, window=30):
    pace = pace_of(None, (window, window), 1, shared=True)._replace(rows=80, rows_min=40)
    return [tick.border for tick in iter(reader_of(left, right, pace, shared=shared).next, End())]


def test_a_tick_of_few_rows_does_not_go_on_into_the_next_share():
    """Else it would end far ahead of the other producers, and so would all that may be as far ahead as a tick."""
    left, right = [*range(0, 100, 3), *range(1000, 1100, 3)], [*range(0, 130, 4), *range(900, 1100, 4)]
    assert borders(left, right) == [60, 129, 980, 1060, TIME_MAX]
    assert borders([*range(9), *range(900, 909)], []) == [10, TIME_MAX], "nor if that is the last one"
    assert borders(left, right, shared=False) == [60, 908, 988, 1060, TIME_MAX]


def test_a_tick_goes_on_over_what_one_stream_fills_and_over_gaps_no_longer_than_what_it_has_before():
    share = [*range(0, 100, 5), *range(1000, 1100, 5)]
    assert borders(share, range(0, 1100, 50)) == borders(share, range(0, 1100, 50), shared=False)
    sparse = range(0, 2000, 60)
    assert borders(sparse, sparse) == borders(sparse, sparse, shared=False)


def test_without_windows_only_rows_bound_a_tick():
    assert pace_of(None, (0, 0), 2) == Pace(None, AUTO_ROWS // 2, LEAST_ROWS // 2, TIME_MAX // 1)


def test_a_slot_is_never_empty_of_time():
    assert pace_of(3, (60, 60), 8).length == 1
    assert pace_of(None, (2, 2), 8).length_max == pace_of(None, (2, 2), 8, shared=True).length_max == 1
