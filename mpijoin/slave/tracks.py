"""Groups that two slaves join side by side while they move by PTLB: what this slave has to do about them.

"All old partitions have finished their duty in terms of contributing to the generation of output results from the
sender machine" (DCAPE, section 3.1) once no tuple that is still to come can meet an old one. That takes as long as the
longest window. No producer has to stop for it, and nobody waits: what changes is said in the group's own slots, behind
the rows for which it did not hold yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Sequence

import numpy as np

from mpijoin.errors import ProtocolError
from mpijoin.messages import Slot
from mpijoin.moving import consumer, steps, supplier
from mpijoin.operators.base import Left, Operator
from mpijoin.orders import Step
from mpijoin.rank import MASTER, Rank
from mpijoin.records import Transfer
from mpijoin.store.state import FOREVER

# A consumer refuses a group if less than this share of its memory is free. It needs that for what comes until all
# producers have heard of it.
ROOM_SHARE = 0.1
# The sides of a move.
SUPPLIER, CONSUMER = "supplier", "consumer"
TABLES = {SUPPLIER: supplier, CONSUMER: consumer}
SIDE_OF = {steps.DUPLICATE: SUPPLIER, steps.COPY: CONSUMER}


@dataclass
class Track:
    """A group that moves. side: which one this slave is · doubled, ended: the producers that have said so · until: as
    of `Operator.old_until`, once all that comes is new · octets: came in it."""

    group: int
    side: str
    state: str = supplier.UNKNOWN
    doubled: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    until: np.ndarray | None = None
    octets: int = 0


class Tracks:
    """All moves by PTLB that this slave takes part in."""

    def __init__(self, rank: Rank, operator: Operator, producers: Sequence[int]):
        self._rank, self._operator, self._producers = rank, operator, set(producers)
        self._tracks: dict[int, Track] = {}

    def knows(self, move: int) -> bool:
        return move in self._tracks

    def joined(self, slot: Slot) -> int | None:
        """All rows of a slot of a shared group are joined. Returns the group if it is not this slave's any more.
        ProtocolError: the slot is out of turn."""
        track = self._track_of(slot)
        track.octets += slot.octets
        if slot.step in SIDE_OF:
            self._doubled(slot, track)
            return None
        track.ended.add(slot.producer)
        if track.ended != self._producers:
            return None
        self._advance(slot.move, track, slot.step)
        del self._tracks[slot.move]
        return self._end(slot.move, track, slot.step)

    def _track_of(self, slot: Slot) -> Track:
        side, group = SIDE_OF.get(slot.step), int(slot.groups[0])
        if side and slot.move not in self._tracks:
            track = self._tracks[slot.move] = Track(group, side)
            self._advance(slot.move, track, slot.step)
        found = self._tracks.get(slot.move)
        if found is None or found.group != group or (side and found.side != side) or slot.producer in found.ended:
            raise ProtocolError(
                f"slave {self._rank.number} was told to {slot.step} group {group} in move {slot.move} by producer"
                f" {slot.producer}, wanted the first or the next step of a move of this group"
            )
        return found

    def _doubled(self, slot: Slot, track: Track) -> None:
        track.doubled.add(slot.producer)
        if track.side == CONSUMER:
            self._look_for_room(slot.move, track)
        elif track.doubled == self._producers and track.state == supplier.DOUBLED:
            self._look_for_old(slot.move, track)

    def _look_for_room(self, move: int, track: Track) -> None:
        memory = self._operator.memory()
        if track.state == consumer.DOUBLED and memory.free < ROOM_SHARE * memory.budget:
            self._advance(move, track, consumer.NO_ROOM)
            reason = f"group {track.group} came, and {memory.free} of {memory.budget} bytes of memory are free"
            self._say(move, steps.REFUSED, reason)

    def _look_for_old(self, move: int, track: Track) -> None:
        """Tells the master once nothing that is to come can meet an old tuple. Which ones are old is certain from when
        all producers send to the consumer, too."""
        if track.until is None:
            track.until = self._operator.old_until(track.group)
        watermarks = self._operator.info(np.array([track.group])).watermarks[0]
        if all(np.delete(watermarks, stream).min(initial=FOREVER) > last for stream, last in enumerate(track.until)):
            self._advance(move, track, supplier.PURGE)
            self._say(move, steps.ALL_OLD_PURGED)

    def _end(self, move: int, track: Track, step: str) -> int | None:
        """Ends the move, as all producers have said it shall end. Returns the group if it is left."""
        is_supplier = track.side == SUPPLIER
        if step == steps.LEAVE:
            self._operator.drop(track.group, Left.DISCARDED)
            figures = Transfer(track.octets, 0.0) if is_supplier else Transfer()
            self._say(move, steps.DROPPED if is_supplier else steps.DISCARDED, figures=figures)
            return track.group
        if is_supplier:
            self._operator.make_all_old(track.group)
            self._say(move, steps.RESTORED)
        else:
            blocks = int(self._operator.info(np.array([track.group])).blocks[0])
            self._say(move, steps.INSTALLED, figures=Transfer(blocks=blocks))
        return None

    def _advance(self, move: int, track: Track, event: str) -> None:
        track.state = TABLES[track.side].advance(move, track.state, event)

    def _say(self, move: int, step: str, reason: str = "", figures: Transfer = Transfer()) -> None:
        self._rank.send(MASTER, Step(move, self._rank.number, step, reason, figures))
