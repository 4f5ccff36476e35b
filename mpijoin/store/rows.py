"""The rows of a group as frames of about 1 MiB: what is spilled, and what a clean-up reads back.

A frame has rows of one group, one stream and one generation. In contrast to the frames of a move (transfer.py), it
knows of no blocks, directory or flags, so that the rows can be inserted anywhere, and in any portions.
"""

from __future__ import annotations

from typing import Iterator, NamedTuple, Sequence

import numpy as np

from mpijoin.data.batch import read_only
from mpijoin.data.codec import decode, reserve, seal
from mpijoin.errors import CodecError, ProtocolError
from mpijoin.partitioning.hashing import hash_keys
from mpijoin.store.blocks import generation_of
from mpijoin.store.insert import Fresh
from mpijoin.store.kept import list_kept
from mpijoin.store.pool import StreamSpec
from mpijoin.store.shipment import check_buffers, expect, meta_of
from mpijoin.store.state import ADDRESS, BLOCKS, KEY, OWNER, SIZE, TIME, TIME_MAX, TIME_MIN, TUPLE_WORDS, StoreState
from mpijoin.store.transfer import blocks_in, cut
from mpijoin.store.transfer_kernels import BLOCK_COLUMNS, OCTETS, PAGE, STREAM, TUPLES, copy_blocks

ROWS_KIND = 18  # This is the kind of frames after those of moving groups.
ROWS_DTYPES = ["int64", "uint8"]
HASH_BITS = 16
PLACES = 1 << HASH_BITS


class RowsFrame(NamedTuple):
    """A decoded frame of rows. earliest, latest: the smallest and the largest of their times · fresh: the rows, which
    are valid for as long as anyone holds them."""

    group: int
    stream: int
    generation: int
    earliest: int
    latest: int
    fresh: Fresh


def group_rows(s: StoreState, group: int) -> Iterator[np.ndarray]:
    """Yields the rows of a started group that holds no fresh tuple as frames with a checksum, one stream after the
    other. The group must not change meanwhile."""
    listed = blocks_in(s, group)[2]
    for stream in range(len(s.layout)):
        yield from _frames(s, group, stream, listed[listed[:, STREAM] == stream])


def kept_rows(s: StoreState, group: int) -> Iterator[np.ndarray]:
    """Yields the rows of a started group's kept blocks as such frames, one generation after the other."""
    listed = np.empty((s.groups[group, BLOCKS], BLOCK_COLUMNS), np.int64)
    listed = listed[: list_kept(s, group, listed)][::-1]  # The last of the list was kept first.
    generations = generation_of(s.heads[listed[:, PAGE], OWNER])
    for generation in np.unique(generations):
        for stream in range(len(s.layout)):
            yield from _frames(s, group, stream, listed[(generations == generation) & (listed[:, STREAM] == stream)])


def _frames(s: StoreState, group: int, stream: int, listed: np.ndarray) -> Iterator[np.ndarray]:
    """Yields the rows of listed blocks, all of one stream and one generation."""
    for blocks in cut(s, listed):
        pages, count = blocks[:, PAGE], int(blocks[:, TUPLES].sum())
        meta = {
            "group": int(group),
            "stream": stream,
            "generation": generation_of(int(s.heads[pages[0], OWNER])),
            "tuples": count,
            "earliest": int(s.heads[pages, TIME_MIN].min()),
            "latest": int(s.heads[pages, TIME_MAX].max()),
        }
        shape, octets = (count, int(s.layout[stream, TUPLE_WORDS])), (int(blocks[:, OCTETS].sum()),)
        frame, (tuples, blob) = reserve(ROWS_KIND, meta, [(np.dtype(np.int64), shape), (np.dtype(np.uint8), octets)])
        copy_blocks(s, stream, blocks, tuples, blob)
        yield seal(frame)


def rows_of(data: np.ndarray, streams: Sequence[StreamSpec]) -> RowsFrame:
    """Decodes and checks a frame of rows. streams: those of the join.

    CodecError: the frame is damaged · ProtocolError: it is none of this join.
    """
    frame = expect(decode(data), ROWS_KIND)
    check_buffers(frame, ROWS_DTYPES)
    facts = (meta_of(frame, name) for name in ("group", "stream", "generation", "earliest", "latest"))
    group, stream, generation, earliest, latest = facts
    if not 0 <= stream < len(streams):
        raise ProtocolError(f"rows of stream {stream}, wanted one of 0 to {len(streams) - 1}")
    fresh = Fresh(*frame.buffers)
    _check_rows(fresh, streams[stream], meta_of(frame, "tuples"), (earliest, latest))
    return RowsFrame(group, stream, generation, earliest, latest, fresh)


def _check_rows(fresh: Fresh, stream: StreamSpec, count: int, span: tuple[int, int]) -> None:
    tuples, words = fresh.tuples, stream.tuple_words
    if tuples.ndim != 2 or tuples.shape[1] != words:
        raise ProtocolError(f"rows {list(tuples.shape)} came, wanted {words} words each")
    if len(tuples) != count or not count:
        raise CodecError(f"frame of rows has {len(tuples)} of the {count} that it says, wanted at least one")
    found = int(tuples[:, TIME].min()), int(tuples[:, TIME].max())
    if found != span:
        raise CodecError(f"frame of rows has times from {found[0]} to {found[1]}, but says {span[0]} to {span[1]}")
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


def between(tuples: np.ndarray, low: int, high: int) -> np.ndarray:
    """Returns int64[k, words]: those tuples whose keys have a place from `low` to before `high`, in their order."""
    if (low, high) == (0, PLACES):
        return tuples
    places = key_places(tuples)
    return read_only(tuples[(low <= places) & (places < high)])
