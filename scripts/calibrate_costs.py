"""Measures what the parts of a run cost on this machine, and writes the file that `mpijoin simulate --costs` reads.

    python scripts/calibrate_costs.py -o mpijoin/simulate/costs/this_machine.toml     about a minute, on one core

Every figure comes from the kernels and the transport of real runs: the join alone, on synthetic tuples of 64 bytes, the
master's source and scatter, and messages between two MPI processes. Without MPI they are messages of the local
transport.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable

import numpy as np

from mpijoin.config.check import resolve
from mpijoin.config.job import AUTO, Job, StreamJob, SyntheticSource
from mpijoin.data.codec import decode, encode
from mpijoin.join.tuning import theta_bytes
from mpijoin.join.window_join import window_join
from mpijoin.operators.base import Out, Progress
from mpijoin.partitioning.scatter import scatter
from mpijoin.simulate.costs import Costs
from mpijoin.sources import open_source
from mpijoin.sources.base import Chunk
from mpijoin.store.insert import Fresh
from mpijoin.store.state import THETA, THETA_OFF, TUNED
from mpijoin.transport.base import Channel, Transport
from mpijoin.transport.local import LocalTransport

RECORD_WORDS, TUPLE_BYTES = 5, 64
BLOCK_BYTES, MEMORY_BYTES = 4096, 2 << 30
ROUNDS = 5  # The fastest of so many rounds counts, because what disturbs a round only makes it slower.
SMALL_MESSAGES, LARGE_MESSAGES, LARGE_BYTES, ROUND_TRIPS = 2000, 20, 4 << 20, 100
NO_BLOB = np.zeros(0, np.uint8)


def best_s(act: Callable[[], float]) -> float:
    """Returns the least of the seconds that a few calls return."""
    return min(act() for _ in range(ROUNDS))


class Bench:
    """One group of a window join, which is fed with tuples that are made here."""

    def __init__(self, theta: int):
        self.join = window_join(1, MEMORY_BYTES, BLOCK_BYTES, theta, [(RECORD_WORDS, False, 1 << 40)] * 2)
        self.out = Out(2, 1 << 14)
        self._groups, self._time, self._random = np.zeros(1, np.int64), 0, np.random.default_rng(1)

    def feed(self, rows: int, keys: int) -> float:
        """Returns the seconds to insert, join and tune so many tuples a stream, with keys out of so many."""
        batches = []
        for _ in range(2):
            tuples = np.zeros((rows, TUPLE_BYTES // 8), np.int64)
            tuples[:, 0] = self._random.integers(0, keys, rows)
            tuples[:, 1], tuples[:, 2] = self._time, np.arange(rows)
            batches.append(Fresh(tuples, NO_BLOB))
        self._time += 1
        start_s = time.perf_counter()
        for stream, fresh in enumerate(batches):
            self.join.insert(self._groups, stream, fresh, np.array([[0, rows]]))
        while self.join.probe(self._groups, 1 << 40, self.out) is not Progress.DONE:
            self.out.clear()
        self.out.clear()
        self.join.expire(self._groups, (0, 0), self.out)
        return time.perf_counter() - start_s

    @property
    def done(self) -> np.ndarray:
        """The comparisons and the results so far."""
        info = self.join.info(self._groups)
        return np.array([info.comparisons[0], info.results[0]])


def comparison_ns() -> float:
    """Returns the cost of a comparison. Few tuples come to two large chains, and there is hardly any result."""
    bench = Bench(THETA_OFF)
    bench.feed(100_000, 1 << 60)

    def once() -> float:
        before = bench.done[0]
        return bench.feed(500, 1 << 60) / float(bench.done[0] - before)

    return 1e9 * best_s(once)


def tuple_ns(comparison: float) -> float:
    """Returns the cost of a tuple that comes in.

    The chains are tuned, so that this is most of the time. The cost of the comparisons is taken off.
    """
    bench = Bench(theta_bytes(AUTO, TUPLE_BYTES, BLOCK_BYTES))
    bench.feed(200_000, 1 << 60)

    def once() -> float:
        before = bench.done[0]
        return (bench.feed(20_000, 1 << 60) - float(bench.done[0] - before) * comparison / 1e9) / 40_000

    return 1e9 * best_s(once)


def result_ns(comparison: float, tuple_cost: float) -> float:
    bench = Bench(THETA_OFF)
    bench.feed(5_000, 100)

    def once() -> float:
        before = bench.done
        spent_s = bench.feed(500, 100)
        compared, found = (bench.done - before).astype(float)
        return (spent_s - (compared * comparison + 1000 * tuple_cost) / 1e9) / found

    return 1e9 * best_s(once)


def split_tuple_ns(tuple_cost: float) -> float:
    """Returns the cost of copying a tuple in a split.

    A window that was never tuned is tuned once, and each tuple goes through every level of the directory.
    """

    def once() -> float:
        bench = Bench(THETA_OFF)
        for _ in range(20):
            bench.feed(5_000, 1 << 60)
        bench.join._table.counters[THETA] = theta_bytes(AUTO, TUPLE_BYTES, BLOCK_BYTES)
        bench.join._table.groups[0, TUNED] = 0
        start_s = time.perf_counter()
        bench.join.expire(np.zeros(1, np.int64), (0, 0), bench.out)
        spent_s = time.perf_counter() - start_s
        return spent_s / (200_000 * max(1, int(bench.join.info(np.zeros(1, np.int64)).depth[0])))

    return 1e9 * best_s(once)


def state_byte_ns() -> float:
    """Returns half the cost of reading a group out and taking it in again, per byte of its frames."""
    bench = Bench(theta_bytes(AUTO, TUPLE_BYTES, BLOCK_BYTES))
    bench.feed(200_000, 1 << 60)

    def once() -> float:
        other = Bench(theta_bytes(AUTO, TUPLE_BYTES, BLOCK_BYTES))
        start_s = time.perf_counter()
        frames = bench.join.get(0, 0)
        other.join.install(frames)
        return (time.perf_counter() - start_s) / (2 * sum(frame.nbytes for frame in frames))

    return 1e9 * best_s(once)


def call_ns() -> float:
    bench, groups = Bench(THETA_OFF), np.zeros(0, np.int64)
    bounds, fresh = np.zeros((0, 2), np.int64), Fresh(np.zeros((0, TUPLE_BYTES // 8), np.int64), NO_BLOB)

    def once() -> float:
        start_s = time.perf_counter()
        for _ in range(300):
            bench.join.insert(groups, 0, fresh, bounds)
            bench.join.probe(groups, 1, bench.out)
            bench.join.expire(groups, (0, 0), bench.out)
        return (time.perf_counter() - start_s) / 900

    return 1e9 * best_s(once)


def master_ns() -> tuple[float, float]:
    """Returns the costs of making one tuple and of scattering it."""
    source = SyntheticSource(rate=1e6, tuples=1 << 20, payload_bytes=40)
    job = Job(tuple(StreamJob(name, source) for name in ("left", "right")))
    schema = resolve(job)
    place = np.arange(60)

    def made() -> tuple[float, float]:
        reader, spent = open_source(job, 0, schema, lambda table: None), [0.0, 0.0]
        rows = 0
        while True:
            start_s = time.perf_counter()
            chunk = reader.read(1 << 16)
            spent[0] += time.perf_counter() - start_s
            if not isinstance(chunk, Chunk):
                return spent[0] / rows, spent[1] / rows
            rows += chunk.batch.rows
            start_s = time.perf_counter()
            scatter([chunk.batch], place, chunk.batch.record.shape[1], False)
            spent[1] += time.perf_counter() - start_s

    made()
    found = [made() for _ in range(ROUNDS)]
    return 1e9 * min(one[0] for one in found), 1e9 * min(one[1] for one in found)


def receive(endpoint: Transport, count: int) -> None:
    while count:
        messages = endpoint.poll()
        for message in messages:
            decode(message.data)
        count -= len(messages)
        if not messages:
            endpoint.wait(1.0)


def burst(endpoint: Transport, count: int, octets: int) -> tuple[float, float]:
    """Sends so many messages one way, and then the other. Returns (wall, CPU) seconds of this rank per message."""
    data = encode(1, {}, [np.zeros(octets, np.uint8)])
    start_s, cpu_s = time.perf_counter(), time.thread_time()
    for sender in range(2):
        if endpoint.rank == sender:
            for _ in range(count):
                endpoint.send(1 - sender, Channel.DATA, data)
            endpoint.flush(10.0)
        else:
            receive(endpoint, count)
    return (time.perf_counter() - start_s) / (2 * count), (time.thread_time() - cpu_s) / (2 * count)


def round_trip_s(endpoint: Transport) -> float:
    start_s = time.perf_counter()
    for _ in range(ROUND_TRIPS):
        burst(endpoint, 1, 64)
    return (time.perf_counter() - start_s) / ROUND_TRIPS


def link_costs(endpoint: Transport) -> dict[str, float]:
    """Returns the processor time at one end, and what the link takes beside it."""
    burst(endpoint, SMALL_MESSAGES // 10, 64)
    small_s, small_cpu_s = min(burst(endpoint, SMALL_MESSAGES, 64) for _ in range(ROUNDS))
    large_s, large_cpu_s = min(burst(endpoint, LARGE_MESSAGES, LARGE_BYTES) for _ in range(ROUNDS))
    round_s = min(round_trip_s(endpoint) for _ in range(ROUNDS))
    return {
        "message_ns": 1e9 * small_cpu_s,
        "byte_ns": max(0.0, 1e9 * (large_cpu_s - small_cpu_s) / LARGE_BYTES),
        "latency_ns": max(0.0, 1e9 * (round_s / 2 - 2 * small_cpu_s)),
        "bandwidth_bytes_per_s": LARGE_BYTES / max(1e-9, large_s - small_s),
    }


def measured_link() -> dict[str, float]:
    """Measures a link between two processes if there is MPI, else between two threads."""
    launcher = shutil.which("mpirun", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if launcher:
        command = [launcher, "-n", "2", sys.executable, __file__, "--link"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": ":".join(sys.path)}
        )
        if done.returncode == 0:
            return {
                name: float(value) for name, value in (line.split() for line in done.stdout.splitlines() if " " in line)
            }
        print(f"without MPI: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
    return local_link()


def local_link() -> dict[str, float]:
    from threading import Thread

    endpoints, found = LocalTransport.create(2), {}
    threads = [Thread(target=lambda one=one: found.update({one.rank: link_costs(one)})) for one in endpoints]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found[0]


def print_mpi_link() -> None:
    from mpijoin.transport.mpi import MpiTransport

    endpoint = MpiTransport()
    found = link_costs(endpoint)
    if endpoint.rank == 0:
        print("\n".join(f"{name} {value}" for name, value in found.items()), flush=True)
    endpoint.close(10.0)


def measure() -> Costs:
    comparison = comparison_ns()
    taken_in = tuple_ns(comparison)
    generated, scattered = master_ns()
    return Costs(
        comparison_ns=comparison,
        tuple_ns=taken_in,
        result_ns=max(0.0, result_ns(comparison, taken_in)),
        split_tuple_ns=split_tuple_ns(taken_in),
        state_byte_ns=state_byte_ns(),
        call_ns=call_ns(),
        generated_ns=generated,
        scattered_ns=scattered,
        **measured_link(),
    )


def text_of(costs: Costs) -> str:
    lines = [
        (
            "# One core of an ordinary server, as scripts/calibrate_costs.py measured it: tuples of 64 bytes, blocks of"
            " 4 KiB,"
        ),
        (
            f"# {platform.machine()}, messages between two processes of one node. Measure your own machine for figures"
            " of your own."
        ),
    ]
    lines += [f"{name} = {value:.4g}" for name, value in vars(costs).items() if name != "bandwidth_bytes_per_s"]
    return "\n".join([*lines, f"bandwidth_bytes_per_s = {costs.bandwidth_bytes_per_s:.4g}", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", metavar="FILE", help="where to write; default: to the terminal")
    parser.add_argument(
        "--link", action="store_true", help="one end of the measured link: started by the script itself"
    )
    options = parser.parse_args()
    if options.link:
        print_mpi_link()
        return
    text = text_of(measure())
    if options.o:
        Path(options.o).write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
