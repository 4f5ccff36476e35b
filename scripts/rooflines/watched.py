"""The `mpijoin` command with a stopwatch at each stage of the engine: python watched.py FOLDER times|counts COMMAND...

Each rank leaves FOLDER/rank-N.json. With `times` it holds the seconds of each stage since the rank's clock started.
They are of the core's time, so that others on the core do not count; only "idle" is by the wall clock. With `counts` it
holds what a slave counted. Counting takes time, so it is done in runs of its own.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from functools import wraps
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np

from mpijoin.cli import main as mpijoin
from mpijoin.clock import RunClock
from mpijoin.data.codec import ALIGNMENT
from mpijoin.join.window_join import WindowJoin
from mpijoin.messages import Slot
from mpijoin.operators.base import Out, Rows
from mpijoin.partitioning.buffers import MiniBuffers
from mpijoin.producer.intake import Intake
from mpijoin.sinks.parquet import ParquetSink
from mpijoin.sources.files import ParquetReader
from mpijoin.sources.screen import FileScreen
from mpijoin.store.state import ROW
from mpijoin.transport.guard import launched_rank
from mpijoin.transport.mpi import MpiTransport

LINE_WORDS = ALIGNMENT // 8

# The methods that do the work of each stage. None of them calls another.
MASTER_STAGES = {
    "decode": ((ParquetReader, "blocks"),),
    "key coding": ((FileScreen, "screen"),),
    "scatter": ((Intake, "scatter"),),
    "send": ((MiniBuffers, "settle"), (Slot, "encode"), (MpiTransport, "send"), (MpiTransport, "poll")),
    "idle": ((MpiTransport, "wait"),),
}
SLAVE_STAGES = {
    "receive": ((MpiTransport, "poll"), (MpiTransport, "send")),
    "append": ((WindowJoin, "insert"),),
    "probe": ((WindowJoin, "probe"),),
    "write": ((ParquetSink, "consume"), (ParquetSink, "close")),
    "expire": ((WindowJoin, "expire"),),
    "idle": ((MpiTransport, "wait"),),
}


class Stopwatch:
    """Measures stages. seconds: of each stage, since the rank's clock was started."""

    def __init__(self, stages: dict[str, tuple[tuple[type, str], ...]]):
        self.seconds: Counter[str] = Counter()
        for stage, methods in stages.items():
            for owner, name in methods:
                replace(owner, name, lambda method, stage=stage: self._timed(method, stage))
        replace(RunClock, "start", self._starting)

    def _timed(self, method: Callable, stage: str) -> Callable:
        clock = time.perf_counter if stage == "idle" else time.thread_time

        @wraps(method)
        def timed(*arguments: Any, **options: Any) -> Any:
            start = clock()
            try:
                result = method(*arguments, **options)
            finally:
                self.seconds[stage] += clock() - start
            return self._iterated(result, stage) if isinstance(result, Iterator) else result

        return timed

    def _iterated(self, items: Iterator, stage: str) -> Iterator:
        """Yields the same items, and counts the time that it takes to get each of them."""
        following = self._timed(lambda: next(items, self), stage)
        while (item := following()) is not self:
            yield item

    def _starting(self, start: Callable) -> Callable:
        def starting(*arguments: Any) -> None:
            start(*arguments)
            self.seconds.clear()

        return starting


class Counting:
    """Counts what a slave's join does, as in `Work` of engine.py. The run must keep results."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        # The slice that is being joined begins at these row numbers, one per stream.
        self._fresh_from = [np.inf, np.inf]
        for owner, name in (
            (WindowJoin, "insert"),
            (WindowJoin, "probe"),
            (ParquetSink, "consume"),
            (WindowJoin, "expire"),
        ):
            replace(owner, name, lambda method, name=name: self._before(method, getattr(self, name)))

    def _before(self, method: Callable, look: Callable) -> Callable:
        def looked_at(one: Any, *arguments: Any) -> Any:
            look(one, *arguments)
            return method(one, *arguments)

        return looked_at

    def insert(self, join: WindowJoin, groups: np.ndarray, stream: int, fresh: Any, *rest: Any) -> None:
        first = fresh.tuples[:, ROW].min(initial=np.iinfo(np.int64).max)
        self._fresh_from[stream] = min(self._fresh_from[stream], first)

    def probe(self, join: WindowJoin, groups: np.ndarray, budget: int, out: Out) -> None:
        if join._probed is None:  # Otherwise it goes on with the same groups.
            self.counts["tags_first_read"] += int(join.info(groups).tuples.sum())

    def consume(self, sink: ParquetSink, out: Out, rows: Rows, epoch: int) -> None:
        """Counts the cache lines of the older tuple of each pair, which is not in the caches yet.

        Several tuples of a batch may share a line.
        """
        left, right = (self._is_fresh(rows, stream, slots) for stream, slots in enumerate(out.filled))
        old = (out.filled[1][left & ~right], out.filled[0][right & ~left])
        # A tuple may lie across two lines.
        lines = (np.concatenate([slots, slots + ROW]) // LINE_WORDS for slots in old)
        self.counts["lines_of_old"] += sum(len(np.unique(one)) for one in lines)
        self.counts["results"] += len(left)

    def _is_fresh(self, rows: Rows, stream: int, slots: np.ndarray) -> np.ndarray:
        return rows.words[slots + ROW] >= self._fresh_from[stream]

    def expire(self, join: WindowJoin, groups: np.ndarray, watermarks: Any, out: Out) -> None:
        self._fresh_from = [np.inf, np.inf]
        self.counts["comparisons"] = join.totals.comparisons
        self.counts["expired"] = sum(join.totals.expired)


def replace(owner: type, name: str, wrap: Callable[[Callable], Callable]) -> None:
    setattr(owner, name, wrap(getattr(owner, name)))


def main(folder: str, kind: str, *command: str) -> int:
    rank = launched_rank(os.environ)
    watching = Stopwatch(SLAVE_STAGES if rank else MASTER_STAGES) if kind == "times" else Counting()
    exit_code = mpijoin(command)
    found = watching.seconds if kind == "times" else watching.counts
    Path(folder, f"rank-{rank}.json").write_text(json.dumps(found))
    return exit_code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
