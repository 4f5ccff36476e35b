"""Frames of many owners in few runs.

A group of a slave with little memory is small when it is spilled. With a run of its own, each of its generations would
cost the making of a file, which takes longer than to write it. So the frames of all generations go one after the other
into runs of a few MiB, many at once, and such a run is removed when nothing in it is wanted any more.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import Iterator, Sequence

import numpy as np

from mpijoin.data.room import Room
from mpijoin.spill.runs import Reading, Run, Runs

PACK_BYTES = 4 << 20  # So much at most stays on disk because of a frame in it that is still wanted.
WRITE_BYTES = 256 << 10  # So much of small frames waits in memory, beside what the slave may hold.


@dataclass
class Pack:
    """A run that several owners share. wanted: how many of its frames still are."""

    run: Run
    wanted: int = 0


@dataclass
class Stretch:
    """Frames of one owner that lie side by side in a pack, from frame number `first` on."""

    pack: Pack
    first: int
    count: int = 1


class Packs:
    """Writes frames of many owners."""

    def __init__(self, runs: Runs):
        self._runs = runs
        self._open: Pack | None = None
        self._waiting_bytes = 0

    def append(self, data: np.ndarray, starts: Sequence[int], sizes: Sequence[int]) -> list[Stretch]:
        """Writes frames, and returns where each of them is. Arguments and errors are those of `Run.append_all`."""
        if self._open and self._open.run.octets >= PACK_BYTES:
            self._open = None
        pack = self._open = self._open or Pack(self._runs.new_run())
        first = len(pack.run)
        pack.run.append_all(data, starts, sizes)
        pack.wanted += len(starts)
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= WRITE_BYTES:
            pack.run.write()
            self._waiting_bytes = 0
        return [Stretch(pack, number) for number in range(first, first + len(starts))]

    def forget(self, stretch: Stretch) -> None:
        """Nobody wants these frames any more."""
        pack = stretch.pack
        pack.wanted -= stretch.count
        if not pack.wanted:
            self._open = None if pack is self._open else self._open
            pack.run.remove()


class Packed:
    """The frames of one owner, in the order in which they were appended."""

    def __init__(self, packs: Packs):
        self._packs = packs
        self._stretches: list[Stretch] = []
        self.octets = 0

    def __len__(self) -> int:
        """How many frames it holds."""
        return sum(stretch.count for stretch in self._stretches)

    def append(self, frame: np.ndarray) -> None:
        """Adds a frame, as `Run.append` does."""
        (added,) = self._packs.append(frame, [0], [len(frame)])
        self.take(added, len(frame))

    def take(self, added: Stretch, octets: int) -> None:
        """Adds a frame of so many bytes that was written there."""
        last = self._stretches[-1] if self._stretches else None
        if last and last.pack is added.pack and last.first + last.count == added.first:
            last.count += 1
        else:
            self._stretches.append(added)
        self.octets += octets

    def frames(self, room: Room | None = None) -> PackedReading:
        """Iterates over the frames that it holds now, as `Run.frames` does."""
        return PackedReading(tuple(self._stretches), room or Room())

    def frames_from(self, first: int) -> PackedReading:
        """Iterates over the frames from this number on, as `frames` does. Those before it are not read."""
        stretches, before = [], 0
        for stretch in self._stretches:
            skipped = max(0, first - before)
            before += stretch.count
            if skipped < stretch.count:
                stretches.append(Stretch(stretch.pack, stretch.first + skipped, stretch.count - skipped))
        return PackedReading(tuple(stretches), Room())

    def remove(self) -> None:
        """Gives its space back, as soon as its packs hold nothing else. It is empty then."""
        while self._stretches:
            self._packs.forget(self._stretches.pop())
        self.octets = 0


class PackedReading:
    """Iterates over frames, see `Packed.frames`. Raises ScratchError if a file refuses or is too short."""

    def __init__(self, stretches: tuple[Stretch, ...], room: Room):
        self._room = room
        self._reading: Reading | None = None
        self._frames = self._read(stretches)

    def __iter__(self) -> PackedReading:
        return self

    def __next__(self) -> np.ndarray:
        return next(self._frames)

    @contextmanager
    def decoding(self) -> Iterator[None]:
        """Names file and offset of a damaged frame, as `Reading.decoding` does."""
        assert self._reading is not None  # A frame was given out.
        with self._reading.decoding():
            yield

    def _read(self, stretches: tuple[Stretch, ...]) -> Iterator[np.ndarray]:
        for stretch in stretches:
            self._reading = stretch.pack.run.frames(self._room, first=stretch.first, count=stretch.count)
            yield from self._reading
