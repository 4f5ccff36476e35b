"""Measures how fast the master distributes 64-byte tuples on one core: scatter, mini-buffers, encoding and sending.

    python scripts/bench_master.py [--ticks 100] [--rounds 5] [--words 8]

There are two ranks under mpirun. The ticks of the master lie in memory, so that neither files nor the join count. The
other rank takes the messages for all four slaves and drops them. It prints million tuples per second of the master's
core (its CPU time) and of the wall clock, as the best and the median of the rounds: for the scatter alone, with
mini-buffers and encoding, and with sending.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from itertools import cycle, islice
from typing import Callable, NamedTuple

import numpy as np

from mpijoin.data.batch import Batch
from mpijoin.messages import Slot, encode_message
from mpijoin.partitioning.buffers import MiniBuffers
from mpijoin.partitioning.scatter import FIXED_WORDS, scatter
from mpijoin.partitioning.table import PartitionTable

PARTITIONS = 60
SLAVES = (1, 2, 3, 4)
# Each stream has so many rows in a tick, as in an automatic distribution epoch.
ROWS = 65_536
TICKS = 12  # So many different ticks are used in turn. They are more than the caches hold.
SINK = 1
UNSENT_BYTES_MAX = 64 << 20  # This is like the credit of slaves that keep up.
INSIDE = "MPIJOIN_BENCH_MASTER"
SEED = 3


class Speed(NamedTuple):
    """Million tuples per second, of CPU time and of the wall clock."""

    core: float
    wall: float


def make_ticks(words: int) -> list[tuple[Batch, Batch]]:
    """Returns rows of both streams, with tuples of so many words: key, time, row, and a record of payload."""
    generator = np.random.default_rng(SEED)
    return [tuple(_batch(generator, tick * ROWS, words) for _ in range(2)) for tick in range(TICKS)]


def _batch(generator: np.random.Generator, first: int, words: int) -> Batch:
    row = np.arange(first, first + ROWS)
    record = generator.integers(0, 1 << 62, (ROWS, words - FIXED_WORDS))
    key = generator.integers(0, 10_000_000, ROWS)
    return Batch(key, row * 1000, row, record, np.empty(0, np.int64), np.empty(0, np.uint8))


class Distribution:
    """The path of a tick through the master, as its runtime takes it."""

    def __init__(self, words: int, send: Callable[[np.ndarray], None]):
        self._record_words, self._send = words - FIXED_WORDS, send
        self._table = PartitionTable.even(PARTITIONS, SLAVES)
        self._buffers = MiniBuffers(self._table, SLAVES)
        self._epoch = 0

    def scatter(self, batches: tuple[Batch, Batch]) -> tuple:
        return tuple(scatter([batch], self._table.place, self._record_words, False) for batch in batches)

    def encode(self, batches: tuple[Batch, Batch]) -> list[np.ndarray]:
        self._buffers.add(self.scatter(batches))
        self._epoch += 1
        watermarks = (self._epoch, self._epoch)
        taken = ((slave, *self._buffers.take(slave, 1)) for slave in SLAVES)
        return [encode_message(Slot(0, self._epoch, watermarks, groups, tuple(pieces))) for _, groups, pieces in taken]

    def send(self, batches: tuple[Batch, Batch]) -> None:
        for message in self.encode(batches):
            self._send(message)


def measure(
    step: Callable[[tuple[Batch, Batch]], object], finish: Callable[[], None], ticks: list, count: int
) -> Speed:
    wall, core = time.perf_counter(), time.thread_time()
    for batches in islice(cycle(ticks), count):
        step(batches)
    finish()
    tuples = 2 * ROWS * count / 1e6
    return Speed(tuples / (time.thread_time() - core), tuples / (time.perf_counter() - wall))


def inside(arguments: argparse.Namespace) -> None:
    from mpijoin.transport.base import Channel
    from mpijoin.transport.mpi import MpiTransport

    transport = MpiTransport()
    if transport.rank == SINK:
        while not any(message.channel == Channel.CONTROL for message in transport.poll()):
            transport.wait(0.01)
        transport.close()
        return

    def send(message: np.ndarray) -> None:
        transport.send(SINK, Channel.DATA, message)
        while transport.unsent_bytes(SINK) > UNSENT_BYTES_MAX:
            transport.poll()
            transport.wait(0.01)
        transport.poll()

    distribution, ticks = Distribution(arguments.words, send), make_ticks(arguments.words)
    steps = {
        "scatter": (distribution.scatter, lambda: None),
        "scatter, mini-buffers, encode": (distribution.encode, lambda: None),
        "scatter, mini-buffers, encode, send": (distribution.send, lambda: transport.flush(60.0)),
    }
    speeds: dict[str, list[Speed]] = {name: [] for name in steps}
    for _ in range(arguments.rounds + 1):
        for name, (step, finish) in steps.items():
            speeds[name].append(measure(step, finish, ticks, arguments.ticks))
    transport.send(SINK, Channel.CONTROL, np.zeros(1, np.uint8))
    # The first round is left out, because it loads kernels and touches memory.
    report({name: every[1:] for name, every in speeds.items()}, arguments.words)
    transport.close()


def report(speeds: dict[str, list[Speed]], words: int) -> None:
    print(f"M tuples/s of {8 * words} bytes, best (median)   of the core        of the wall clock")
    for name, every in speeds.items():
        columns = [f"{max(column):6.1f} ({statistics.median(column):5.1f})" for column in zip(*every)]
        print(f"{name:40} {columns[0]}     {columns[1]}")
    print(json.dumps({name: max(every)._asdict() for name, every in speeds.items()}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ticks", type=int, default=100, help="per round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--words", type=int, default=8, help="of a tuple, 3 or more")
    arguments = parser.parse_args()
    if INSIDE in os.environ:
        return inside(arguments)
    mpirun = os.path.join(os.path.dirname(sys.executable), "mpirun")
    command = [mpirun, "-n", "2", sys.executable, *sys.argv]
    sys.exit(subprocess.run(command, env={**os.environ, INSIDE: "1"}, timeout=600).returncode)


if __name__ == "__main__":
    main()
