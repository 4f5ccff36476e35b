"""A slave's part of a checkpoint is the state of its groups. Blocks that no longer change are written only once."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Sequence

import numpy as np

from mpijoin.checkpoint.files import StateFile
from mpijoin.checkpoint.manifest import state_name
from mpijoin.errors import CheckpointError
from mpijoin.named import NamedTuple
from mpijoin.operators.base import GroupState
from mpijoin.records import GroupSpans, Span

if TYPE_CHECKING:
    from mpijoin.spill.forms import AnySpiller

ALIVE_LEAST = 0.5  # a group is written anew when less than this share of its blocks on disk still counts


class Kept(NamedTuple):
    """A frame of sealed blocks on disk, and the ids of these blocks, int64[n]."""

    span: Span
    ids: np.ndarray


class Outcome(NamedTuple):
    """What a `Saved` message says of the groups and of waiting input, and the bytes written; or why it could not be
    done."""

    groups: tuple[GroupSpans, ...] = ()
    waiting: tuple[Span, ...] = ()
    octets: int = 0
    fault: str = ""


@dataclass
class SavedGroup:
    """What is in files of a group. since: the id of the newest block there · parts: for the number of each part that it
    has on the slave's own disk, where its frames are."""

    since: int = 0
    frames: list[Kept] = field(default_factory=list)
    parts: dict[int, list[Span]] = field(default_factory=dict)


class Saver:
    """Saves one checkpoint after the other: call `begin`, then `save_next` until it is False, then `finish`, then
    `poll` until it answers.

    Nothing may be joined before `save_next` is False. After that another thread waits for the disk. `poll` tells what
    went wrong; the run then goes on without this checkpoint.
    """

    def __init__(self, operator: GroupState, rank: int, folder: Path, spiller: AnySpiller | None = None):
        """spiller: what keeps the operator's groups on a disk that does not outlive the run, if anything does."""
        self._operator, self._rank, self._folder, self._spiller = operator, rank, folder, spiller
        self._known: dict[int, SavedGroup] = {}
        self._waiting: deque[int] = deque()
        self._listed: list[GroupSpans] = []
        self._input: deque[np.ndarray] = deque()
        self._written: list[Span] = []
        self._file: StateFile | None = None
        self._thread: threading.Thread | None = None
        self._fault = ""

    def settle(self) -> None:
        """Brings to the slave's own disk what is on its way there or back. It counts as being there."""
        if self._spiller:
            self._spiller.settle()

    def begin(self, number: int, groups: Sequence[int], anew: bool = False, waiting: Sequence[np.ndarray] = ()) -> None:
        """groups: all that this slave joins · anew: what was written before is gone · waiting: frames of input that has
        not been joined yet."""
        self._waiting, self._listed, self._fault = deque(groups), [], ""
        self._input, self._written = deque(waiting), []
        self._file = None  # the one before is whole, whatever happens now
        self._known = {group: saved for group, saved in self._known.items() if group in set(groups) and not anew}
        try:
            self._file = StateFile(self._folder, state_name(self._rank, number))
        except CheckpointError as error:
            self._fail(error)

    def save_next(self) -> bool:
        """Writes the next group, or the next frame of input; returns whether there are more."""
        file = self._file
        if file is None:
            return False
        try:
            if self._waiting:
                self._save(self._waiting.popleft(), file)
            elif self._input:
                self._written.append(file.write(self._input.popleft()))
        except CheckpointError as error:
            self._fail(error)
        return bool(self._waiting or self._input)

    def finish(self, sync_results: Callable[[], None]) -> None:
        """Everything has been written: now it is flushed to disk, after `sync_results` has done so with the results."""
        if self._fault or self._file is None:
            return
        self._thread = threading.Thread(target=self._sync, args=(self._file, sync_results), daemon=True)
        self._thread.start()

    def poll(self) -> Outcome | None:
        """Returns None as long as the disk is not done."""
        if self._thread is not None and self._thread.is_alive():
            return None
        if self._fault or self._file is None:
            self._known.clear()  # some of it may not be on disk
            return Outcome(fault=self._fault)
        return Outcome(tuple(self._listed), tuple(self._written), self._file.octets)

    def _save(self, group: int, file: StateFile) -> None:
        saved = self._known.setdefault(group, SavedGroup())
        on_disk = self._save_parts(group, saved, file, self._spiller) if self._spiller else []
        info = self._operator.info(np.array([group]))
        if self._spiller and self._spiller.is_inactive(group):
            saved.since, saved.frames = 0, []
            self._listed.append(GroupSpans(group, sum(span.octets for span in on_disk), tuple(on_disk)))
            return
        frames = self._operator.get(group, saved.since, None, True)
        alive = self._operator.blocks_of(frames[-1])
        kept = [one for one in saved.frames if np.isin(one.ids, alive).any()]
        blocks = sum(len(one.ids) for one in kept)
        if blocks and np.isin(np.concatenate([one.ids for one in kept]), alive).sum() < ALIVE_LEAST * blocks:
            kept, frames = [], self._operator.get(group, 0, None, True)
        kept += [Kept(file.write(frame), self._operator.blocks_of(frame)) for frame in frames[:-1]]
        tail = file.write(frames[-1])
        saved.since, saved.frames = self._operator.reached(frames)[0], kept
        live_bytes = int(info.live_bytes.sum())
        self._listed.append(GroupSpans(group, live_bytes, (*on_disk, *(one.span for one in kept), tail)))

    def _save_parts(self, group: int, saved: SavedGroup, file: StateFile, spiller: AnySpiller) -> list[Span]:
        """Copies what has come to the slave's own disk since the last checkpoint. Returns where all of it is."""
        marks = [file.write(frame) for frame in spiller.marks(group)]
        before, saved.parts = saved.parts, {}
        for part in spiller.parts(group):
            spans = list(before.get(part.number, []))
            spans += [file.write(frame) for frame in part.frames(len(spans))]
            saved.parts[part.number] = spans
        return [*marks, *(span for spans in saved.parts.values() for span in spans)]

    def _sync(self, file: StateFile, sync_results: Callable[[], None]) -> None:
        try:
            sync_results()
            file.finish()
        except Exception as error:  # whatever it is: nobody else would hear of it
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._fault = str(error)
        self._waiting.clear()
        self._input.clear()
        if self._file is not None:
            self._file.abandon()
