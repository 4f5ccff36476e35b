"""State files hold encoded frames one after the other. They are written under another name, synced and then renamed, so
that a file with the right name is whole."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Sequence

import numpy as np

from mpijoin.data.codec import ALIGNMENT, kind_of
from mpijoin.data.room import Room
from mpijoin.disk import ASIDE, new_file, read_all, sync_path, write_all
from mpijoin.errors import CheckpointError
from mpijoin.records import Span
from mpijoin.refusals import reading, writing


class StateFile:
    """Call `write` for each frame, then `finish` or `abandon`. Each raises CheckpointError, naming the file, if the
    file system refuses."""

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
        """Flushes the file to disk and gives it its name. This may take long, and may be called in another thread than
        `write`."""
        with writing(self._path, CheckpointError):
            os.fsync(self._file.fileno())
            self._file.close()
            os.rename(self._aside, self._path)
            sync_path(self._path.parent)

    def abandon(self) -> None:
        """Removes what was written."""
        with suppress(OSError):
            self._file.close()
        for path in (self._aside, self._path):
            with suppress(OSError):
                path.unlink()


def read_frames(folder: Path, spans: Sequence[Span], room: Room | None = None) -> list[np.ndarray]:
    """Returns the frames, uint8[n] each, in `room` if it is given. Raises CheckpointError if one is missing or too
    short."""
    frames = (room or Room()).take([span.octets for span in spans])
    for span, frame in zip(spans, frames):
        path = folder / span.file
        with reading(path, CheckpointError), open(path, "rb", buffering=0) as file:
            file.seek(span.offset)
            read = read_all(file, memoryview(frame))
        if read < span.octets:
            raise CheckpointError(
                f"{path}: ends {span.octets - read} bytes too soon: wanted {span.offset + span.octets}"
            )
    return frames


def kinds_of(folder: Path, spans: Sequence[Span]) -> list[int | None]:
    """Returns the kind of each frame, as far as its first bytes tell (`codec.kind_of`). Raises CheckpointError."""
    kinds = []
    for span in spans:
        path = folder / span.file
        with reading(path, CheckpointError), open(path, "rb", buffering=0) as file:
            file.seek(span.offset)
            kinds.append(kind_of(file.read(ALIGNMENT)))
    return kinds
