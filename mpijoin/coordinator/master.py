"""Both cores of rank 0, which is the coordinator and the first producer."""

from __future__ import annotations

from typing import Iterable, Iterator, cast

from mpijoin.coordinator.core import CoordinatorCore
from mpijoin.coordinator.events import Action, Event, RankFinished, Tell
from mpijoin.coordinator.setup import MasterSetup
from mpijoin.errors import ProtocolError
from mpijoin.partitioning.table import PartitionTable
from mpijoin.producer.backlog import Backlog
from mpijoin.producer.core import ProducerCore
from mpijoin.producer.events import Action as ProducerAction
from mpijoin.producer.events import (
    Consumed,
    Delivered,
    HandedOver,
    Held,
    Ingested,
    Input,
    Note,
    PartReady,
    Redealt,
    Resumed,
    SourceEnded,
    SourceWaits,
)
from mpijoin.producer.events import Event as ProducerEvent
from mpijoin.producer.views import SlaveState
from mpijoin.time_events import Ticked


class MasterCore:
    """Both cores of rank 0. What one has to say to the other is heard at once; other producers are told by `Tell`."""

    def __init__(self, setup: MasterSetup):
        self.coordinator = CoordinatorCore(setup)
        self.producer = ProducerCore(setup.producer)
        self._has_others = setup.producers > 1

    def step(self, event: Event | ProducerEvent) -> list[Action | ProducerAction]:
        return list(self.actions(event))

    def actions(self, event: Event | ProducerEvent) -> Iterator[Action | ProducerAction]:
        """Yields what `step` returns. The own producer hears of a directive only when all actions before it have been
        carried out, as the others do: an action may be a question whose answer it has to know."""
        if isinstance(event, RankFinished):
            self._check_finished(event.rank)
        if isinstance(event, (Ticked, *OWN)):
            yield from self._resolved(self.producer.step(event))
        if not isinstance(event, OWN):
            yield from self._resolved(self.coordinator.step(cast(Event, event)))

    def _resolved(self, actions: Iterable[Action | ProducerAction]) -> Iterator[Action | ProducerAction]:
        for action in actions:
            if isinstance(action, Note):
                yield from self._resolved(self.coordinator.step(action))
            elif isinstance(action, Tell):
                if self._has_others:
                    yield action
                yield from self._resolved(self.producer.step(action.directive))
            else:
                yield action

    def _check_finished(self, rank: int) -> None:
        view = self.slaves.get(rank)
        if view and (not self.producer.is_closed or view.waiting or view.unconsumed_slots):
            raise ProtocolError(f"slave {rank} finished before it had joined all its input")

    @property
    def wants_input(self) -> bool:
        return self.producer.wants_input

    def next_input(self) -> Input:
        """What shall be done about the input at the time that was told last."""
        return self.producer.next_input()

    @property
    def table(self) -> PartitionTable:
        """Where the own producer's rows go."""
        return self.producer.table

    @property
    def active(self) -> tuple[int, ...]:
        """Slaves that have groups."""
        return self.coordinator.active

    @property
    def ended(self) -> bool:
        """Whether the sources of all producers have ended."""
        return self.coordinator.ended

    @property
    def open_moves(self) -> int:
        return len(self.coordinator.moves)

    @property
    def slaves(self) -> dict[int, SlaveState]:
        """What the own producer believes of each slave."""
        return self.producer.slaves

    @property
    def backlog(self) -> Backlog:
        return self.producer.backlog

    @property
    def held_back_by(self) -> dict[int, int]:
        """slave -> how often it made the source pause"""
        return self.producer.held_back_by


# What a producer's core is told by its own rank.
OWN = (
    Ingested,
    SourceEnded,
    SourceWaits,
    PartReady,
    HandedOver,
    Consumed,
    Held,
    Delivered,
    Redealt,
    Resumed,
)
