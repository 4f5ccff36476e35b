"""What a slave keeps of each producer that feeds it: marks, watermarks, the end, and which of them have paused a group.

With one producer everything passes at once.
"""

from __future__ import annotations

from typing import Sequence

import numpy as np

from mpijoin.errors import ProtocolError
from mpijoin.messages import Marker, Piece, Slot
from mpijoin.moving import steps
from mpijoin.orders import Order
from mpijoin.store.state import TIME_MIN_VALUE

NOBODY = -1  # instead of a producer: of input that is of all of them


class Inputs:
    def __init__(self, producers: Sequence[int], partitions: int, streams: int):
        self._producers = tuple(producers)
        # For each producer and group, all rows of it below these watermarks are joined.
        self._marks = np.full((len(producers), partitions, streams), TIME_MIN_VALUE, np.int64)
        self._marked: set[int] = set()  # have sent the mark of a checkpoint that others have not
        self._aside: list[Slot | Marker] = []  # what they have sent after it
        self._ended: set[int] = set()
        self._paused: dict[int, set[int]] = {}  # move -> the producers that hold its group's input back
        self._waiting: dict[int, Order] = {}  # move -> an order that has to wait for the others

    def slot(self, slot: Slot) -> Slot | None:
        """Takes what a producer sends. Returns what is to be joined now. It is the last only if all others have sent
        theirs; None: it comes after a mark that is not complete."""
        if slot.producer in self._marked:
            self._aside.append(slot)
            return None
        if not slot.last:
            return slot
        self._ended.add(slot.producer)
        return slot if len(self._ended) == len(self._producers) else slot._replace(last=False)

    def mark(self, producer: int, marker: Marker) -> list[Slot]:
        """Takes the mark of a checkpoint. Once the last one is there, returns what was put aside, which is to be given
        to `slot` after that; see `is_aligned`."""
        if producer in self._marked:
            raise ProtocolError(f"producer {producer} has sent the mark of checkpoint {marker.number} twice")
        self._marked.add(producer)
        if len(self._marked) < len(self._producers):
            return []
        self._marked.clear()
        aside, self._aside = self._aside, []
        return [one for one in aside if isinstance(one, Slot)]

    @property
    def is_aligned(self) -> bool:
        """Whether no producer is ahead of the others by a mark: all that has come belongs before or behind it."""
        return not self._marked

    def order(self, producer: int, order: Order) -> list[Order]:
        """Takes an order. Returns those that can be carried out now.

        "Assuming ordered message delivery, once the originating Flux-Cons instance receives all acknowledgements, all
        in-flight tuples for the candidate partition have been received" (Flux, section 5.1): each producer says FREEZE
        behind all that it has sent. An order to take the group back waits until all have, if one has.
        """
        paused = self._paused.setdefault(order.move, set())
        if order.step == steps.FREEZE:
            paused.add(producer)
            if len(paused) < len(self._producers):
                return []
            del self._paused[order.move]
            waiting = self._waiting.pop(order.move, None)
            return [order, waiting] if waiting else [order]
        if order.step == steps.RESTORE and paused:
            self._waiting[order.move] = order
            return []
        if not paused:
            del self._paused[order.move]
        return [order]

    def joined(self, slots: Sequence[Slot], groups: np.ndarray) -> np.ndarray | tuple[int, ...]:
        """These groups' rows of some slots are joined. Returns their watermarks, int64[m, streams], of all producers
        together. groups: int64[m].

        Input that came with a group, or from the disk, is of all producers, and has the watermarks of all. It is joined
        alone.
        """
        if len(self._producers) == 1 or slots[-1].producer not in self._producers:
            return slots[-1].watermarks
        for slot in slots:
            own = self._marks[slot.producer]
            own[groups] = np.maximum(own[groups], slot.watermarks)
        return np.ascontiguousarray(self._marks[:, groups].min(axis=0))

    def reached(self, slot: Slot, group: int) -> tuple[int, ...]:
        """A group's rows of a slot are taken out of it. Returns the group's watermarks behind them, of all producers.
        """
        return tuple(np.atleast_2d(self.joined([slot], np.array([group])))[0].tolist())

    def diverted(self, slot: Slot, group: int, pieces: tuple[Piece, ...]) -> Slot:
        """Returns a group's rows of a slot as input of all producers."""
        own, watermarks = np.array([group]), self.reached(slot, group)
        producer = slot.producer if len(self._producers) == 1 else NOBODY
        return slot._replace(producer=producer, watermarks=watermarks, groups=own, pieces=pieces, last=False)

    def goes(self, group: int) -> tuple[tuple[int, ...], ...]:
        """The group leaves. Returns its watermarks of each producer, or () where there is but one."""
        return () if len(self._producers) == 1 else tuple(map(tuple, self._marks[:, group].tolist()))

    def comes(self, group: int, marks: tuple[tuple[int, ...], ...]) -> None:
        """The group has come with what `goes` has said at its supplier."""
        if marks:
            self._marks[:, group] = marks
