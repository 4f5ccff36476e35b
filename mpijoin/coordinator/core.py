"""What the coordinator decides: which groups move, when a checkpoint is cut, when all is done.

`CoordinatorCore.step(event) -> actions` knows counts, bytes and the time that it is told: no message, file, clock or
random source.
"""

from __future__ import annotations

from typing import Iterable, Sequence

from mpijoin.config.moves import GATHER, PARTS, SPREAD
from mpijoin.coordinator.events import (
    Action,
    Ask,
    Chosen,
    Complete,
    Decided,
    Event,
    GoesOn,
    RankFinished,
    SaveEnded,
    Spent,
    Stepped,
    StopAsked,
    Stopping,
    Tell,
    Weigh,
)
from mpijoin.coordinator.moves import Moves, OpenMove, OpenRelocation
from mpijoin.coordinator.producers import Producers
from mpijoin.coordinator.reorganization import Loaded
from mpijoin.coordinator.saves import Saves
from mpijoin.coordinator.setup import MasterSetup
from mpijoin.coordinator.spreads import Spreads
from mpijoin.errors import ProtocolError
from mpijoin.moving import coordinator, relocation, spreading
from mpijoin.partitioning.table import NO_STREAM, Copy
from mpijoin.policy.plan import Move
from mpijoin.producer.events import (
    BeginsAt,
    Close,
    Command,
    Directive,
    Duplicate,
    EndTrack,
    Flowed,
    InputEnded,
    Pause,
    Repace,
    Restart,
    SlotEnded,
)
from mpijoin.time_events import Ticked


class CoordinatorCore:
    """Moves of groups change `table`; everybody else is served without waiting for them (WSJ, section IV-C). Slaves
    without groups are idle: they get nothing but the end.

    A checkpoint that is due is cut once no group is on its way, at every producer after a whole tick, and no move
    begins until it is whole. One that stops the run cancels moves, and nothing is sent after it.
    """

    def __init__(self, setup: MasterSetup):
        self.table = setup.table.copy()
        self.reorganization = setup.reorganization
        self.moves = Moves(setup.move_kind)
        self._spreads = Spreads(self.table)
        self._producers = Producers(setup.producers)
        self._subgroups = setup.subgroups
        self._now_s = setup.now_s
        self._pacing = setup.pacing
        self._saves = Saves(setup.schedule, setup.now_s)
        self._ended = self._closed = False  # All producers have come to their end; and were told so.
        self._unfinished = {*setup.slaves, *setup.finishing}
        self._slaves = setup.slaves

    @property
    def active(self) -> tuple[int, ...]:
        """Slaves that have groups."""
        return self.table.active

    @property
    def ended(self) -> bool:
        """Whether the sources of all producers have ended."""
        return self._ended

    @property
    def due_s(self) -> float:
        """Until this second of the run it has nothing to do by itself."""
        return self._producers.floor_due_s

    def step(self, event: Event) -> list[Action]:
        match event:
            case Ticked(now_s):
                return self._ticked(now_s)
            case Flowed(came, joined):
                self._note_flow(came, joined)
                return []
            case SlotEnded():
                return self._slot_ended(event)
            case BeginsAt():
                return self._tell(self._producers.begins(event, self._now_s))
            case InputEnded(producer):
                return self._input_ended(producer)
            case Loaded():
                return self._loaded(event)
            case Spent():
                return self._advise(event)
            case Stepped():
                return self._stepped(event)
            case Chosen():
                return self._chosen(event)
            case RankFinished():
                return self._rank_finished(event)
            case StopAsked(reason):
                return self._stop(reason)
            case SaveEnded():
                self._saves.open = False
                # A stop that was asked for meanwhile has waited for this. Any other checkpoint waits for the next slot.
                return self._cut() if self._saves.stops else self._spread_on()
            case _:
                raise ProtocolError(f"coordinator got {type(event).__name__}, which is no event of its own")

    def _ticked(self, now_s: float) -> list[Action]:
        self._now_s = now_s
        actions = self._tell(self._producers.floor(now_s))
        if self._saves.ends_soon(now_s):
            actions += self._stop("the walltime ends soon")
        return actions

    def _tell(self, directives: Iterable[Directive]) -> list[Action]:
        return [Tell(directive) for directive in directives]

    def _note_flow(self, came: dict[int, int], joined: dict[int, int]) -> None:
        if self.reorganization is None:
            return
        self.reorganization.came(came)
        for slave, octets in joined.items():
            self.reorganization.joined(slave, octets)

    def _slot_ended(self, event: SlotEnded) -> list[Action]:
        """The slots of the foremost producer count, as long as it has input."""
        is_new = self._producers.slot_ended(event)
        actions = self._tell(self._producers.floor(self._now_s))
        if not is_new or self._ended:
            return actions
        actions += self._end_slot() + self._cut()
        self._saves.slot_ended(self._now_s)
        return [*actions, Weigh()] if self._pacing and self._pacing.wants_advice(self._now_s) else actions

    def _end_slot(self) -> list[Action]:
        """After a slot: at the end of a reorganization epoch the active slaves are asked for their loads."""
        own = self.reorganization
        if own is None:
            return []
        due = self._producers.due
        overdue = {slave: due.get(slave, 0) for slave in self.active} if self._pacing else {}
        if not own.slot_ended(overdue, self._now_s) or own.asking:
            return []
        if self.moves or self._saves.wanted or self._saves.open:
            own.skip(self._now_s)
            return []
        period = own.ask(self.active)
        return [Ask(slave, period) for slave in self.active]

    def _input_ended(self, producer: int) -> list[Action]:
        actions = self._tell(self._producers.input_ended(producer, self._now_s))
        if not self._producers.all_ended:
            return actions
        self._ended = True
        return [*actions, *self._cancel_moves(), *self._close_input()]

    def _cancel_moves(self) -> list[Action]:
        """Those of which nothing is frozen yet. Of a relocation whose groups are not chosen yet, nothing will move."""
        for one in self.moves.computing():
            self._relocate(one, relocation.CANCEL)
        return self._cancel(self.moves.in_state(coordinator.SHIPPING, coordinator.DOUBLED))

    def _cancel(self, moves: Iterable[OpenMove]) -> list[Action]:
        return [action for move in moves for action in self._advance(move, coordinator.CANCEL)]

    def _close_input(self) -> list[Action]:
        """The end goes out once no group is on its way."""
        if not self._ended or self.moves or self._closed:
            return []
        cut = self._cut()
        if self._saves.stopped or self.moves:
            return cut
        self._closed = True
        return [*cut, Tell(Close())]

    def _stop(self, reason: str) -> list[Action]:
        """The run ends with the next checkpoint. That cannot be once all have finished, nor if the end has gone out
        while groups are spread, for nothing can follow it by which they would come together."""
        if self._saves.stops or (self._closed and not self._unfinished):
            return []
        if self._closed and self._spreads:
            return [GoesOn(reason)]
        self._saves.stops, self._saves.wanted = reason, True
        return [Stopping(reason), *self._cancel_moves(), *self._cut()]

    def _cut(self) -> list[Action]:
        """A checkpoint, if one is due and can be cut now. Once the end is on its way to the slaves, only one that stops
        the run is of use. Moves that take a window end for it before their time, and nothing is lost by that. Groups
        that are spread are gathered first, because in a checkpoint each group has one slave."""
        saves = self._saves
        if not saves.wanted or saves.open or (self._closed and not saves.stops):
            return []
        if self.moves:
            return self._cancel(self.moves.in_state(coordinator.DOUBLED))
        if self._spreads:
            return self._gather(self._spreads.leave_for_checkpoint())
        return [Tell(saves.cut(self._now_s))]

    def _advise(self, event: Spent) -> list[Action]:
        """Whether epochs get another length, by what they cost."""
        pacing = self._pacing
        if pacing is None:
            raise ProtocolError("master was told what slaves have spent, but nobody asked")
        if not pacing.advise(event.seconds, event.behind, self._now_s):
            return []
        if self.reorganization:
            self.reorganization.slots = pacing.slots
        if self._saves.schedule:
            self._saves.schedule.slots_per_epoch = pacing.slots
        return [Tell(Repace(pacing.pace, pacing.epoch_ns))]

    def _rank_finished(self, event: RankFinished) -> list[Action]:
        if event.rank not in self._unfinished:
            raise ProtocolError(f"rank {event.rank} finished twice, or takes no part")
        if event.rank in self._slaves and not self._closed:
            raise ProtocolError(f"slave {event.rank} finished before it had joined all its input")
        self._unfinished.discard(event.rank)
        return [] if self._unfinished else [Complete()]

    def _loaded(self, event: Loaded) -> list[Action]:
        if self.reorganization is None:
            raise ProtocolError(f"slave {event.slave} told its load, but nobody asked")
        if not self.reorganization.answered(event):
            return self._measure_anew()
        if self._ended or self.moves or self._saves.wanted or self._saves.open:
            self.reorganization.skip(self._now_s)
            return []
        known = (self.table, self._subgroups, self._pacing is not None, self._now_s)
        view, wanted = self.reorganization.decide(self._slaves, *known)
        asked = map(self.moves.compute, wanted.relocations)
        begun = self._begin(map(self.moves.begin, wanted.moves))
        comes = [self._spreads.spread(one) for one in wanted.spreads]
        leaves = map(self._spreads.gather, wanted.gathers)
        begun += self._begin(self.moves.begin(one, SPREAD) for one in comes)
        begun += self._begin(self.moves.begin(one, GATHER) for one in leaves)
        return [Decided(view, wanted), *begun, *asked, *wanted.spills]

    def _gather(self, leaves: Sequence[Move]) -> list[Action]:
        """Members give their parts of groups back, which no policy asked for."""
        return self._begin_also(leaves, GATHER)

    def _spread_on(self) -> list[Action]:
        """Members come that shall follow others, and those come back that have left for a checkpoint."""
        if self.moves or self._ended or self._saves.wanted or self._saves.open or self._saves.stopped:
            return []
        return self._begin_also(self._spreads.come_next(), SPREAD)

    def _begin_also(self, wanted: Sequence[Move], kind: str) -> list[Action]:
        if self.reorganization:
            self.reorganization.begun([one.group for one in wanted])
        return self._begin(self.moves.begin(one, kind) for one in wanted)

    def _begin(self, moves: Iterable[OpenMove]) -> list[Action]:
        return [action for move in moves for action in self._advance(move, move.kind)]

    def _chosen(self, said: Chosen) -> list[Action]:
        """A slave does not know that it has only a part of a group, which stays then."""
        groups = tuple(group for group in said.groups if group not in self._spreads)
        one = self.moves.chosen(said._replace(groups=groups), self.table)
        return self._relocate(one, relocation.PARTITIONS, groups)

    def _relocate(self, one: OpenRelocation, event: str, groups: tuple[int, ...] = ()) -> list[Action]:
        """groups: those that its supplier has chosen."""
        one.state, acts = relocation.advance(one.number, one.state, event)
        if relocation.CLOSE in acts:
            self.moves.forget(one)
            return self._go_on()
        if relocation.BEGIN not in acts:
            return []
        if self.reorganization:
            self.reorganization.begun(groups)
        return self._begin(self.moves.begin_all(one, groups)) if groups else self._relocate(one, relocation.ENDED)

    def _stepped(self, said: Stepped) -> list[Action]:
        move = self.moves.of(said)
        if said.dealt != NO_STREAM:
            move.dealt = said.dealt
        return self._advance(move, said.step)

    def _advance(self, move: OpenMove, event: str) -> list[Action]:
        table = spreading if move.kind in PARTS else coordinator
        move.state, acts = table.advance(move.number, move.state, event)
        return [action for act in acts for action in self._act(move, act)]

    def _act(self, move: OpenMove, act: str) -> list[Action]:
        match act:
            case coordinator.PAUSE:
                self.table.route(move.group, None)
                return [Tell(Pause(move.number, move.group, move.supplier, move.consumer))]
            case coordinator.TO_CONSUMER:
                return self._restart(move, move.consumer)
            case coordinator.TO_SUPPLIER:
                return self._restart(move, move.supplier)
            case coordinator.TO_BOTH:
                self.table.share(move.group, *(Copy(one, move.number, act) for one in (move.supplier, move.consumer)))
                return [Tell(Duplicate(move.number, move.group, move.supplier, move.consumer))]
            case coordinator.CONSUMER_KEEPS:
                return self._end_track(move, move.consumer, move.supplier)
            case coordinator.SUPPLIER_KEEPS:
                return self._end_track(move, move.supplier, move.consumer)
            case spreading.ALIGN | spreading.ALIGN_BOTH:
                return [Tell(self._spreads.align(move, act))]
            case spreading.TO_MEMBERS:
                return [Tell(self._spreads.to_members(move))]
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
        return [ended, *self._go_on()]

    def _go_on(self) -> list[Action]:
        """A move or a relocation has ended, for which others may have waited."""
        return [*self._cut(), *self._spread_on(), *self._measure_anew(), *self._close_input()]

    def _measure_anew(self) -> list[Action]:
        """The last move has ended: a reorganization epoch begins, over which groups stay where they are. If slaves were
        asked before and have not all answered, their answers say nothing, and are waited for first."""
        own = self.reorganization
        if self.moves or self._ended or own is None or not own.has_moved:
            return []
        if own.asking:
            own.make_void()
            return []
        period = own.begin_anew(self.active, self._now_s)
        return [Ask(slave, period) for slave in self.active]

    def _end_track(self, move: OpenMove, keep: int, leave: int) -> list[Action]:
        """One of the two slaves that join the group keeps it."""
        self.table.route(move.group, keep)
        return [Tell(EndTrack(move.number, move.group, keep, leave))]

    def _restart(self, move: OpenMove, slave: int) -> list[Action]:
        """The group is this slave's from now on."""
        self.table.route(move.group, slave)
        return [Tell(Restart(move.number, move.group, slave))]
