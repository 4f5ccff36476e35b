"""The rows of a group as frames of about 1 MiB: what is spilled, and what a clean-up reads back.

A frame has rows of one group and one generation, of all streams. In contrast to the frames of a move (transfer.py), it
knows of no blocks and no directory, so that the rows can be inserted anywhere, and in any portions. Of flags, it has
whether a row was matched: a bit in its word ROW (MATCHED_ROW), which an insert turns into the flag.
"""

from __future__ import annotations

from typing import Callable, Iterator, NamedTuple, Sequence

import numpy as np

from mpijoin.data.batch import read_only
from mpijoin.data.codec import aligned_empty, decode, reserve, seal
from mpijoin.data.room import Room
from mpijoin.errors import CodecError, ProtocolError
from mpijoin.partitioning.hashing import hash_keys
from mpijoin.store.blocks import generation_of
from mpijoin.store.insert import Fresh
from mpijoin.store.kept import list_kept
from mpijoin.store.pool import StreamSpec
from mpijoin.store.row_kernels import BLOB_OCTETS, COUNT_COLUMNS, ROWS, count_rows, list_rows
from mpijoin.store.shipment import check_buffers, expect, meta_of
from mpijoin.store.state import (
    ADDRESS,
    BLOCKS,
    FLAGS_AT,
    GENERATION,
    KEY,
    MATCHED,
    MATCHED_ROW,
    OWNER,
    ROW,
    SIZE,
    TIME,
    TIME_MAX_VALUE,
    TIME_MIN_VALUE,
    TUPLE_WORDS,
    StoreState,
)
from mpijoin.store.transfer import FRAME_BYTES, INT64, OCTET, cut
from mpijoin.store.transfer_kernels import BLOCK_COLUMNS, PAGE, STREAM, TUPLES, copy_blocks, copy_flags

ROWS_KIND = 18  # This is the kind of frames after those of moving groups.
ROWS_DTYPES = ["int64", "uint8"]
HASH_BITS = 16
PLACES = 1 << HASH_BITS
Memory = Callable[[int], np.ndarray]  # returns aligned uint8[n]


class RowsFrame(NamedTuple):
    """A frame of rows. data: the frame, uint8[n], with a checksum · spans: int64[streams, 3], how many rows there are
    of each stream, and the smallest and the largest of their times (of no rows: the largest and the smallest int64) ·
    fresh: the rows of each stream. All of it is valid for as long as anyone holds it, unless whoever gives the frame
    says until when."""

    data: np.ndarray
    group: int
    generation: int
    spans: np.ndarray
    fresh: tuple[Fresh, ...]


class RowReader:
    """Makes frames of the rows of a table."""

    def __init__(self, s: StoreState):
        self._s, self._streams = s, len(s.layout)
        self._widths = s.layout[:, TUPLE_WORDS].tolist()
        self._memory = Room().take_one
        self._list, self._list_kept = list_rows.bound(s), list_kept.bound(s)
        self._count, self._copy, self._copy_flags = count_rows.bound(s), copy_blocks.bound(s), copy_flags.bound(s)

    def of_group(
        self, group: int, generation: int | None = None, stream: int | None = None, passing: bool = False
    ) -> Iterator[RowsFrame]:
        """Yields the rows of a started group, without its fresh tuples. The group must not change meanwhile.

        generation: what the frames say, None: the group's own · stream: the only one that is wanted · passing: whether
        each frame is valid until the next of any group only, which takes its memory.
        """
        listed = self._room(group)
        listed = listed[: self._list(group, listed)]
        if stream is not None:
            listed = listed[listed[:, STREAM] == stream]
        number = int(self._s.groups[group, GENERATION]) if generation is None else generation
        yield from self._frames(group, number, listed, self._memory if passing else aligned_empty)

    def of_kept(self, group: int) -> Iterator[RowsFrame]:
        """Yields the rows of a started group's kept blocks, one generation after the other. Each frame is valid until
        the next."""
        listed = self._room(group)
        listed = listed[: self._list_kept(group, listed)][::-1]  # The last of the list was kept first.
        generations = generation_of(self._s.heads[listed[:, PAGE], OWNER])
        for generation in np.unique(generations).tolist():
            own = listed[generations == generation]
            yield from self._frames(group, generation, own[np.argsort(own[:, STREAM], kind="stable")], self._memory)

    def _room(self, group: int) -> np.ndarray:
        return np.empty((self._s.groups[group, BLOCKS], BLOCK_COLUMNS), np.int64)

    def _frames(self, group: int, generation: int, listed: np.ndarray, memory: Memory) -> Iterator[RowsFrame]:
        """Yields the rows of listed blocks, all of one generation and one stream after the other."""
        if not len(listed):
            return
        counts = self._counts(listed)
        if counts[:, BLOB_OCTETS].sum() + counts[:, ROWS] @ self._s.layout[:, TUPLE_WORDS] * 8 <= FRAME_BYTES:
            yield self._frame(group, generation, listed, counts, memory)
            return
        for blocks in cut(self._s, listed):
            yield self._frame(group, generation, blocks, self._counts(blocks), memory)

    def _counts(self, listed: np.ndarray) -> np.ndarray:
        counts = np.empty((self._streams, COUNT_COLUMNS), np.int64)
        self._count(listed, counts)
        return counts

    def _frame(
        self, group: int, generation: int, listed: np.ndarray, counts: np.ndarray, memory: Memory
    ) -> RowsFrame:
        wanted: list[tuple[np.dtype, tuple[int, ...]]] = [(INT64, (self._streams, 3))]
        each = counts[:, :3].tolist()
        for width, (_, octets, rows) in zip(self._widths, each):
            wanted += [(INT64, (rows, width)), (OCTET, (octets,))]
        frame, (spans, *buffers) = reserve(ROWS_KIND, {"group": int(group), "generation": generation}, wanted, memory)
        spans[:] = counts[:, ROWS:]
        fresh, start = tuple(map(Fresh, buffers[::2], buffers[1::2])), 0
        for stream, (blocks, _, rows) in enumerate(each):
            if rows:
                self._copy(stream, listed[start : start + blocks], *fresh[stream])
                if self._s.layout[stream, FLAGS_AT]:
                    self._mark(fresh[stream].tuples, listed[start : start + blocks])
            start += blocks
        return RowsFrame(seal(frame), group, generation, spans, fresh)

    def _mark(self, tuples: np.ndarray, listed: np.ndarray) -> None:
        """Marks copies of the tuples of listed blocks that were matched."""
        flags = np.empty(listed[:, TUPLES].sum(), np.uint8)
        self._copy_flags(listed, flags)
        tuples[:, ROW] |= np.where(flags & MATCHED, MATCHED_ROW, 0)


def rows_of(data: np.ndarray, streams: Sequence[StreamSpec], own: bool = False) -> RowsFrame:
    """Decodes a frame of rows, and checks it. streams: those of the join · own: this process has made the frame for
    this join, so that its checksum is enough.

    CodecError: the frame is damaged · ProtocolError: it is none of this join.
    """
    frame = expect(decode(data), ROWS_KIND)
    if not own:
        check_buffers(frame, ["int64", *ROWS_DTYPES * len(streams)])
    spans, *buffers = frame.buffers
    fresh = tuple(map(Fresh, buffers[::2], buffers[1::2]))
    if not own:
        if spans.shape != (len(streams), 3):
            raise ProtocolError(f"rows of {len(spans)} streams, wanted {len(streams)}")
        for stream, rows, span in zip(streams, fresh, spans.tolist()):
            _check_rows(rows, stream, *span)
    return RowsFrame(data, meta_of(frame, "group"), meta_of(frame, "generation"), spans, fresh)


def _check_rows(fresh: Fresh, stream: StreamSpec, count: int, earliest: int, latest: int) -> None:
    tuples, words = fresh.tuples, stream.tuple_words
    if tuples.ndim != 2 or tuples.shape[1] != words:
        raise ProtocolError(f"rows {list(tuples.shape)} came, wanted {words} words each")
    if len(tuples) != count:
        raise CodecError(f"frame of rows has {len(tuples)} of the {count} that it says")
    found = tuples[:, TIME].min(initial=TIME_MAX_VALUE), tuples[:, TIME].max(initial=TIME_MIN_VALUE)
    if found != (earliest, latest):
        raise CodecError(f"frame of rows has times from {found[0]} to {found[1]}, but says {earliest} to {latest}")
    if stream.has_blob:
        starts, sizes, end = tuples[:, ADDRESS], tuples[:, SIZE], len(fresh.blob)
        if ((starts < 0) | (sizes < 0) | (starts > end) | (sizes > end - starts)).any():
            raise CodecError(f"frame of rows has blobs beyond the {end} bytes that came")


def key_places(tuples: np.ndarray) -> np.ndarray:
    """Returns for each tuple the place of its key, int64[n], from 0 to PLACES - 1.

    Places are spread evenly over the keys of a group. The partition, the directory and the tags depend on bits of the
    key's hash. The place depends on a hash of that hash, and so on none of them.
    """
    hashed = hash_keys(np.ascontiguousarray(tuples[:, KEY]))
    return (hash_keys(hashed.view(np.int64)) >> np.uint64(64 - HASH_BITS)).astype(np.int64)


def part_of_deal(tuples: np.ndarray, deal: int) -> np.ndarray:
    """Returns int64[n]: to which of two parts, 0 or 1, each tuple goes by its row. Each deal has another order.

    >>> part_of_deal(np.array([[0, 0, row] for row in range(8)]), deal=3)
    array([0, 0, 1, 0, 1, 1, 0, 0])
    """
    rows = tuples[:, ROW].view(np.uint64) + (np.uint64(deal) << np.uint64(40))
    return (hash_keys(rows.view(np.int64)) >> np.uint64(63)).astype(np.int64)


def between(tuples: np.ndarray, low: int, high: int) -> np.ndarray:
    """Returns int64[k, words]: those tuples whose keys have a place from `low` to before `high`, in their order."""
    if (low, high) == (0, PLACES):
        return tuples
    places = key_places(tuples)
    return read_only(tuples[(low <= places) & (places < high)])
