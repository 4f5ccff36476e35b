"""The contract of a source: it gives the joinable tuples of one stream in merge order, and how far the stream has
come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Protocol, Sequence

import numpy as np
import pyarrow as pa

from mpijoin.data.batch import Batch
from mpijoin.named import NamedTuple

TIME_MIN = int(np.iinfo(np.int64).min)
TIME_MAX = int(np.iinfo(np.int64).max)
BLOCK_ROWS = 1 << 16  # rows decoded at a time: large enough to hide the cost per block, small enough for the caches
BLOCK_BYTES = 8 << 20  # ... and at most about so many bytes, of all files of a stream that are open at once

LateSink = Callable[[pa.Table], None]


class Chunk(NamedTuple):
    """Some consecutive tuples of a stream. All arrays are contiguous and stay valid as long as they are held; nobody
    may write to them.

    batch: joinable tuples only, in merge order (late and null-key rows are gone) · running_max int64[n]: the stream's
    running maximum at each of them, in the join's unit, never falling · horizon: no later chunk's running_max is below
    this; TIME_MAX once the stream has ended. A chunk may be empty and still move the horizon.
    """

    batch: Batch
    running_max: np.ndarray
    horizon: int


class Wait(NamedTuple):
    """Nothing has come yet. until_s: it is no use to ask again before this time, in seconds since 1970."""

    until_s: float


class End(NamedTuple):
    """Nothing more will come."""


@dataclass
class SourceCounts:
    """Counts the rows that have been screened so far, which may be a few blocks more than have been read.

    read = joinable + late + null_key · late includes null times · disorder_max: how far, in the join's unit, the latest
    row lay below the running maximum. That much lateness would have covered all rows.
    """

    read: int = 0
    late: int = 0
    null_key: int = 0
    disorder_max: int = 0


class Screened(NamedTuple):
    """A block's joinable rows, and the file's running maximum at each, int64[n]."""

    batch: Batch
    running_max: np.ndarray


class ShareRange(NamedTuple):
    """Rows start .. stop - 1 of a file are to be read; stop None: to its end. running_max: the largest time among all
    rows before `start`, TIME_MIN if there is none."""

    start: int = 0
    stop: int | None = None
    running_max: int = TIME_MIN


class FileShare(NamedTuple):
    """What is to be read of a file that is not open yet. first: the time of the first of these rows, as merge.py finds
    it, or a bound below it · file: its number."""

    first: int
    file: int
    ranges: tuple[ShareRange, ...] = (ShareRange(),)


class FilePosition(NamedTuple):
    """An open file. file: its number · first: as in `FileShare` · ranges: what has not been screened of it, if anything
    · block: the joinable ones among the rows before that were not taken yet."""

    file: int
    first: int
    ranges: tuple[ShareRange, ...]
    block: Screened


class SourcePosition(NamedTuple):
    """Where a source stands. open: in file order · waiting: files not opened yet, sorted; all others are finished ·
    rest: the part of the last chunk that has not been asked for · ended: whether the last chunk was given."""

    counts: SourceCounts
    open: Sequence[FilePosition]
    waiting: Sequence[FileShare]
    rest: Chunk | None = None
    ended: bool = False


class Source(Protocol):
    """One stream. Its memory is bounded by a few blocks for each file that is open, however large the files are."""

    counts: SourceCounts

    def read(self, rows: int) -> Chunk | Wait | End:
        """Returns the next 1 to `rows` tuples, or an empty chunk that moves the horizon; or Wait, which says when to
        ask again; or End.

        It may block on files, but not until something comes: in that case it returns Wait. Raises InputError when a
        file is not what the job says, and whatever the late sink raises; after an error only `close` may follow.
        """

    def save(self) -> SourcePosition:
        """What another source of the same input needs to go on from here. It shares the rows that it holds with this
        source."""

    def progress(self) -> float:
        """The share of the input that has been decoded so far, 0 to 1."""

    @property
    def decoding_s(self) -> float:
        """CPU seconds of its threads."""

    def close(self) -> None:
        """Closes files and ends threads. It may be called at any time, and also twice."""
