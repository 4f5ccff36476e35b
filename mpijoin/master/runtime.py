"""The master's loop: reads ticks, scatters them, carries out what MasterCore decides, and ends the run."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import numpy as np

from mpijoin.config.job import Job
from mpijoin.data.schema import JoinSchema
from mpijoin.errors import ProtocolError
from mpijoin.master import core
from mpijoin.master.backlog import Backlog
from mpijoin.master.intake import Intake
from mpijoin.master.movelog import MoveLog
from mpijoin.master.pacing import Pacing
from mpijoin.master.reorganization import Reorganization
from mpijoin.master.ticks import Tick
from mpijoin.messages import Ask, EpochEnd, Finished, Loads, Order, Report, Rows, Slot, Step
from mpijoin.metrics.moves import MovesFile
from mpijoin.metrics.write import MetricsFile
from mpijoin.partitioning.buffers import MiniBuffers
from mpijoin.partitioning.scatter import Scattered
from mpijoin.partitioning.table import PartitionTable
from mpijoin.policy import first_active, make_policy
from mpijoin.policy.view import GroupView
from mpijoin.progress import Progress, ProgressView, SlaveView
from mpijoin.rank import MASTER, WAIT_S, Rank
from mpijoin.rundir import RunDirectory
from mpijoin.sinks.collector import Collector
from mpijoin.sources.base import TIME_MAX

PREPARE_AHEAD = 3.0  # a tick is begun at the latest so many times before it is due as the last one took to prepare


class Prepared(NamedTuple):
    """A part of a tick of a paced run, ready before it is due. place: the layout for which it was scattered."""

    tick: Tick
    scattered: tuple[Scattered, Scattered]
    place: np.ndarray


class Master:
    def __init__(
        self,
        job: Job,
        schema: JoinSchema,
        rank: Rank,
        slaves: tuple[int, ...],
        directory: RunDirectory | None,
        progress: Progress,
        collector: Collector | None,
        finishing: tuple[int, ...],
        intake: Intake | None = None,
    ):
        """collector: if this rank merges the results itself · finishing: ranks beside the slaves that report their end ·
        intake: what to read instead of the job's sources."""
        self._rank, self._progress, self.collector = rank, progress, collector
        self.pacing = Pacing(job, schema)
        self.core = new_core(job, slaves, finishing, self.pacing)
        self.buffers = MiniBuffers(self.core.table, slaves)
        self.backlog = Backlog(slaves)
        self._metrics = MetricsFile(directory.metrics, MASTER) if directory else None
        self.moves = MoveLog(MovesFile(directory.metrics) if directory else None, rank.clock)
        self.intake = intake or Intake(job, schema, directory, self.pacing.pace)
        self.sent = np.zeros(2, np.int64)  # rows per stream
        self.finished: dict[int, Finished] = {}
        self.declustering = Declustering()
        self._warmup_s = job.run.warmup_ns / 1e9
        self._subgroups = job.cluster.subgroups
        self._master_buffer_bytes = job.cluster.master_buffer_bytes
        self._reports = {slave: Report(slave) for slave in slaves}
        self._prepared: deque[Prepared] = deque()
        self._prepared_bytes = 0
        self._border = 0  # of the tick that was handed over last
        self._preparing_s = self._prepare_s = 0.0  # of the tick under way, of the last whole one
        self._read_all = False
        self._due_s = 0.0  # of the tick that was sent last
        self._complete = False
        self._ticks = 0
        self._last, self._sent_bytes = self._times(), 0
        self._kept_out = (0, 0)  # late rows, and those without a key
        self._warm = self._last if self._warmup_s == 0 else None  # times at the end of the warm-up

    def run(self) -> None:
        """Until every rank has finished. Raises whatever goes wrong, on any rank."""
        while not self.done:
            self._rank.wait(self.turn())
        self.close()

    @property
    def done(self) -> bool:
        return self._complete and (self.collector is None or self.collector.finished)

    def turn(self) -> float:
        """Takes what has arrived and hands out at most one part of a tick; returns for how many seconds there is nothing
        else to do."""
        received = 0
        for source, message in self._rank.receive(self.collector.refuse if self.collector else ()):
            received += 1
            self._take(source, message)
        pause_s = self._keep_pace() if self.pacing.paced else self._keep_up()
        self._progress.update(self.view)
        return 0.0 if received else pause_s

    def close(self) -> None:
        self.intake.close()
        self.moves.close()
        if self._metrics:
            self._metrics.close()

    def abandon(self) -> None:
        self.intake.close()

    @property
    def rank(self) -> Rank:
        return self._rank

    @property
    def epochs(self) -> int:
        """Distribution epochs that brought rows."""
        return -(-self._ticks // self._subgroups)

    def times_after_warmup(self) -> dict[str, float]:
        """CPU, communication and idle seconds of this rank since the warm-up."""
        start = self._warm or self._times()
        return dict(zip(("cpu_s", "comm_s", "idle_s"), (now - then for now, then in zip(self._times()[1:], start[1:]))))

    def _take(self, source: int, message: Any) -> None:
        match message:
            case Report():
                self._note(source, message)
            case Loads():
                self._do(loaded(message))
            case Step():
                self.moves.stepped(message)
                self._do(core.Stepped(message.move, message.slave, message.step))
                if message.reason:
                    self._rank.log.warning("move %d: slave %d %s: %s", message.move, source, message.step, message.reason)
            case Finished():
                self.finished[source] = message
                self._do(core.RankFinished(source))
            case Rows() | EpochEnd() if self.collector:
                self.collector.take(message)
            case _:
                raise ProtocolError(f"master got {type(message).__name__} from rank {source}")

    def _note(self, slave: int, report: Report) -> None:
        if report.epoch < 0 or slave not in self._reports:
            return  # but a heartbeat
        self._reports[slave] = report
        if self.pacing.paced:
            self.backlog.joined(slave, self._rank.clock.wall_s)
        self._do(core.Consumed(slave, report.consumed_bytes))

    def _keep_up(self) -> float:
        """As fast as the slaves take it: reads while one of them is hungry."""
        if not self.core.wants_input:
            return WAIT_S
        tick = self.intake.next()
        if tick is None:
            self._do(core.SourceEnded((TIME_MAX, TIME_MAX)))
        else:
            self._ingest(tick, self.intake.scatter(tick, self.core.table))
        return 0.0

    def _keep_pace(self) -> float:
        """By the clock: hands a tick over when it is due, and prepares the next one in idle time."""
        if not self.pacing.paced or self.core.ended:
            return WAIT_S
        if self._prepared:
            due_s = self.pacing.due_s(self._prepared[0].tick.border)
            wait_s = due_s - self._rank.clock.wall_s
            if wait_s <= 0 and self.core.wants_input:
                self._hand_over(due_s)
                return 0.0
            if self._prepared[-1].tick.watermarks is None and self._prepared_bytes < self._master_buffer_bytes:
                return self._prepare()
            return min(WAIT_S, wait_s) if wait_s > 0 else WAIT_S
        if self._read_all:
            self._do(core.SourceEnded((TIME_MAX, TIME_MAX)))
            return 0.0
        return self._leave_to_slaves_s() or self._prepare()

    def _leave_to_slaves_s(self) -> float:
        """So long the next tick can wait to be prepared: slaves that join may share this core, and results wait for them."""
        if self.pacing.origin is None or not self.backlog.joining:
            return 0.0
        due_s = self.pacing.due_s(self._border + self.pacing.pace.length)
        spare_s = due_s - PREPARE_AHEAD * self._prepare_s - self._rank.clock.wall_s
        return min(WAIT_S, max(0.0, spare_s))

    def _prepare(self) -> float:
        """Reads and scatters one part of the next tick (WSJ, VI-A: streams are generated "during idle period")."""
        start_s = self._rank.clock.wall_s
        tick = self.intake.next()
        if tick is None:
            self._read_all = True
            return 0.0
        if self.pacing.origin is None:
            self.pacing.begin(tick.border, self._rank.clock.wall_s)
        table = self.core.table
        scattered = self.intake.scatter(tick, table)
        self._prepared.append(Prepared(tick, scattered, table.place))
        self._prepared_bytes += sum(one.tuples.nbytes + one.blob.nbytes for one in scattered)
        self._preparing_s += self._rank.clock.wall_s - start_s
        if tick.watermarks is not None:
            self._prepare_s, self._preparing_s = self._preparing_s, 0.0
        return 0.0

    def _hand_over(self, due_s: float) -> None:
        """The oldest prepared part to the buffers. If groups have moved since, it is scattered once more."""
        tick, scattered, place = self._prepared.popleft()
        self._prepared_bytes -= sum(one.tuples.nbytes + one.blob.nbytes for one in scattered)
        self._due_s = due_s
        if tick.watermarks is not None:
            self._border = tick.border
            self.backlog.lagged(max(0.0, self._rank.clock.wall_s - due_s))
        if place is not self.core.table.place:
            scattered = self.intake.scatter(tick, self.core.table)
        self._ingest(tick, scattered)

    def _ingest(self, tick: Tick, scattered: tuple[Scattered, Scattered]) -> None:
        for stream, one in enumerate(scattered):
            self.sent[stream] += one.starts[-1]
        added = self.buffers.add(scattered)
        self._do(core.Ingested(added.octets, added.held, tick.watermarks))
        self.buffers.settle()
        self._record(scattered)
        if tick.watermarks is None:
            return
        self._ticks += 1
        spent_s = {slave: report.comm_s for slave, report in self._reports.items()}
        if self.pacing.advise(spent_s, self._rank.clock.wall_s):
            self._rank.log.info("distribution epochs are %.3f s from now on", self.pacing.epoch_ns / 1e9)
            self.intake.set_pace(self.pacing.pace)
            if self.core.reorganization:
                self.core.reorganization.slots = self.pacing.slots

    def _do(self, event: core.Event) -> None:
        for action in self.core.step(event):
            match action:
                case core.Serve():
                    self._serve(action)
                case core.Ask(slave, period):
                    self._rank.send(slave, Ask(period))
                case core.Command(move, step, slave, group, peer):
                    self.moves.ordered(action)
                    self._rank.send(slave, Order(move, step, group, peer))
                case core.Hold(move, group, slave):
                    self.moves.held(move)
                    self._do(core.Held(group, self.buffers.hold(group, slave)))
                case core.Deliver(move, group, slave):
                    self.moves.delivered(move)
                    self.buffers.deliver(group, slave)
                case core.CloseInput():
                    self.buffers.close()
                case core.Decided(view, plan):
                    self._decided(view, plan)
                case core.Moved():
                    self.moves.closed(action)
                case core.Complete():
                    self._complete = True

    def _serve(self, action: core.Serve) -> None:
        groups, pieces = self.buffers.take(action.slave, action.items)
        if self.pacing.paced:
            self.backlog.sent(action.slave, self._due_s)
        slot = Slot(MASTER, action.epoch, action.watermarks, groups, tuple(pieces), action.last, self.pacing.origin)
        self._rank.send(action.slave, slot)

    def _decided(self, view: Any, plan: Any) -> None:
        self.moves.decided(view)
        loads = " ".join(f"{one.slave}:{one.load:.2f}/{one.occupancy:.2f}" for one in view.active)
        asked = " ".join(f"{one.group}:{one.supplier}>{one.consumer}" for one in plan.moves)
        active = "" if plan.active is None else f", active {' '.join(map(str, plan.active))}"
        self._rank.log.info("reorganization %d: load/occupancy %s; moves %s%s", view.period, loads, asked or "none", active)

    def _times(self) -> tuple[float, float, float, float]:
        rank = self._rank
        return (rank.clock.wall_s, rank.clock.cpu_s, rank.comm_s, rank.idle_s)

    def _record(self, scattered: tuple[Scattered, ...]) -> None:
        now = self._times()
        if self._warm is None and now[0] >= self._warmup_s:
            self._warm = now
            self.backlog.start_over()
        active = self.core.active
        if self._warm is not None:
            self.declustering.add(len(active))
        if self._metrics is None or self._warm is None:
            return
        wall, cpu, comm, idle = (int(1e6 * (a - b)) for a, b in zip(now, self._last))
        self._last = now
        self._sent_bytes, sent_bytes = self._rank.transport.stats.sent_bytes, self._sent_bytes
        counts = [source.counts for source in self.intake.sources]
        kept_out, self._kept_out = self._kept_out, (sum(one.late for one in counts), sum(one.null_key for one in counts))
        self._metrics.add(
            rank=MASTER,
            role="master",
            epoch=self._ticks // self._subgroups,
            end_us=int(now[0] * 1e6),
            wall_us=wall,
            cpu_us=cpu,
            comm_us=comm,
            idle_us=idle,
            tuples_left=int(scattered[0].starts[-1]),
            tuples_right=int(scattered[1].starts[-1]),
            sent_bytes=self._sent_bytes - sent_bytes,
            late=self._kept_out[0] - kept_out[0],
            null_key=self._kept_out[1] - kept_out[1],
            buffer_bytes=self.buffers.held_bytes,
            active=len(active),
            lag_us=int(1e6 * self.backlog.lag_s),
        )

    def view(self) -> ProgressView:
        elapsed = self._rank.clock.wall_s
        tuples = int(self.sent.sum())
        fraction = self.intake.progress(tuples)
        slaves = tuple(
            SlaveView(slave, min(1.0, report.busy_s / elapsed), report.state_bytes) for slave, report in self._reports.items()
        )
        return ProgressView(
            fraction=fraction,
            tuples=tuples,
            tuples_per_s=tuples / elapsed,
            results=sum(report.results for report in self._reports.values()),
            state_bytes=sum(report.state_bytes for report in self._reports.values()),
            slaves=slaves,
            late_rows=sum(source.counts.late for source in self.intake.sources),
            elapsed_s=elapsed,
            eta_s=elapsed / fraction - elapsed if 0 < fraction < 1 else None,
            moves=self.moves.outcomes["moved"],
            behind_s=self.backlog.overload_s(self.pacing.epoch_ns) if self.pacing.paced else 0.0,
        )


class Declustering:
    """How many slaves were active: least, mean and most over the slots."""

    def __init__(self) -> None:
        self._slots = self._sum = self._most = 0
        self._least: int | None = None

    def add(self, active: int) -> None:
        self._slots += 1
        self._sum += active
        self._most = max(self._most, active)
        self._least = active if self._least is None else min(self._least, active)

    def figures(self, otherwise: int) -> dict[str, float]:
        """otherwise: where nothing was recorded."""
        if self._slots == 0:
            return {"min": otherwise, "mean": float(otherwise), "max": otherwise}
        return {"min": self._least, "mean": round(self._sum / self._slots, 3), "max": self._most}


def new_core(job: Job, slaves: tuple[int, ...], finishing: tuple[int, ...], pacing: Pacing) -> core.MasterCore:
    """The decisions of this job's master."""
    cluster, policy, reorganization = job.cluster, make_policy(job.balance), None
    if policy:
        slaves_min, load_buffer_bytes = cluster.slaves_min or len(slaves), job.balance.load_buffer_bytes
        reorganization = Reorganization(
            policy, pacing.slots, slaves_min, job.run.seed, load_buffer_bytes, cluster.memory_bytes
        )
    return core.MasterCore(
        PartitionTable.even(cluster.partitions, first_active(job.balance, cluster.slaves_min, slaves)),
        slaves,
        cluster.subgroups,
        cluster.buffer_bytes,
        cluster.master_buffer_bytes,
        finishing,
        pacing.paced,
        reorganization,
    )


def loaded(loads: Loads) -> core.Loaded:
    """What a slave answered, as the core takes it: a group's load is its part of the slave's work."""
    total = max(1, int(loads.work.sum()))
    groups = tuple(
        GroupView(group, loads.busy * work / total, state_bytes, float(work))
        for group, work, state_bytes in zip(loads.groups.tolist(), loads.work.tolist(), loads.live_bytes.tolist())
    )
    return core.Loaded(loads.rank, loads.period, loads.backlog_bytes, loads.busy, loads.communication, groups)
