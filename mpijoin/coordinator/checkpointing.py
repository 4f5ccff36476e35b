"""The master's side of checkpoints: what each rank has saved, and the manifest that makes a checkpoint whole."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Sequence

from mpijoin.checkpoint.identity import identity_of
from mpijoin.checkpoint.manifest import Group, Manifest, RunState, last_number_in, prune, write_manifest
from mpijoin.checkpoint.totals import total
from mpijoin.config.job import Job
from mpijoin.disk import sync_path
from mpijoin.errors import Checkpointed, CheckpointError, MpijoinError, OutputError, ProtocolError
from mpijoin.messages import Saved
from mpijoin.metrics.checkpoints import CheckpointsFile
from mpijoin.rank import Rank
from mpijoin.records import Counts, InputState, MoveTotals
from mpijoin.refusals import writing
from mpijoin.rundir import RunDirectory

if TYPE_CHECKING:
    from mpijoin.checkpoint.restore import Resumption


@dataclass
class Open:
    """A checkpoint that is not yet whole."""

    number: int
    begun_s: float
    stops: str  # why the run ends with it, "" if it does not
    missing: list[int]  # ranks that have not saved yet; one that produces and collects saves twice
    anew: bool  # whether what was written for the one before is gone
    active: int  # how many slaves have groups
    slaves: tuple[int, ...]  # all there are
    moves: MoveTotals  # that have ended
    octets: int = 0
    faults: list[str] = field(default_factory=list)  # why it cannot be whole
    answers: list[Saved] = field(default_factory=list)


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
        """folder: where checkpoints go · directory: the run's · saving: the ranks that save, each as often
        as it does · resumption: where the run goes on; None where it begins."""
        resumed = resumption.manifest if resumption else None
        self._rank, self.folder, self._directory, self._keep = rank, folder, directory, job.checkpoint.keep
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

    @property
    def opened(self) -> tuple[int, bool]:
        """The number of the checkpoint that is open, and whether what was written for the one before is gone."""
        assert self.open is not None  # who asks has seen that it is
        return self.open.number, self.open.anew

    def begin(self, stops: str, cuts_metrics: bool, active: int, slaves: tuple[int, ...], moves: MoveTotals) -> None:
        """All shall save now. stops: why the run ends with it, "" if it does not · cuts_metrics: whether the metrics
        are cut, too · active: how many slaves have groups · slaves: all there are."""
        self._number += 1
        now_s = self._rank.clock.wall_s
        cluster = (active, slaves, moves)
        self.open = Open(self._number, now_s, stops, list(self._saving), self._anew, *cluster)
        self._anew = False
        if cuts_metrics:
            self._file.close()
            self._file = CheckpointsFile(self._directory.metrics, self._number)

    def take(self, saved: Saved) -> Open | None:
        """Takes a rank's answer. Returns the checkpoint once all have answered, for then it has ended; else None."""
        open_ = self.open
        if open_ is None or saved.rank not in open_.missing:
            raise ProtocolError(f"rank {saved.rank} has saved, but no checkpoint waits for it")
        open_.missing.remove(saved.rank)
        open_.answers.append(saved)
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
        with writing(self.folder, CheckpointError):
            self._directory.sync()
            sync_path(self.folder.parent)

    def _write(self, open_: Open) -> None:
        """Makes the checkpoint whole, or says why it is not."""
        if not open_.faults:
            manifest = self._manifest(open_)
            try:
                if not self.written:
                    self._sync_folders()
                write_manifest(self.folder, manifest)
            except CheckpointError as error:
                open_.faults.append(str(error))
        if open_.faults:
            self.failed += 1
            self._anew = True
            prune(self.folder, self._kept)  # a full disk is not made fuller
            self._rank.log.warning("checkpoint %d is not whole: %s", open_.number, "; ".join(open_.faults))
            return
        self._kept = [*self._kept, manifest][-self._keep :]
        prune(self.folder, self._kept)
        self.written += 1
        self.octets += open_.octets
        took_s, mb = self._rank.clock.wall_s - open_.begun_s, (open_.octets / 1e6, manifest.octets / 1e6)
        self._rank.log.info("checkpoint %d: %.3g MB written, %.3g MB in all, %.3f s", open_.number, *mb, took_s)

    def _manifest(self, open_: Open) -> Manifest:
        answers = sorted(open_.answers, key=lambda one: one.rank)
        groups = [Group(group, one.rank, alive, spans) for one in answers for group, alive, spans in one.groups]
        before = total([self.before, *(one.counts for one in answers if one.counts)])
        before = before._replace(written=before.written + sum(one.rows for one in answers))
        parts = (part for one in answers for part in one.parts)
        # What slaves had already got comes before what producers had not sent.
        waiting = (span for one in sorted(answers, key=lambda one: one.input is not None) for span in one.waiting)
        return Manifest(
            number=open_.number,
            identity=self._identity,
            groups=tuple(groups),
            positions=tuple(one.position for one in answers if one.position),
            waiting=tuple(waiting),
            results=(*self.results, *parts),
            before=before,
            restarts=self.restarts,
            run=_run_state(open_, [one.input for one in answers if one.input]),
        )


def _run_state(open_: Open, inputs: Sequence[InputState]) -> RunState:
    """Where the run stood, as its producers know it."""
    return RunState(
        late=tuple({part.name: part for one in inputs for part in one.late}.values()),
        slots=max(one.slots for one in inputs),
        complete=tuple(map(min, zip(*(one.complete for one in inputs)))),
        sent=tuple(map(sum, zip(*(one.sent for one in inputs)))),
        elapsed_s=open_.begun_s,
        active=open_.active,
        slaves=open_.slaves,
        ticks=max(one.ticks for one in inputs),
        moves=open_.moves,
    )
