"""What the frames of a moving group hold.

Before a slave takes anything over, the checks here make sure that the frames are one whole group of this join.
"""

from __future__ import annotations

import numpy as np

from mpijoin.data.codec import Frame
from mpijoin.errors import CodecError, ProtocolError
from mpijoin.named import NamedTuple
from mpijoin.store.directory import PREFIX_SHIFT
from mpijoin.store.state import (
    COMPARISONS,
    DIRECTORY_DEPTH_MAX,
    FLAGS_AT,
    GENERATION,
    GROWS,
    HAS_BLOB,
    KEEP_UNTIL,
    MERGES,
    RESULTS,
    RESULTS_BEFORE,
    SIZE,
    SLOTS,
    SPLITS,
    TUPLE_WORDS,
    WATERMARK,
    StoreState,
    words_of,
)

# These are the kinds of frames. Messages between ranks have smaller ones.
BLOCKS_KIND, TAIL_KIND = 16, 17
# These are the buffers of a `Tail` before its blocks, and the buffers of `Blocks`.
TAIL_DTYPES = ["int64"] * 5 + ["uint8"]
BLOCKS_DTYPES = ["int64", "int64", "int64", "uint8"]


def carried(streams: int) -> list[int]:
    """Returns which words of a group's row move with it: its statistics, then so many streams' watermarks, and the
    times until which they keep blocks."""
    own = [COMPARISONS, RESULTS, SPLITS, MERGES, GROWS, GENERATION, RESULTS_BEFORE]
    return [*own, *words_of(WATERMARK, streams), *words_of(KEEP_UNTIL, streams)]


class Blocks(NamedTuple):
    """Some blocks of one stream: ids, counts int64[b] · tuples int64[sum(counts), tuple_words] · blob uint8[].

    counts: the tuples of each block · blob: the blobs of all tuples, one behind the other.
    """

    ids: np.ndarray
    counts: np.ndarray
    tuples: np.ndarray
    blob: np.ndarray


class Tail(NamedTuple):
    """The part of a group that still changes. It names all blocks of the group, and is sent last.

    shapes int64[k]: SHAPE of each bucket · ends int64[k * streams]: where in `order` the chains of each bucket end ·
    order int64[n]: ids of all blocks · carried int64[7 + 2 streams]: the words that `carried` names · fresh
    int64[k * streams]: how many tuples at the end of each chain are fresh, or int64[0] where none are · flags uint8[]:
    the flags of all tuples of streams that have flags, in the order of their blocks; they are here because the flags of
    sealed blocks change, too · blocks: those of each stream that are in no frame before: all that are not full.
    """

    shapes: np.ndarray
    ends: np.ndarray
    order: np.ndarray
    carried: np.ndarray
    fresh: np.ndarray
    flags: np.ndarray
    blocks: tuple[Blocks, ...]


class Shipment(NamedTuple):
    """What `install` was given, decoded and checked.

    blocks: (stream, its blocks) of each frame, then of the tail · wanted: bool per block of each of these, whether the
    tail names it · places: int64[n], where each block of `tail.order` is among all blocks, counted one after the other.
    """

    group: int
    depth: int
    tail: Tail
    blocks: list[tuple[int, Blocks]]
    wanted: list[np.ndarray]
    places: np.ndarray


def expect(frame: Frame, kind: int) -> Frame:
    if frame.kind != kind:
        raise ProtocolError(f"frame of a group is of kind {frame.kind}, wanted {kind}")
    return frame


def meta_of(frame: Frame, name: str) -> int:
    value = frame.meta.get(name)
    if type(value) is not int:
        raise CodecError(f"frame of a group: {name} is {value!r}, wanted an integer")
    return value


def checked(s: StoreState, frames: list[Frame]) -> Shipment:
    """Checks that decoded frames are one whole group of this join, and returns what they hold.

    CodecError: a frame is damaged · ProtocolError: the frames do not belong together or to this join, or lack a block.
    """
    if not frames:
        raise ProtocolError("a group came without a frame, wanted at least its tail")
    group, depth = (meta_of(expect(frames[-1], TAIL_KIND), name) for name in ("group", "depth"))
    if not 0 <= group < len(s.groups):
        raise ProtocolError(f"partition {group} came, wanted one of 0 to {len(s.groups) - 1}")
    tail, blocks = _checked_tail(s, frames[-1], depth), []
    for frame in frames[:-1]:
        if meta_of(frame, "group") != group:
            raise ProtocolError(f"a frame of partition {meta_of(frame, 'group')} came among those of {group}")
        if frame.kind != TAIL_KIND:  # A tail that is not the last frame is out of date.
            blocks.append(_sealed(s, expect(frame, BLOCKS_KIND)))
    blocks += enumerate(tail.blocks)
    wanted, places = _named(s, group, tail, blocks)
    return Shipment(group, depth, tail, blocks, wanted, places)


def unchecked(s: StoreState, frames: list[Frame]) -> Shipment:
    """Returns what decoded frames hold that are one whole group of this join, and nothing else."""
    tail = _tail(frames[-1])
    blocks = [(meta_of(frame, "stream"), Blocks(*frame.buffers)) for frame in frames[:-1]]
    blocks += enumerate(tail.blocks)
    ids = np.concatenate([own.ids for _, own in blocks])
    by_id = np.argsort(ids)
    wanted = [np.ones(len(own.ids), bool) for _, own in blocks]
    places = by_id[np.searchsorted(ids, tail.order, sorter=by_id)]
    group, depth = (meta_of(frames[-1], name) for name in ("group", "depth"))
    return Shipment(group, depth, tail, blocks, wanted, places)


def _tail(frame: Frame) -> Tail:
    first, others = frame.buffers[: len(TAIL_DTYPES)], iter(frame.buffers[len(TAIL_DTYPES) :])
    shapes, ends, order, words, fresh, flags = first
    return Tail(shapes, ends, order, words, fresh, flags, tuple(map(Blocks, *[others] * len(BLOCKS_DTYPES))))


def _checked_tail(s: StoreState, frame: Frame, depth: int) -> Tail:
    streams = len(s.layout)
    check_buffers(frame, TAIL_DTYPES + BLOCKS_DTYPES * streams)
    tail = _tail(frame)
    ends = tail.ends
    if len(ends) != streams * len(tail.shapes) or len(tail.carried) != len(carried(streams)):
        raise CodecError(f"tail: {len(ends)} chains of {len(tail.shapes)} buckets, {len(tail.carried)} statistics")
    if len(tail.fresh) not in (0, len(ends)) or (tail.fresh < 0).any():
        raise CodecError(f"tail: {len(tail.fresh)} counts of fresh tuples, wanted {len(ends)} or none")
    if not _covers(tail.shapes, depth):
        raise ProtocolError(f"tail: {len(tail.shapes)} buckets do not fill a directory of depth {depth} exactly")
    if ends[-1] != len(tail.order) or ends[0] < 0 or (np.diff(ends) < 0).any():
        raise ProtocolError(f"tail: chains end at {ends.tolist()[-4:]}, wanted rising numbers up to {len(tail.order)}")
    for stream, blocks in enumerate(tail.blocks):
        _check_blocks(s, stream, blocks, 1)
    return tail


def _covers(shapes: np.ndarray, depth: int) -> bool:
    """Returns whether each entry of a directory of this depth belongs to exactly one bucket."""
    own, prefixes = shapes & 0xFF, shapes >> PREFIX_SHIFT
    if not 0 <= depth <= DIRECTORY_DEPTH_MAX or len(shapes) == 0 or own.max() > depth:
        return False
    # If the bits of a prefix are read in reverse, it is the start of an interval of 2 ** (depth - own) entries.
    starts = sum((prefixes >> bit & 1) << (depth - 1 - bit) for bit in range(depth)) + np.zeros_like(shapes)
    by_start = np.argsort(starts)
    ends = (starts + (1 << (depth - own)))[by_start]
    in_a_row = np.array_equal(starts[by_start], np.concatenate([[0], ends[:-1]]))
    return bool(in_a_row and ends[-1] == 1 << depth and (prefixes >> own == 0).all())


def _sealed(s: StoreState, frame: Frame) -> tuple[int, Blocks]:
    check_buffers(frame, BLOCKS_DTYPES)
    stream, blocks = meta_of(frame, "stream"), Blocks(*frame.buffers)
    if not 0 <= stream < len(s.layout):
        raise ProtocolError(f"blocks of stream {stream}, wanted one of 0 to {len(s.layout) - 1}")
    _check_blocks(s, stream, blocks, int(s.layout[stream, SLOTS]))
    return stream, blocks


def check_buffers(frame: Frame, dtypes: list[str]) -> None:
    found = [str(buffer.dtype) for buffer in frame.buffers]
    if found != dtypes:
        raise CodecError(f"frame of a group holds {found}, wanted {dtypes}")


def _check_blocks(s: StoreState, stream: int, blocks: Blocks, least: int) -> None:
    """Checks that the parts of `blocks` fit each other and this join.

    least: how many tuples each block must have at least.
    """
    words, slots = s.layout[stream, [TUPLE_WORDS, SLOTS]].tolist()
    tuples, counts = blocks.tuples, blocks.counts
    if tuples.ndim != 2 or tuples.shape[1] != words:
        raise ProtocolError(f"stream {stream}: tuples {list(tuples.shape)} came, wanted {words} words each")
    if len(blocks.ids) != len(counts) or counts.sum() != len(tuples):
        raise CodecError(
            f"stream {stream}: {len(blocks.ids)} blocks, {len(counts)} counts and {len(tuples)} tuples differ"
        )
    if len(counts) and not (least <= counts.min() and counts.max() <= slots):
        raise ProtocolError(
            f"stream {stream}: blocks of {counts.min()} to {counts.max()} tuples, wanted {least} to {slots}"
        )
    sizes = tuples[:, SIZE] if s.layout[stream, HAS_BLOB] else np.zeros(1, np.int64)
    if (sizes < 0).any() or (sizes > len(blocks.blob)).any() or sizes.sum() != len(blocks.blob):
        raise CodecError(f"stream {stream}: blobs of {sizes.sum()} bytes in all, {len(blocks.blob)} came")


def _named(
    s: StoreState, group: int, tail: Tail, blocks: list[tuple[int, Blocks]]
) -> tuple[list[np.ndarray], np.ndarray]:
    """Returns `wanted` and `places` of a `Shipment`."""
    ids = np.concatenate([own.ids for _, own in blocks])
    by_id = np.argsort(ids, kind="stable")
    at = np.searchsorted(ids, tail.order, sorter=by_id)
    missing = (at == len(ids)) | (ids[by_id[np.minimum(at, len(ids) - 1)]] != tail.order) if len(ids) else at >= 0
    if missing.any():
        raise ProtocolError(
            f"partition {group}: {missing.sum()} of {len(at)} blocks did not come: {tail.order[missing][:3]} ..."
        )
    places = by_id[at]
    wanted = np.zeros(len(ids), bool)
    wanted[places] = True
    # Of blocks with one id, the first is the one that is wanted. (isin would import numpy.ma, which takes 20 ms.)
    again = np.diff(ids[by_id]) == 0
    twice = wanted.sum() < len(places) or (again & wanted[by_id[:-1]]).any()
    if twice or not _in_order(s, group, tail, blocks, places):
        raise ProtocolError(f"partition {group}: blocks came twice, or are not in chains of their stream")
    return np.split(wanted, np.cumsum([len(own.ids) for _, own in blocks])[:-1]), places


def _in_order(s: StoreState, group: int, tail: Tail, blocks: list[tuple[int, Blocks]], places: np.ndarray) -> bool:
    """Returns whether all blocks stand in chains of their own stream, and only the last block of a chain has room."""
    streams = np.concatenate([np.full(len(own.ids), stream) for stream, own in blocks])[places]
    counts = np.concatenate([own.counts for _, own in blocks])[places]
    lengths = np.diff(tail.ends, prepend=0)
    last = np.zeros(len(places), bool)
    last[tail.ends[lengths > 0] - 1] = True
    full = counts == s.layout[streams, SLOTS]
    if len(tail.fresh) and (tail.fresh > np.diff(np.append(0, np.cumsum(counts))[np.append(0, tail.ends)])).any():
        raise ProtocolError(f"partition {group}: more tuples are said to be fresh than came")
    flagged = counts[s.layout[streams, FLAGS_AT] != 0].sum()
    if len(tail.flags) != flagged:
        raise ProtocolError(f"partition {group}: {len(tail.flags)} flags came, wanted {flagged}, one for each tuple")
    return bool((streams == np.repeat(np.arange(len(lengths)) % len(s.layout), lengths)).all() and (full | last).all())
