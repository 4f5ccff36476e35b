"""What the master decides: which slave is served when and with how much, which groups move, when the source must pause,
when all is done.

`MasterCore.step(event) -> actions` knows counts and bytes only: no message, file, clock or random source.
"""

from __future__ import annotations

from mpijoin.errors import ProtocolError
from mpijoin.master.events import (
    Action,
    Ask,
    CloseInput,
    Command,
    Complete,
    Consumed,
    Cut,
    Decided,
    Deliver,
    Event,
    Held,
    Hold,
    Ingested,
    Moved,
    RankFinished,
    Restored,
    SaveEnded,
    SaveWanted,
    Serve,
    SourceEnded,
    Stepped,
    Watermarks,
)
from mpijoin.master.reorganization import Loaded, Reorganization
from mpijoin.master.views import OpenMove, SlaveState, Waiting, never
from mpijoin.moving import coordinator, steps
from mpijoin.partitioning.table import PartitionTable
from mpijoin.policy import plan


class MasterCore:
    """Distribution epochs of n_g slots: slot i serves sub-group i mod n_g (WSJ, section V-B).

    A slot's message carries at most the slave's credit = its stream buffer less what it has not yet consumed; what is
    over waits in its mini-buffers. A slave with nothing unconsumed always gets one piece, so no size can block it for
    ever.

    As fast as possible, the source is read while any slave is hungry: one that is slow holds back its own partitions,
    and the source only when they fill the master's buffer. While the source pauses, or has ended, every sub-group's
    turn comes at once. In a paced run the clock decides, and what was due and lacked credit is sent as soon as there is
    some.

    Moves of groups change `table`; everybody else is served without waiting for them (WSJ, section IV-C). Slaves
    without groups are idle: they get nothing but the end.

    A checkpoint that is due is cut after the next whole tick at which no group is on its way, and no move begins until
    it is whole. One that stops the run cancels moves, and nothing is sent after it.
    """

    def __init__(
        self,
        table: PartitionTable,
        slaves: tuple[int, ...],
        subgroups: int,
        buffer_bytes: int,
        master_buffer_bytes: int,
        finishing: tuple[int, ...] = (),
        paced: bool = False,
        reorganization: Reorganization | None = None,
        slots: int = 0,
        complete: Watermarks = never(2),
    ):
        """slots, complete: how many had ended, and the watermarks then, where a run goes on; of one that begins `never`
        · finishing: the ranks beside the slaves that report when they have finished (a collector of its own) ·
        reorganization: None: nothing ever moves."""
        self.table = table
        self.reorganization = reorganization
        self.slaves = {slave: SlaveState(index % subgroups) for index, slave in enumerate(slaves)}
        self.held_back_by: dict[int, int] = dict.fromkeys(slaves, 0)  # slave -> times it made the source pause
        self._subgroups = subgroups
        self._buffer_bytes = buffer_bytes
        self._master_buffer_bytes = master_buffer_bytes
        self._paced = paced
        self._held_bytes = 0  # of all waiting items and held groups
        self._held: dict[int, int] = {}  # group -> bytes
        self._complete = complete  # watermarks of the last whole tick
        self._never = never(len(complete))
        self._slots = slots  # that have ended
        self._ending: Watermarks | None = None  # the source has ended, with these
        self._closed = False  # ... and the slaves' queues have their end
        self._moves: dict[int, OpenMove] = {}
        self._cancelled: dict[int, OpenMove] = {}  # whose consumer may have refused and not been heard
        self._moves_begun = 0
        self._unfinished = {*slaves, *finishing}
        self._save_wanted = self._saving = self._stops = self._stopped = False

    @property
    def wants_input(self) -> bool:
        """Whether the source may be read (paced: handed out when it is due); False pauses it for all."""
        if self.ended or self._stopped:
            return False
        if self._save_wanted and self._stops and not (self._saving or self._moves):
            return True  # the tick under way ends, so that the run can: nobody has to have room for it
        if self._full:
            return False
        return (
            self._paced
            or not self.active
            or any(self.slaves[slave].is_hungry(self._buffer_bytes) for slave in self.active)
        )

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
        return len(self._moves)

    @property
    def _full(self) -> bool:
        return self._held_bytes >= self._master_buffer_bytes

    def step(self, event: Event) -> list[Action]:
        match event:
            case Ingested():
                return self._ingested(event)
            case SourceEnded():
                return self._source_ended(event)
            case Consumed():
                return self._consumed(event)
            case Held():
                return self._note_held(event)
            case Loaded():
                return self._loaded(event)
            case Stepped():
                return self._stepped(event)
            case RankFinished():
                return self._rank_finished(event)
            case Restored():
                return self._restored(event)
            case SaveWanted():
                return self._want_save(event)
            case SaveEnded():
                self._saving = False
                return []
            case _:
                raise ProtocolError(f"master got {type(event).__name__}, which is no event of its own")

    def _ingested(self, event: Ingested) -> list[Action]:
        if self.ended:
            raise ProtocolError("master got input after the source had ended")
        for slave, octets in event.octets.items():
            self.slaves[slave].queue(Waiting(octets, event.watermarks, self.slaves[slave].layout))
        for group, octets in event.held.items():
            self._held[group] += octets
        self._held_bytes += sum(event.octets.values()) + sum(event.held.values())
        self._complete = event.watermarks or self._complete
        if self.reorganization:
            self.reorganization.came(event.octets)
        actions = self._serve_all() if self._full else []
        if self._full:
            largest = max(self.slaves, key=lambda slave: self.slaves[slave].waiting_bytes)
            self.held_back_by[largest] += 1
        if event.watermarks is None:
            return actions
        if not actions:
            due = (slave for slave in event.octets if self.slaves[slave].subgroup == self._slots % self._subgroups)
            actions = [action for slave in due for action in self._serve(slave)]
        self._slots += 1
        return actions + self._end_slot() + self._cut()

    def _end_slot(self) -> list[Action]:
        """After a slot: at the end of a reorganization epoch the active slaves are asked for their loads."""
        own = self.reorganization
        if own is None:
            return []
        overdue = {slave: self.slaves[slave].due_bytes for slave in self.active} if self._paced else {}
        if not own.slot_ended(overdue) or own.asking:
            return []
        if self._moves or self._save_wanted or self._saving:
            own.skip()
            return []
        period = own.ask(self.active)
        return [Ask(slave, period) for slave in self.active]

    def _source_ended(self, event: SourceEnded) -> list[Action]:
        if self.ended:
            raise ProtocolError("master got the end of the source twice")
        self._ending = event.watermarks
        return self._cancel_moves() + self._close_input()

    def _cancel_moves(self) -> list[Action]:
        """Those of which nothing is frozen yet."""
        shipping = [(number, move) for number, move in self._moves.items() if move.state == coordinator.SHIPPING]
        return [action for one in shipping for action in self._advance(*one, coordinator.CANCEL)]

    def _close_input(self) -> list[Action]:
        """The end goes out once no group is on its way."""
        if not self.ended or self._moves or self._closed:
            return []
        cut = self._cut()
        if self._stopped:
            return cut
        self._closed = True
        for view in self.slaves.values():
            view.queue(Waiting(0, self._ending, view.layout))
        return [*cut, CloseInput(), *self._serve_all()]

    def _restored(self, event: Restored) -> list[Action]:
        actions = []
        for group, octets in event.pending.items():
            self._held[group] = octets
            self._held_bytes += octets
            actions += self._deliver(None, group, self.table.owner_of(group))
        return actions

    def _want_save(self, event: SaveWanted) -> list[Action]:
        """Once the end is on its way to the slaves, only one that stops the run is of use."""
        if self._closed and (not event.stops or not self._unfinished):
            return []
        self._save_wanted = True
        self._stops |= event.stops
        actions = self._cancel_moves() if event.stops else []
        return actions + self._cut() if self._closed else actions

    def _cut(self) -> list[Action]:
        """A checkpoint, if one is due and can be cut now, after a whole tick."""
        if not self._save_wanted or self._saving or self._moves:
            return []
        self._save_wanted, self._saving = False, True
        self._stopped = self._stops  # nothing may follow the last one
        return [Cut(self._slots, self._complete)]

    def _consumed(self, event: Consumed) -> list[Action]:
        view = self.slaves[event.slave]
        if event.octets > view.unconsumed_bytes or view.unconsumed_slots == 0:
            raise ProtocolError(
                f"slave {event.slave} reports {event.octets} bytes consumed, but it was sent {view.unconsumed_bytes} in"
                f" {view.unconsumed_slots} messages"
            )
        view.unconsumed_bytes -= event.octets
        view.unconsumed_slots -= 1
        if self.reorganization:
            self.reorganization.joined(event.slave, event.octets)
        return self._send_due(event.slave) if self.wants_input else self._serve(event.slave)

    def _rank_finished(self, event: RankFinished) -> list[Action]:
        if event.rank not in self._unfinished:
            raise ProtocolError(f"rank {event.rank} finished twice, or takes no part")
        view = self.slaves.get(event.rank)
        if view and (not self._closed or view.waiting or view.unconsumed_slots):
            raise ProtocolError(f"slave {event.rank} finished before it had joined all its input")
        self._unfinished.discard(event.rank)
        return [] if self._unfinished else [Complete()]

    def _loaded(self, event: Loaded) -> list[Action]:
        if self.reorganization is None:
            raise ProtocolError(f"slave {event.slave} told its load, but nobody asked")
        if not self.reorganization.answered(event):
            return []
        if self.ended or self._save_wanted or self._saving:
            self.reorganization.skip()
            return []
        view, wanted = self.reorganization.decide(self.slaves, self.table, self._subgroups, self._paced)
        return [Decided(view, wanted), *(self._begin(move) for move in wanted.moves)]

    def _begin(self, wanted: plan.Move) -> Action:
        number, self._moves_begun = self._moves_begun, self._moves_begun + 1
        self._moves[number] = OpenMove(wanted.group, wanted.supplier, wanted.consumer, wanted.gain)
        return Command(number, steps.SHIP, wanted.supplier, wanted.group, wanted.consumer)

    def _stepped(self, event: Stepped) -> list[Action]:
        move = self._moves.get(event.move) or self._cancelled.get(event.move)
        if move is None:
            raise ProtocolError(f"slave {event.slave} says {event.step!r} of move {event.move}, which is not under way")
        by = {
            **dict.fromkeys(steps.BY_SUPPLIER, move.supplier),
            **dict.fromkeys(steps.BY_CONSUMER, move.consumer),
        }
        if event.slave != by.get(event.step):
            wanted = f"that of slave {by[event.step]}" if event.step in by else f"one of {', '.join(by)}"
            raise ProtocolError(f"slave {event.slave} says {event.step!r} of move {event.move}, wanted {wanted}")
        return self._advance(event.move, move, event.step)

    def _advance(self, number: int, move: OpenMove, event: str) -> list[Action]:
        move.state, acts = coordinator.advance(number, move.state, event)
        return [action for act in acts for action in self._act(number, move, act)]

    def _act(self, number: int, move: OpenMove, act: str) -> list[Action]:
        match act:
            case coordinator.HOLD:
                self.table.route(move.group, None)
                self._held[move.group] = 0
                return [Hold(number, move.group, move.supplier)]
            case coordinator.TO_CONSUMER:
                return self._deliver(number, move.group, move.consumer)
            case coordinator.TO_SUPPLIER:
                return self._deliver(number, move.group, move.supplier)
            case coordinator.CLOSE:
                return self._close(number, move)
            case _:
                return [Command(number, act, move.supplier, move.group, move.consumer)]

    def _close(self, number: int, move: OpenMove) -> list[Action]:
        del self._moves[number]
        if move.state == coordinator.CANCELLED:
            self._cancelled[number] = move
        if self.reorganization:
            self.reorganization.closed(move.group)
        ended = Moved(number, move.group, move.supplier, move.consumer, move.state, move.gain)
        return [ended, *self._measure_anew(), *self._close_input()]

    def _measure_anew(self) -> list[Action]:
        """The last move has ended: a reorganization epoch begins, over which groups stay where they are."""
        if self._moves or self.ended or self.reorganization is None:
            return []
        period = self.reorganization.begin_anew(self.active)
        return [Ask(slave, period) for slave in self.active]

    def _note_held(self, event: Held) -> list[Action]:
        held = [move for move in self._moves.values() if move.group == event.group]
        frozen = [move for move in held if move.state == coordinator.FROZEN]
        if not frozen or len(event.octets) != len(self.slaves[frozen[0].supplier].waiting):
            raise ProtocolError(
                f"master was told of rows of group {event.group}, wanted those of a group that is just frozen"
            )
        view = self.slaves[frozen[0].supplier]
        for index, octets in enumerate(event.octets):
            view.waiting[index] = view.waiting[index]._replace(octets=view.waiting[index].octets - octets)
        self._held[event.group] += sum(event.octets)
        view.waiting_bytes -= sum(event.octets)
        return []

    def _deliver(self, number: int | None, group: int, slave: int) -> list[Action]:
        """The group is this slave's from now on. What was held back goes before all that waits, in a message of its
        own: it was held for long enough. All rows up to the last whole tick are in it, or were sent before."""
        view = self.slaves[slave]
        self.table.route(group, slave)
        view.layout += 1
        view.delivered += 1
        octets = self._held.pop(group)
        view.waiting.appendleft(Waiting(octets, self._complete, -view.delivered))
        view.waiting_bytes += octets
        view.due += 1
        if self.reorganization:
            self.reorganization.came({slave: octets})
        return [Deliver(number, group, slave), *self._send_due(slave)]

    def _serve_all(self) -> list[Action]:
        return [action for slave in self.slaves for action in self._serve(slave)]

    def _serve(self, slave: int) -> list[Action]:
        """The slave's slot has come: all that waits is due."""
        self.slaves[slave].due = len(self.slaves[slave].waiting)
        return self._send_due(slave)

    def _send_due(self, slave: int) -> list[Action]:
        """Messages with what is due, as far as credit goes."""
        view = self.slaves[slave]
        actions: list[Action] = []
        while view.due and not self._stopped and (message := self._message(slave, view)):
            actions.append(message)
        return actions

    def _message(self, slave: int, view: SlaveState) -> Serve | None:
        items, layout, watermarks = 0, view.waiting[0].layout, view.watermarks
        while view.due and view.waiting[0].layout == layout:
            item = view.waiting[0]
            if view.unconsumed_bytes and view.unconsumed_bytes + item.octets > self._buffer_bytes:
                break
            view.waiting.popleft()
            view.due -= 1
            self._held_bytes -= item.octets
            view.waiting_bytes -= item.octets
            view.unconsumed_bytes += item.octets
            watermarks = item.watermarks or watermarks
            items += 1
        if items == 0:
            return None
        if layout >= 0:
            view.watermarks = watermarks
        view.unconsumed_slots += 1
        last = self._closed and not view.waiting
        return Serve(slave, items, self._epoch, watermarks or self._never, last)

    @property
    def _epoch(self) -> int:
        return self._slots // self._subgroups


__all__ = ["Loaded", "MasterCore", "never", *(one.__name__ for one in (*Event.__args__, *Action.__args__))]
