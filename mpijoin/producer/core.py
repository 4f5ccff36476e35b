"""What a producer decides: which slave is served when and with how much, and when its sources must pause.

`ProducerCore.step(event) -> actions` knows counts, bytes and the time that it is told: no message, file, clock or
random source. `ProducerCore.next_input()` says what shall be done about the input at that time.
"""

from __future__ import annotations

import math

from mpijoin.errors import ProtocolError
from mpijoin.moving import steps
from mpijoin.partitioning.table import SHARED, Copy
from mpijoin.producer.backlog import Backlog
from mpijoin.producer.events import (
    Action,
    Align,
    Begin,
    BeginsAt,
    Close,
    CloseInput,
    Command,
    Consumed,
    Cut,
    CutAsked,
    Deliver,
    Delivered,
    Duplicate,
    EndTrack,
    Event,
    Floor,
    Flowed,
    HandedOver,
    Held,
    Hold,
    Ingested,
    Input,
    InputEnded,
    PartReady,
    Pause,
    Redeal,
    Redealt,
    Repace,
    Restart,
    Rested,
    Resumed,
    SlotEnded,
    SourceEnded,
    SourceWaits,
    TellCopy,
    ToMembers,
    Watermarks,
)
from mpijoin.producer.lead import Lead
from mpijoin.producer.pacing import TIME_MAX
from mpijoin.producer.queues import Queues
from mpijoin.producer.setup import ProducerSetup
from mpijoin.producer.stock import Now, Stock
from mpijoin.producer.timetable import Timetable
from mpijoin.producer.views import SlaveState
from mpijoin.time_events import Rest, Ticked


class ProducerCore:
    """Distribution epochs of n_g slots: slot i serves sub-group i mod n_g (WSJ, section V-B).

    What exceeds a slave's credit waits in its mini-buffers (`queues`), which are Flux's transient-skew buffer.

    As fast as possible, the source is read while any slave is hungry: one that is slow holds back its own partitions,
    and the source only when they fill the producer's buffer. While the source pauses, or has ended, every sub-group's
    turn comes at once. In a paced run the clock decides, and what was due and lacked credit is sent as soon as there is
    some. One of several producers also waits where it is too far ahead of the slowest (`lead`).

    The coordinator pauses and restarts the input of groups; everybody else is served without waiting for them (WSJ,
    section IV-C). It asks for checkpoints, which are cut after the tick under way.
    """

    def __init__(self, setup: ProducerSetup):
        self.table = setup.table
        self.held_back_by: dict[int, int] = dict.fromkeys(setup.slaves, 0)  # slave -> times it made the source pause
        self.backlog = Backlog(setup.slaves)  # of a paced run
        self._number, self._alone = setup.number, setup.producers == 1
        self._subgroups = setup.subgroups
        self._waiting_bytes = setup.waiting_bytes
        self._now_s = setup.now_s
        self._pacing = setup.pacing
        self._timetable = Timetable(setup.pacing, self.backlog, setup.now_s) if setup.pacing else None
        self._stock = self._timetable or Stock()
        self._queues = Queues(setup, self.backlog, self._timetable)
        self._lead = Lead(setup.producers, setup.lead)
        self._wait_until_s = 0.0  # The sources have nothing before this second of the run.
        self._complete = setup.complete  # watermarks of the last whole tick
        self._slots = setup.slots  # that have ended
        self._read_all: Watermarks | None = None  # Nothing is left to read, only what is prepared.
        self._ending: Watermarks | None = None  # The source has ended, with these.
        self._paused: dict[int, int] = {}  # group -> its supplier, until what waits for it is held back
        self._is_within_tick = False
        self._asked: CutAsked | None = None  # A checkpoint is to be cut after the tick under way.
        self._stopped = False  # The run ends with the last one: nothing may follow it.
        self._has_begun = False  # Its first tick is prepared.

    @property
    def wants_input(self) -> bool:
        """Whether the source may be read (paced: handed out when it is due); False pauses it for all."""
        if self.ended or self._stopped:
            return False
        if self._asked and self._asked.stops:
            return True  # the tick under way ends, so that the run can: nobody has to have room for it
        if self._queues.is_full:
            return False
        if self._timetable or (self._asked and (self._is_within_tick or not self._stock.is_empty)):
            return True
        if not self._alone and self._lead.is_bounded(self._has_room):
            return False
        return not self.active or any(map(self._queues.is_hungry, self.active))

    def next_input(self) -> Input:
        """What shall be done about the input at the time that was told last."""
        wait_s = self._wait_until_s - self._now_s
        if self.ended or (self._read_all and self._stock.is_empty):
            return Rest(math.inf)
        has_room = self._has_room if self._timetable else self._reads_ahead
        return self._stock.next(Now(self._now_s, self.wants_input, has_room, wait_s))

    @property
    def _has_room(self) -> bool:
        """Whether more may be prepared."""
        return self._stock.octets + self._queues.held_bytes < self._waiting_bytes

    @property
    def _reads_ahead(self) -> bool:
        """Whether a producer that is too far ahead of the others prepares what it may send later."""
        if self._alone or self._asked or self._stopped or self._read_all:
            return False
        if not self._has_begun:
            return True
        return self._has_room and self._lead.is_bounded(has_room=True) and self._lead.may_prepare(self._stock.border)

    @property
    def ended(self) -> bool:
        """Whether the source has ended."""
        return self._ending is not None

    @property
    def active(self) -> tuple[int, ...]:
        """Slaves that have groups."""
        return self.table.active

    @property
    def slaves(self) -> dict[int, SlaveState]:
        """What the producer believes of each slave."""
        return self._queues.slaves

    @property
    def is_closed(self) -> bool:
        """Whether the end is on its way to the slaves."""
        return self._queues.closed

    @property
    def is_done(self) -> bool:
        """Whether everything has been sent, and the end, too."""
        return self.is_closed and not any(view.waiting for view in self.slaves.values())

    def step(self, event: Event) -> list[Action]:
        match event:
            case Ticked(now_s):
                self._now_s = now_s
                return self._end_stock()
            case Ingested():
                return self._ingested(event)
            case SourceEnded():
                return self._source_ended(event)
            case SourceWaits(until_s):
                self._wait_until_s = until_s
                return []
            case PartReady() | HandedOver():
                return self._note_part(event)
            case Consumed():
                return self._consumed(event)
            case Held():
                return self._note_held(event)
            case Pause():
                return self._pause(event)
            case Restart():
                return self._restart(event)
            case Duplicate() | EndTrack():
                return self._track(event)
            case Align():
                return self._align(event)
            case ToMembers():
                return self._to_members(event)
            case Resumed() | Delivered() | Redealt():
                return self._wait_again(event)
            case CutAsked():
                self._asked = event
                return self._cut()
            case Close():
                return self._close()
            case _:
                return self._adapt(event)

    def _adapt(self, event: Event) -> list[Action]:
        """Takes what the coordinator says about time."""
        match event:
            case Repace(_, epoch_ns) if self._pacing:
                self._pacing.epoch_ns = epoch_ns
                return [event]
            case Begin(time, second):
                self._lead.others(time)
                if self._pacing:
                    self._pacing.origin = (time, second)
                return []
            case Floor(time):
                self._lead.others(time)
                return []
            case _:
                raise ProtocolError(f"producer got {type(event).__name__}, which is no event of its own")

    def _end_stock(self) -> list[Action]:
        """The source has ended once all that was prepared is handed out."""
        if self._read_all and not self.ended and self._stock.is_empty:
            return self._end(self._read_all)
        return []

    def _note_part(self, event: PartReady | HandedOver) -> list[Action]:
        if self._pacing is None and self._alone:
            raise ProtocolError(f"producer got {type(event).__name__} in a run that is not paced")
        if isinstance(event, HandedOver):
            self._stock.handed_over(self._now_s)
            return []
        begins = not self._has_begun
        self._has_begun = True
        if begins and self._alone and self._pacing:
            self._pacing.begin(event.border, event.read_s)
        self._stock.prepared(event)
        if not begins or self._alone:
            return []
        if self._pacing:
            return [BeginsAt(self._number, event.border - (self._pacing.pace.length or 0), event.read_s)]
        start = min(event.begins)
        self._lead.begin(start, event.border)
        return [BeginsAt(self._number, start, event.read_s), *self._rest(event.begins)]

    def _ingested(self, event: Ingested) -> list[Action]:
        if self.ended:
            raise ProtocolError("producer got input after the source had ended")
        self._complete = event.watermarks or self._complete
        self._queues.add(event)
        self._is_within_tick = event.watermarks is None
        actions: list[Action] = [Flowed(event.came, {})]
        served = self._serve_all() if self._queues.is_full else []
        if self._queues.is_full:
            largest = max(self.slaves, key=lambda slave: self.slaves[slave].waiting_bytes)
            self.held_back_by[largest] += 1
        if event.watermarks is None:
            return actions + served
        if not served:
            due = (slave for slave in event.slaves if self.slaves[slave].subgroup == self._slots % self._subgroups)
            served = [action for slave in due for action in self._queues.serve(slave, self._epoch)]
        self._slots += 1
        self._lead.tick_ended(event.border, event.position)
        return [*actions, *served, *self._cut(), self._slot_ended()]

    def _slot_ended(self) -> SlotEnded:
        due = {slave: self.slaves[slave].due_bytes for slave in self.active} if self._timetable else {}
        return SlotEnded(self._number, self._slots, due, self._lead.position)

    def _source_ended(self, event: SourceEnded) -> list[Action]:
        if self.ended or self._read_all:
            raise ProtocolError("producer got the end of the source twice")
        if not self._stock.is_empty:
            self._read_all = event.watermarks
            return []
        return self._end(event.watermarks)

    def _end(self, watermarks: Watermarks) -> list[Action]:
        """What the others still send can expire without this producer, which may be asked for much yet."""
        self._ending = watermarks
        self._is_within_tick = False
        ended = InputEnded(self._number)
        if self._alone:
            return [ended]
        self._lead.tick_ended(TIME_MAX, TIME_MAX)
        return [*self._rest(watermarks), *self._cut(), ended]

    def _rest(self, watermarks: Watermarks) -> list[Action]:
        """Tells the slaves that this producer has no rows to come below these watermarks."""
        self._complete = watermarks
        table = self.table
        copies = tuple((one, copy) for one in table.groups_of(SHARED).tolist() for copy in table.copies_of(one))
        shared = tuple((copy.slave, 0) for _, copy in copies)
        self._queues.add(Ingested(dict.fromkeys(table.owners, 0), {}, watermarks, shared=shared))
        rested = Rested(copies, tuple((slave, table.groups_of(slave)) for slave in table.owners))
        return [rested, *self._serve_all()]

    def _close(self) -> list[Action]:
        if self._ending is None:
            raise ProtocolError("producer was told to close its input, which has not ended")
        self._queues.close(self._ending)
        return [CloseInput(), *self._serve_all()]

    def _cut(self) -> list[Action]:
        """The checkpoint that was asked for, if the tick under way is over."""
        asked = self._asked
        if asked is None or self._is_within_tick or not self._stock.is_empty:
            return []
        self._asked = None
        self._stopped = self._queues.stopped = bool(asked.stops)
        return [Cut(self._slots, self._complete, asked.stops, asked.metrics)]

    def _consumed(self, event: Consumed) -> list[Action]:
        self._queues.consumed(event)
        if self._timetable:
            self.backlog.joined(event.slave, self._now_s)
        serve = self._queues.send_due if self.wants_input else self._queues.serve
        return [Flowed({}, {event.slave: event.octets}), *serve(event.slave, self._epoch)]

    def _pause(self, event: Pause) -> list[Action]:
        """Holds the group's input back, and acknowledges that to its supplier, behind all that was sent there."""
        move, group, supplier, consumer = event
        self.table.route(group, None)
        self._queues.held[group] = 0
        self._paused[group] = supplier
        return [Hold(move, group, supplier), Command(move, steps.FREEZE, supplier, group, consumer)]

    def _note_held(self, event: Held) -> list[Action]:
        supplier = self._paused.pop(event.group, None)
        if supplier is None or len(event.octets) != len(self.slaves[supplier].waiting):
            raise ProtocolError(
                f"producer was told of rows of group {event.group}, wanted those of a group that is just paused"
            )
        self._queues.hold(event.group, supplier, event.octets)
        return []

    def _restart(self, event: Restart) -> list[Action]:
        """The group is this slave's from now on."""
        self.table.route(event.group, event.slave)
        return [Deliver(*event)]

    def _track(self, event: Duplicate | EndTrack) -> list[Action]:
        """The group's input goes to two slaves from now on, or to one of the two again. What waits for them stays where
        it is: each hears of the change behind it."""
        if isinstance(event, Duplicate):
            steps_of = {event.supplier: steps.DUPLICATE, event.consumer: steps.COPY}
            self.table.share(event.group, *(Copy(slave, event.move, step) for slave, step in steps_of.items()))
        else:
            steps_of = {event.keep: steps.KEEP, event.leave: steps.LEAVE}
            self.table.route(event.group, event.keep)
        actions: list[Action] = []
        for slave, step in steps_of.items():
            self._queues.tell(slave, self._complete)
            actions.append(TellCopy(event.group, slave, event.move, step))
        return actions + [action for slave in steps_of for action in self._queues.serve(slave, self._epoch)]

    def _align(self, event: Align) -> list[Action]:
        """The group's input is held back from now on, and not what waits: some slaves shall hear of it behind that."""
        self.table.route(event.group, None)
        self._queues.held[event.group] = 0
        peer_of = {event.supplier: event.consumer, event.consumer: event.supplier}
        actions: list[Action] = []
        for slave, step in event.told:
            self._queues.tell(slave, self._complete)
            actions.append(TellCopy(event.group, slave, event.move, step, peer_of[slave], event.dealt))
        return actions + [action for slave, _ in event.told for action in self._queues.serve(slave, self._epoch)]

    def _to_members(self, event: ToMembers) -> list[Action]:
        first, *others = event.members
        if others:
            copies = (Copy(slave, step=steps.REPLICA, dealt=event.dealt) for slave in others)
            self.table.share(event.group, Copy(first, dealt=event.dealt), *copies)
        else:
            self.table.route(event.group, first)
        return [Redeal(event.move, event.group)]

    def _wait_again(self, event: Resumed | Delivered | Redealt) -> list[Action]:
        """What waited in the run before, or was held back, waits for slaves now, and goes there as far as it may."""
        match event:
            case Resumed(waited):
                self._queues.restore(waited, self._complete)
            case Delivered(group, waited):
                self._queues.deliver(group, waited, self._complete)
            case Redealt(group, waited):
                self._queues.redeal(group, waited, self._complete)
        came: dict[int, int] = {}
        for one in event.waited:
            came[one.slave] = came.get(one.slave, 0) + one.octets
        serve = self._queues.serve if isinstance(event, Redealt) else self._queues.send_due
        return [Flowed(came, {}), *(action for slave in came for action in serve(slave, self._epoch))]

    def _serve_all(self) -> list[Action]:
        return [action for slave in self.slaves for action in self._queues.serve(slave, self._epoch)]

    @property
    def _epoch(self) -> int:
        return self._slots // self._subgroups
