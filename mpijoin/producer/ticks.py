"""Cuts all streams into ticks: the rows of one slot of a distribution epoch, as prefix cuts by running maximum.

The tick [B, B') of a stream is those of its rows whose running maximum lies in it. All streams share the borders. There
are no ticks without rows, so a timestamp years ahead costs nothing. A tick of more bytes than a part may have comes in
several parts, of which only the last one completes it. What is read ahead is counted in bytes, too, because rows may be
of any width.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Callable, Sequence

import numpy as np

from mpijoin.data.batch import Batch
from mpijoin.data.rows import split_batch
from mpijoin.errors import ProtocolError
from mpijoin.named import NamedTuple
from mpijoin.producer.pacing import Pace
from mpijoin.sources.base import TIME_MAX, TIME_MIN, Chunk, End, Source, Wait
from mpijoin.sources.position import UNREAD, StreamPosition

READ_ROWS = 1 << 16


class Ends(NamedTuple):
    """What a part of a tick says beside its rows; the fields are those of `Tick`."""

    watermarks: tuple[int, ...] | None
    border: int
    position: int


class Tick(NamedTuple):
    """A part of a tick."""

    batches: tuple[list[Batch], ...]
    """Of each stream, in order."""
    watermarks: tuple[int, ...] | None
    """Of all streams; None unless this part completes the tick."""
    border: int
    """Where the tick ends."""
    position: int = TIME_MIN
    """No row to come has a running maximum below this, if this part completes the tick."""
    begins: tuple[int, ...] = ()
    """The watermarks of all streams before it, of a share."""

    @property
    def ends(self) -> Ends:
        return Ends(self.watermarks, self.border, self.position)


class Buffered:
    """What has been read of one stream and not yet handed out."""

    def __init__(self, source: Source, saved: StreamPosition, now_s: Callable[[], float]):
        """now_s: seconds since 1970, by which a source says when to ask it again."""
        self._source, self._now_s = source, now_s
        self.until_s = 0.0  # The source has nothing before then.
        self._chunks: deque[Chunk] = deque(saved.chunks)
        self.rows = sum(chunk.batch.rows for chunk in saved.chunks)
        self.octets = sum(chunk.batch.octets for chunk in saved.chunks)
        self.horizon = saved.horizon
        self.ended = saved.ended

    def save(self) -> StreamPosition:
        return StreamPosition(self._source.save(), tuple(self._chunks), self.horizon, self.ended)

    @property
    def waits(self) -> bool:
        """Whether nothing more comes for now."""
        return not self.ended and self.until_s > self._now_s()

    def read(self) -> bool:
        """Returns whether anything came, or the end. A source that waits is not asked before its time."""
        if self.waits:
            return False
        chunk = self._source.read(READ_ROWS)
        if isinstance(chunk, Wait):
            self.until_s = chunk.until_s
            return False
        if isinstance(chunk, End):
            self.ended, self.horizon = True, TIME_MAX
            return True
        self.horizon = chunk.horizon
        if chunk.batch.rows:
            self._chunks.append(chunk)
            self.rows += chunk.batch.rows
            self.octets += chunk.batch.octets
        return True

    def fill(self, rows: int, octets: int, border: int = TIME_MAX) -> None:
        """Reads on until more rows or bytes than these are buffered, or all that lies before the border, or nothing
        more comes for now."""
        while self.rows <= rows and self.octets <= octets and not self._has_all_before(border) and self.read():
            pass

    def _has_all_before(self, border: int) -> bool:
        return self.ended or self.horizon >= border != TIME_MAX

    def first(self) -> int:
        """The running maximum of the next row; TIME_MAX if there is none yet."""
        self.fill(0, 0)
        return int(self._chunks[0].running_max[0]) if self._chunks else TIME_MAX

    @property
    def known(self) -> int:
        """No row to come has a running maximum below this, as far as has been read."""
        return int(self._chunks[0].running_max[0]) if self._chunks else self.horizon

    def last(self, start: int) -> int:
        """The running maximum of the last row that is buffered; `start` if there is none."""
        return int(self._chunks[-1].running_max[-1]) if self._chunks else start

    def border_of(self, rows: int, octets: int) -> int:
        """The running maximum before which there are so many rows, or about so many bytes; TIME_MAX if fewer are
        buffered."""
        for chunk in self._chunks:
            own = chunk.batch.octets
            fitting = min(rows, chunk.batch.rows * octets // own)
            if fitting < chunk.batch.rows:
                return int(chunk.running_max[fitting])
            rows, octets = rows - chunk.batch.rows, octets - own
        return TIME_MAX

    def longest_gap(self, start: int, border: int) -> tuple[int, int]:
        """The longest time between two rows of those that are buffered from `start` on and before the border, or
        between one of them and one of these: after which row, and until when."""
        last, found = start, (start, start)
        for chunk in self._chunks:
            times = np.append(last, chunk.running_max[: _rows_below(chunk, border)])
            if len(times) > 1:
                at = int(np.diff(times).argmax())
                found = max(found, (int(times[at]), int(times[at + 1])), key=_length)
                last = int(times[-1])
        return max(found, (last, border), key=_length)

    def take(self, border: int, octets: int) -> tuple[list[Batch], bool]:
        """Rows with a running maximum below `border`, at most about `octets` bytes, and whether those are all that
        there are."""
        taken: list[Batch] = []
        while octets > 0:
            while not self._chunks and self.horizon < border and not self.ended and self.read():
                pass
            if not self._chunks:
                return taken, self.horizon >= border or self.ended
            if _rows_below(self._chunks[0], border) == 0:
                return taken, True
            batch = self._take_chunk(border)
            octets -= batch.octets
            taken.append(batch)
        return taken, False

    def _take_chunk(self, border: int) -> Batch:
        chunk = self._chunks.popleft()
        cut = _rows_below(chunk, border)
        self.rows -= cut
        if cut == chunk.batch.rows:
            self.octets -= chunk.batch.octets
            return chunk.batch
        head, tail = split_batch(chunk.batch, cut)
        self.octets -= head.octets
        self._chunks.appendleft(Chunk(tail, chunk.running_max[cut:], chunk.horizon))
        return head


def _length(gap: tuple[int, int]) -> int:
    return gap[1] - gap[0]


def _rows_below(chunk: Chunk, border: int) -> int:
    """How many rows of a chunk have a running maximum below the border. Nothing lies beyond the last instant."""
    return chunk.batch.rows if border == TIME_MAX else int(np.searchsorted(chunk.running_max, border))


class TickReader:
    """Reads all sources side by side. While a source keeps a tick waiting, what has come of it goes out in parts."""

    def __init__(
        self,
        sources: Sequence[Source],
        latenesses: Sequence[int],
        pace: Pace,
        part_bytes: int,
        saved: Sequence[StreamPosition] = (),
        now_s: Callable[[], float] = time.time,
        shared: bool = False,
    ):
        """part_bytes: a part of a tick has at most about so many of each stream · saved: what a reader of the same
        streams has saved, from which these sources go on; nothing where they begin · shared: whether these are but
        shares of the streams. Then long times lie between their rows, and a watermark goes as far as it may."""
        positions = saved or [UNREAD] * len(sources)
        self._streams = tuple(Buffered(source, one, now_s) for source, one in zip(sources, positions))
        self._latenesses = latenesses
        self.pace = pace  # of the ticks to come; it may be changed at any time
        self._part_bytes = part_bytes
        self._border: int | None = None  # of the tick under way
        self._begins: tuple[int, ...] = ()  # of the same
        self._has_given = False  # some of it
        self._shared = shared

    def next(self) -> Tick | Wait | End:
        """A part of a tick; or when to ask again; or the end of all streams."""
        if self._border is None:
            start = min(stream.first() for stream in self._streams)
            if start == TIME_MAX and not any(stream.rows for stream in self._streams):
                return End() if all(stream.ended for stream in self._streams) else self._wait()
            self._border, self._has_given = self._border_after(start), False
            if self._shared:
                self._begins = self._watermarks([stream.known for stream in self._streams])
        border = self._border
        batches, complete = [], True
        for stream in self._streams:
            taken, done = stream.take(border, self._part_bytes)
            batches.append(taken)
            complete &= done
        if not complete:
            self._has_given |= any(batches)
            return Tick(tuple(batches), None, border, begins=self._begins) if any(batches) else self._wait()
        known = [max(border, stream.known) if self._shared else border for stream in self._streams]
        self._border = None
        return Tick(tuple(batches), self._watermarks(known), border, min(known), self._begins)

    def _watermarks(self, known: Sequence[int]) -> tuple[int, ...]:
        return tuple(map(_watermark, self._streams, self._latenesses, known))

    def _wait(self) -> Wait:
        """How long to wait until one of the sources may have something that have nothing now."""
        empty = [stream for stream in self._streams if not stream.ended and not stream.rows]
        return Wait(min(stream.until_s for stream in empty))

    def save(self) -> tuple[StreamPosition, ...]:
        """Where all streams stand. It shares the rows that are held. Raises ProtocolError while a tick has parts to
        come."""
        if self._border is not None and self._has_given:
            raise ProtocolError(f"the input cannot be saved inside the tick that ends at {self._border}")
        return tuple(stream.save() for stream in self._streams)

    def _border_after(self, start: int) -> int:
        """Where the tick ends that begins with a row at `start`: beyond it, unless that is the last instant."""
        if self.pace.length is not None:
            return min(TIME_MAX, (start // self.pace.length + 1) * self.pace.length)
        streams = len(self._streams)
        most, least = max(1, self.pace.rows // streams), max(1, self.pace.rows_min // streams)
        longest = min(TIME_MAX, start + self.pace.length_max)
        for stream in self._streams:
            stream.fill(least, self._part_bytes)
            # What lies beyond the longest tick is not read yet, so that slaves can begin with the first one soon.
            stream.fill(most, self._part_bytes, longest)
        border = min(max(longest, self._border_of(least)), self._border_of(most))
        if self._shared and longest < border:
            border = self._before_gap(start, longest, border)
        # What a source that waits has not told yet is of a later tick: slaves need not wait for it.
        known = min((stream.horizon for stream in self._streams if stream.waits), default=TIME_MAX)
        return max(min(TIME_MAX, start + 1), min(border, known))

    def _before_gap(self, start: int, longest: int, border: int) -> int:
        """Where a tick of few rows ends that would go on until the border. Rows of two shares, of which hardly anything
        lies between, would make it so long that its end is far ahead of the other producers (`lead`)."""
        end = min(border, max(stream.last(start) for stream in self._streams) + 1)
        gaps = [stream.longest_gap(start, end) for stream in self._streams]
        low, high = max(gap[0] for gap in gaps), min(gap[1] for gap in gaps)
        is_long = high - low > max(longest - start, (end - start) // 2)
        return max(longest, low + 1) if is_long else border

    def _border_of(self, share: int) -> int:
        """The running maximum before which one of the streams has `share` rows to give, or a part; all have been read
        so far."""
        return min(stream.border_of(share, self._part_bytes) for stream in self._streams)


def _watermark(stream: Buffered, lateness: int, border: int) -> int:
    """Of a stream, after the tick that ends at `border`. TIME_MAX says that the stream has ended."""
    if stream.ended and not stream.rows:
        return TIME_MAX
    return max(TIME_MIN, min(border, TIME_MAX - 1) - lateness)
