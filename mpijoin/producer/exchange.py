"""How a producer's messages go to the slaves: as soon as they are there, or to one slave after the other.

Everything that goes to a slave on its DATA channel passes here, in the order in which it was given. A slot that is sent
says for how long it had waited for its turn: from the moment at which it was due until it went.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from mpijoin.config.job import ORDERED
from mpijoin.messages import Marker, Slot
from mpijoin.orders import Order
from mpijoin.rank import Rank

Outgoing = Slot | Order | Marker


class Exchange(Protocol):
    """A producer gives messages, and calls `turn` when it has given all that it decided at one moment."""

    def give(self, slave: int, message: Outgoing) -> None:
        """Takes a message that is due now. Messages to one slave stay in order."""

    def turn(self) -> None:
        """Sends what may go now. What was given since the last call was due together."""


class Overlapped:
    """A message goes at once, also while slaves have not taken theirs. It waits only while the producer is busy with
    those that were due with it."""

    def __init__(self, rank: Rank):
        self._rank = rank
        self._due_s: float | None = None

    def give(self, slave: int, message: Outgoing) -> None:
        now_s = self._rank.clock.wall_s
        self._due_s = now_s if self._due_s is None else self._due_s
        self._rank.send(slave, _told(message, now_s - self._due_s))

    def turn(self) -> None:
        self._due_s = None


class Ordered:
    """The predefined, blocking communication of WSJ (sections III and V-B): "tuples are sent to every node in a serial
    order". Slaves that something is due for are served one after the other in the order of their ranks, and then the
    first again. The next one is not served before the one under service has taken all that was sent to it."""

    def __init__(self, rank: Rank):
        self._rank = rank
        self._waiting: dict[int, deque[tuple[Outgoing, float]]] = {}
        self._served: int | None = None  # has not taken everything yet, as far as is known

    def give(self, slave: int, message: Outgoing) -> None:
        self._waiting.setdefault(slave, deque()).append((message, self._rank.clock.wall_s))

    def turn(self) -> None:
        while self._served is None or self._rank.transport.unsent_bytes(self._served) == 0:
            if not self._waiting:
                self._served = None
                return
            self._serve(self._next())

    def _next(self) -> int:
        served = -1 if self._served is None else self._served
        later = [slave for slave in self._waiting if slave > served]
        return min(later or self._waiting)

    def _serve(self, slave: int) -> None:
        for message, due_s in self._waiting.pop(slave):
            self._rank.send(slave, _told(message, self._rank.clock.wall_s - due_s))
        self._served = slave


def new_exchange(name: str, rank: Rank) -> Exchange:
    """name: as `[cluster] exchange` says."""
    return Ordered(rank) if name == ORDERED else Overlapped(rank)


def _told(message: Outgoing, turn_s: float) -> Outgoing:
    return message._replace(turn_s=turn_s) if isinstance(message, Slot) else message
