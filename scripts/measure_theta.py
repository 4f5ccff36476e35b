"""Measures which theta is best for a full join on this processor, and how good the choice of a short trial is.

    python scripts/measure_theta.py [--words 6] [--rounds 3] [--quick]

There are two synthetic streams of 1500 rows/s, with keys by the b-model (bias 0.7), windows of 600 s, and tuples of so
many words. For every theta (in tuples of both streams) it prints the nanoseconds of a core per tuple in epochs of 100,
20 and 2 s, their geometric mean, and the memory of the windows. Then it prints eight times what `theta = "auto"`
chooses by a short trial, as at start-up. Rounds alternate, and the best of them counts.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from statistics import geometric_mean
from typing import Iterator

import numpy as np

from mpijoin.config.check import resolve
from mpijoin.config.job import Job
from mpijoin.config.load import load_job
from mpijoin.data.batch import Batch, read_only
from mpijoin.data.schema import JoinSchema
from mpijoin.join.tuning import GROUP_TUPLES, choose, measure, width_of
from mpijoin.join.window_join import WindowJoin, window_join
from mpijoin.operators.base import Out, Progress
from mpijoin.partitioning.scatter import scatter
from mpijoin.producer.intake import Intake
from mpijoin.producer.start import pacing_of
from mpijoin.store.insert import Fresh

THETAS = (240, 340, 480, 680, 960, 1360, 1920)
PARTITIONS = 60
WINDOW_S = 600
TICK_S = 2
FILLING = [(100, 15)]
TIMED = [(100, 2), (20, 10), (2, 50)]  # Each entry says how long an epoch is, in seconds, and how many there are.
MEMORY_BYTES = 8 << 30  # This is address space.
TRIALS = 8

Stream = tuple[Fresh, np.ndarray]
Epoch = tuple[tuple[Stream, Stream], tuple[int, int]]


def bench_job(rate: float) -> Job:
    stream = {"kind": "synthetic", "rate": rate, "bias": 0.7, "duration": "1 h", "window": f"{WINDOW_S} s"}
    return load_job(
        {
            "left": {**stream, "seed": 1},
            "right": {**stream, "seed": 2},
            "cluster": {"distribution_epoch": f"{TICK_S} s"},
            "output": {"results": "count"},
        }
    )


def epochs_of(job: Job, schema: JoinSchema, words: int) -> Iterator[Epoch]:
    """Yields both streams epoch by epoch, laid out by partition, with their watermarks."""
    intake = Intake(job, schema, None, pacing_of(job, schema, producers=1).pace)
    for epoch_s, count in FILLING + TIMED:
        for _ in range(count):
            ticks = 0
            batches: tuple[list[Batch], list[Batch]] = ([], [])
            while ticks < epoch_s // TICK_S:
                tick = intake.next()
                ticks += tick.watermarks is not None
                for own, more in zip(batches, tick.batches):
                    own.extend(more)
            yield tuple(laid_out(own, words) for own in batches), tick.watermarks
    intake.close()


def laid_out(batches: list[Batch], words: int) -> Stream:
    wide = [batch._replace(record=np.zeros((batch.rows, words - 3), np.int64)) for batch in batches]
    scattered = scatter(wide, np.arange(PARTITIONS), words - 3, False)
    bounds = np.stack([scattered.starts[:-1], scattered.starts[1:]], axis=1)
    return Fresh(read_only(scattered.tuples), read_only(scattered.blob)), bounds


def run(epochs: list[Epoch], words: int, theta_tuples: int, window: int) -> tuple[list[float], int]:
    """Returns the nanoseconds per tuple for each length of epochs, and the bytes of the windows at the end."""
    operator = window_join(
        PARTITIONS, MEMORY_BYTES, 4096, 8 * words * theta_tuples, [(words - 3, False, window)] * 2
    )
    remaining = iter(epochs)
    for _ in range(sum(count for _, count in FILLING)):
        join(operator, *next(remaining))
    times = []
    for _, count in TIMED:
        timed = [next(remaining) for _ in range(count)]
        start = time.thread_time_ns()
        for epoch in timed:
            join(operator, *epoch)
        rows = sum(len(fresh.tuples) for streams, _ in timed for fresh, _ in streams)
        times.append((time.thread_time_ns() - start) / rows)
    return times, operator.memory().held


def join(operator: WindowJoin, streams: tuple[Stream, Stream], watermarks: tuple[int, int]) -> None:
    groups = np.arange(PARTITIONS)
    for stream, (fresh, bounds) in enumerate(streams):
        operator.insert(groups, stream, fresh, bounds)
    out = Out(2, 8192)
    while operator.probe(groups, 1 << 22, out) is not Progress.DONE:
        out.clear()
    operator.expire(groups, watermarks, out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--words", type=int, default=6, help="of a tuple, 3 or more")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, one round")
    arguments = parser.parse_args()
    words, rounds = arguments.words, 1 if arguments.quick else arguments.rounds
    job = bench_job(150 if arguments.quick else 1500)
    schema = resolve(job)
    epochs, window = list(epochs_of(job, schema, words)), schema.ticks(job.streams[0].window_ns)
    # The first run loads the kernels and touches the memory.
    run(epochs, words, GROUP_TUPLES, window)
    best, held = {theta: [np.inf] * len(TIMED) for theta in THETAS}, {}
    for _ in range(rounds):
        for theta in THETAS:
            times, held[theta] = run(epochs, words, theta, window)
            best[theta] = list(map(min, times, best[theta]))
    means = {theta: geometric_mean(times) for theta, times in best.items()}
    print("theta   100 s    20 s     2 s    mean   to best   MB")
    for theta, times in best.items():
        columns = "  ".join(f"{value:6.0f}" for value in (*times, means[theta]))
        print(f"{theta:5}  {columns}   {means[theta] / min(means.values()):6.2f}  {held[theta] / 1e6:5.0f}")
    for theta, count in Counter(choose(measure(width_of(8 * words))) for _ in range(TRIALS)).most_common():
        print(f"chosen {count} of {TRIALS} times: {theta}, {means[theta] / min(means.values()):.2f} of the best")


if __name__ == "__main__":
    main()
