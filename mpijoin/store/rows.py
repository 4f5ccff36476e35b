"""The rows of a group as frames of about 1 MiB: what is spilled, and what a clean-up reads back.

A frame has rows of one group and one generation, of all streams, in three parts: which they are and how many of each
stream, all tuples, and all blobs. The more parts a frame has, the longer a small group takes. In contrast to the frames
of a move (transfer.py), it knows of no blocks and no directory, so that the rows can be inserted anywhere, and in any
portions. Of flags, it has whether a row was matched: a bit in its word ROW (MATCHED_ROW), which an insert turns into
the flag.
"""

from __future__ import annotations

from typing import Iterator, Sequence

import numpy as np

from mpijoin.data.batch import read_only
from mpijoin.data.codec import decode
from mpijoin.errors import CodecError, ProtocolError
from mpijoin.named import NamedTuple
from mpijoin.partitioning.hashing import hash_keys
from mpijoin.store.insert import Fresh
from mpijoin.store.pool import StreamSpec
from mpijoin.store.row_kernels import HEAD_COLUMNS
from mpijoin.store.shipment import check_buffers, expect
from mpijoin.store.state import ADDRESS, KEY, ROW, SIZE, TIME, TIME_MAX_VALUE, TIME_MIN_VALUE

ROWS_KIND = 18  # This is the kind of frames after those of moving groups.
HASH_BITS = 16
PLACES = 1 << HASH_BITS


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


class RowsBatch(NamedTuple):
    """Frames of rows, one after the other in one piece of memory.

    data: uint8[n], that memory · starts, sizes: where in it each frame begins, and how long it is · words: int64[], the
    memory of all tuples, and words_at: int64[m], where in it those of each frame begin · heads: int64[m, streams, 4],
    what each frame says · names: int64[m, 2], the group and the generation of each · widths: as of a frame.
    """

    data: np.ndarray
    starts: list[int]
    sizes: list[int]
    words: np.ndarray
    words_at: np.ndarray
    heads: np.ndarray
    names: np.ndarray
    widths: np.ndarray

    @classmethod
    def of(cls, frame: RowsFrame) -> RowsBatch:
        """Returns the frame as a batch."""
        start, names, heads = np.zeros(1, np.int64), np.array([[frame.group, frame.generation]]), frame.head[np.newaxis]
        return cls(frame.data, [0], [len(frame.data)], frame.words, start, heads, names, frame.widths)

    @property
    def spans(self) -> list[list[list[int]]]:
        """Of each frame and stream, how many rows there are, and the smallest and largest of their times."""
        spans: list[list[list[int]]] = self.heads[:, :, :3].tolist()
        return spans

    @property
    def frames(self) -> Iterator[RowsFrame]:
        """The frames one by one. That takes longer than to look at the arrays."""
        for start, size in zip(self.starts, self.sizes):
            data = self.data[start : start + size]
            yield _frame_of(data, decode(data, trusted=True).buffers, self.widths)


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
    rows = _frame_of(data, frame.buffers, widths)
    if not own:
        _check_sizes(rows)
        for stream, fresh, (_, *times) in zip(streams, rows.fresh, rows.spans.tolist()):
            _check_rows(fresh, stream, *times)
    return rows


def _frame_of(data: np.ndarray, buffers: Sequence[np.ndarray], widths: np.ndarray) -> RowsFrame:
    first, words, blob = buffers
    group, generation, *_ = first[0].tolist()
    return RowsFrame(data, group, generation, first[1:], words, blob, widths)


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
