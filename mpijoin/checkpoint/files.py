"""State files: encoded frames one after the other, written aside, synced and renamed, so that what has its name is
whole."""

from __future__ import annotations

import io
import os
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Sequence

import numpy as np

from mpijoin.data.codec import ALIGNMENT, aligned_empty
from mpijoin.disk import ASIDE, new_file, sync_path, write_all
from mpijoin.errors import CheckpointError
from mpijoin.records import Span
from mpijoin.refusals import reading, writing


class StateFile:
    """`write` frames, then `finish`; or `abandon`. CheckpointError: the file system refuses, naming the file."""

    def __init__(self, folder: Path, name: str):
        self.name, self.octets = name, 0
        self._path = folder / name
        self._aside = folder / (name + ASIDE)
        with writing(self._path, CheckpointError):
            self._file = new_file(self._aside)

    def write(self, frame: np.ndarray) -> Span:
        """Appends a frame, uint8[n]."""
        padding = -self.octets % ALIGNMENT
        span = Span(self.name, self.octets + padding, len(frame))
        with writing(self._path, CheckpointError):
            write_all(self._file, memoryview(bytes(padding)))
            write_all(self._file, memoryview(frame))
        self.octets = span.offset + span.octets
        return span

    def finish(self) -> None:
        """On disk, and with its name. May take long; may be called in another thread than `write`."""
        with writing(self._path, CheckpointError):
            os.fsync(self._file.fileno())
            self._file.close()
            os.rename(self._aside, self._path)
            sync_path(self._path.parent)

    def abandon(self) -> None:
        """Forgets what was written."""
        with suppress(OSError):
            self._file.close()
        for path in (self._aside, self._path):
            with suppress(OSError):
                path.unlink()


class Room:
    """Memory that is used again and again: to have the system hand out fresh pages takes as long as to read them
    full."""

    def __init__(self) -> None:
        self._memory = aligned_empty(0)

    def take(self, sizes: Sequence[int]) -> list[np.ndarray]:
        """uint8[size] for each of `sizes`, aligned; they are this room's next ones, too."""
        starts = [*accumulate((-(-size // ALIGNMENT) * ALIGNMENT for size in sizes), initial=0)]
        if starts[-1] > len(self._memory):
            self._memory = aligned_empty(starts[-1])
        return [self._memory[start : start + size] for start, size in zip(starts, sizes)]


def read_frames(folder: Path, spans: Sequence[Span], room: Room | None = None) -> list[np.ndarray]:
    """The frames, uint8[n] each, in `room` if it is given. CheckpointError: one is not there, or shorter than it should
    be."""
    frames = (room or Room()).take([span.octets for span in spans])
    for span, frame in zip(spans, frames):
        path = folder / span.file
        with reading(path, CheckpointError), open(path, "rb", buffering=0) as file:
            file.seek(span.offset)
            read = _read_all(file, memoryview(frame))
        if read < span.octets:
            raise CheckpointError(
                f"{path}: ends {span.octets - read} bytes too soon: wanted {span.offset + span.octets}"
            )
    return frames


def _read_all(file: io.FileIO, data: memoryview) -> int:
    done = 0
    while done < len(data) and (count := file.readinto(data[done:])):
        done += count
    return done
