"""Runs: frames one after the other in files of bounded size, written once and read from front to back.

    000012-0000.run   frame | frame | ...     each begins at a multiple of 64 bytes
    000012-0001.run   frame | ...

There may be thousands of runs, but only the file that was written to last is open, besides a few that were read last.
Small frames wait in memory for others of their file, so that thousands of runs that grow by little at a time cost few
writes. A file that is removed may be written again under the name of another (spares.py), so it may be longer than what
is in it. Sizes are kept in memory: nothing that is read from disk is taken for a length. Nothing is flushed to disk.
"""

from __future__ import annotations

import io
import time
from array import array
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Callable, Iterator, Sequence

import numpy as np

from mpijoin.data.codec import ALIGNMENT, is_sealed
from mpijoin.data.room import Room
from mpijoin.disk import new_file, read_all, write_all
from mpijoin.errors import CodecError, ScratchError
from mpijoin.named import NamedTuple
from mpijoin.refusals import reading, writing
from mpijoin.spill.scratch import Scratch
from mpijoin.spill.spares import SPARE_BYTES, Spares

FILE_BYTES = 256 << 20  # a run that is read for the last time occupies at most so much that has been read already
SMALL_BYTES = 64 << 10  # what has so many is written where it lies; less is copied and waits for more
WAITING_BYTES = 4 << 20  # of small frames of all runs together, until they are written
OPEN_MAX = 16  # so many files that are read stay open
PIECE_BYTES = 4 << 20  # are read at once, or one frame if that is larger


class Piece(NamedTuple):
    """Consecutive frames of a file that are read at once. starts, stops: of each frame, in the file."""

    starts: list[int]
    stops: list[int]


class RunFile:
    """One file of a run. first: the number of its first frame, counted from the run's beginning · octets: of its frames
    and the gaps between them · is_made: it is on disk · written: so many bytes of it are · room_bytes: the file was so
    long before · waiting: its end, which is not written yet."""

    def __init__(self, path: Path, first: int):
        self.path, self.first, self.octets = path, first, 0
        self.is_made = False
        self.written = self.room_bytes = 0
        self.waiting = bytearray()
        self._starts, self._sizes = array("Q"), array("Q")

    @property
    def stop(self) -> int:
        """The number after that of its last frame."""
        return self.first + len(self._sizes)

    def add(self, octets: int, starts: Sequence[int], sizes: Sequence[int]) -> int:
        """Finds the place of further frames, which lie in so many bytes, and returns the bytes of the gap before them.
        """
        gap = -self.octets % ALIGNMENT
        first = self.octets + gap
        self._starts.extend(first + start for start in starts)
        self._sizes.extend(sizes)
        self.octets = first + octets
        return gap

    def pieces(self, first: int, stop: int) -> Iterator[Piece]:
        """Yields the frames from number `first` to before `stop`, as far as they lie here."""
        own, piece = slice(max(0, first - self.first), max(0, stop - self.first)), Piece([], [])
        for start, size in zip(self._starts[own], self._sizes[own]):
            if piece.starts and start + size - piece.starts[0] > PIECE_BYTES:
                yield piece
                piece = Piece([], [])
            piece.starts.append(start)
            piece.stops.append(start + size)
        if piece.starts:
            yield piece


class Stopwatch:
    """Adds up the wall seconds of `with` blocks, none of which lies in another. Such a block costs less than one of a
    generator, and a push of some groups has several."""

    def __init__(self, clock: Callable[[], float]):
        """clock: tells the time in seconds."""
        self._clock = clock
        self.seconds = self._start_s = 0.0

    def __enter__(self) -> None:
        self._start_s = self._clock()

    def __exit__(self, *error: object) -> None:
        self.seconds += self._clock() - self._start_s


class Files:
    """Writes and reads the files of all runs, and counts. held_bytes: of all files now, those included that wait in
    memory · written_bytes, read_bytes: so far · writing: what it takes to append and to write."""

    def __init__(self, scratch: Scratch, spare_bytes: int, clock: Callable[[], float]):
        self.scratch = scratch
        self.spares = Spares(spare_bytes)
        self.held_bytes = self.written_bytes = self.read_bytes = 0
        self.writing = Stopwatch(clock)
        self._waiting: dict[RunFile, None] = {}
        self._waiting_bytes = 0
        self._open: tuple[RunFile, io.FileIO] | None = None
        self._read: dict[RunFile, io.FileIO] = {}  # open, that was read last at the end

    def append(self, file: RunFile, data: np.ndarray, starts: Sequence[int], sizes: Sequence[int]) -> None:
        """Writes the frames that lie in `data`, or copies them if they are small."""
        before = file.octets
        gap = bytes(file.add(len(data), starts, sizes))
        self.held_bytes += file.octets - before
        if len(data) < SMALL_BYTES:
            self._wait(file, gap, memoryview(data))
        else:
            if gap:
                self._wait(file, gap)
            self.flush(file)
            self._write(file, memoryview(data))

    def _wait(self, file: RunFile, *pieces: bytes | memoryview) -> None:
        for piece in pieces:
            file.waiting += piece
            self._waiting_bytes += len(piece)
        self._waiting[file] = None
        if self._waiting_bytes > WAITING_BYTES:
            for one in tuple(self._waiting):
                self.flush(one)

    def flush(self, file: RunFile) -> None:
        """Writes what waits of this file."""
        if waiting := self._forget_waiting(file):
            self._write(file, memoryview(waiting))

    def _forget_waiting(self, file: RunFile) -> bytearray:
        self._waiting.pop(file, None)
        waiting, file.waiting = file.waiting, bytearray()
        self._waiting_bytes -= len(waiting)
        return waiting

    def _write(self, file: RunFile, data: memoryview) -> None:
        try:
            self._put(file, data)
        except OSError:
            with writing(file.path, self.scratch.refused(len(data))):
                if not self.spares.drop():
                    raise
                self._put(file, data)  # There is room for it now.
        file.written += len(data)
        self.written_bytes += len(data)

    def _put(self, file: RunFile, data: memoryview) -> None:
        opened = self._opened(file, len(data))
        opened.seek(file.written)
        write_all(opened, data)

    def _opened(self, file: RunFile, octets: int) -> io.FileIO:
        """The file, to append so many bytes to. A file that should be there is never made anew: what it held would be
        lost."""
        if self._open is None or self._open[0] is not file:
            self._close_written()
            if not file.is_made:
                file.room_bytes = self.spares.take(file.path, octets)
            is_there = file.is_made or file.room_bytes > 0
            opened = open(file.path, "r+b", buffering=0) if is_there else new_file(file.path)
            self._open, file.is_made = (file, opened), True
        return self._open[1]

    def close(self) -> None:
        """Closes all files."""
        self._close_written()
        while self._read:
            self._read.popitem()[1].close()

    def _close_written(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None

    def _to_read(self, file: RunFile) -> io.FileIO:
        """The file, which stays open for the next time."""
        opened = self._read.pop(file, None) or open(file.path, "rb", buffering=0)
        self._read[file] = opened
        if len(self._read) > OPEN_MAX:
            self._read.pop(next(iter(self._read))).close()
        return opened

    def read(self, file: RunFile, start: int, memory: np.ndarray) -> None:
        """Fills `memory` with what begins at byte `start`."""
        with reading(file.path, self.scratch.refused()):
            opened = self._to_read(file)
            opened.seek(start)
            count = read_all(opened, memoryview(memory))
        self.read_bytes += count
        if count < len(memory):
            raise self.damage(file, start + count, f"the file ends there, wanted {len(memory) - count} bytes more")

    def remove(self, file: RunFile) -> None:
        """Gives its space back. If somebody else has removed it, that is no error."""
        self._forget_waiting(file)
        if self._open is not None and self._open[0] is file:
            self._close_written()
        if opened := self._read.pop(file, None):
            opened.close()
        if file.is_made:
            with writing(file.path, self.scratch.refused()), suppress(FileNotFoundError):
                if not self.spares.keep(file.path, max(file.written, file.room_bytes)):
                    file.path.unlink()
        self.held_bytes -= file.octets

    def damage(self, file: RunFile, offset: int, what: str) -> ScratchError:
        return ScratchError(
            f"{file.path}: damaged at byte {offset}: {what}: the disk does not give back what was written to it: choose"
            " another with [memory] path"
        )


class Runs:
    """All runs of a rank, for one thread. Any call may raise ScratchError, which names file, wanted and free bytes."""

    def __init__(
        self,
        scratch: Scratch,
        file_bytes: int = FILE_BYTES,
        spare_bytes: int = SPARE_BYTES,
        clock: Callable[[], float] = time.perf_counter,
    ):
        """file_bytes: a file takes no more, unless a single frame does · spare_bytes: so much is kept of removed files,
        to be written again · clock: tells the time in seconds."""
        self.file_bytes = file_bytes
        self._files = Files(scratch, spare_bytes, clock)
        self._made = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of all runs now, those included that wait in memory."""
        return self._files.held_bytes

    @property
    def written_bytes(self) -> int:
        """Bytes that were written so far."""
        return self._files.written_bytes

    @property
    def read_bytes(self) -> int:
        """Bytes that were read so far."""
        return self._files.read_bytes

    @property
    def write_s(self) -> float:
        """Wall seconds that it took to append frames and to write them so far."""
        return self._files.writing.seconds

    def new_run(self) -> Run:
        """Begins a run. It has no file before something is appended."""
        self._made += 1
        return Run(self._files, f"{self._made:06d}", self.file_bytes)

    def close(self) -> None:
        """Closes the file that is open. The files go with the scratch folder."""
        self._files.close()


class Run:
    """Frames on disk, in the order in which they were appended. After a ScratchError it can only be removed."""

    def __init__(self, disk: Files, name: str, file_bytes: int):
        """name: its files' names begin with it · file_bytes: see `Runs`."""
        self._disk, self._name, self._file_bytes = disk, name, file_bytes
        self._files: list[RunFile] = []
        self._made = 0  # files so far, those included that are removed
        self._grows = False  # the last file takes more frames

    def __len__(self) -> int:
        """How many frames it holds."""
        return self._files[-1].stop - self._files[0].first if self._files else 0

    @property
    def octets(self) -> int:
        """Bytes of its files, those included that wait in memory."""
        return sum(file.octets for file in self._files)

    def append(self, frame: np.ndarray) -> None:
        """Adds a frame, uint8[n], that has a checksum (`codec.seal`). The caller may change it as soon as this returns.

        Raises CodecError if it has none, and ScratchError if the file system refuses.
        """
        self.append_all(frame, [0], [len(frame)])

    def append_all(self, data: np.ndarray, starts: Sequence[int], sizes: Sequence[int]) -> None:
        """Adds frames as `append` does. They lie in `data`, each at the next aligned place after the one before."""
        if not all(is_sealed(data, start) for start in starts):
            raise CodecError("a frame without checksum: damage to it would not be noticed on disk; seal it")
        with self._disk.writing:
            if self._grows and self._files[-1].octets + len(data) > self._file_bytes:
                self._disk.flush(self._files[-1])
                self._grows = False
            if not self._grows:
                first = self._files[-1].stop if self._files else 0
                self._files.append(RunFile(self._disk.scratch.folder / f"{self._name}-{self._made:04d}.run", first))
                self._made, self._grows = self._made + 1, True
            self._disk.append(self._files[-1], data, starts, sizes)

    def write(self) -> None:
        """Writes what waits in memory."""
        if self._grows:
            with self._disk.writing:
                self._disk.flush(self._files[-1])

    def close(self) -> None:
        """Writes what waits in memory. A frame that is appended later begins another file."""
        self.write()
        self._grows = False

    def frames(
        self, room: Room | None = None, last: bool = False, first: int = 0, count: int | None = None
    ) -> Reading:
        """Iterates over the frames that it holds now: aligned uint8[n] each, valid until the next.

        room: memory to read into, some MiB · last: nobody reads them again, so the run is closed, and each file is
        removed when all its frames have been given out and the next one is asked for · first, count: only so many
        frames, from this number on.
        """
        self.close() if last else self.write()
        start = first + (self._files[0].first if self._files else 0)
        stop = start + (len(self) - first if count is None else count)
        files = tuple(file for file in self._files if file.first < stop and start < file.stop)
        return Reading(self._disk, self._files, files, room or Room(), last, start, stop)

    def frames_from(self, first: int) -> Reading:
        """Iterates over the frames from this number on, as `frames` does."""
        return self.frames(first=first)

    def remove(self) -> None:
        """Gives its space back, and that of frames that somebody is just reading. The run is empty then."""
        self._grows = False
        while self._files:
            self._disk.remove(self._files.pop())


class Reading:
    """Iterates over frames of a run, see `Run.frames`. Raises ScratchError if a file refuses or is too short."""

    def __init__(
        self,
        disk: Files,
        own: list[RunFile],
        files: tuple[RunFile, ...],
        room: Room,
        last: bool,
        first: int,
        stop: int,
    ):
        """own: the run's list of its files, from which those are taken that are removed · files: those to read · first,
        stop: which of their frames, counted as in `RunFile`."""
        self._disk, self._own, self._room, self._last = disk, own, room, last
        self._first, self._stop = first, stop
        self._place: tuple[RunFile, int] | None = None
        self._frames = self._read(files)

    def __iter__(self) -> Reading:
        return self

    def __next__(self) -> np.ndarray:
        return next(self._frames)

    @contextmanager
    def decoding(self) -> Iterator[None]:
        """Turns a CodecError in the block into a ScratchError with file and offset of the frame that was given out
        last."""
        try:
            yield
        except CodecError as error:
            if self._place is None:
                raise
            raise self._disk.damage(*self._place, str(error)) from error

    def _read(self, files: tuple[RunFile, ...]) -> Iterator[np.ndarray]:
        for file in files:
            for piece in file.pieces(self._first, self._stop):
                yield from self._read_piece(file, piece)
            if self._last and file in self._own:
                self._own.remove(file)
                self._disk.remove(file)

    def _read_piece(self, file: RunFile, piece: Piece) -> Iterator[np.ndarray]:
        first = piece.starts[0]
        (memory,) = self._room.take([piece.stops[-1] - first])
        self._disk.read(file, first, memory)
        for start, stop in zip(piece.starts, piece.stops):
            self._place = file, start
            yield memory[start - first : stop - first]
