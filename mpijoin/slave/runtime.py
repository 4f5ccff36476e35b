"""A slave's loop: receives slots, carries out what SlaveCore decides, sends results and reports."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import numpy as np

from mpijoin.config.job import AUTO, OFF, Job
from mpijoin.data.record import RecordLayout
from mpijoin.data.schema import JoinSchema
from mpijoin.errors import ProtocolError
from mpijoin.join.insert import Fresh
from mpijoin.join.pool import tuple_words
from mpijoin.join.state import THETA_OFF
from mpijoin.join.tuning import auto_theta
from mpijoin.join.window_join import WindowJoin
from mpijoin.messages import Finished, Report, Slot
from mpijoin.metrics.write import MetricsFile
from mpijoin.operators.base import Progress
from mpijoin.rank import MASTER, Rank
from mpijoin.rundir import RunDirectory
from mpijoin.sinks.base import Sink
from mpijoin.sinks.collector import SendSink
from mpijoin.sinks.count import CountSink
from mpijoin.sinks.parquet import ParquetSink
from mpijoin.sinks.parts import PartInfo
from mpijoin.sinks.table import TableBuilder
from mpijoin.slave import core
from mpijoin.transport.base import Channel

UNSENT_BYTES_MAX = 16 << 20  # results on their way to the collector; with more, joining waits
SLEEP_S = 0.005  # how long a slave made slow on purpose sleeps between two looks at the network


def new_operator(job: Job, schema: JoinSchema, memory_bytes: int) -> WindowJoin:
    """The join as the job wants it."""
    layouts = [RecordLayout(stream) for stream in schema.streams]
    streams = [
        (layout.record_words, layout.has_blob, schema.ticks(stream.window_ns))
        for layout, stream in zip(layouts, job.streams)
    ]
    block = job.tuning.block_bytes
    tuple_bytes = 4 * sum(tuple_words(words, has_blob) for words, has_blob, _ in streams)  # the mean of both
    theta = {OFF: THETA_OFF, AUTO: auto_theta(tuple_bytes, block)}.get(job.tuning.theta, job.tuning.theta)
    return WindowJoin(job.cluster.partitions, memory_bytes, block, theta, streams, job.tuning.result_buffer)


class Message:
    """A slot's message on its way through the join: its mini-buffers as kernels take them."""

    def __init__(self, slot: Slot):
        self.slot = slot
        self.parts: list[tuple[int, Fresh, np.ndarray]] = []  # stream, rows, bounds int64[m, 2]
        for piece in slot.pieces:
            for stream, columns in enumerate(piece.columns):
                ends = np.cumsum(piece.counts[stream])
                self.parts.append((stream, Fresh(*columns), np.stack([ends - piece.counts[stream], ends], axis=1)))

    def rows(self, stream: int) -> int:
        return sum(len(fresh.tuples) for own, fresh, _ in self.parts if own == stream)


class Slave:
    def __init__(
        self, job: Job, schema: JoinSchema, rank: Rank, directory: RunDirectory | None, memory_bytes: int, collector: int | None
    ):
        """collector: the rank to which results go, None where the slave keeps them."""
        self._rank = rank
        self._collector = collector
        self._core = core.SlaveCore()
        self._operator = new_operator(job, schema, memory_bytes)
        self._hashed = RecordLayout(schema.left) if schema.left.hashed else None
        self._slow = job.inject.slow.get(rank.number, 1.0)
        self._count = CountSink(self._operator)
        self._sinks: list[Sink] = [self._count, *self._output(job, schema, directory)]
        self._metrics = MetricsFile(directory.metrics, rank.number) if directory else None
        self._messages: deque[Message] = deque()
        self._actions: deque[core.Action] = deque()
        self._received = [0, 0]
        self._debt_s = 0.0  # what a slave made slow on purpose has still to sleep
        self._busy_s = 0.0
        self._window_bytes_max = 0
        self._last = self._snapshot(self._operator.totals)

    def _output(self, job: Job, schema: JoinSchema, directory: RunDirectory | None) -> list[Sink]:
        if job.output.results == "count":
            return []
        builder = TableBuilder(job, schema, self._operator)
        if self._collector is not None:
            return [SendSink(builder, self._rank.number, self._send_results)]
        return [ParquetSink(builder, directory.open_results, self._rank.number, job.output.part_bytes)]

    def run(self) -> None:
        """Until the master says stop (rank.Stopped). Raises whatever goes wrong."""
        while True:
            received = 0
            for _, message in self._rank.receive():
                received += 1
                self._take(message)
            if self._debt_s > 0:
                self._pay_debt()
            elif self._actions and not self._blocked():
                self._act(self._actions.popleft())
            elif not received:
                self._rank.wait()

    def abandon(self) -> None:
        for sink in self._sinks:
            sink.abandon()

    def _blocked(self) -> bool:
        return self._collector is not None and self._rank.transport.unsent_bytes(self._collector) > UNSENT_BYTES_MAX

    def _take(self, message: Any) -> None:
        if isinstance(message, Report):
            return  # the master's heartbeat
        if not isinstance(message, Slot):
            raise ProtocolError(f"slave got {type(message).__name__}, wanted a Slot")
        self._messages.append(Message(message))
        for stream in range(2):
            self._received[stream] += self._messages[-1].rows(stream)
        self._do(core.Arrived(message.epoch, message.octets, message.rows, message.last))

    def _do(self, event: core.Event) -> None:
        self._actions.extend(self._core.step(event))

    def _act(self, action: core.Action) -> None:
        start = time.perf_counter()
        match action:
            case core.Insert(low, high):
                self._insert(low, high)
                self._do(core.Inserted())
            case core.Probe(low, high, budget):
                groups = self._messages[0].slot.groups[low:high]
                self._do(core.Probed(self._operator.probe(groups, budget)))
            case core.Consume():
                self._consume()
            case core.Expire(low, high):
                slot = self._messages[0].slot
                self._operator.expire(slot.groups[low:high], slot.watermarks)
                self._do(core.Expired())
            case core.EndMessage(epoch, octets):
                self._end_message(epoch, octets)
            case core.Finish():
                self._finish()
        spent = time.perf_counter() - start
        self._busy_s += spent / self._slow
        self._debt_s += spent * (1 / self._slow - 1)

    def _pay_debt(self) -> None:
        start = time.perf_counter()
        time.sleep(min(self._debt_s, SLEEP_S))
        self._debt_s -= time.perf_counter() - start

    def _insert(self, low: int, high: int) -> None:
        message = self._messages[0]
        groups = message.slot.groups[low:high]
        for stream, fresh, bounds in message.parts:
            if self._operator.insert(groups, stream, fresh, bounds[low:high]) < len(groups):
                raise self._operator.out_of_memory()

    def _consume(self) -> None:
        operator = self._operator
        if self._hashed:
            operator.keep_equal_keys(self._hashed)
        results = operator.results()
        if len(results.left):
            for sink in self._sinks:
                sink.consume(results, self._messages[0].slot.epoch)
            operator.clear_results()

    def _send_results(self, data: np.ndarray) -> None:
        self._rank.transport.send(self._collector, Channel.RESULT, data)

    def _end_message(self, epoch: int, octets: int) -> None:
        slot = self._messages.popleft().slot
        for sink in self._sinks:
            sink.end_epoch(epoch, slot.last)
        self._record(epoch)
        held = self._operator.held_bytes
        self._rank.send(MASTER, Report(self._rank.number, octets, epoch, self._count.results, self._busy_s, held))

    def _snapshot(self, totals: dict[str, int]) -> dict[str, int]:
        """Running totals of which the metrics give the differences per epoch."""
        rank, stats = self._rank, self._rank.transport.stats
        return {
            "wall_us": int(rank.clock.wall_s * 1e6),
            "cpu_us": int(rank.clock.cpu_s * 1e6),
            "comm_us": int(rank.comm_s * 1e6),
            "idle_us": int(rank.idle_s * 1e6),
            "tuples_left": totals["joined_left"],
            "tuples_right": totals["joined_right"],
            "results": self._count.results,
            "comparisons": totals["comparisons"],
            "sent_bytes": stats.sent_bytes,
            "received_bytes": stats.received_bytes,
            "splits": totals["splits"],
            "merges": totals["merges"],
            "expired": totals["expired_left"] + totals["expired_right"],
        }

    def _record(self, epoch: int) -> None:
        totals = self._operator.totals
        self._window_bytes_max = max(self._window_bytes_max, totals["live_bytes"])
        if self._metrics is None:
            return
        now = self._snapshot(totals)
        change = {name: now[name] - self._last[name] for name in now}
        self._last = now
        self._metrics.add(
            rank=self._rank.number,
            role="slave",
            epoch=epoch,
            end_us=now["wall_us"],
            window_bytes=totals["live_bytes"],
            blocks=totals["blocks"],
            buffer_bytes=self._core.backlog_bytes,
            **change,
        )

    def _finish(self) -> None:
        parts = [part for sink in self._sinks for part in sink.close()]
        if self._metrics:
            self._metrics.close()
        self._rank.send(MASTER, Finished(self._rank.number, self._counts(parts), [part.name for part in parts]))
        self._rank.log.info("slave finished: %d results, %d part files", self._count.results, len(parts))

    def _counts(self, parts: list[PartInfo]) -> dict[str, Any]:
        return {
            "results": self._count.results,
            "written": sum(part.rows for part in parts),
            "certificate": f"{self._count.certificate:016x}",
            "cpu_s": self._rank.clock.cpu_s,
            "comm_s": self._rank.comm_s,
            "idle_s": self._rank.idle_s,
            "busy_s": self._busy_s,
            "window_bytes_max": self._window_bytes_max,
            "received_left": self._received[0],
            "received_right": self._received[1],
            **self._operator.totals,
        }
