"""What the master decides: which slave is served when and with how much, when the source must pause, when all is done.

`MasterCore.step(event) -> actions` knows counts and bytes only: no message, file, clock or random source.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from mpijoin.errors import ProtocolError


class Ingested(NamedTuple):
    """A part of a tick is in the mini-buffers. octets: bytes per slave · watermarks: of both streams, if it ends the tick."""

    octets: dict[int, int]
    watermarks: tuple[int, int] | None


class SourceEnded(NamedTuple):
    """No row is left; everything may expire."""

    watermarks: tuple[int, int]


class Consumed(NamedTuple):
    """A slave has joined one message, of so many bytes."""

    slave: int
    octets: int


class RankFinished(NamedTuple):
    rank: int


Event = Ingested | SourceEnded | Consumed | RankFinished


class Serve(NamedTuple):
    """Send a slave its oldest `pieces`, with the watermarks that hold once it has joined them."""

    slave: int
    pieces: int
    epoch: int
    watermarks: tuple[int, int]
    last: bool


class Complete(NamedTuple):
    """Every rank has finished."""


Action = Serve | Complete


# How far the source is read ahead of each slave: enough to overlap reading and sending with joining, and no more, since
# what is read ahead only takes memory.
AHEAD_SLOTS = 2
AHEAD_SLOTS_MAX = 64
AHEAD_BYTES = 8 << 20


class Waiting(NamedTuple):
    """A piece in a slave's mini-buffers. watermarks: those it completes, None within a tick."""

    octets: int
    watermarks: tuple[int, int] | None


@dataclass
class SlaveView:
    """What the master believes of a slave."""

    subgroup: int
    waiting: deque[Waiting] = field(default_factory=deque)
    waiting_bytes: int = 0
    unconsumed_slots: int = 0  # messages sent and not yet reported as joined
    unconsumed_bytes: int = 0  # theirs; at most the slave's buffer, or one piece
    watermarks: tuple[int, int] | None = None  # of its last message


class MasterCore:
    """Distribution epochs of n_g slots: slot i serves sub-group i mod n_g (WSJ, section V-B).

    A slot's message carries at most the slave's credit = its stream buffer less what it has not yet consumed; what is over
    waits in its mini-buffers. A slave with nothing unconsumed always gets one piece, so no size can block it for ever. The
    source is read while any slave is hungry: one that is slow holds back its own partitions, and the source only when they
    fill the master's buffer. While the source pauses, or has ended, every sub-group's turn comes at once.
    """

    def __init__(
        self,
        slaves: tuple[int, ...],
        subgroups: int,
        buffer_bytes: int,
        master_buffer_bytes: int,
        finishing: tuple[int, ...] = (),
    ):
        """finishing: the ranks beside the slaves that report when they have finished (a collector of its own)."""
        self.slaves = {slave: SlaveView(index % subgroups) for index, slave in enumerate(slaves)}
        self.held_back_by: dict[int, int] = dict.fromkeys(slaves, 0)  # slave -> times it made the source pause
        self._subgroups = subgroups
        self._buffer_bytes = buffer_bytes
        self._master_buffer_bytes = master_buffer_bytes
        self._held_bytes = 0  # of all waiting pieces
        self._slot = 0
        self._ended = False
        self._unfinished = {*slaves, *finishing}

    @property
    def wants_input(self) -> bool:
        """Whether the source may be read; False pauses it for all."""
        return not (self._ended or self._full) and any(self._hungry(view) for view in self.slaves.values())

    def _hungry(self, view: SlaveView) -> bool:
        """Whether a slave may run out of work: it was not sent a message to join and one to follow, or only small ones."""
        few_bytes = view.unconsumed_bytes < min(AHEAD_BYTES, self._buffer_bytes // 2)
        return view.unconsumed_slots < AHEAD_SLOTS or (few_bytes and view.unconsumed_slots < AHEAD_SLOTS_MAX)

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
            case RankFinished():
                return self._rank_finished(event)
            case _:
                raise ProtocolError(f"master got {type(event).__name__}, which is no event of its own")

    def _ingested(self, event: Ingested) -> list[Action]:
        if self._ended:
            raise ProtocolError("master got input after the source had ended")
        for slave, view in self.slaves.items():
            view.waiting.append(Waiting(event.octets[slave], event.watermarks))
            view.waiting_bytes += event.octets[slave]
        self._held_bytes += sum(event.octets.values())
        if self._full:
            actions = self._serve_all()
            if self._full:
                largest = max(self.slaves, key=lambda slave: self.slaves[slave].waiting_bytes)
                self.held_back_by[largest] += 1
            return actions
        if event.watermarks is None:
            return []
        slot, self._slot = self._slot, self._slot + 1
        return [
            action
            for slave, view in self.slaves.items()
            if view.subgroup == slot % self._subgroups
            for action in self._serve(slave, slot)
        ]

    def _source_ended(self, event: SourceEnded) -> list[Action]:
        if self._ended:
            raise ProtocolError("master got the end of the source twice")
        self._ended = True
        for view in self.slaves.values():
            view.waiting.append(Waiting(0, event.watermarks))
        return self._serve_all()

    def _consumed(self, event: Consumed) -> list[Action]:
        view = self.slaves[event.slave]
        if event.octets > view.unconsumed_bytes or view.unconsumed_slots == 0:
            raise ProtocolError(
                f"slave {event.slave} reports {event.octets} bytes consumed, but it was sent {view.unconsumed_bytes} in "
                f"{view.unconsumed_slots} messages"
            )
        view.unconsumed_bytes -= event.octets
        view.unconsumed_slots -= 1
        return [] if self.wants_input else self._serve(event.slave, self._slot)

    def _rank_finished(self, event: RankFinished) -> list[Action]:
        if event.rank not in self._unfinished:
            raise ProtocolError(f"rank {event.rank} finished twice, or takes no part")
        view = self.slaves.get(event.rank)
        if view and (not self._ended or view.waiting or view.unconsumed_slots):
            raise ProtocolError(f"slave {event.rank} finished before it had joined all its input")
        self._unfinished.discard(event.rank)
        return [] if self._unfinished else [Complete()]

    def _serve_all(self) -> list[Action]:
        return [action for slave in self.slaves for action in self._serve(slave, self._slot)]

    def _serve(self, slave: int, slot: int) -> list[Action]:
        """A message for the slave, if there is anything to tell it and its credit allows."""
        view = self.slaves[slave]
        pieces = 0
        watermarks = view.watermarks
        while view.waiting:
            piece = view.waiting[0]
            if view.unconsumed_bytes and view.unconsumed_bytes + piece.octets > self._buffer_bytes:
                break
            view.waiting.popleft()
            self._held_bytes -= piece.octets
            view.waiting_bytes -= piece.octets
            view.unconsumed_bytes += piece.octets
            watermarks = piece.watermarks or watermarks
            pieces += 1
        if pieces == 0:
            return []
        view.watermarks = watermarks
        view.unconsumed_slots += 1
        last = self._ended and not view.waiting
        return [Serve(slave, pieces, slot // self._subgroups, watermarks or NEVER, last)]


NEVER = (-(1 << 63), -(1 << 63))  # watermarks of streams of which nothing is complete yet
