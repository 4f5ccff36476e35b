"""How a group leaves one window join and enters another: as frames of bounded size.

    get      sealed blocks, about 1 MiB a frame ... | tail: unsealed blocks, directory, order of all blocks, watermarks,
             flags (`octets_max` leaves out the newer blocks, and then the tail)
    whole    the same of a group that goes: its sealed blocks are in the tail, too, if it is not too large
    install  takes the frames of any number of `get`s from one holder, in their order; the tail of the last one counts

A block that is full is *sealed*: its tuples are never written again, so it is shipped once. Blocks fill in any order,
so `get` gives each block a new id when it finds it full for the first time. Ids of sealed blocks therefore rise in the
order in which `get` met them, and "newer than `since`" neither misses nor repeats a block. The tail names every block
that still counts. A block that expired, was split or was merged after it was shipped is simply not named.

Tuples that are still fresh stay fresh: the tail says how many of them end each chain, and the next probe joins them.

Ids belong to one holder. The receiver numbers the blocks anew, and whoever reads the group from there begins with
since = 0. Tags are not shipped. The blob address of a shipped tuple is an index into the blobs of its frame.
"""

from __future__ import annotations

from typing import Any, Callable, Iterator, Mapping, Sequence

import numpy as np

from mpijoin.data.batch import read_only
from mpijoin.data.codec import aligned_empty, decode, reserve, seal
from mpijoin.errors import MemoryBudgetError, ProtocolError
from mpijoin.named import NamedTuple
from mpijoin.store.shipment import BLOCKS_KIND, TAIL_KIND, Blocks, Shipment, carried, checked, meta_of, unchecked
from mpijoin.store.state import (
    BLOCKS,
    BUCKETS,
    DEPTH,
    FLAGS_AT,
    FRESH,
    GENERATION,
    GROUP_TUPLES,
    HAS_BLOB,
    KEPT,
    NEXT_BLOCK_ID,
    NONE,
    PAGE_WORDS,
    PAGES,
    PAGES_HELD,
    SIZE,
    SLOTS,
    TUPLE_WORDS,
    StoreState,
    words_of,
)
from mpijoin.store.transfer_kernels import (
    BLOCK_COLUMNS,
    ID,
    OCTETS,
    STREAM,
    TUPLES,
    copy_blocks,
    copy_flags,
    count_fresh,
    link_group,
    list_blocks,
    mark_fresh_tuples,
    open_group,
    place_blocks,
    place_flags,
)

INT64, OCTET = np.dtype(np.int64), np.dtype(np.uint8)
ORDER = 2  # This buffer of a tail has the ids of all blocks.
# A frame of blocks is cut where it has grown to this size, so that it can be sent within a slot.
FRAME_BYTES = 1 << 20
# A group of no more than this goes to a disk as one frame. Each frame, and each buffer in it, costs some calls.
WHOLE_BYTES = 4 << 20

Memory = Callable[[int], np.ndarray]  # returns aligned uint8[n]


class Listing(NamedTuple):
    """All blocks of a group, as `list_blocks` fills these arrays. sealed: bool per block."""

    shapes: np.ndarray
    ends: np.ndarray
    blocks: np.ndarray
    sealed: np.ndarray


def get(
    s: StoreState, group: int, since: int, octets_max: int | None = None, checksum: bool = False
) -> list[np.ndarray]:
    """Returns the state of a started group as frames: sealed blocks with an id above `since` (0: all), then the tail.

    octets_max: about how many bytes of sealed blocks there may be. The oldest come first, and at least one comes. The
    tail comes only if no block is left out · checksum: whether the frames get one, for a disk.
    """
    listing = blocks_in(s, group)
    wanted = listing.blocks[listing.sealed & (listing.blocks[:, ID] > since)]
    taken = wanted if octets_max is None else _oldest(s, wanted, octets_max)
    frames = list(_sealed(s, group, taken, int(taken[:, ID].max(initial=since)), checksum))
    if len(taken) < len(wanted):
        return frames
    return [*frames, _tail(s, group, listing, listing.blocks[~listing.sealed], checksum)]


def whole(s: StoreState, group: int, memory: Memory) -> Iterator[np.ndarray]:
    """Yields a started group that goes to a disk, as frames with a checksum. memory: for one frame after the other."""
    listing = blocks_in(s, group)
    ahead = listing.sealed & (octets_of(s, listing.blocks).sum() > WHOLE_BYTES)
    sealed = listing.blocks[ahead]
    yield from _sealed(s, group, sealed, int(sealed[:, ID].max(initial=0)), True, memory)
    yield _tail(s, group, listing, listing.blocks[~ahead], True, memory)


def _sealed(
    s: StoreState, group: int, listed: np.ndarray, newest_id: int, checksum: bool, memory: Memory = aligned_empty
) -> Iterator[np.ndarray]:
    """Yields frames of listed blocks, all of them sealed."""
    for stream in range(len(s.layout)):
        for part in cut(s, listed[listed[:, STREAM] == stream]):
            meta = {"group": int(group), "stream": stream, "newest": newest_id}
            yield _frame(s, BLOCKS_KIND, meta, (), {stream: part}, checksum, memory)


def _tail(
    s: StoreState, group: int, listing: Listing, own: np.ndarray, checksum: bool, memory: Memory = aligned_empty
) -> np.ndarray:
    """Returns the tail of a group. own: the blocks that are in it, listed."""
    streams, listed = len(s.layout), listing.blocks
    meta = {"group": int(group), "depth": int(s.groups[group, DEPTH]), "newest": int(s.pool[NEXT_BLOCK_ID]) - 1}
    fresh = np.zeros(len(listing.ends) if s.groups[group, FRESH] != NONE else 0, np.int64)
    if len(fresh):
        count_fresh(s, group, fresh)
    flags = np.empty(listed[s.layout[listed[:, STREAM], FLAGS_AT] != 0, TUPLES].sum(), np.uint8)
    copy_flags(s, listed, flags)
    first = (listing.shapes, listing.ends, listed[:, ID], s.groups[group, carried(streams)], fresh, flags)
    blocks = {stream: own[own[:, STREAM] == stream] for stream in range(streams)}
    return _frame(s, TAIL_KIND, meta, first, blocks, checksum, memory)


def blocks_in(s: StoreState, group: int) -> Listing:
    """Lists a started group's blocks."""
    shapes = np.empty(s.groups[group, BUCKETS], np.int64)
    ends = np.empty(len(s.layout) * len(shapes), np.int64)
    listed = np.empty((s.groups[group, BLOCKS], BLOCK_COLUMNS), np.int64)
    listed = listed[: list_blocks(s, group, shapes, ends, listed)]
    return Listing(shapes, ends, listed, listed[:, TUPLES] == s.layout[listed[:, STREAM], SLOTS])


def ready_fresh(s: StoreState, group: int) -> None:
    """Loads the kernels that move fresh tuples. The group is started, and nothing is in it."""
    fresh = np.zeros(len(s.layout), np.int64)
    count_fresh(s, group, fresh)
    mark_fresh_tuples(s, group, read_only(fresh))


def blocks_of(frame: np.ndarray) -> np.ndarray:
    """Returns int64[n], the ids of the blocks in a frame. For a tail they are all blocks that the group consists of.

    The frame must be one that `get` has just made, because it is not checked. So it is for `newest` and `is_tail`.
    """
    decoded = decode(frame, trusted=True)
    return decoded.buffers[ORDER if decoded.kind == TAIL_KIND else 0]


def newest(frame: np.ndarray) -> int:
    """Returns the `since` for the next `get`, given the last frame of the one before."""
    return meta_of(decode(frame, trusted=True), "newest")


def is_tail(frame: np.ndarray) -> bool:
    """Returns whether the last frame of a `get` is a tail, which means that no block was left out."""
    return decode(frame, trusted=True).kind == TAIL_KIND


def held(s: StoreState, group: int) -> np.ndarray:
    """Returns int64[n]: how many tuples of each stream the group holds."""
    return s.groups[group, words_of(GROUP_TUPLES, len(s.layout))]


def install(
    s: StoreState,
    parts: Sequence[np.ndarray],
    started: np.ndarray,
    generation: int | None = None,
    own: bool = False,
) -> int:
    """Takes over a group from the frames of `get`, or of `whole`, and returns its number.

    started: bool[partitions], which groups have a directory, as this one has then · generation: as in
    `GroupState.install` · own: `whole` has made the frames for this table, so that their checksums are enough.

    CodecError: a frame is damaged · ProtocolError: frames do not belong together, lack a block, or bring a group that
    is held here · MemoryBudgetError: memory is short. After any of these nothing has changed.
    """
    shipment = (unchecked if own else checked)(s, [decode(part) for part in parts])
    group, tail = shipment.group, shipment.tail
    is_empty = not held(s, group).any() and s.groups[group, FRESH] == s.groups[group, KEPT] == NONE
    if started[group] and not is_empty:
        raise ProtocolError(f"partition {group} came, but tuples of it are held here: wanted it dropped first")
    _check_memory(s, shipment)
    if not open_group(s, group, bool(started[group]), shipment.depth, len(tail.shapes)):
        raise MemoryBudgetError(
            f"partition {group}: no room for a directory of {len(tail.shapes)} mini-partition-groups"
        )
    s.groups[group, carried(len(s.layout))] = tail.carried
    if generation is not None:
        s.groups[group, GENERATION] = generation
    pages = [np.full(len(blocks.ids), NONE) for _, blocks in shipment.blocks]
    with np.errstate(over="ignore"):
        for (stream, blocks), wanted, into in zip(shipment.blocks, shipment.wanted, pages):
            place_blocks(s, group, stream, blocks.counts, blocks.tuples, blocks.blob, wanted, into)
    in_order = np.concatenate(pages)[shipment.places]
    place_flags(s, in_order, tail.flags)
    link_group(s, group, tail.shapes, tail.ends, in_order)
    if len(tail.fresh):
        mark_fresh_tuples(s, group, tail.fresh)
    started[group] = True
    return group


def _oldest(s: StoreState, listed: np.ndarray, octets_max: int) -> np.ndarray:
    """Returns those of the listed blocks that were sealed first, up to so many bytes in all, but at least one block."""
    oldest = np.argsort(listed[:, ID])
    within = np.cumsum(octets_of(s, listed[oldest])) <= octets_max
    within[:1] = True
    return listed[np.sort(oldest[within])]


def octets_of(s: StoreState, listed: np.ndarray) -> np.ndarray:
    return listed[:, TUPLES] * 8 * s.layout[listed[:, STREAM], TUPLE_WORDS] + listed[:, OCTETS]


def cut(s: StoreState, listed: np.ndarray) -> Iterator[np.ndarray]:
    """Yields the listed blocks of one stream in parts of about FRAME_BYTES."""
    if len(listed):
        octets = np.cumsum(octets_of(s, listed))
        yield from np.split(listed, np.flatnonzero(np.diff(octets // FRAME_BYTES)) + 1)


def _frame(
    s: StoreState,
    kind: int,
    meta: Mapping[str, Any],
    first: Sequence[np.ndarray],
    blocks: Mapping[int, np.ndarray],
    checksum: bool,
    memory: Memory,
) -> np.ndarray:
    """Returns a frame of the buffers `first`, followed by the `Blocks` of each stream.

    The listed blocks are copied straight into the frame.
    """
    wanted = [(buffer.dtype, buffer.shape) for buffer in first]
    for stream, listed in blocks.items():
        each, shape = (len(listed),), (int(listed[:, TUPLES].sum()), int(s.layout[stream, TUPLE_WORDS]))
        wanted += [(INT64, each), (INT64, each), (INT64, shape), (OCTET, (int(listed[:, OCTETS].sum()),))]
    frame, buffers = reserve(kind, meta, wanted, memory)
    places = iter(buffers)
    for buffer in first:
        next(places)[:] = buffer
    for stream, listed in blocks.items():
        ids, counts, tuples, blob = (next(places) for _ in Blocks._fields)
        ids[:], counts[:] = listed[:, ID], listed[:, TUPLES]
        copy_blocks(s, stream, listed, tuples, blob)
    return seal(frame) if checksum else frame


def _check_memory(s: StoreState, shipment: Shipment) -> None:
    page_bytes = 8 * int(s.pool[PAGE_WORDS])
    needed = len(shipment.places)
    for (stream, blocks), wanted in zip(shipment.blocks, shipment.wanted):
        if s.layout[stream, HAS_BLOB] and len(blocks.counts):
            octets = np.add.reduceat(blocks.tuples[:, SIZE], np.cumsum(blocks.counts) - blocks.counts)
            needed += int((-(-octets // page_bytes))[wanted].sum())
    free = int(s.pool[PAGES] - s.pool[PAGES_HELD])
    if needed > free:
        raise MemoryBudgetError(
            f"partition {shipment.group} needs {needed * page_bytes} bytes here, and {free * page_bytes} of the "
            f"{int(s.pool[PAGES]) * page_bytes} that [memory] limit allows are free: give each slave more memory"
        )
