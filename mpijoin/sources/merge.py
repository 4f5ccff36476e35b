"""Reads several files as one stream: rows are merged by the time of each file's next row; ties go by file order.

Taking the file whose next row is earliest, row after row, gives the rows in the order of (running maximum in their own
file, file order, position): a row below its file's maximum follows its predecessor at once, since no other file's next
row is that early. So whole blocks merge by a stable sort, and the stream's running maximum is that sort key. Dropped
rows only count in the running maximum.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Callable, Iterator, Literal, Sequence

import numpy as np
import pyarrow as pa

from mpijoin.data.arrow import null_mask, one_array
from mpijoin.data.rows import concat_batches, empty_batch, split_batch, take_rows
from mpijoin.data.schema import Column
from mpijoin.named import NamedTuple
from mpijoin.sources.ahead import AheadReader, Decoder
from mpijoin.sources.base import (
    TIME_MAX,
    TIME_MIN,
    Chunk,
    End,
    FilePosition,
    FileShare,
    Screened,
    SourceCounts,
    SourcePosition,
)
from mpijoin.sources.blocks import BlockLimit
from mpijoin.sources.files import Reader
from mpijoin.sources.late import late_columns
from mpijoin.sources.ranges import ALL_ROWS, RowRange
from mpijoin.sources.screen import FileScreen, StreamRules, times_int64

PEEK_ROWS = 1024
# Of a file, as long as they are not smaller than this. With fewer, a core waits while a tick is scattered. With 7, a
# block of a single file still has 2^16 rows of 16 bytes.
AHEAD_BLOCKS, AHEAD_BYTES_MIN = 7, 1 << 18
SHARE_BYTES_MIN = 1 << 16  # of a block, however many files are open


class Part(NamedTuple):
    """One file of a stream: `open(columns, limit, rows)` gives a reader; `size` weighs its progress. is_decoded:
    whether its blocks take enough work for a thread to decode them ahead."""

    name: str
    size: int
    open: Callable[[Sequence[Column], BlockLimit, Sequence[RowRange]], Reader]
    is_decoded: bool = False


class Cursor:
    """One open file: the joinable rows of its present block that were not taken yet, and where its later rows can lie.

    Invariant: every row after the present block that can be taken has a running maximum of at least `bound`. That is
    the file's maximum so far, or its first time (`first`) as long as only rows without a time have been read.
    """

    def __init__(
        self,
        rules: StreamRules,
        counts: SourceCounts,
        part: Part,
        start: FilePosition,
        limit: BlockLimit,
        decoder: Decoder,
    ):
        self.index = start.file
        self._first = start.first
        self._ranges = deque(start.ranges)  # the first one is being read
        self._screen = FileScreen(rules, counts, part.name, start.file)
        self._reader: Reader | None = None
        self._blocks: Iterator[pa.RecordBatch] = iter(())
        self._rows: pa.RecordBatch | None = None  # of the last block, what is of further ranges
        self._block = start.block
        if start.ranges:
            self._screen.go_to(start.ranges[0].start, start.ranges[0].running_max)
            columns = {column.name: column for column in late_columns(rules.schema)}
            rows = [RowRange(one.start, one.stop) for one in start.ranges]
            reader = part.open(tuple(columns.values()), limit, rows)
            self._reader = AheadReader(reader, limit, decoder) if part.is_decoded else reader
            self._blocks = self._reader.blocks()

    @property
    def bound(self) -> int:
        if self._reader is None:
            return TIME_MAX
        reached = max(self._first, self._screen.running_max)
        if len(self._ranges) > 1 and self._ranges[0].stop == self._screen.position:
            return max(reached, self._ranges[1].running_max)
        return reached

    def fraction(self) -> float:
        return self._reader.fraction() if self._reader else 1.0

    def advance(self) -> bool:
        """Makes sure that there is a row to take, or reads one more block; returns False when the file has ended."""
        if len(self._block.running_max):
            return True
        block = self._rows or next(self._blocks, None)
        if block is None:
            return False
        self._block = self._screen.screen(self._of_one_range(block))
        return True

    def _of_one_range(self, block: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the rows of a block that are of one range, which then is the one being read. Others are kept."""
        self._rows = None
        if self._ranges[0].stop == self._screen.position:
            self._ranges.popleft()
            self._screen.go_to(self._ranges[0].start, max(self._screen.running_max, self._ranges[0].running_max))
        stop = self._ranges[0].stop
        if stop is None or block.num_rows <= stop - self._screen.position:
            return block
        rows = stop - self._screen.position
        self._rows = block.slice(rows)
        return block.slice(0, rows)

    def take(self, bound: tuple[int, int]) -> Screened:
        """Takes the rows at or before `bound` = (running maximum, file index), in merge order."""
        side: Literal["left", "right"] = "right" if self.index <= bound[1] else "left"
        rows = int(np.searchsorted(self._block.running_max, bound[0], side))
        head, tail = split_batch(self._block.batch, rows)
        running_max = self._block.running_max
        self._block = Screened(tail, running_max[rows:])
        return Screened(head, running_max[:rows])

    def save(self) -> FilePosition:
        position, running_max = self._screen.position, self._screen.running_max
        ranges = [one for one in self._ranges if one.stop is None or one.stop > position]
        if ranges and ranges[0].start <= position:
            ranges[0] = ranges[0]._replace(start=position, running_max=running_max)
        return FilePosition(self.index, self._first, tuple(ranges), self._block)

    def close(self) -> None:
        self._blocks, self._rows = iter(()), None
        if self._reader:
            self._reader.close()


class MergedFiles:
    """Merges the files of one stream. Each is opened when the merge reaches its first time, and closed at its end.

    Each open file holds a block, and some more where they are decoded ahead; the more files are open, the smaller and
    the fewer these are.
    """

    def __init__(
        self, rules: StreamRules, parts: Sequence[Part], limit: BlockLimit, saved: SourcePosition | None = None
    ):
        """limit: of a block while one file is open · saved: by a source of the same files; this one goes on from there.
        Late rows that were given to the late sink before are not given again."""
        start = saved or unread(rules, parts)
        self.counts = replace(start.counts)
        self._rules, self._parts = rules, parts
        self._limit, self._octets, self._decoder = replace(limit), limit.octets, Decoder()
        self._open: list[Cursor] = []  # by file order
        self._waiting = list(start.waiting)
        self._rest = start.rest  # of the last chunk, what the reader had not asked for
        self._ended = start.ended
        try:
            for file in start.open:
                self._open.append(self._opened(file))
        except BaseException:
            self.close()
            raise

    def _opened(self, start: FilePosition) -> Cursor:
        self._share_out(len(self._open) + 1)
        return Cursor(self._rules, self.counts, self._parts[start.file], start, self._limit, self._decoder)

    def _share_out(self, files: int) -> None:
        """From now on so many files are open."""
        share = self._octets // max(1, files)
        self._limit.ahead = max(0, min(AHEAD_BLOCKS, share // AHEAD_BYTES_MIN - 1))
        self._limit.octets = max(SHARE_BYTES_MIN, share // (1 + self._limit.ahead))

    def read(self, rows: int) -> Chunk | End:
        chunk, self._rest = self._rest or self._next(), None
        if isinstance(chunk, End) or chunk.batch.rows <= rows:
            return chunk
        head, tail = split_batch(chunk.batch, rows)
        self._rest = Chunk(tail, chunk.running_max[rows:], chunk.horizon)
        return Chunk(head, chunk.running_max[:rows], int(chunk.running_max[rows]))

    def _next(self) -> Chunk | End:
        if self._ended:
            return End()
        self._open = [cursor for cursor in self._open if self._advanced(cursor)]
        self._share_out(len(self._open))
        self._open_due()
        if not self._open:
            self._ended = True
            return Chunk(*self._nothing(), TIME_MAX)
        bound = min((cursor.bound, cursor.index) for cursor in self._open)
        pieces = [cursor.take(bound) for cursor in self._open]
        return Chunk(*merge([piece for piece in pieces if len(piece.running_max)] or pieces[:1]), bound[0])

    def _nothing(self) -> Screened:
        return Screened(empty_batch(self._rules.layout.record_words), np.empty(0, np.int64))

    def _advanced(self, cursor: Cursor) -> bool:
        if cursor.advance():
            return True
        cursor.close()
        return False

    def _open_due(self) -> None:
        """Opens the next file while none that is open lies before its first row."""
        while self._waiting and all(
            self._waiting[0][:2] < (cursor.bound, cursor.index) for cursor in self._open
        ):
            first, index, ranges = self._waiting.pop(0)
            cursor = self._opened(FilePosition(index, first, ranges, self._nothing()))
            self._open.append(cursor)
            if not self._advanced(cursor):
                self._open.pop()
        self._open.sort(key=lambda cursor: cursor.index)

    def progress(self) -> float:
        total = sum(part.size for part in self._parts)
        if self._ended or total == 0:
            return float(self._ended)
        left = sum(self._parts[one.file].size for one in self._waiting)
        return 1.0 - (left + sum((1.0 - one.fraction()) * self._parts[one.index].size for one in self._open)) / total

    def save(self) -> SourcePosition:
        opened = [cursor.save() for cursor in self._open]
        return SourcePosition(replace(self.counts), opened, list(self._waiting), self._rest, self._ended)

    @property
    def decoding_s(self) -> float:
        return self._decoder.cpu_s

    def close(self) -> None:
        for cursor in self._open:
            cursor.close()
        self._decoder.close()
        self._open, self._waiting, self._ended = [], [], True


def unread(rules: StreamRules, parts: Sequence[Part]) -> SourcePosition:
    """Where the reading of these files begins."""
    return SourcePosition(SourceCounts(), (), sorted(map(FileShare, first_times(rules, parts), range(len(parts)))))


def first_times(rules: StreamRules, parts: Sequence[Part]) -> list[int]:
    """A time for each file before which it has no row. A single file need not be looked at."""
    return [TIME_MIN] if len(parts) == 1 else [first_time(rules, part) for part in parts]


def merge(pieces: list[Screened]) -> Screened:
    """Puts the rows of several files, which come in file order, into merge order."""
    if len(pieces) == 1:
        return pieces[0]
    running_max = np.concatenate([piece.running_max for piece in pieces])
    order = np.argsort(running_max, kind="stable")
    return Screened(take_rows(concat_batches([piece.batch for piece in pieces]), order), running_max[order])


def first_time(rules: StreamRules, part: Part) -> int:
    """The time of the file's first row that has one, in the join's unit; TIME_MIN if the first rows have none.

    Rows without a time take no part in the merge, so they need not open the file. A file without rows may as well be
    opened at once.
    """
    time = rules.schema.time
    reader = part.open((time,), BlockLimit(PEEK_ROWS), ALL_ROWS)
    try:
        block = next(reader.blocks(), None)
    finally:
        reader.close()
    if block is None:
        return TIME_MIN
    column = one_array(block.column(time.name))
    nulls = null_mask(column)
    values, unfit = times_int64(column, rules.schema.scale)
    valid = values if nulls is None else values[~nulls]
    # What does not fit is told, with its row, when the file is read.
    return TIME_MIN if unfit is not None or len(valid) == 0 else int(valid[0]) * rules.schema.scale
