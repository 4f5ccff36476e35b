"""The master's loop: it reads ticks, scatters them, carries out what MasterCore decides, and ends the run."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from mpijoin.checkpoint.manifest import RunState
from mpijoin.checkpoint.restore import Resumption
from mpijoin.collector.runtime import cut_results
from mpijoin.errors import ProtocolError
from mpijoin.launch.setup import RunSetup
from mpijoin.master import events
from mpijoin.master.checkpointing import Checkpointing
from mpijoin.master.debt import Debt
from mpijoin.master.intake import Intake, Prepared
from mpijoin.master.movelog import MoveLog, decision_text
from mpijoin.master.recording import SlotRecorder
from mpijoin.master.start import loaded, new_core, pacing_of
from mpijoin.master.ticks import Tick
from mpijoin.messages import EpochEnd, Finished, Marker, Report, ResultMarker, ResultRows, Saved, Signalled, Slot
from mpijoin.metrics.moves import MovesFile
from mpijoin.orders import AskLoads, ComputePartitions, Loads, Order, Partitions, SpillOrder, Step
from mpijoin.partitioning.buffers import MiniBuffers, Queued
from mpijoin.partitioning.scatter import Scattered
from mpijoin.policy.plan import Plan, Spill
from mpijoin.policy.view import ClusterView
from mpijoin.progress import Progress, ProgressView, SlaveProgress
from mpijoin.rank import MASTER, WAIT_S, Rank
from mpijoin.records import Counts, SpillFigures
from mpijoin.sinks.collector import Collector
from mpijoin.sources.base import TIME_MAX, End, SourceCounts, Wait
from mpijoin.time_events import Rest, Ticked


class Master:
    def __init__(
        self,
        setup: RunSetup,
        rank: Rank,
        progress: Progress,
        collector: Collector | None,
        intake: Intake | None = None,
        resumption: Resumption | None = None,
    ):
        """collector: given if this rank merges the results itself · intake: what to read instead of the job's sources ·
        resumption: where the run goes on; None where it begins."""
        job, schema, slaves, directory = setup.job, setup.schema, setup.roles.slaves, setup.directory
        manifest = resumption.manifest if resumption else None
        self._rank = self.rank = rank
        self._progress, self.collector = progress, collector
        self.pacing = pacing_of(job, schema)
        self.core = new_core(setup, rank.clock, self.pacing, resumption)
        self.buffers = MiniBuffers(self.core.table, slaves)
        self._metrics_folder = directory.metrics if directory else None
        state, part = (manifest.run, manifest.number) if manifest else (None, 0)
        self.moves = MoveLog(self._moves_file(part), rank.clock)
        position = resumption.position if resumption else None
        self.intake = intake or Intake(job, schema, directory, self.pacing.pace, position, setup.late)
        self.checkpointing: Checkpointing | None = None
        if setup.checkpoints and directory:
            saving = (*slaves, *setup.roles.collectors)
            self.checkpointing = Checkpointing(job, rank, setup.checkpoints, directory, saving, resumption)
        self._signal = ""  # that has asked this rank or another one for a checkpoint
        self.sent = np.array(state.sent if state else [0] * len(job.streams), np.int64)  # rows per stream
        self.finished: dict[int, Finished] = {}
        self._subgroups = job.cluster.subgroups
        self._reports = {slave: Report(slave) for slave in slaves}
        self._debt = Debt()
        self._prepared: deque[Prepared] = deque()
        self._complete = False
        self._ticks = state.ticks if state else 0
        self._resumed_s = state.elapsed_s if state else 0.0
        names = [stream.name for stream in schema.streams]
        self.recorder = SlotRecorder(rank, self._metrics_folder, names, job.run.warmup_ns / 1e9, part, self._counts())
        if resumption:
            self._go_on(resumption)

    def _go_on(self, resumption: Resumption) -> None:
        """What waited for slaves when the checkpoint was cut waits now for those that have its groups."""
        self.moves.totals = resumption.manifest.run.moves
        waiting = (Queued(slot.groups, list(slot.pieces)) for slot in resumption.waiting)
        self._do(events.Resumed(self.buffers.restore(waiting)))

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
        pause_s = self._see_to_input()
        self._progress.update(self.view)
        return 0.0 if received else pause_s

    def _tell_time(self) -> None:
        self._do(Ticked(self._rank.clock.wall_s))

    def close(self) -> None:
        self.intake.close()
        self.moves.close()
        self.recorder.close()
        if self.checkpointing:
            self.checkpointing.close()

    def abandon(self) -> None:
        self.intake.close()

    @property
    def before(self) -> Counts:
        """What slaves had counted before the run went on from a checkpoint."""
        return self.checkpointing.before if self.checkpointing else Counts.nothing(len(self.sent))

    @property
    def earlier_results(self) -> list[str]:
        """The names of the part files that it had written by then."""
        return [part.name for part in self.checkpointing.results] if self.checkpointing else []

    def checkpoints(self) -> dict[str, Any] | None:
        """What the summary says of them; None where nothing can be saved."""
        return self.checkpointing.figures() if self.checkpointing else None

    @property
    def epochs(self) -> int:
        """Distribution epochs that brought rows."""
        return -(-self._ticks // self._subgroups)

    def _take(self, source: int, message: Any) -> None:
        match message:
            case Report():
                self._note(source, message)
            case Loads():
                self._do(loaded(message))
            case Step():
                self.moves.stepped(message)
                self._do(events.Stepped(message.move, message.slave, message.step))
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
        self._reports |= {slave: report} if slave in self._reports else {}
        self._debt.note(self._spilling, self._rank.clock.wall_s, self.core.ended)
        if report.epoch < 0:
            return  # but a heartbeat
        self._do(events.Consumed(slave, report.consumed_bytes))

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

    def _cut(self, action: events.Cut) -> None:
        """Everything that the master has goes to disk as it is now, and the mark goes out after all that was sent."""
        state = RunState(
            late=tuple(self.intake.cut_late()),
            slots=action.slots,
            complete=action.complete,
            sent=tuple(self.sent.tolist()),
            elapsed_s=self._rank.clock.wall_s,
            active=len(self.core.active),
            slaves=tuple(self.core.slaves),
            ticks=self._ticks,
            moves=self.moves.totals,
        )
        waiting = [
            Slot(slave, 0, action.complete, item.groups, tuple(item.pieces)).frame(checksum=True)
            for slave, item in self.buffers.waiting()
        ]
        checkpointing = self._saving
        number = checkpointing.begin([self.intake.save(), *waiting], state, action)
        anew = checkpointing.begins_anew()
        if action.metrics:
            self.recorder.cut(number)
            self.moves.cut(self._moves_file(number))
        for slave in self.core.slaves:
            self._rank.send(slave, Marker(number, action.metrics, anew, bool(action.stops)))

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

    def _see_to_input(self) -> float:
        """Reads or hands out one part of a tick; returns for how many seconds there is nothing else to do."""
        match self.core.next_input():
            case Rest(seconds):
                return min(WAIT_S, seconds)
            case events.HandOver():
                self._hand_over()
            case events.Read():
                self._read()
        return 0.0

    def _read(self) -> None:
        clock = self._rank.clock
        start_s = clock.wall_s
        tick = self.intake.next()
        if isinstance(tick, Wait):
            self._do(events.SourceWaits(tick.until_s - clock.started_s))
        elif isinstance(tick, End):
            self._do(events.SourceEnded((TIME_MAX,) * len(self.sent)))
        elif self.pacing.paced:
            self._prepare(tick, start_s)
        else:
            self._ingest(tick, self.intake.scatter(tick, self.core.table))

    def _prepare(self, tick: Tick, start_s: float) -> None:
        """A part of a tick that is not yet due; its reading began at start_s."""
        clock, table = self._rank.clock, self.core.table
        read_s = clock.wall_s
        part = Prepared(tick, self.intake.scatter(tick, table), table.place)
        self._prepared.append(part)
        completes = tick.watermarks is not None
        self._do(events.PartReady(tick.border, completes, part.octets, read_s, clock.wall_s - start_s))

    def _hand_over(self) -> None:
        """The oldest prepared part goes to the buffers. If groups have moved since, it is scattered once more."""
        tick, scattered, place = self._prepared.popleft()
        self._do(events.HandedOver())
        if place is not self.core.table.place:
            scattered = self.intake.scatter(tick, self.core.table)
        self._ingest(tick, scattered)

    def _ingest(self, tick: Tick, scattered: tuple[Scattered, ...]) -> None:
        for stream, one in enumerate(scattered):
            self.sent[stream] += one.starts[-1]
        epoch = self._ticks // self._subgroups
        self._ticks += tick.watermarks is not None
        added = self.buffers.add(scattered)
        self._do(events.Ingested(added.octets, added.held, tick.watermarks))
        self.buffers.settle()
        self.recorder.slot_ended(
            epoch, scattered, self._counts(), len(self.core.active), self.buffers.held_bytes, self.core.backlog
        )

    def _counts(self) -> list[SourceCounts]:
        return [source.counts for source in self.intake.sources]

    def _do(self, event: events.Event) -> None:
        for action in self.core.step(event):
            match action:
                case events.Serve():
                    self._serve(action)
                case events.Ask(slave, period):
                    self._rank.send(slave, AskLoads(period))
                case events.Compute(relocation, slave, octets, ranking):
                    self._rank.send(slave, ComputePartitions(relocation, octets, ranking))
                case Spill(slave, octets, ranking):
                    self._rank.send(slave, SpillOrder(octets, ranking))
                case events.Command(move, step, slave, group, peer):
                    self.moves.ordered(action)
                    self._rank.send(slave, Order(move, step, group, peer))
                case events.Hold(move, group, slave):
                    self.moves.held(move)
                    self._do(events.Held(group, self.buffers.hold(group, slave)))
                case events.Deliver(move, group, slave):
                    if move is not None:
                        self.moves.delivered(move)
                    self.buffers.deliver(group, slave)
                case events.Stopping(reason):
                    self._rank.log.info("stops at a checkpoint: %s", reason)
                case events.Cut():
                    self._cut(action)
                case events.Weigh():
                    spent_s = {slave: (report.comm_s, report.busy_s) for slave, report in self._reports.items()}
                    self._do(events.Spent(spent_s))
                case events.Repace(pace, epoch_ns):
                    self._rank.log.info("distribution epochs are %.3f s from now on", epoch_ns / 1e9)
                    self.intake.set_pace(pace)
                case events.CloseInput():
                    self.buffers.close()
                case events.Decided(view, plan):
                    self._decided(view, plan)
                case events.Moved():
                    self.moves.closed(action)
                case events.Complete():
                    self._complete = True

    def _serve(self, action: events.Serve) -> None:
        groups, pieces = self.buffers.take(action.slave, action.items)
        slot = Slot(MASTER, action.epoch, action.watermarks, groups, tuple(pieces), action.last, self.pacing.origin)
        self._rank.send(action.slave, slot)

    def _decided(self, view: ClusterView, plan: Plan) -> None:
        self.moves.decided(view)
        self._rank.log.info("%s", decision_text(view, plan))

    def view(self) -> ProgressView:
        elapsed = self._rank.clock.wall_s
        tuples = int(self.sent.sum())
        fraction, own_s = self.intake.progress(tuples), elapsed - self._resumed_s
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
            late_rows=sum(source.counts.late for source in self.intake.sources),
            elapsed_s=elapsed,
            eta_s=elapsed / fraction - elapsed if 0 < fraction < 1 else self._debt.left_s(elapsed),
            moves=self.moves.totals.moved,
            behind_s=self._behind_s,
            limit_bytes=sum(report.limit_bytes for report in self._reports.values()),
            spilling=self._spilling,
            cleaned=self._debt.cleaned,
        )

    @property
    def _spilling(self) -> SpillFigures:
        return SpillFigures.together(report.spilling for report in self._reports.values())

    @property
    def _behind_s(self) -> float:
        return self.core.backlog.overload_s(self.pacing.epoch_ns) if self.pacing.paced else 0.0
