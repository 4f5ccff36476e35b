"""The loop of a rank that only produces: it feeds slaves, and does what the coordinator says."""

from __future__ import annotations

from typing import Any

from mpijoin.config.job import FIXED
from mpijoin.directives import Directive, Notes, Share
from mpijoin.errors import ProtocolError
from mpijoin.launch.roles import RunSetup
from mpijoin.messages import Finished, Marker, Report
from mpijoin.partitioning.table import PartitionTable
from mpijoin.producer import events
from mpijoin.producer.core import ProducerCore
from mpijoin.producer.feed import Feed, FeedStart
from mpijoin.producer.figures import fed_of, feeding_of
from mpijoin.producer.intake import Intake
from mpijoin.producer.pacing import Pace
from mpijoin.producer.saving import save_input
from mpijoin.producer.setup import ProducerSetup
from mpijoin.producer.start import pacing_of, waiting_bytes_max
from mpijoin.rank import MASTER, Rank
from mpijoin.time_events import Ticked

PLAIN = (
    *(events.Pause, events.Restart, events.Duplicate, events.EndTrack),
    *(events.Align, events.ToMembers),
    *(events.CutAsked, events.Close, events.Begin, events.Floor),
)
DIRECTIVES = {one.__name__: one for one in PLAIN}


class Producer:
    def __init__(self, setup: RunSetup, rank: Rank, share: Share, intake: Intake | None = None):
        """share: what it reads, and where it begins · intake: what to read instead of the job's sources."""
        job, roles = setup.job, setup.roles
        self._rank, self._setup = rank, setup
        producers = len(roles.producers)
        pacing = pacing_of(job, setup.schema, producers)
        self._core = ProducerCore(
            ProducerSetup(
                PartitionTable(share.owners),
                roles.slaves,
                max(1, job.cluster.buffer_bytes // producers),
                waiting_bytes_max(job.cluster),
                job.cluster.subgroups,
                pacing if pacing.paced else None,
                rank.clock.wall_s,
                share.slots,
                share.complete,
                rank.number,
                producers,
                job.cluster.skew_buffer == FIXED,
                pacing.lead,
            )
        )
        start = FeedStart(share.position, part=share.part)
        self._feed = Feed(setup, rank, self._core, pacing, self._do, start, intake)
        self._notes = Notes()
        self._asked: Directive | None = None  # the checkpoint that is to be cut
        self._came: dict[int, int] = {}
        self._joined: dict[int, int] = {}
        self._has_finished = False
        rank.progress = lambda: Report(rank.number, comm_s=rank.comm_s, fed=fed_of(self._feed, self._core))

    def run(self) -> None:
        """Runs until the master says stop (rank.Stopped). Raises whatever goes wrong."""
        while True:
            self._rank.wait(self.turn())

    def turn(self) -> float:
        """Takes what has arrived, and reads or hands out at most one part of a tick. Returns for how many seconds there
        is nothing else to do."""
        received = 0
        for _, message in self._rank.receive():
            if not received:
                self._do(Ticked(self._rank.clock.wall_s))
            received += 1
            self._take(message)
        self._do(Ticked(self._rank.clock.wall_s))
        pause_s = self._feed.see_to_input()
        self._tell()
        if self._core.is_done and not self._has_finished:
            self._finish()
        return 0.0 if received else pause_s

    def abandon(self) -> None:
        self._feed.intake.close()

    def _take(self, message: Any) -> None:
        match message:
            case Report(rank, consumed_bytes, epoch):
                if rank != MASTER and epoch >= 0:
                    self._do(events.Consumed(rank, consumed_bytes))
            case Directive():
                self._follow(message)
            case _:
                raise ProtocolError(f"producer got {type(message).__name__}, which is not for a producer")

    def _follow(self, message: Directive) -> None:
        """Does what the coordinator has decided."""
        if message.name == events.CutAsked.__name__:
            self._asked = message
        if message.name == events.Repace.__name__:
            pace, epoch_ns = message.values
            self._do(events.Repace(Pace(*pace), epoch_ns))
        elif message.name in DIRECTIVES:
            self._do(DIRECTIVES[message.name](*message.values))
        else:
            raise ProtocolError(f"producer got the directive {message.name!r}, which it does not know")

    def _do(self, event: events.Event) -> None:
        for action in self._core.step(event):
            match action:
                case events.Flowed(came, joined):
                    _add(self._came, came)
                    _add(self._joined, joined)
                case events.SlotEnded():
                    self._notes = self._notes._replace(slot=(*action[:2], action.position, (*action.due.items(),)))
                case events.BeginsAt():
                    self._notes = self._notes._replace(begins=tuple(action))
                case events.InputEnded():
                    self._notes = self._notes._replace(ended=True)
                case events.Cut():
                    self._cut(action)
                case _:
                    self._feed.act(action)

    def _tell(self) -> None:
        """Sends the coordinator what has come up, in one message."""
        is_idle = self._core.ended and self._joined
        if self._notes == Notes() and not is_idle:
            return
        behind_s = self._core.backlog.overload_s(self._feed.pacing.epoch_ns)
        came, joined = tuple(self._came.items()), tuple(self._joined.items())
        self._rank.send(MASTER, self._notes._replace(came=came, joined=joined, behind_s=behind_s))
        self._notes, self._came, self._joined = Notes(), {}, {}

    def _cut(self, cut: events.Cut) -> None:
        """Saves what this producer has, and marks the place in what it sends."""
        asked = self._asked
        if asked is None or self._setup.checkpoints is None:
            raise ProtocolError("producer cuts a checkpoint that nobody has asked for")
        self._asked = None
        frames, state = self._feed.saved(cut)
        for slave in self._core.slaves:
            self._feed.exchange.give(slave, Marker(asked.number, cut.metrics, asked.anew, bool(cut.stops)))
        saved = save_input(self._setup.checkpoints, self._rank.number, asked.number, frames, state)
        if cut.metrics and not self._has_finished:
            self._feed.recorder.cut(asked.number)
        self._rank.send(MASTER, saved)

    def _finish(self) -> None:
        self._has_finished = True
        feeding = feeding_of(self._feed, self._core)
        self._feed.close()
        self._rank.send(MASTER, Finished(self._rank.number, feeding=feeding))
        self._rank.log.info("producer finished: %s rows sent", " + ".join(map(str, self._feed.sent.tolist())))


def _add(to: dict[int, int], more: dict[int, int]) -> None:
    for slave, octets in more.items():
        to[slave] = to.get(slave, 0) + octets
