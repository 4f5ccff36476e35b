"""The master's loop: reads ticks, scatters them, carries out what MasterCore decides, and ends the run."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijoin.config.job import Job
from mpijoin.data.batch import Batch
from mpijoin.data.record import RecordLayout
from mpijoin.data.rows import empty_batch
from mpijoin.data.schema import JoinSchema
from mpijoin.errors import InputError, ProtocolError
from mpijoin.master import core
from mpijoin.master.ticks import Tick, TickReader, pace_of
from mpijoin.messages import EpochEnd, Finished, Report, Rows, Slot
from mpijoin.metrics.write import MetricsFile
from mpijoin.partitioning.buffers import MiniBuffers
from mpijoin.partitioning.scatter import Scattered, scatter
from mpijoin.partitioning.table import PartitionTable
from mpijoin.progress import Progress, ProgressView, SlaveView
from mpijoin.rank import MASTER, Rank
from mpijoin.rundir import RunDirectory
from mpijoin.sinks.collector import Collector
from mpijoin.sources import open_source
from mpijoin.sources.base import TIME_MAX, Source
from mpijoin.sources.late import LateWriter

STREAMS = ("left", "right")


class Intake:
    """Both sources with their late files, read tick by tick."""

    def __init__(self, job: Job, schema: JoinSchema, directory: RunDirectory | None):
        self._fail_late = job.run.late == "fail"
        self._writers: list[LateWriter] = []
        self.sources: list[Source] = []
        try:
            for index, stream in enumerate(schema.streams):
                if directory:
                    self._writers.append(LateWriter(str(directory.open_late(stream.name)), stream))
                self.sources.append(open_source(job, index, schema, self._late_sink(stream.name)))
        except BaseException:
            self.close()
            raise
        latenesses = tuple(schema.ticks(stream.lateness_ns) for stream in job.streams)
        windows = tuple(schema.ticks(stream.window_ns) for stream in job.streams)
        epoch_ns = job.cluster.distribution_epoch_ns
        epoch = None if epoch_ns is None else max(1, schema.ticks(epoch_ns))
        self._reader = TickReader(tuple(self.sources), latenesses, pace_of(epoch, windows, job.cluster.subgroups))

    def _late_sink(self, name: str):
        writer = self._writers[-1] if self._writers else None

        def sink(table) -> None:
            if self._fail_late:
                first = table.slice(0, 1).to_pylist()[0]
                raise InputError(
                    f'[{name}] has late rows and [run] late = "fail": row {first["row"]} ({first["reason"]}), time '
                    f"{first[table.column_names[0]]}, watermark {first['watermark']}"
                )
            if writer:
                writer.write(table)

        return sink

    def next(self) -> Tick | None:
        return self._reader.next()

    def progress(self, taken: int) -> float:
        """Share of the input of which the `taken` tuples are the joinable ones, 0 to 1."""
        decoded = sum(source.progress() for source in self.sources) / len(self.sources)
        joinable = sum(one.read - one.late - one.null_key for one in (source.counts for source in self.sources))
        return decoded * taken / joinable if joinable else decoded

    def close(self) -> None:
        for closing in (*self.sources, *self._writers):
            closing.close()


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
    ):
        """collector: if this rank merges the results itself · finishing: ranks beside the slaves that report their end."""
        self._rank, self._directory, self._progress, self.collector = rank, directory, progress, collector
        self._layouts = [RecordLayout(stream) for stream in schema.streams]
        self._table = PartitionTable.even(job.cluster.partitions, slaves)
        self._groups = {slave: self._table.groups_of(slave) for slave in slaves}
        self.buffers = MiniBuffers(self._table, slaves)
        cluster = job.cluster
        self.core = core.MasterCore(slaves, cluster.subgroups, cluster.buffer_bytes, cluster.master_buffer_bytes, finishing)
        self._metrics = MetricsFile(directory.metrics, MASTER) if directory else None
        self.intake = Intake(job, schema, directory)
        self.sent = np.zeros((2, job.cluster.partitions), np.int64)  # rows per stream and place
        self.finished: dict[int, Finished] = {}
        self._reports = {slave: Report(slave) for slave in slaves}
        self._complete = False
        self._subgroups = cluster.subgroups
        self._ticks = 0
        self._last, self._sent_bytes = (0.0, 0.0, 0.0, 0.0), 0

    def run(self) -> None:
        """Until every rank has finished. Raises whatever goes wrong, on any rank."""
        while not self._complete or (self.collector and not self.collector.finished):
            received = 0
            for source, message in self._rank.receive(self.collector.refuse if self.collector else ()):
                received += 1
                self._take(source, message)
            if self.core.wants_input:
                self._ingest()
            elif not received:
                self._rank.wait()
            self._progress.update(self.view())
        self.intake.close()
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

    def _take(self, source: int, message: Any) -> None:
        match message:
            case Report():
                if source in self._reports:
                    self._note(source, message)
            case Finished():
                self.finished[source] = message
                self._do(core.RankFinished(source))
            case Rows() | EpochEnd() if self.collector:
                self.collector.take(message)
            case _:
                raise ProtocolError(f"master got {type(message).__name__} from rank {source}")

    def _note(self, slave: int, report: Report) -> None:
        if report.epoch >= 0:  # else it is but a heartbeat
            self._reports[slave] = report
            self._do(core.Consumed(slave, report.consumed_bytes))

    def _ingest(self) -> None:
        tick = self.intake.next()
        scattered = tuple(self._scatter(stream, tick.batches[stream] if tick else []) for stream in range(2))
        if tick is None:
            self.buffers.add(scattered)  # an empty piece, which carries the end to every slave
            self._do(core.SourceEnded((TIME_MAX, TIME_MAX)))
            return
        for stream, one in enumerate(scattered):
            self.sent[stream] += np.diff(one.starts)
        self._do(core.Ingested(self.buffers.add(scattered), tick.watermarks))
        self.buffers.settle()
        self._record(scattered)
        self._ticks += tick.watermarks is not None

    def _scatter(self, stream: int, batches: list[Batch]) -> Scattered:
        layout = self._layouts[stream]
        return scatter(batches or [empty_batch(layout.record_words)], self._table.place, layout.record_words, layout.has_blob)

    def _do(self, event: core.Event) -> None:
        for action in self.core.step(event):
            match action:
                case core.Serve():
                    self._serve(action)
                case core.Complete():
                    self._complete = True

    def _serve(self, action: core.Serve) -> None:
        pieces = tuple(self.buffers.take(action.slave, action.pieces))
        groups = self._groups[action.slave]
        slot = Slot(MASTER, action.epoch, action.watermarks, groups, pieces, action.last)
        self._rank.send(action.slave, slot)

    def _record(self, scattered: tuple[Scattered, ...]) -> None:
        if self._metrics is None:
            return
        rank = self._rank
        now = (rank.clock.wall_s, rank.clock.cpu_s, rank.comm_s, rank.idle_s)
        wall, cpu, comm, idle = (int(1e6 * (a - b)) for a, b in zip(now, self._last))
        self._last = now
        self._sent_bytes, sent_bytes = rank.transport.stats.sent_bytes, self._sent_bytes
        self._metrics.add(
            rank=MASTER,
            role="master",
            epoch=self._ticks // self._subgroups,
            end_us=int(now[0] * 1e6),
            wall_us=wall,
            cpu_us=cpu,
            comm_us=comm,
            idle_us=idle,
            tuples_left=len(scattered[0].tuples),
            tuples_right=len(scattered[1].tuples),
            sent_bytes=self._sent_bytes - sent_bytes,
            buffer_bytes=self.buffers.held_bytes,
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
        )
