"""A producer's CPU time is that of its own thread and of those that decode its input meanwhile."""

from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq

from mpijoin.partitioning.scatter import Scattered
from mpijoin.plans.node import NO_BLOB
from mpijoin.producer.backlog import Backlog
from mpijoin.producer.recording import SlotRecorder
from mpijoin.sources.base import SourceCounts
from mpijoin.transport.base import TransportStats

NOTHING = Scattered(np.zeros((0, 3), np.int64), NO_BLOB, np.zeros(2, np.int64), np.zeros(2, np.int64), np.zeros(1))


def test_threads_that_decode_count_as_the_producers_cpu(tmp_path):
    clock = SimpleNamespace(wall_s=0.0, cpu_s=0.0)
    rank = SimpleNamespace(
        number=0, clock=clock, comm_s=0.0, idle_s=0.0, transport=SimpleNamespace(stats=TransportStats())
    )
    decoding_s, counts = [7.0], [SourceCounts(), SourceCounts()]
    recorder = SlotRecorder(rank, "master", tmp_path, ("left", "right"), 1.0, 0, counts, lambda: decoding_s[0])
    for epoch in range(4):
        clock.wall_s, clock.cpu_s, decoding_s[0] = clock.wall_s + 1, clock.cpu_s + 0.25, decoding_s[0] + 0.5
        recorder.slot_ended(epoch, (NOTHING, NOTHING), counts, 1, 0, Backlog((1,)))
    recorder.close()
    assert recorder.times_after_warmup()["cpu_s"] == 3 * 0.75
    (file,) = tmp_path.glob("*.parquet")
    assert pq.read_table(file)["cpu_us"].to_pylist() == [750_000] * 4
