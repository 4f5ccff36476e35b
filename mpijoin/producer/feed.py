"""A producer's hands: it reads ticks and scatters them, keeps the mini-buffers, and sends what its core decides."""

from __future__ import annotations

from collections import deque
from typing import Callable, Sequence

import numpy as np

from mpijoin.errors import ProtocolError
from mpijoin.launch.roles import RunSetup
from mpijoin.messages import Slot
from mpijoin.moving import steps
from mpijoin.named import NamedTuple
from mpijoin.orders import Order
from mpijoin.partitioning.buffers import MiniBuffers, Queued
from mpijoin.partitioning.runs import UNLIMITED
from mpijoin.partitioning.scatter import Scattered
from mpijoin.partitioning.table import Copy
from mpijoin.producer import events
from mpijoin.producer.core import ProducerCore
from mpijoin.producer.exchange import new_exchange
from mpijoin.producer.intake import Intake, Prepared
from mpijoin.producer.pacing import Pacing
from mpijoin.producer.recording import SlotRecorder
from mpijoin.producer.ticks import Ends, Tick
from mpijoin.rank import WAIT_S, Rank
from mpijoin.records import InputState
from mpijoin.sources.base import TIME_MAX, End, SourceCounts, Wait
from mpijoin.time_events import Rest


class FeedStart(NamedTuple):
    """Where a producer begins, or goes on."""

    position: np.ndarray | None = None
    """The frame of `Intake.save`, or of a share of the input; None: all of it, from its beginning."""
    sent: tuple[int, ...] = ()
    """Rows per stream that were sent before."""
    ticks: int = 0
    """How many of them there were before."""
    part: int = 0
    """The number of the checkpoint from which the run goes on; 0 where it begins."""


class Feed:
    """`do` tells the producer's core of an event, and has its actions carried out."""

    def __init__(
        self,
        setup: RunSetup,
        rank: Rank,
        core: ProducerCore,
        pacing: Pacing,
        do: Callable[[events.Event], None],
        start: FeedStart = FeedStart(),
        intake: Intake | None = None,
    ):
        """intake: what to read instead of the job's sources."""
        job, schema = setup.job, setup.schema
        self._rank, self._core, self._do = rank, core, do
        self.pacing = pacing
        self.exchange = new_exchange(job.cluster.exchange, rank)
        self.buffers = MiniBuffers(core.table, setup.roles.slaves, job.memory.limit_bytes or UNLIMITED)
        share = (rank.number, len(setup.roles.producers))
        self.intake = intake or Intake(job, schema, setup.directory, pacing.pace, start.position, setup.late, *share)
        self.sent = np.array(start.sent or [0] * len(job.streams), np.int64)  # rows per stream
        self.copied = np.zeros(len(job.streams), np.int64)  # rows per stream that were sent a second time
        self.ticks = start.ticks
        self._subgroups = job.cluster.subgroups
        self._prepared: deque[Prepared] = deque()
        folder = setup.directory.metrics if setup.directory else None
        names = [stream.name for stream in schema.streams]
        warmup_s = job.run.warmup_ns / 1e9
        role = setup.roles.name(rank.number)
        self.recorder = SlotRecorder(rank, role, folder, names, warmup_s, start.part, self.counts(), self._decoding_s)

    def close(self) -> None:
        self.intake.close()
        self.recorder.close()

    @property
    def epochs(self) -> int:
        """Distribution epochs that brought rows."""
        return -(-self.ticks // self._subgroups)

    def counts(self) -> list[SourceCounts]:
        return [source.counts for source in self.intake.sources]

    def _decoding_s(self) -> float:
        return self.intake.decoding_s

    def restore(self, waiting: Sequence[Slot]) -> None:
        """What waited for slaves when a checkpoint was cut waits now for those that have its groups."""
        items = (Queued(slot.groups, list(slot.pieces)) for slot in waiting)
        self._do(events.Resumed(self.buffers.restore(items)))

    def see_to_input(self) -> float:
        """Reads or hands out one part of a tick; returns for how many seconds there is nothing else to do."""
        self.exchange.turn()
        pause_s = self._advance()
        self.exchange.turn()
        return pause_s

    def _advance(self) -> float:
        match self._core.next_input():
            case Rest(seconds):
                return min(WAIT_S, seconds)
            case events.HandOver():
                self._hand_over()
            case events.Read(ahead):
                self._read(ahead)
        return 0.0

    def act(self, action: events.Action) -> None:
        """Carries out what the core wants."""
        match action:
            case events.Serve():
                self._serve(action)
            case events.Command(move, step, slave, group, peer):
                self.exchange.give(slave, Order(move, step, group, peer))
            case events.Hold(_, group, slave):
                self._do(events.Held(group, self.buffers.hold(group, slave)))
            case events.Deliver(_, group, slave):
                self._do(events.Delivered(group, self.buffers.deliver(group, slave)))
            case events.TellCopy():
                told = Copy(action.slave, action.move, action.step, action.peer, action.dealt)
                self.buffers.tell(action.group, told)
            case events.Redeal(_, group):
                self._do(events.Redealt(group, self.buffers.redeal(group)))
            case events.Repace(pace, epoch_ns):
                self._rank.log.info("distribution epochs are %.3f s from now on", epoch_ns / 1e9)
                self.intake.set_pace(pace)
            case events.Rested(shared, groups):
                for group, copy in shared:
                    self.buffers.tell(group, copy)
                self.buffers.rest(groups)
            case events.CloseInput():
                self.buffers.close()
            case _:
                raise ProtocolError(f"producer cannot carry out {type(action).__name__}")

    def saved(self, cut: events.Cut) -> tuple[list[np.ndarray], InputState]:
        """Returns what goes into a checkpoint: where the reading stands, what waits for slaves, and the counts until
        now."""
        late = tuple(self.intake.cut_late())
        waiting = [
            Slot(slave, 0, cut.complete, item.groups, tuple(item.pieces)).frame(checksum=True)
            for slave, item in self.buffers.waiting()
        ]
        state = InputState(late, tuple(self.sent.tolist()), cut.slots, self.ticks, cut.complete)
        return [self.intake.save(), *waiting], state

    def _serve(self, action: events.Serve) -> None:
        groups, pieces, copy = self.buffers.take(action.slave, action.items)
        slot = Slot(
            *(self._rank.number, action.epoch, action.watermarks, groups),
            *(tuple(pieces), action.last, self.pacing.origin),
        )
        if copy:
            slot = slot._replace(**{name: getattr(copy, name) for name in ("move", "step", "peer", "dealt")})
            self.copied += slot.rows_per_stream * steps.is_copied(copy.step, copy.dealt, len(self.sent))
        self.exchange.give(action.slave, slot)

    def _read(self, ahead: bool) -> None:
        clock = self._rank.clock
        start_s = clock.wall_s
        tick = self.intake.next()
        if isinstance(tick, Wait):
            self._do(events.SourceWaits(tick.until_s - clock.started_s))
        elif isinstance(tick, End):
            self._do(events.SourceEnded((TIME_MAX,) * len(self.sent)))
        elif ahead:
            self._prepare(tick, start_s)
        else:
            self._ingest(tick.ends, self.intake.scatter(tick, self._core.table))

    def _prepare(self, tick: Tick, start_s: float) -> None:
        """A part of a tick that is not yet due; its reading began at start_s."""
        clock, table = self._rank.clock, self._core.table
        read_s = clock.wall_s
        part = Prepared(tick.ends, self.intake.scatter(tick, table), table.place)
        self._prepared.append(part)
        completes = tick.watermarks is not None
        took_s = clock.wall_s - start_s
        self._do(events.PartReady(tick.border, completes, part.octets, read_s, took_s, tick.begins))

    def _hand_over(self) -> None:
        """The oldest prepared part goes to the buffers."""
        part = self._prepared.popleft()
        self._do(events.HandedOver())
        self._ingest(part.ends, part.by(self._core.table))

    def _ingest(self, ends: Ends, scattered: tuple[Scattered, ...]) -> None:
        for stream, one in enumerate(scattered):
            self.sent[stream] += one.starts[-1]
        epoch = self.ticks // self._subgroups
        self.ticks += ends.watermarks is not None
        added = self.buffers.add(scattered)
        self._do(events.Ingested(added.octets, added.held, *ends, added.shared))
        self.buffers.settle()
        active, held_bytes = len(self._core.active), self.buffers.held_bytes
        self.recorder.slot_ended(epoch, scattered, self.counts(), active, held_bytes, self._core.backlog)
