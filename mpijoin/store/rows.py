"""The rows of a group as frames of about 1 MiB: what is spilled, and what a clean-up reads back.

A frame has rows of one group and one generation, of all streams, in three parts: which they are and how many of each
stream, all tuples, and all blobs. The more parts a frame has, the longer a small group takes. In contrast to the frames
of a move (transfer.py), it knows of no blocks and no directory, so that the rows can be inserted anywhere, and in any
portions. Of flags, it has whether a row was matched: a bit in its word ROW (MATCHED_ROW), which an insert turns into
the flag.
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
from mpijoin.store.row_kernels import BLOB_OCTETS, COUNT_COLUMNS, ROWS, copy_rows, count_rows, list_rows
from mpijoin.store.shipment import check_buffers, expect
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
from mpijoin.store.transfer_kernels import BLOCK_COLUMNS, PAGE, STREAM, TUPLES, copy_flags

ROWS_KIND = 18  # This is the kind of frames after those of moving groups.
HEAD_COLUMNS = COUNT_COLUMNS - ROWS
HASH_BITS = 16
PLACES = 1 << HASH_BITS
Memory = Callable[[int], np.ndarray]  # returns aligned uint8[n]


class RowsFrame(NamedTuple):
    """A frame of rows. It is valid for as long as anyone holds it, unless whoever gives it says until when.

    data: the frame, uint8[n], with a checksum · head: int64[streams, 4], how many rows there are of each stream, the
    smallest and the largest of their times (of no rows: the largest and the smallest int64), and the bytes of their
    blobs · words: int64[], the tuples of all streams, one after the other, and blob: uint8[], all blobs likewise ·
    widths: int64[streams], the words of a tuple of each.
    """

    data: np.ndarray
    group: int
    generation: int
    head: np.ndarray
    words: np.ndarray
    blob: np.ndarray
    widths: np.ndarray

    @property
    def spans(self) -> np.ndarray:
        """int64[streams, 3]: how many rows there are of each stream, and the smallest and largest of their times."""
        return self.head[:, :3]

    @property
    def fresh(self) -> list[Fresh]:
        """The rows of each stream. They lie in the frame."""
        found, word, octet = [], 0, 0
        for (rows, _, _, octets), width in zip(self.head.tolist(), self.widths.tolist()):
            tuples, blob = self.words[word : word + rows * width], self.blob[octet : octet + octets]
            found.append(Fresh(tuples.reshape(rows, width), blob))
            word, octet = word + rows * width, octet + octets
        return found


class RowReader:
    """Makes frames of the rows of a table."""

    def __init__(self, s: StoreState):
        self._s, self._streams = s, len(s.layout)
        self._widths = read_only(s.layout[:, TUPLE_WORDS].copy())
        self._marked = np.flatnonzero(s.layout[:, FLAGS_AT]).tolist()  # streams whose tuples have flags
        self._memory = Room().take_one
        self._list, self._list_kept = list_rows.bound(s), list_kept.bound(s)
        self._count, self._copy, self._copy_flags = count_rows.bound(s), copy_rows.bound(s), copy_flags.bound(s)

    def of_group(
        self, group: int, generation: int | None = None, stream: int | None = None, passing: bool = False
    ) -> Iterator[RowsFrame]:
        """Yields the rows of a started group, without its fresh tuples. The group must not change meanwhile.

        generation: what the frames say, None: the group's own · stream: the only one that is wanted · passing: whether
        each frame is valid until the next of any group only, which takes its memory.
        """
        listed, counts = self._room(group), self._no_counts()
        listed = listed[: self._list(group, listed, counts)]
        if stream is not None:
            listed = listed[listed[:, STREAM] == stream]
            counts = self._counts(listed)
        number = int(self._s.groups[group, GENERATION]) if generation is None else generation
        yield from self._frames(group, number, listed, counts, self._memory if passing else aligned_empty)

    def of_kept(self, group: int) -> Iterator[RowsFrame]:
        """Yields the rows of a started group's kept blocks, one generation after the other. Each frame is valid until
        the next."""
        listed = self._room(group)
        listed = listed[: self._list_kept(group, listed)][::-1]  # The last of the list was kept first.
        generations = generation_of(self._s.heads[listed[:, PAGE], OWNER])
        for generation in sorted(set(generations.tolist())):
            own = listed[generations == generation]
            own = own[np.argsort(own[:, STREAM], kind="stable")]
            yield from self._frames(group, generation, own, self._counts(own), self._memory)

    def _room(self, group: int) -> np.ndarray:
        return np.empty((self._s.groups[group, BLOCKS], BLOCK_COLUMNS), np.int64)

    def _no_counts(self) -> np.ndarray:
        return np.empty((self._streams, COUNT_COLUMNS), np.int64)

    def _counts(self, listed: np.ndarray) -> np.ndarray:
        counts = self._no_counts()
        self._count(listed, counts)
        return counts

    def _frames(
        self, group: int, generation: int, listed: np.ndarray, counts: np.ndarray, memory: Memory
    ) -> Iterator[RowsFrame]:
        """Yields the rows of listed blocks, all of one generation and one stream after the other."""
        if not len(listed):
            return
        if counts[:, BLOB_OCTETS].sum() + counts[:, ROWS] @ self._widths * 8 <= FRAME_BYTES:
            yield self._frame(group, generation, listed, counts, memory)
            return
        for blocks in cut(self._s, listed):
            yield self._frame(group, generation, blocks, self._counts(blocks), memory)

    def _frame(
        self, group: int, generation: int, listed: np.ndarray, counts: np.ndarray, memory: Memory
    ) -> RowsFrame:
        words, octets = int(counts[:, ROWS] @ self._widths), int(counts[:, BLOB_OCTETS].sum())
        wanted: list[tuple[np.dtype, tuple[int, ...]]]
        wanted = [(INT64, (1 + self._streams, HEAD_COLUMNS)), (INT64, (words,)), (OCTET, (octets,))]
        data, (first, content, blob) = reserve(ROWS_KIND, {}, wanted, memory)
        first[0] = group, generation, 0, 0
        first[1:] = counts[:, ROWS:]
        frame = RowsFrame(data, group, generation, first[1:], content, blob, self._widths)
        self._copy(listed, content, blob)
        for stream in self._marked:
            self._mark(frame.fresh[stream].tuples, listed[listed[:, STREAM] == stream])
        seal(data)
        return frame

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
        check_buffers(frame, ["int64", "int64", "uint8"])
    widths = read_only(np.array([stream.tuple_words for stream in streams]))
    first, words, blob = frame.buffers
    if not own:
        _check_shapes(first, words, blob, len(streams))
    group, generation, *_ = first[0].tolist()
    rows = RowsFrame(data, group, generation, first[1:], words, blob, widths)
    if not own:
        _check_sizes(rows)
        for stream, fresh, (_, *times) in zip(streams, rows.fresh, rows.spans.tolist()):
            _check_rows(fresh, stream, *times)
    return rows


def _check_shapes(first: np.ndarray, words: np.ndarray, blob: np.ndarray, streams: int) -> None:
    if first.ndim != 2 or first.shape != (1 + streams, HEAD_COLUMNS):
        raise ProtocolError(f"rows of {len(first) - 1} streams, wanted {streams} with {HEAD_COLUMNS} words each")
    if (words.ndim, blob.ndim) != (1, 1):
        raise CodecError(f"frame of rows has parts of 2, {words.ndim} and {blob.ndim} dimensions")


def _check_sizes(rows: RowsFrame) -> None:
    each = rows.head.tolist()
    if any(count < 0 or octets < 0 for count, _, _, octets in each):
        raise CodecError(f"frame of rows says that it has {each}")
    words = sum(count * width for (count, *_), width in zip(each, rows.widths.tolist()))
    octets = sum(octets for *_, octets in each)
    if (words, octets) != (len(rows.words), len(rows.blob)):
        raise CodecError(
            f"frame of rows has {len(rows.words)} words and {len(rows.blob)} bytes of blobs, but its streams {words}"
            f" and {octets}"
        )


def _check_rows(fresh: Fresh, stream: StreamSpec, earliest: int, latest: int) -> None:
    tuples = fresh.tuples
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
