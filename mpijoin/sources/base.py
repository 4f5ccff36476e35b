"""The contract of a source: one stream's joinable tuples, in merge order, with how far the stream has come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, NamedTuple, Protocol, Sequence

import numpy as np
import pyarrow as pa

from mpijoin.data.batch import Batch

TIME_MIN = int(np.iinfo(np.int64).min)
TIME_MAX = int(np.iinfo(np.int64).max)
BLOCK_ROWS = 1 << 16  # rows decoded at a time: large enough to hide the cost per block, small enough for the caches
BLOCK_BYTES = 8 << 20  # ... and at most about so many bytes, of all files of a stream that are open at once

LateSink = Callable[[pa.Table], None]


class Chunk(NamedTuple):
    """Some consecutive tuples of a stream; all arrays contiguous, and good for as long as they are held; not to be
    written.

    batch: joinable tuples only, in merge order (late and null-key rows are gone) · running_max int64[n]: the stream's
    running maximum at each of them, in the join's unit, never falling · horizon: no later chunk's running_max is
    below this; TIME_MAX once the stream has ended. A chunk may be empty and still move the horizon.
    """

    batch: Batch
    running_max: np.ndarray
    horizon: int


class Wait(NamedTuple):
    """Nothing has come yet. until_s: nobody need ask again before, in seconds since 1970."""

    until_s: float


class End(NamedTuple):
    """Nothing more will come."""


@dataclass
class SourceCounts:
    """Rows so far, of what has been decoded: it may run a few blocks ahead of what has been read.

    read = joinable + late + null_key · late includes null times · disorder_max: how far, in the join's unit, the
    latest row lay below the running maximum; the lateness that would have covered all.
    """

    read: int = 0
    late: int = 0
    null_key: int = 0
    disorder_max: int = 0


class Screened(NamedTuple):
    """A block's joinable rows, and the file's running maximum at each, int64[n]."""

    batch: Batch
    running_max: np.ndarray


class FilePosition(NamedTuple):
    """An open file. first: time of its first row, as merge.py finds it · rows: of the file that have been screened ·
    running_max: of these · block: of the last of these, the joinable ones not yet taken."""

    index: int  # type: ignore[assignment]  # not the method of tuples
    first: int
    rows: int
    running_max: int
    block: Screened


class SourcePosition(NamedTuple):
    """A source. open: by file order · waiting: (first time, index) of files not yet opened, sorted; files that are
    neither are finished · rest: of the last chunk, what has not been asked for · ended: whether the last chunk has been
    given."""

    counts: SourceCounts
    open: Sequence[FilePosition]
    waiting: Sequence[tuple[int, int]]
    rest: Chunk | None = None
    ended: bool = False


class Source(Protocol):
    """One stream. Memory is bounded by a few blocks per file open at once, whatever the files' size."""

    counts: SourceCounts

    def read(self, rows: int) -> Chunk | Wait | End:
        """The next 1 to `rows` tuples, or an empty chunk that moved the horizon; when to ask again; or the end.

        May block on files, but never until something comes: then it says Wait. Raises InputError when a file is not
        what the job says, and whatever the late sink raises; after an error only `close` may follow.
        """

    def save(self) -> SourcePosition:
        """What another source of the same input needs to go on from here; shares the rows held with this one."""

    def progress(self) -> float:
        """Share of the input decoded so far, 0 to 1."""

    def close(self) -> None:
        """Lets go of files and threads; may be called at any time, also twice."""
