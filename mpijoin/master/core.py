"""What the master decides: which slave is served when and with how much, which groups move, when the source must pause,
when all is done.

`MasterCore.step(event) -> actions` knows counts, bytes and the time that it is told: no message, file, clock or random
source. `MasterCore.next_input()` says what shall be done about the input at that time.
"""

from __future__ import annotations

import math

from mpijoin.errors import ProtocolError
from mpijoin.master.backlog import Backlog
from mpijoin.master.events import (
    Action,
    Ask,
    Chosen,
    CloseInput,
    Command,
    Complete,
    Consumed,
    Decided,
    Deliver,
    Event,
    HandedOver,
    Held,
    Hold,
    Ingested,
    Input,
    PartReady,
    RankFinished,
    Read,
    Repace,
    Resumed,
    SaveEnded,
    SourceEnded,
    SourceWaits,
    Spent,
    Stepped,
    StopAsked,
    Stopping,
    Watermarks,
    Weigh,
)
from mpijoin.master.moves import Moves, OpenMove, OpenRelocation
from mpijoin.master.queues import Queues
from mpijoin.master.reorganization import Loaded
from mpijoin.master.saves import Saves
from mpijoin.master.setup import MasterSetup
from mpijoin.master.timetable import Now, Timetable
from mpijoin.master.views import SlaveState
from mpijoin.moving import coordinator, relocation
from mpijoin.time_events import Rest, Ticked


class MasterCore:
    """Distribution epochs of n_g slots: slot i serves sub-group i mod n_g (WSJ, section V-B).

    What exceeds a slave's credit waits in its mini-buffers (`queues`).

    As fast as possible, the source is read while any slave is hungry: one that is slow holds back its own partitions,
    and the source only when they fill the master's buffer. While the source pauses, or has ended, every sub-group's
    turn comes at once. In a paced run the clock decides, and what was due and lacked credit is sent as soon as there is
    some.

    Moves of groups change `table`; everybody else is served without waiting for them (WSJ, section IV-C). Slaves
    without groups are idle: they get nothing but the end.

    A checkpoint that is due is cut after the next whole tick at which no group is on its way, and no move begins until
    it is whole. One that stops the run cancels moves, and nothing is sent after it.
    """

    def __init__(self, setup: MasterSetup):
        slaves = setup.slaves
        self.table = setup.table
        self.reorganization = setup.reorganization
        self.held_back_by: dict[int, int] = dict.fromkeys(slaves, 0)  # slave -> times it made the source pause
        self.backlog = Backlog(slaves)  # of a paced run
        self.moves = Moves()
        self._subgroups = setup.subgroups
        self._master_buffer_bytes = setup.master_buffer_bytes
        self._now_s = setup.now_s
        self._pacing = setup.pacing
        self._timetable = Timetable(setup.pacing, self.backlog, setup.now_s) if setup.pacing else None
        self._queues = Queues(setup, self.backlog, self._timetable)
        self._wait_until_s = 0.0  # The sources have nothing before this second of the run.
        self._saves = Saves(setup.schedule, setup.now_s)
        self._complete = setup.complete  # watermarks of the last whole tick
        self._slots = setup.slots  # that have ended
        self._read_all: Watermarks | None = None  # Nothing is left to read, only what is prepared.
        self._ending: Watermarks | None = None  # The source has ended, with these.
        self._unfinished = {*slaves, *setup.finishing}

    @property
    def wants_input(self) -> bool:
        """Whether the source may be read (paced: handed out when it is due); False pauses it for all."""
        saves = self._saves
        if self.ended or saves.stopped:
            return False
        if saves.wanted and saves.stops and not (saves.open or self.moves):
            return True  # the tick under way ends, so that the run can: nobody has to have room for it
        if self._queues.is_full:
            return False
        if self._timetable or not self.active:
            return True
        return any(map(self._queues.is_hungry, self.active))

    def next_input(self) -> Input:
        """What shall be done about the input at the time that was told last."""
        wait_s = self._wait_until_s - self._now_s
        if self._timetable is None:
            if not self.wants_input:
                return Rest(math.inf)
            return Rest(wait_s) if wait_s > 0 else Read()
        if self.ended or (self._read_all and self._timetable.is_empty):
            return Rest(math.inf)
        has_room = self._timetable.octets + self._queues.held_bytes < self._master_buffer_bytes
        return self._timetable.next(Now(self._now_s, self.wants_input, has_room, wait_s))

    @property
    def ended(self) -> bool:
        """Whether the source has ended."""
        return self._ending is not None

    @property
    def active(self) -> tuple[int, ...]:
        """Slaves that have groups."""
        return self.table.owners

    @property
    def open_moves(self) -> int:
        return len(self.moves)

    @property
    def slaves(self) -> dict[int, SlaveState]:
        """What the master believes of each slave."""
        return self._queues.slaves

    def step(self, event: Event) -> list[Action]:
        match event:
            case Ticked(now_s):
                return self._ticked(now_s)
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
            case Loaded():
                return self._loaded(event)
            case Spent():
                return self._advise(event)
            case Stepped():
                return self._advance(self.moves.of(event), event.step)
            case Chosen(_, _, groups):
                return self._relocate(self.moves.chosen(event, self.table), relocation.PARTITIONS, groups)
            case RankFinished():
                return self._rank_finished(event)
            case Resumed():
                return self._resumed(event)
            case StopAsked(reason):
                return self._stop(reason)
            case SaveEnded():
                self._saves.open = False
                return []
            case _:
                raise ProtocolError(f"master got {type(event).__name__}, which is no event of its own")

    def _ticked(self, now_s: float) -> list[Action]:
        self._now_s = now_s
        actions: list[Action] = []
        if self._saves.ends_soon(now_s):
            actions += self._stop("the walltime ends soon")
        if self._read_all and not self.ended and self._timetable and self._timetable.is_empty:
            actions += self._end(self._read_all)
        return actions

    def _note_part(self, event: PartReady | HandedOver) -> list[Action]:
        if self._timetable is None:
            raise ProtocolError(f"master got {type(event).__name__} in a run that is not paced")
        if isinstance(event, PartReady):
            self._timetable.prepared(event)
        else:
            self._timetable.handed_over(self._now_s)
        return []

    def _ingested(self, event: Ingested) -> list[Action]:
        if self.ended:
            raise ProtocolError("master got input after the source had ended")
        self._queues.add(event)
        self._complete = event.watermarks or self._complete
        if self.reorganization:
            self.reorganization.came(event.octets)
        actions = self._serve_all() if self._queues.is_full else []
        if self._queues.is_full:
            largest = max(self.slaves, key=lambda slave: self.slaves[slave].waiting_bytes)
            self.held_back_by[largest] += 1
        if event.watermarks is None:
            return actions
        if not actions:
            due = (slave for slave in event.octets if self.slaves[slave].subgroup == self._slots % self._subgroups)
            actions = [action for slave in due for action in self._queues.serve(slave, self._epoch)]
        self._slots += 1
        actions += self._end_slot() + self._cut()
        self._saves.slot_ended(self._now_s)
        return [*actions, Weigh()] if self._pacing and self._pacing.wants_advice(self._now_s) else actions

    def _end_slot(self) -> list[Action]:
        """After a slot: at the end of a reorganization epoch the active slaves are asked for their loads."""
        own = self.reorganization
        if own is None:
            return []
        overdue = {slave: self.slaves[slave].due_bytes for slave in self.active} if self._timetable else {}
        if not own.slot_ended(overdue) or own.asking:
            return []
        if self.moves or self._saves.wanted or self._saves.open:
            own.skip()
            return []
        period = own.ask(self.active)
        return [Ask(slave, period) for slave in self.active]

    def _source_ended(self, event: SourceEnded) -> list[Action]:
        if self.ended or self._read_all:
            raise ProtocolError("master got the end of the source twice")
        if self._timetable and not self._timetable.is_empty:
            self._read_all = event.watermarks
            return []
        return self._end(event.watermarks)

    def _end(self, watermarks: Watermarks) -> list[Action]:
        self._ending = watermarks
        return self._cancel_moves() + self._close_input()

    def _cancel_moves(self) -> list[Action]:
        """Those of which nothing is frozen yet. Of a relocation whose groups are not chosen yet, nothing will move."""
        for one in self.moves.computing():
            self._relocate(one, relocation.CANCEL)
        return [action for move in self.moves.shipping() for action in self._advance(move, coordinator.CANCEL)]

    def _close_input(self) -> list[Action]:
        """The end goes out once no group is on its way."""
        if self._ending is None or self.moves or self._queues.closed:
            return []
        cut = self._cut()
        if self._saves.stopped:
            return cut
        self._queues.close(self._ending)
        return [*cut, CloseInput(), *self._serve_all()]

    def _resumed(self, event: Resumed) -> list[Action]:
        actions = []
        for group, octets in event.pending.items():
            self._queues.restore(group, octets)
            actions += self._deliver(None, group, self.table.owner_of(group))
        return actions

    def _stop(self, reason: str) -> list[Action]:
        """The run ends with the next checkpoint. That cannot be once all have finished."""
        if self._saves.stops or (self._queues.closed and not self._unfinished):
            return []
        self._saves.stops, self._saves.wanted = reason, True
        actions = [Stopping(reason), *self._cancel_moves()]
        return actions + self._cut() if self._queues.closed else actions

    def _cut(self) -> list[Action]:
        """A checkpoint, if one is due and can be cut now, after a whole tick. Once the end is on its way to the slaves,
        only one that stops the run is of use."""
        saves = self._saves
        if not saves.wanted or saves.open or self.moves or (self._queues.closed and not saves.stops):
            return []
        cut = saves.cut(self._slots, self._complete, self._now_s)
        self._queues.stopped = saves.stopped
        return [cut]

    def _advise(self, event: Spent) -> list[Action]:
        """Whether epochs get another length, by what they cost."""
        pacing = self._pacing
        if pacing is None:
            raise ProtocolError("master was told what slaves have spent, but nobody asked")
        behind = self.backlog.overload_s(pacing.epoch_ns) > 0
        if not pacing.advise(event.seconds, behind, self._now_s):
            return []
        if self.reorganization:
            self.reorganization.slots = pacing.slots
        if self._saves.schedule:
            self._saves.schedule.slots_per_epoch = pacing.slots
        return [Repace(pacing.pace, pacing.epoch_ns)]

    def _consumed(self, event: Consumed) -> list[Action]:
        self._queues.consumed(event)
        if self._timetable:
            self.backlog.joined(event.slave, self._now_s)
        if self.reorganization:
            self.reorganization.joined(event.slave, event.octets)
        serve = self._queues.send_due if self.wants_input else self._queues.serve
        return [*serve(event.slave, self._epoch)]

    def _rank_finished(self, event: RankFinished) -> list[Action]:
        if event.rank not in self._unfinished:
            raise ProtocolError(f"rank {event.rank} finished twice, or takes no part")
        view = self.slaves.get(event.rank)
        if view and (not self._queues.closed or view.waiting or view.unconsumed_slots):
            raise ProtocolError(f"slave {event.rank} finished before it had joined all its input")
        self._unfinished.discard(event.rank)
        return [] if self._unfinished else [Complete()]

    def _loaded(self, event: Loaded) -> list[Action]:
        if self.reorganization is None:
            raise ProtocolError(f"slave {event.slave} told its load, but nobody asked")
        if not self.reorganization.answered(event):
            return []
        if self.ended or self._saves.wanted or self._saves.open:
            self.reorganization.skip()
            return []
        known = (self.table, self._subgroups, bool(self._timetable), self._now_s)
        view, wanted = self.reorganization.decide(self.slaves, *known)
        asked = map(self.moves.compute, wanted.relocations)
        return [Decided(view, wanted), *map(self.moves.begin, wanted.moves), *asked, *wanted.spills]

    def _relocate(self, one: OpenRelocation, event: str, groups: tuple[int, ...] = ()) -> list[Action]:
        """groups: those that its supplier has chosen."""
        one.state, acts = relocation.advance(one.number, one.state, event)
        if relocation.CLOSE in acts:
            self.moves.forget(one)
            return [*self._measure_anew(), *self._close_input()]
        if relocation.BEGIN not in acts:
            return []
        if self.reorganization:
            self.reorganization.begun(groups)
        return [*self.moves.begin_all(one, groups)] if groups else self._relocate(one, relocation.ENDED)

    def _advance(self, move: OpenMove, event: str) -> list[Action]:
        move.state, acts = coordinator.advance(move.number, move.state, event)
        return [action for act in acts for action in self._act(move, act)]

    def _act(self, move: OpenMove, act: str) -> list[Action]:
        match act:
            case coordinator.HOLD:
                self.table.route(move.group, None)
                self._queues.held[move.group] = 0
                return [Hold(move.number, move.group, move.supplier)]
            case coordinator.TO_CONSUMER:
                return self._deliver(move.number, move.group, move.consumer)
            case coordinator.TO_SUPPLIER:
                return self._deliver(move.number, move.group, move.supplier)
            case coordinator.CLOSE:
                return self._close(move)
            case _:
                return [Command(move.number, act, move.supplier, move.group, move.consumer)]

    def _close(self, move: OpenMove) -> list[Action]:
        ended = self.moves.close(move)
        if self.reorganization:
            self.reorganization.closed(move.group)
        if last_of := self.moves.relocation_of(move):
            return [ended, *self._relocate(last_of, relocation.ENDED)]
        return [ended, *self._measure_anew(), *self._close_input()]

    def _measure_anew(self) -> list[Action]:
        """The last move has ended: a reorganization epoch begins, over which groups stay where they are."""
        if self.moves or self.ended or self.reorganization is None or not self.reorganization.has_moved:
            return []
        period = self.reorganization.begin_anew(self.active)
        return [Ask(slave, period) for slave in self.active]

    def _note_held(self, event: Held) -> list[Action]:
        frozen = self.moves.frozen(event.group)
        if frozen is None or len(event.octets) != len(self.slaves[frozen.supplier].waiting):
            raise ProtocolError(
                f"master was told of rows of group {event.group}, wanted those of a group that is just frozen"
            )
        self._queues.hold(event.group, frozen.supplier, event.octets)
        return []

    def _deliver(self, number: int | None, group: int, slave: int) -> list[Action]:
        """The group is this slave's from now on."""
        self.table.route(group, slave)
        octets = self._queues.deliver(group, slave, self._complete)
        if self.reorganization:
            self.reorganization.came({slave: octets})
        return [Deliver(number, group, slave), *self._queues.send_due(slave, self._epoch)]

    def _serve_all(self) -> list[Action]:
        return [action for slave in self.slaves for action in self._queues.serve(slave, self._epoch)]

    @property
    def _epoch(self) -> int:
        return self._slots // self._subgroups
