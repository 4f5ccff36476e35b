"""Production delays as a slave of a paced run counts them.

A delay lasts from the moment when the later tuple was due until the moment when it is joined.
"""

import logging
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

import oracle
from engine_harness import Stream, section
from mpijoin.config.check import resolve
from mpijoin.config.load import load_job
from mpijoin.data.record import RecordLayout
from mpijoin.launch.roles import Roles, RunSetup
from mpijoin.messages import Columns, Finished, Piece, Slot
from mpijoin.metrics.delay import DelayHistogram
from mpijoin.rank import MASTER
from mpijoin.simulate.engine import SimulatedClock
from mpijoin.slave.joining import new_operator
from mpijoin.slave.runtime import Slave
from mpijoin.transport.base import TransportStats


class Desk:
    """A rank without a network, whose clock stands where the test puts it."""

    number, wakes_late, idle_s, comm_s = 1, False, 0.0, 0.0

    def __init__(self):
        self.inbox, self.sent, self.clock, self.log = [], [], SimulatedClock(), logging.Logger("test")
        self.transport = SimpleNamespace(stats=TransportStats(), unsent_bytes=lambda to=None: 0)

    def send(self, to, message):
        self.sent.append(message)

    def receive(self, refuse=()):
        inbox, self.inbox = self.inbox, []
        return iter(inbox)


class Run:
    """One slave of a paced run with times in ms."""

    def __init__(self, speed, windows_ms=(1000, 1000), warmup="0 s", kind="inner"):
        sides = [
            Stream(name, ([],), "ms", pa.int64(), (pa.int64(),), (), window_ms * 10**6, form="table")
            for name, window_ms in zip(("left", "right"), windows_ms)
        ]
        output = {"path": "none", "results": "count"}
        sections = {side.name: section(side, None) for side in sides}
        run = {"speed": speed, "warmup": warmup}
        self.job = load_job({**sections, "output": output, "run": run, "join": {"type": kind}})
        schema = resolve(self.job)
        self.words = 3 + RecordLayout(schema.streams[0]).record_words
        self.desk = Desk()
        setup = RunSetup(self.job, schema, Roles(2, False), None)
        self.slave = Slave(setup, self.desk, new_operator(self.job, schema, 1 << 24))

    def joins(self, left_ms, right_ms, origin, now_s, last=False, reached=0):
        """Lets the slave join a message of tuples of one key at these times, at the second now_s."""
        self.desk.clock.wall_s = now_s
        group = oracle.partition(5, self.job.cluster.partitions)
        columns = [Columns(self.tuples(times), np.empty(0, np.uint8)) for times in (left_ms, right_ms)]
        piece = Piece(np.array([[len(left_ms)], [len(right_ms)]]), tuple(columns))
        slot = Slot(MASTER, 0, (reached, reached), np.array([group]), (piece,), last, origin)
        self.desk.inbox.append((MASTER, slot))
        while self.slave.turn() == 0.0:
            pass

    def tuples(self, times):
        words = np.zeros((len(times), self.words), np.int64)
        words[:, 0], words[:, 1], words[:, 2] = 5, times, np.arange(len(times))
        return words

    @property
    def delays(self):
        self.joins([], [], (0, 0.0), self.desk.clock.wall_s, last=True)
        (finished,) = (one for one in self.desk.sent if isinstance(one, Finished))
        return DelayHistogram.of([finished.counts.delays])


def test_a_delay_counts_from_when_the_later_tuple_was_due():
    """WSJ, section VI-A: "We measure the production delay of an output tuple as the interval elapsed since the arrival
    of the joining tuple with the more recent timestamp." """
    run = Run(speed=1.0)
    run.joins([100], [40, 300], (0, 2.0), now_s=2.5)  # They are due at 2.1 and 2.3.
    delays = run.delays
    assert (delays.count, delays.max_us, delays.sum_us) == (
        2,
        pytest.approx(400_000, abs=1),
        pytest.approx(600_000, abs=2),
    )


@pytest.mark.parametrize("speed", [0.5, 2.0, 10.0])
def test_at_another_speed_event_time_passes_faster_or_slower(speed):
    run = Run(speed=speed)
    run.joins([1500], [1500], (500, 1.0), now_s=4.0)
    assert run.delays.max_us == pytest.approx((4.0 - 1.0 - 1.0 / speed) * 1e6, abs=2)


def test_what_is_joined_before_its_time_is_not_late():
    """A delay is never negative, although clocks of nodes differ a little and a tick is handed over at its end."""
    run = Run(speed=1.0)
    run.joins([100, 200], [200], (0, 9.0), now_s=1.0)
    delays = run.delays
    assert (delays.count, delays.sum_us, delays.max_us) == (2, 0, 0) and delays.counts[0] == 2


def test_what_is_joined_before_the_warm_up_has_ended_does_not_count():
    run = Run(speed=1.0, warmup="3 s")
    run.joins([100], [100], (0, 0.0), now_s=2.0)
    run.joins([100], [], (0, 0.0), now_s=4.0)
    delays = run.delays
    assert (delays.count, delays.max_us) == (1, pytest.approx(3_900_000, abs=1))


def test_as_fast_as_possible_nothing_is_late():
    run = Run(speed="max")
    run.joins([100], [100], None, now_s=2.0)
    assert run.delays.count == 0


@pytest.mark.parametrize("kind, wanted_s", [("left", [5.9]), ("right", [0.0]), ("full", [5.9, 0.0]), ("anti", [5.9])])
def test_a_tuple_without_partner_is_due_when_its_window_is_over(kind, wanted_s):
    run = Run(speed=1.0, windows_ms=(1000, 2000), kind=kind)
    run.joins([100], [5000], (0, 0.0), now_s=5.0)  # Their windows are over at 1.1 and 7.0.
    run.joins([], [], (0, 0.0), now_s=7.0, reached=7100)
    delays = run.delays
    assert (delays.count, delays.max_us) == (len(wanted_s), pytest.approx(max(wanted_s) * 1e6, abs=2))
    assert delays.sum_us == pytest.approx(sum(wanted_s) * 1e6, abs=2)
