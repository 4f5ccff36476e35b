"""What waits at a producer for each slave, and how much of it a slave may be sent.

A message carries at most the slave's credit: its stream buffer less what it has not yet consumed. A slave with nothing
unconsumed always gets one piece, so no size can block it for ever.
"""

from __future__ import annotations

from typing import Sequence

from mpijoin.errors import ProtocolError
from mpijoin.partitioning.table import Waited
from mpijoin.producer.backlog import Backlog
from mpijoin.producer.events import Consumed, Ingested, Serve, Watermarks
from mpijoin.producer.setup import ProducerSetup
from mpijoin.producer.timetable import Timetable
from mpijoin.producer.views import SlaveState, WaitingItem, never


class Queues:
    """A queue per slave, and the groups that are held back while they move."""

    def __init__(self, setup: ProducerSetup, backlog: Backlog, timetable: Timetable | None):
        """timetable: of a paced run, in which every message is followed from the moment at which it was due."""
        self.slaves = {slave: SlaveState(index % setup.subgroups) for index, slave in enumerate(setup.slaves)}
        self.held: dict[int, int] = {}  # group -> bytes
        self.held_bytes = 0  # of all that waits and of held groups
        self.closed = False  # Every queue has its end.
        self.stopped = False  # Nothing is sent any more.
        self._buffer_bytes, self._waiting_bytes = setup.buffer_bytes, setup.waiting_bytes
        # What may wait for one slave; None: the buffer is shared, as Flux's is (section 4).
        self._slave_bytes = setup.waiting_bytes // len(setup.slaves) if setup.divided else None
        self._never = never(len(setup.complete))
        self._backlog, self._timetable = backlog, timetable

    @property
    def is_full(self) -> bool:
        """Whether the source must wait. Where each slave has a part of the buffer, one full part is enough: "when a
        queue to that instance is filled, an Ex-Prod instance must block until that queue has available space" (Flux,
        section 4)."""
        if self._slave_bytes is None or self.held_bytes >= self._waiting_bytes:
            return self.held_bytes >= self._waiting_bytes
        return any(view.waiting_bytes >= self._slave_bytes for view in self.slaves.values())

    def is_hungry(self, slave: int) -> bool:
        """Whether the slave may run out of work."""
        return self.slaves[slave].is_hungry(self._buffer_bytes)

    def add(self, part: Ingested) -> None:
        for slave, octets in part.shared:
            self._queue_apart(slave, octets, part.watermarks)
        for slave, octets in part.octets.items():
            self.slaves[slave].queue(WaitingItem(octets, part.watermarks, self.slaves[slave].layout))
        for group, octets in part.held.items():
            self.held[group] += octets
        self.held_bytes += sum(part.came.values()) + sum(part.held.values())

    def _queue_apart(self, slave: int, octets: int, watermarks: Watermarks | None) -> None:
        """An item that goes in a message of its own."""
        view = self.slaves[slave]
        view.apart += 1
        view.queue(WaitingItem(octets, watermarks, -view.apart))

    def tell(self, slave: int, complete: Watermarks) -> None:
        """An item without rows waits for the slave. Its group has all rows up to the last whole tick, which is
        `complete`. What follows may have other groups than what waits before it."""
        self._queue_apart(slave, 0, complete)

    def hold(self, group: int, slave: int, octets: Sequence[int]) -> None:
        """The group's bytes were taken out of each item that waits for the slave, the next one first."""
        view = self.slaves[slave]
        for index, one in enumerate(octets):
            view.waiting[index] = view.waiting[index]._replace(octets=view.waiting[index].octets - one)
        self.held[group] += sum(octets)
        view.waiting_bytes -= sum(octets)

    def restore(self, waited: Sequence[Waited], complete: Watermarks) -> None:
        """These rows waited when the run was cut that goes on now. They are due."""
        self._append(waited, complete)
        for one in waited:
            self.slaves[one.slave].due += 1

    def deliver(self, group: int, waited: Sequence[Waited], complete: Watermarks) -> None:
        """What was held back of the group goes to its slave before all that waits there: it was held for long enough.
        """
        del self.held[group]
        self.slaves[waited[0].slave].layout += 1
        for one in reversed(waited):
            view = self.slaves[one.slave]
            view.apart += 1
            view.waiting.appendleft(WaitingItem(one.octets, _reached(one, complete), -view.apart))
            view.waiting_bytes += one.octets
            view.due += 1

    def redeal(self, group: int, waited: Sequence[Waited], complete: Watermarks) -> None:
        """What was held back of the group waits for its slaves behind all else."""
        self.held_bytes -= self.held.pop(group)
        self._append(waited, complete)

    def _append(self, waited: Sequence[Waited], complete: Watermarks) -> None:
        for one in waited:
            self._queue_apart(one.slave, one.octets, _reached(one, complete))
            self.held_bytes += one.octets

    def close(self, watermarks: Watermarks) -> None:
        """The end is what every slave gets last."""
        self.closed = True
        for view in self.slaves.values():
            view.queue(WaitingItem(0, watermarks, view.layout))

    def consumed(self, event: Consumed) -> None:
        """The slave has joined its oldest message. ProtocolError where it was sent none of so many bytes."""
        view = self.slaves[event.slave]
        if event.octets > view.unconsumed_bytes or view.unconsumed_slots == 0:
            raise ProtocolError(
                f"slave {event.slave} reports {event.octets} bytes consumed, but it was sent {view.unconsumed_bytes} in"
                f" {view.unconsumed_slots} messages"
            )
        view.unconsumed_bytes -= event.octets
        view.unconsumed_slots -= 1

    def serve(self, slave: int, epoch: int) -> list[Serve]:
        """The slave's slot has come: all that waits is due."""
        self.slaves[slave].due = len(self.slaves[slave].waiting)
        return self.send_due(slave, epoch)

    def send_due(self, slave: int, epoch: int) -> list[Serve]:
        """Messages of this epoch with what is due, as far as credit goes."""
        view = self.slaves[slave]
        sent: list[Serve] = []
        while view.due and not self.stopped and (message := self._message(slave, view, epoch)):
            sent.append(message)
        return sent

    def _message(self, slave: int, view: SlaveState, epoch: int) -> Serve | None:
        items, layout, watermarks = 0, view.waiting[0].layout, view.watermarks
        while view.due and view.waiting[0].layout == layout:
            item = view.waiting[0]
            if view.unconsumed_bytes and view.unconsumed_bytes + item.octets > self._buffer_bytes:
                break
            view.waiting.popleft()
            view.due -= 1
            self.held_bytes -= item.octets
            view.waiting_bytes -= item.octets
            view.unconsumed_bytes += item.octets
            watermarks = item.watermarks or watermarks
            items += 1
        if items == 0:
            return None
        if layout >= 0:
            view.watermarks = watermarks
        view.unconsumed_slots += 1
        if self._timetable:
            self._backlog.sent(slave, self._timetable.due_s)
        last = self.closed and not view.waiting
        return Serve(slave, items, epoch, watermarks or self._never, last)


def _reached(one: Waited, complete: Watermarks) -> Watermarks:
    """The watermarks of a group behind this item: no row to come is earlier than those that wait behind it, and none of
    those that are still to be read is earlier than `complete`, which is that of the last whole tick."""
    return tuple(map(min, one.later, complete)) if one.later else complete
