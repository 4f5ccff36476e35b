"""The master's side of checkpoints: what each rank has saved, and the manifest that makes a checkpoint whole."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Sequence

import numpy as np

from mpijoin.checkpoint.files import StateFile
from mpijoin.checkpoint.identity import identity_of
from mpijoin.checkpoint.manifest import Group, Manifest, RunState, last_number_in, prune, state_name, write_manifest
from mpijoin.checkpoint.restore import Resumption
from mpijoin.checkpoint.totals import total
from mpijoin.config.job import Job
from mpijoin.disk import sync_path
from mpijoin.errors import Checkpointed, CheckpointError, MpijoinError, OutputError, ProtocolError
from mpijoin.master.events import Cut
from mpijoin.messages import Saved
from mpijoin.metrics.checkpoints import CheckpointsFile
from mpijoin.rank import MASTER, Rank
from mpijoin.records import Counts, Span
from mpijoin.refusals import writing
from mpijoin.rundir import RunDirectory


@dataclass
class Open:
    """A checkpoint that is not yet whole."""

    number: int
    begun_s: float
    stops: str  # why the run ends with it, "" if it does not
    missing: set[int]  # ranks that have not saved yet
    run: RunState  # where the run stood
    spans: tuple[Span, ...] = ()
    octets: int = 0
    faults: list[str] = field(default_factory=list)  # why it cannot be whole
    answers: dict[int, Saved] = field(default_factory=dict)


class Checkpointing:
    """All checkpoints of a run."""

    def __init__(
        self,
        job: Job,
        rank: Rank,
        folder: Path,
        directory: RunDirectory,
        saving: Sequence[int],
        resumption: Resumption | None,
    ):
        """folder: where checkpoints go · directory: the run's · saving: the ranks that save · resumption: where the run
        goes on; None where it begins."""
        resumed = resumption.manifest if resumption else None
        self._rank, self._folder, self._directory, self._keep = rank, folder, directory, job.checkpoint.keep
        self._saving, self._identity = saving, identity_of(job)
        self._resumption = resumption
        self.before = resumed.before if resumed else Counts.nothing(len(job.streams))
        self.results = resumed.results if resumed else ()  # parts that were closed before this run went on
        self._kept = [resumed] if resumed else []
        self._number = last_number_in(folder)
        self.open: Open | None = None
        self.written, self.failed = 0, 0
        self.octets, self.pause_s_max = 0, 0.0
        self.restarts = resumed.restarts + 1 if resumed else 0
        self._anew = False
        self._file = CheckpointsFile(directory.metrics, resumed.number if resumed else 0)
        if resumed:
            self._file.add(resumed.number, rank.clock.wall_s, rank.clock.wall_s, resumed.octets, "resumed")

    def begins_anew(self) -> bool:
        """Whether what was written for the checkpoint before is gone."""
        anew, self._anew = self._anew, False
        return anew

    def close(self) -> None:
        self._file.close()

    def ending(self, last: Open) -> MpijoinError:
        """What to raise when the last checkpoint has ended, well or not."""
        if not last.faults:
            return Checkpointed(f"stopped at checkpoint {last.number}: {last.stops}")
        return CheckpointError(f"was to stop ({last.stops}), but its checkpoint is not whole: {last.faults[0]}")

    def figures(self) -> dict[str, Any]:
        """For the summary."""
        return {
            "written": self.written,
            "failed": self.failed,
            "bytes": self.octets,
            "pause_s_max": round(self.pause_s_max, 4),
            "resumed_from": self._resumption.manifest.number if self._resumption else None,
            "restore_s": round(self._resumption.seconds, 4) if self._resumption else None,
            "restarts": self.restarts,
        }

    def begin(self, frames: Sequence[np.ndarray], run: RunState, cut: Cut) -> int:
        """The cut is made. Writes the master's frames, and returns the checkpoint's number for the others."""
        self._number += 1
        now_s = self._rank.clock.wall_s
        self.open = begun = Open(self._number, now_s, cut.stops, set(self._saving), run)
        file = None
        try:
            file = StateFile(self._folder, state_name(MASTER, self._number))
            begun.spans = tuple(file.write(frame) for frame in frames)
            begun.octets = file.octets
            file.finish()
        except CheckpointError as error:
            begun.faults.append(str(error))
            if file:
                file.abandon()
        if cut.metrics:
            self._file.close()
            self._file = CheckpointsFile(self._directory.metrics, self._number)
        return self._number

    def take(self, saved: Saved) -> Open | None:
        """Takes a rank's answer. Returns the checkpoint once all have answered, for then it has ended; else None."""
        open_ = self.open
        if open_ is None:
            raise ProtocolError(f"rank {saved.rank} has saved, but no checkpoint is open")
        open_.missing.discard(saved.rank)
        open_.answers[saved.rank] = saved
        open_.octets += saved.octets
        self.pause_s_max = max(self.pause_s_max, saved.seconds)
        if saved.fault:
            open_.faults.append(saved.fault)
        if open_.missing:
            return None
        self._end(open_)
        return open_

    def _end(self, open_: Open) -> None:
        self.open = None
        self._write(open_)
        outcome = "failed" if open_.faults else "stopped" if open_.stops else "whole"
        self._file.add(open_.number, open_.begun_s, self._rank.clock.wall_s, open_.octets, outcome)
        if open_.stops:
            with suppress(OutputError):  # the checkpoint counts, not what the report marks
                self._file.close()

    def _sync_folders(self) -> None:
        """Before the first one: what is written in a folder is found again only if the folder is. CheckpointError."""
        with writing(self._folder, CheckpointError):
            self._directory.sync()
            sync_path(self._folder.parent)

    def _write(self, open_: Open) -> None:
        """Makes the checkpoint whole, or says why it is not."""
        if not open_.faults:
            manifest = self._manifest(open_)
            try:
                if not self.written:
                    self._sync_folders()
                write_manifest(self._folder, manifest)
            except CheckpointError as error:
                open_.faults.append(str(error))
        if open_.faults:
            self.failed += 1
            self._anew = True
            prune(self._folder, self._kept)  # a full disk is not made fuller
            self._rank.log.warning("checkpoint %d is not whole: %s", open_.number, "; ".join(open_.faults))
            return
        self._kept = [*self._kept, manifest][-self._keep :]
        prune(self._folder, self._kept)
        self.written += 1
        self.octets += open_.octets
        took_s, mb = self._rank.clock.wall_s - open_.begun_s, (open_.octets / 1e6, manifest.octets / 1e6)
        self._rank.log.info("checkpoint %d: %.3g MB written, %.3g MB in all, %.3f s", open_.number, *mb, took_s)

    def _manifest(self, open_: Open) -> Manifest:
        answers = open_.answers.values()
        groups = [Group(group, one.rank, alive, spans) for one in answers for group, alive, spans in one.groups]
        before = total([self.before, *(one.counts for one in answers if one.counts)])
        before = before._replace(written=before.written + sum(one.rows for one in answers))
        parts = (part for one in answers for part in one.parts)
        position, *held = open_.spans
        waiting = (span for one in answers for span in one.waiting)
        return Manifest(
            number=open_.number,
            identity=self._identity,
            groups=tuple(groups),
            master=(position, *waiting, *held),
            results=(*self.results, *parts),
            before=before,
            restarts=self.restarts,
            run=open_.run,
        )
