"""Measures a slave alone: how fast it joins encoded messages in memory, with no master, network or file beside it.

    python scripts/bench_slave.py EPOCH FILE FILE ... [--window "600 s"]

It encodes the streams, which are a file each, as the master would send them in epochs of EPOCH (such as "100 s"). Then
it runs the slave's own loop on them. It prints one line of JSON: seconds from the first message to the final report,
results, and certificate.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import deque
from typing import Any, Collection, Sequence

import numpy as np

from benching.data import WINDOW_US
from mpijoin.clock import RunClock
from mpijoin.config.check import resolve
from mpijoin.config.job import Job
from mpijoin.config.load import load_job
from mpijoin.data.schema import JoinSchema
from mpijoin.errors import EXIT_DONE
from mpijoin.launch.roles import Roles, RunSetup
from mpijoin.launch.warmup import warm_up
from mpijoin.messages import Finished, Piece, Report, Slot, Stop, encode_message, parse
from mpijoin.partitioning.buffers import MiniBuffers
from mpijoin.partitioning.table import PartitionTable
from mpijoin.producer.intake import Intake
from mpijoin.producer.start import pacing_of
from mpijoin.rank import MASTER, Rank, Stopped
from mpijoin.signals import SignalFlag
from mpijoin.slave.joining import new_operator
from mpijoin.slave.runtime import Slave
from mpijoin.sources.base import TIME_MAX, End
from mpijoin.transport.base import Channel, Message, TransportStats

SLAVE = 1
MEMORY_BYTES = 4 << 30  # This is address space for the state, of which only what is used is taken.
# So many messages are handed over and not joined yet, as in a real run: one to join, and one that waits.
MESSAGES_AHEAD = 2


def bench_job(files: Sequence[str], epoch: str, window: str) -> Job:
    stream = {"time": "ts", "time_unit": "us", "key": "key", "window": window, "columns": []}
    return load_job(
        {
            "streams": {f"stream_{number}": {"path": file, **stream} for number, file in enumerate(files)},
            "cluster": {"distribution_epoch": epoch},
            "output": {"results": "count"},
        }
    )


def encoded_messages(job: Job, schema: JoinSchema) -> deque[np.ndarray]:
    """Returns what the master of a run with one slave sends it: one message per epoch, and the end."""
    intake = Intake(job, schema, None, pacing_of(job, schema, producers=1).pace)
    table = PartitionTable.even(job.cluster.partitions, (SLAVE,))
    buffers, groups = MiniBuffers(table, (SLAVE,)), table.groups_of(SLAVE)
    messages: deque[np.ndarray] = deque()
    pieces: list[Piece] = []
    while not isinstance(tick := intake.next(), End):
        buffers.add(intake.scatter(tick, table))
        pieces += buffers.take(SLAVE, 1)[1]
        if tick.watermarks is not None:
            messages.append(encode_message(Slot(MASTER, len(messages), tick.watermarks, groups, tuple(pieces))))
            pieces = []
    intake.close()
    messages.append(encode_message(Slot(MASTER, len(messages), (TIME_MAX,) * len(job.streams), groups, (), True)))
    return messages


class MemoryTransport:
    """Stands in for the network. It hands a slave the next message as soon as the slave has joined one."""

    rank, size = SLAVE, 2

    def __init__(self, messages: deque[np.ndarray]):
        self.stats = TransportStats()
        self.finished: Finished | None = None
        self._messages = messages
        self._ahead = 0

    def send(self, to: int, channel: Channel, data: np.ndarray) -> None:
        message = parse(data)
        if isinstance(message, Finished):
            self.finished = message
            self._messages.append(encode_message(Stop(EXIT_DONE)))
        # Reports with a negative epoch are heartbeats.
        self._ahead -= isinstance(message, Report) and message.epoch >= 0

    def poll(self, refuse: Collection[int] = ()) -> list[Message]:
        if not self._messages or self._ahead == MESSAGES_AHEAD:
            return []
        self._ahead += 1
        return [Message(MASTER, Channel.DATA, self._messages.popleft())]

    def unsent_bytes(self, to: int | None = None) -> int:
        return 0

    def wait(self, timeout_s: float) -> None:
        raise RuntimeError("the slave waits, though all of its input lies in memory")


def run_slave(job: Job, schema: JoinSchema) -> dict[str, Any]:
    """Encodes the input, then times the slave's loop."""
    transport = MemoryTransport(encoded_messages(job, schema))
    rank = Rank(transport, RunClock(), SignalFlag())
    setup = RunSetup(job, schema, Roles(2, False), None)
    slave = Slave(setup, rank, new_operator(job, schema, MEMORY_BYTES))
    start = time.perf_counter()
    try:
        slave.run()
    except Stopped:
        seconds = time.perf_counter() - start
    counts = transport.finished.counts
    return {"seconds": seconds, "results": counts.results, "certificate": f"{counts.certificate:016x}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("epoch", metavar="EPOCH", help='of event time, such as "100 s"')
    parser.add_argument("files", metavar="FILE", nargs="+", help="a stream, with columns ts (in us) and key")
    parser.add_argument("--window", default=f"{WINDOW_US} us", help="of each stream (default %(default)s)")
    options = parser.parse_args()
    warm_up("master")
    warm_up("slave")
    job = bench_job(options.files, options.epoch, options.window)
    print(json.dumps(run_slave(job, resolve(job))))


if __name__ == "__main__":
    main()
