"""Input that is pending for a group on disk: it is written message by message, and joined in larger parts."""

from __future__ import annotations

import numpy as np

from mpijoin.data.codec import decode, reserve, seal
from mpijoin.data.room import Room
from mpijoin.messages import KINDS, Columns, Piece, Slot, message_of
from mpijoin.spill.runs import Reading
from mpijoin.store.state import ADDRESS


class PendingInput:
    """Makes frames of slots, and slots of frames. It uses its memory again, because fresh memory takes longer to come
    by than to fill."""

    def __init__(self, widths: list[int]):
        """widths: the words of a tuple of each stream."""
        self._room = Room()
        self._streams = [_Stream(width) for width in widths]

    def frame_of(self, slot: Slot) -> np.ndarray:
        """Returns the slot as a frame with a checksum, uint8[n], valid until the next."""
        meta, buffers = slot.content()
        wanted = [(buffer.dtype, buffer.shape) for buffer in buffers]
        frame, places = reserve(KINDS[Slot], meta, wanted, self._room.take_one)
        for place, buffer in zip(places, buffers):
            place[:] = buffer
        return seal(frame)

    def next_part(self, reading: Reading, octets_max: float) -> Slot | None:
        """Returns the next frames of one group together, at least one and no more than have about so many bytes.

        It is a slot with the newest watermarks of them, valid until the next. None: there are no more.
        """
        newest: Slot | None = None
        octets = 0
        for one in self._streams:
            one.clear()
        for frame in reading:
            with reading.decoding():
                slot = message_of(decode(frame))
            assert isinstance(slot, Slot)
            for piece in slot.pieces:
                for one, columns in zip(self._streams, piece.columns):
                    one.add(columns)
            newest, octets = slot, octets + slot.octets
            if octets >= octets_max:
                break
        if newest is None:
            return None
        together = tuple(one.columns for one in self._streams)
        piece = Piece(np.array([[len(own.tuples)] for own in together]), together)
        return newest._replace(groups=newest.groups.copy(), pieces=(piece,), last=False)


class _Stream:
    """Rows of one stream, one piece behind the other."""

    def __init__(self, width: int):
        self._tuples, self._blob = np.empty((0, width), np.int64), np.empty(0, np.uint8)
        self.clear()

    def clear(self) -> None:
        self._rows = self._octets = 0

    @property
    def columns(self) -> Columns:
        return Columns(self._tuples[: self._rows], self._blob[: self._octets])

    def add(self, columns: Columns) -> None:
        rows, octets = self._rows + len(columns.tuples), self._octets + len(columns.blob)
        self._tuples, self._blob = _with_room(self._tuples, rows), _with_room(self._blob, octets)
        own = self._tuples[self._rows : rows]
        own[:] = columns.tuples
        self._blob[self._octets : octets] = columns.blob
        if len(columns.blob):
            own[:, ADDRESS] += self._octets
        self._rows, self._octets = rows, octets


def _with_room(array: np.ndarray, count: int) -> np.ndarray:
    """Returns the array, or a longer one that begins with the same, so that it has room for so many."""
    if count <= len(array):
        return array
    grown = np.empty((2 * count, *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown
