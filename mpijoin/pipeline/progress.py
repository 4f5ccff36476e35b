"""Says in lines how far Spark is, for logs and pipes. On a terminal Spark draws a bar itself."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager, suppress
from typing import Any, Iterator, Sequence, TextIO

from mpijoin.named import NamedTuple
from mpijoin.progress import LINE_INTERVAL_S, seconds

FIRST_S = 5.0  # a command that ends before says nothing of its progress
STOP_S = 5.0  # how long the end of a command waits for a line that is being written


class Stage(NamedTuple):
    """A stage that Spark is working on."""

    number: int
    tasks: int
    done: int


@contextmanager
def told_in_lines(spark: Any, name: str, stream: TextIO | None = None) -> Iterator[None]:
    """While it lasts, a line a minute says how far Spark is; the first comes after 5 s. Nothing is written to a
    terminal.

    name: of the command · stream: default stderr. No fault of these lines ever reaches the command.
    """
    stream = stream or sys.stderr
    if stream.isatty():
        yield
        return
    ended = threading.Event()
    teller = threading.Thread(target=_tell, args=(spark.sparkContext.statusTracker(), name, stream, ended), daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join(STOP_S)


def line_of(name: str, elapsed_s: float, stages: Sequence[Stage]) -> str:
    """
    >>> line_of("profile", 65, [Stage(3, 200, 50)])
    'mpijoin profile: 1 min 05 s, stage 4: 50 of 200 tasks done'
    """
    doing = [f"stage {one.number + 1}: {one.done:,} of {one.tasks:,} tasks done" for one in stages]
    return ", ".join([f"mpijoin {name}: {seconds(elapsed_s)}", *(doing or ["between two stages"])])


def _tell(tracker: Any, name: str, stream: TextIO, ended: threading.Event) -> None:
    start_s, wait_s = time.monotonic(), FIRST_S
    # Any error of Spark or of the stream ends the lines. A session that stops raises errors of several kinds.
    with suppress(Exception):
        while not ended.wait(wait_s):
            print(line_of(name, time.monotonic() - start_s, _stages(tracker)), file=stream, flush=True)
            wait_s = LINE_INTERVAL_S


def _stages(tracker: Any) -> list[Stage]:
    known = [tracker.getStageInfo(number) for number in sorted(tracker.getActiveStageIds())]
    return [Stage(one.stageId, one.numTasks, one.numCompletedTasks) for one in known if one is not None]
