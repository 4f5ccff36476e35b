"""A short join of made-up tuples that shows which size of mini-partition-groups suits this processor."""

from __future__ import annotations

import time
from statistics import geometric_mean
from typing import Sequence

import numpy as np

from mpijoin.data.batch import read_only
from mpijoin.join.window_join import WindowJoin, window_join
from mpijoin.named import NamedTuple
from mpijoin.operators.base import Out, Progress
from mpijoin.store.insert import Fresh

GROUPS = 16
# The windows of both streams hold so many tuples, about what the caches next to a core hold.
HELD_TUPLES = 40_000
WINDOW = 600_000
# Epochs of these lengths come before the timed ones, until blocks leave: a block spans a good part of a window.
FILLING = [WINDOW // 4] * 6
# Lengths of epochs, and how many of each are timed. They are like epochs of 100, 20 and 6 s in a window of 600 s: long
# ones spend their time on scans, short ones on visits of buckets.
TIMED = ((WINDOW // 6, 1), (WINDOW // 30, 3), (WINDOW // 100, 5))
# There are so many times as many keys as tuples. So results are few and cost next to nothing.
KEYS_PER_TUPLE = 4
MEMORY_BYTES = 256 << 20  # This is address space; the widest tuples take a fifth of it.
BLOCK_BYTES = 4096
BUDGET = 1 << 22
RESULTS = 8192  # So many results are found before they are forgotten.
SEED = 1


class Epoch(NamedTuple):
    """The tuples of both streams, each with their bounds int64[GROUPS, 2], and the time at which the epoch ends."""

    streams: tuple[tuple[Fresh, np.ndarray], ...]
    end: int


class Trial:
    """A join of the same tuples for every theta.

    The largest group is twice as large as the smallest, and their sizes are even on a logarithmic scale. So the sizes
    of buckets are spread over theta to 2 theta for any theta, as they are over many jobs, and chance favours none.
    """

    def __init__(self, words: int):
        """words: how many words a tuple has."""
        self._words = words
        generator = np.random.default_rng(SEED)
        starts = np.cumsum([0, *FILLING, *(length for length, count in TIMED for _ in range(count))])
        spans = zip(starts[:-1].tolist(), starts[1:].tolist())
        self._epochs = [Epoch(tuple(_tuples(generator, *span, words) for _ in range(2)), span[1]) for span in spans]

    def run(self, theta: int) -> float:
        """Returns the nanoseconds of this thread's time per tuple, as the geometric mean over long and short epochs.

        theta: in bytes.
        """
        operator = window_join(GROUPS, MEMORY_BYTES, BLOCK_BYTES, theta, [(self._words - 3, False, WINDOW)] * 2)
        remaining = iter(self._epochs)
        for _ in FILLING:
            _join(operator, next(remaining))
        return geometric_mean([_timed(operator, [next(remaining) for _ in range(count)]) for _, count in TIMED])


def _tuples(generator: np.random.Generator, start: int, end: int, words: int) -> tuple[Fresh, np.ndarray]:
    rows = HELD_TUPLES // 2 * (end - start) // WINDOW
    shares = 2.0 ** (np.arange(GROUPS) / GROUPS)
    counts = generator.multinomial(rows, shares / shares.sum())
    tuples = np.zeros((rows, words), np.int64)
    tuples[:, 0] = generator.integers(0, KEYS_PER_TUPLE * HELD_TUPLES, rows)
    tuples[:, 1] = generator.integers(start, end, rows)
    ends = np.cumsum(counts)
    fresh = Fresh(read_only(tuples), read_only(np.empty(0, np.uint8)))
    return fresh, np.stack([ends - counts, ends], axis=1)


def _timed(operator: WindowJoin, epochs: Sequence[Epoch]) -> float:
    start = time.thread_time_ns()
    for epoch in epochs:
        _join(operator, epoch)
    spent_ns = time.thread_time_ns() - start
    return spent_ns / sum(len(fresh.tuples) for epoch in epochs for fresh, _ in epoch.streams)


def _join(operator: WindowJoin, epoch: Epoch) -> None:
    groups = np.arange(GROUPS)
    for stream, (fresh, bounds) in enumerate(epoch.streams):
        operator.insert(groups, stream, fresh, bounds)
    out = Out(len(epoch.streams), RESULTS)
    while operator.probe(groups, BUDGET, out) is not Progress.DONE:
        out.clear()
    operator.expire(groups, (epoch.end, epoch.end), out)
