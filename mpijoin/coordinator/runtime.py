"""The loop of rank 0: it carries out what the coordinator and the first producer decide, and ends the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mpijoin.collector.runtime import cut_results
from mpijoin.coordinator import events
from mpijoin.coordinator.checkpointing import Checkpointing
from mpijoin.coordinator.debt import Debt
from mpijoin.coordinator.movelog import MoveLog, decision_text
from mpijoin.coordinator.others import heard, told
from mpijoin.coordinator.start import loaded, new_core
from mpijoin.directives import Notes
from mpijoin.errors import ProtocolError
from mpijoin.launch.roles import RunSetup
from mpijoin.messages import EpochEnd, Finished, Marker, Report, ResultMarker, ResultRows, Saved, Signalled
from mpijoin.metrics.moves import MovesFile
from mpijoin.orders import AskLoads, ComputePartitions, Loads, Partitions, SpillOrder, Step
from mpijoin.policy.plan import Plan, Spill
from mpijoin.policy.view import ClusterView
from mpijoin.producer import events as producing
from mpijoin.producer.feed import Feed, FeedStart
from mpijoin.producer.figures import fed_of, feeding_of
from mpijoin.producer.intake import Intake
from mpijoin.producer.saving import save_input
from mpijoin.producer.start import pacing_of
from mpijoin.progress import Progress, ProgressView, SlaveProgress
from mpijoin.rank import MASTER, Rank
from mpijoin.records import Counts, Fed, Feeding, SpillFigures
from mpijoin.time_events import Ticked

if TYPE_CHECKING:
    from mpijoin.checkpoint.restore import Resumption
    from mpijoin.sinks.collector import Collector


class Master:
    def __init__(
        self,
        setup: RunSetup,
        rank: Rank,
        progress: Progress,
        collector: Collector | None,
        intake: Intake | None = None,
        resumption: Resumption | None = None,
        position: np.ndarray | None = None,
    ):
        """collector: given if this rank merges the results itself · intake: what to read instead of the job's sources ·
        resumption: where the run goes on; None where it begins · position: the frame of the share of the input that
        this rank reads; None: all of it, from its beginning."""
        job, slaves, directory = setup.job, setup.roles.slaves, setup.directory
        manifest = resumption.manifest if resumption else None
        self._rank = self.rank = rank
        self._progress, self.collector = progress, collector
        self._others = setup.roles.producers[1:]
        pacing = pacing_of(job, setup.schema, len(setup.roles.producers))
        self.core = new_core(setup, rank.clock, pacing, resumption)
        self._metrics_folder = directory.metrics if directory else None
        state, part = (manifest.run, manifest.number) if manifest else (None, 0)
        self.moves = MoveLog(self._moves_file(part), rank.clock, job.balance.move)
        start = FeedStart(position, state.sent if state else (), state.ticks if state else 0, part)
        self.feed = Feed(setup, rank, self.core.producer, pacing, self._do, start, intake)
        self.checkpointing: Checkpointing | None = None
        if setup.checkpoints and directory:
            saving = (*setup.roles.producers, *slaves, *setup.roles.collectors)
            self.checkpointing = Checkpointing(job, rank, setup.checkpoints, directory, saving, resumption)
        self._signal = ""  # that has asked this rank or another one for a checkpoint
        self.finished: dict[int, Finished] = {}
        self._fed = dict.fromkeys(self._others, Fed())
        self._behind_s = dict.fromkeys(self._others, 0.0)
        self._reports = {slave: Report(slave) for slave in slaves}
        self._debt = Debt()
        self._complete = False
        self._resumed_s = state.elapsed_s if state else 0.0
        if resumption:
            self.moves.totals = resumption.manifest.run.moves
            self.feed.restore(resumption.waiting)

    def run(self) -> None:
        """Goes on until every rank has finished. Raises whatever goes wrong, on any rank."""
        while not self.done:
            self._rank.wait(self.turn())
        self.close()

    @property
    def done(self) -> bool:
        saving = self.checkpointing is not None and self.checkpointing.open is not None
        return self._complete and not saving and (self.collector is None or self.collector.finished)

    def turn(self) -> float:
        """Takes what has arrived, and reads or hands out at most one part of a tick. Returns for how many seconds there
        is nothing else to do."""
        received = 0
        for source, message in self._rank.receive(self.collector.refuse if self.collector else ()):
            if not received:
                self._tell_time()
            received += 1
            self._take(source, message)
        if self.checkpointing:
            self._see_to_checkpoints()
        self._tell_time()
        pause_s = self.feed.see_to_input()
        self._progress.update(self.view)
        return 0.0 if received else min(pause_s, self.core.coordinator.due_s - self._rank.clock.wall_s)

    def _tell_time(self) -> None:
        self._do(Ticked(self._rank.clock.wall_s))

    def close(self) -> None:
        self.feed.close()
        self.moves.close()
        if self.checkpointing:
            self.checkpointing.close()

    def abandon(self) -> None:
        self.feed.intake.close()

    @property
    def before(self) -> Counts:
        """What slaves had counted before the run went on from a checkpoint."""
        return self.checkpointing.before if self.checkpointing else Counts.nothing(len(self.feed.sent))

    @property
    def earlier_results(self) -> list[str]:
        """The names of the part files that it had written by then."""
        return [part.name for part in self.checkpointing.results] if self.checkpointing else []

    def checkpoints(self) -> dict[str, Any] | None:
        """What the summary says of them; None where nothing can be saved."""
        return self.checkpointing.figures() if self.checkpointing else None

    @property
    def feedings(self) -> list[Feeding]:
        """What each producer has done, once all have finished."""
        others = (self.finished[rank].feeding for rank in self._others)
        return [feeding_of(self.feed, self.core.producer), *(one for one in others if one)]

    def _take(self, source: int, message: Any) -> None:
        match message:
            case Report():
                self._note(source, message)
            case Notes() if source in self._others:
                self._behind_s[source] = message.behind_s
                for note in heard(source, message):
                    self._do(note)
            case Loads():
                self._do(loaded(message))
            case Step():
                self.moves.stepped(message)
                self._do(events.Stepped(message.move, message.slave, message.step, message.dealt))
                if message.reason:
                    self._rank.log.warning(
                        "move %d: slave %d %s: %s", message.move, source, message.step, message.reason
                    )
            case Partitions(relocation, slave, groups):
                self._do(events.Chosen(relocation, slave, groups))
            case Finished():
                self.finished[source] = message
                self._do(events.RankFinished(source))
            case ResultRows() | EpochEnd() | ResultMarker() if self.collector:
                self.collector.take(message)
            case Saved() if self.checkpointing and self.checkpointing.open:
                self._saved(message)
            case Signalled(_, name):
                self._ask_stop(name)
            case _:
                raise ProtocolError(f"master got {type(message).__name__} from rank {source}")

    def _note(self, slave: int, report: Report) -> None:
        if report.fed and slave in self._fed:
            self._fed[slave] = report.fed
        self._reports |= {slave: report} if slave in self._reports else {}
        self._debt.note(self._spilling, self._rank.clock.wall_s, self.core.ended)
        if report.epoch < 0:
            return  # but a heartbeat
        self._do(producing.Consumed(slave, report.consumed_bytes))

    def _see_to_checkpoints(self) -> None:
        if self.collector and self.collector.cut_number is not None:
            self._saved(cut_results(MASTER, self.collector))
        if not self._signal and self._rank.asked:
            self._ask_stop(self._rank.asked)

    def _ask_stop(self, signal: str) -> None:
        """A signal has asked for a checkpoint; the first one counts."""
        if self.checkpointing and not self._signal:
            self._do(events.StopAsked(signal))
        self._signal = self._signal or signal

    def _cut(self, cut: producing.Cut) -> None:
        """Everything that this producer has goes to disk as it is now, and the mark goes out after all that was
        sent."""
        checkpointing = self._saving
        number, anew = self._opened(cut)
        frames, state = self.feed.saved(cut)
        for slave in self.core.slaves:
            self.feed.exchange.give(slave, Marker(number, cut.metrics, anew, bool(cut.stops)))
        if cut.metrics:
            self.feed.recorder.cut(number)
            self.moves.cut(self._moves_file(number))
        self._saved(save_input(checkpointing.folder, MASTER, number, frames, state))

    def _opened(self, cut: producing.Cut | producing.CutAsked) -> tuple[int, bool]:
        """The checkpoint that begins here, unless it has begun: its number, and whether what was written for the one
        before is gone."""
        checkpointing = self._saving
        if checkpointing.open is None:
            cluster = (len(self.core.active), tuple(self.core.slaves), self.moves.totals)
            checkpointing.begin(cut.stops, cut.metrics, *cluster)
        return checkpointing.opened

    def _tell(self, directive: producing.Directive) -> None:
        """Tells the other producers."""
        opened = self._opened(directive) if isinstance(directive, producing.CutAsked) else (0, False)
        for producer in self._others:
            self._rank.send(producer, told(directive, *opened))

    @property
    def _saving(self) -> Checkpointing:
        if self.checkpointing is None:
            raise ProtocolError("the master saves in a run that has no folder for it")
        return self.checkpointing

    def _moves_file(self, part: int) -> MovesFile | None:
        """part: of the checkpoint after which it begins, 0: with the run."""
        return MovesFile(self._metrics_folder, part) if self._metrics_folder else None

    def _saved(self, message: Saved) -> None:
        """A rank has saved. Raises Checkpointed where that was the last one, and the run stops."""
        ended = self._saving.take(message)
        if ended is None:
            return
        self._do(events.SaveEnded())
        if ended.stops and not self._complete:
            raise self._saving.ending(ended)

    def _do(self, event: events.Event | producing.Event) -> None:
        for action in self.core.actions(event):
            match action:
                case events.Tell(directive):
                    self._tell(directive)
                case events.Ask(slave, period):
                    self._rank.send(slave, AskLoads(period))
                case events.Compute(relocation, slave, octets, ranking):
                    self._rank.send(slave, ComputePartitions(relocation, octets, ranking))
                case Spill(slave, octets, ranking):
                    self._rank.send(slave, SpillOrder(octets, ranking))
                case events.GoesOn(reason):
                    self._rank.log.warning(
                        "does not stop, though it was asked to (%s): all input is on its way, and slaves share groups,"
                        " of which no checkpoint can be made any more; what is left will be joined",
                        reason,
                    )
                case events.Stopping(reason):
                    self._rank.log.info("stops at a checkpoint: %s", reason)
                case producing.Cut():
                    self._cut(action)
                case events.Weigh():
                    spent_s = {slave: (report.comm_s, report.busy_s) for slave, report in self._reports.items()}
                    self._do(events.Spent(spent_s, self._most_behind_s > 0))
                case events.Decided(view, plan):
                    self._decided(view, plan)
                case events.Moved():
                    self.moves.closed(action)
                case events.Complete():
                    self._complete = True
                case _:
                    self.moves.note(action)
                    self.feed.act(action)

    def _decided(self, view: ClusterView, plan: Plan) -> None:
        self.moves.decided(view, plan)
        self._rank.log.info("%s", decision_text(view, plan))

    def view(self) -> ProgressView:
        elapsed = self._rank.clock.wall_s
        fed = [fed_of(self.feed, self.core.producer), *self._fed.values()]
        tuples = sum(sum(one.sent) for one in fed)
        fraction, own_s = sum(one.fraction for one in fed) / len(fed), elapsed - self._resumed_s
        slaves = tuple(
            SlaveProgress(slave, min(1.0, report.busy_s / own_s), report.state_bytes, report.spilling.disk_bytes)
            for slave, report in self._reports.items()
        )
        return ProgressView(
            fraction=fraction,
            tuples=tuples,
            tuples_per_s=tuples / elapsed,
            results=sum(report.results for report in self._reports.values()),
            comparisons=sum(report.comparisons for report in self._reports.values()),
            state_bytes=sum(report.state_bytes for report in self._reports.values()),
            slaves=slaves,
            late_rows=sum(late for one in fed for _, late, _, _ in one.rows),
            elapsed_s=elapsed,
            eta_s=elapsed / fraction - elapsed if 0 < fraction < 1 else self._debt.left_s(elapsed),
            moves=self.moves.totals.moved,
            behind_s=self._most_behind_s,
            limit_bytes=sum(report.limit_bytes for report in self._reports.values()),
            spilling=self._spilling,
            cleaned=self._debt.cleaned,
        )

    @property
    def _spilling(self) -> SpillFigures:
        return SpillFigures.together(report.spilling for report in self._reports.values())

    @property
    def _most_behind_s(self) -> float:
        """How far a paced run is behind its time, where that is more than epochs allow."""
        pacing = self.feed.pacing
        own_s = self.core.backlog.overload_s(pacing.epoch_ns) if pacing.paced else 0.0
        return max(own_s, *self._behind_s.values(), 0.0)
