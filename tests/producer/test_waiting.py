"""Sources that have nothing yet. Nobody asks them before their time, nobody spins, and the answer stays the same."""

import time

import numpy as np
import pyarrow as pa
import pytest

import mpijoin
from mpijoin.data.batch import Batch
from mpijoin.producer import intake
from mpijoin.producer.pacing import Pace
from mpijoin.producer.ticks import TickReader
from mpijoin.rank import WAIT_S
from mpijoin.sources.base import TIME_MAX, TIME_MIN, Chunk, End, SourceCounts, Wait

NONE = np.empty(0, np.int64)


class Feed:
    """A source to which rows come at given seconds: [(second, [times])]. It notes when it was asked."""

    def __init__(self, clock, rows):
        self.counts, self._clock, self._rows, self.asked = SourceCounts(), clock, list(rows), []

    def read(self, rows):
        self.asked.append(self._clock())
        if not self._rows:
            return End()
        second, times = self._rows[0]
        if self._clock() < second:
            return Wait(second)
        self._rows.pop(0)
        times = np.array(times, np.int64)
        batch = Batch(times, times, times, np.empty((len(times), 0), np.int64), NONE, np.empty(0, np.uint8))
        return Chunk(batch, np.maximum.accumulate(times), int(times.max(initial=TIME_MIN)))


def reader_of(clock, *feeds, pace=Pace(10, 1, 1, 1)):
    return TickReader(feeds, [0] * len(feeds), pace, 1 << 20, now_s=clock)


def times_of(tick):
    return [[int(time) for batch in own for time in batch.time] for own in tick.batches]


def test_a_tick_goes_out_in_parts_as_its_rows_come_and_nobody_asks_before_the_time():
    now = [0.0]

    def clock():
        return now[0]

    left, right = Feed(clock, [(0, [1, 5]), (2, [12])]), Feed(clock, [(1, [3, 11])])
    reader = reader_of(clock, left, right)
    first = reader.next()
    assert times_of(first) == [[1, 5], []] and first.watermarks is None
    for _ in range(3):
        assert reader.next() == Wait(1)
    now[0] = 1.0
    second = reader.next()
    assert times_of(second) == [[], [3]] and second.watermarks is None
    assert reader.next() == Wait(2) == reader.next()
    now[0] = 2.0
    third = reader.next()
    assert times_of(third) == [[], []] and third.watermarks == (10, 10)
    last = reader.next()
    assert times_of(last) == [[12], [11]] and last.watermarks == (TIME_MAX, TIME_MAX)
    assert reader.next() == End()
    assert left.asked == [0, 0, 2, 2] and right.asked == [0, 1, 2]


def test_of_automatic_length_a_tick_ends_where_a_source_that_waits_has_told_all():
    now = [0.0]
    left, right = Feed(lambda: now[0], [(0, [1, 5, 30]), (9, [31])]), Feed(lambda: now[0], [(0, [2, 20]), (9, [21])])
    tick = reader_of(lambda: now[0], left, right, pace=Pace(None, 1000, 100, 10**6)).next()
    assert times_of(tick) == [[1, 5], [2]] and tick.watermarks == (20, 20), "no row waits for those that are to come"


STEPS, PAUSE_S = 6, 0.15


class Paced:
    """A real source. Its k-th chunk comes k pauses after the first one was asked for."""

    def __init__(self, source):
        self._source, self._start_s, self._given, self.asked = source, None, 0, 0

    def __getattr__(self, name):
        return getattr(self._source, name)

    def read(self, rows):
        self.asked += 1
        self._start_s = self._start_s or time.time()
        due_s = self._start_s + self._given * PAUSE_S
        if time.time() < due_s:
            return Wait(due_s)
        self._given += 1
        return self._source.read(100)


@pytest.mark.parametrize("streams", [1, 2, 3])
@pytest.mark.parametrize("pace", [{}, {"run": {"speed": 10}, "cluster": {"distribution_epoch": "50 ms"}}])
def test_the_master_sleeps_while_its_sources_wait_and_the_answer_is_the_same(monkeypatch, streams, pace):
    table = pa.table({"ts": np.arange(100 * STEPS), "key": np.arange(100 * STEPS) % 7})
    side = {"table": table, "time": "ts", "time_unit": "ms", "key": "key", "window": "20 ms"}
    job = {"streams": {f"s{at}": side for at in range(streams)}, "output": {"results": "count"}}
    wanted = mpijoin.run(job, slaves=1).summary
    made, real = [], intake.open_source

    def paced(*arguments):
        made.append(Paced(real(*arguments)))
        return made[-1]

    monkeypatch.setattr(intake, "open_source", paced)
    found = mpijoin.run({**job, **pace}, slaves=1).summary
    assert (found["results"], found["certificate"]) == (wanted["results"], wanted["certificate"]) != (0, "0" * 16)
    assert found["wall_s"] >= (STEPS - 1) * PAUSE_S
    assert found["master"]["idle_s"] > 0.5 * STEPS * PAUSE_S and found["master"]["cpu_s"] < 0.5 * found["wall_s"]
    asked = STEPS + 2 + STEPS * (PAUSE_S / WAIT_S + 2)
    assert len(made) == streams and all(one.asked < asked for one in made), "nobody spins"
