"""A group leaves one window join and enters another: its blocks as frames of bounded size, then what still changes.

    get     sealed blocks, about 1 MiB a frame ... | tail: unsealed blocks, directory, order of all blocks, watermarks
    install any number of `get`s of one holder, the last of them with its tail

A block that is full is *sealed*: nobody writes to it again, so it is shipped once. It is full at some time after it was
begun, hence `get` gives each block that it finds full for the first time a new id: ids of sealed blocks rise in the order in
which `get` met them, and "newer than `since`" misses none and repeats none, though blocks fill in any order. The tail names
every block that still counts, so blocks that expired, split or merged after they were shipped are simply not named.

Ids are of one holder: the receiver numbers the blocks anew, and whoever reads the group from it begins with since = 0.
A tuple's tag is not shipped, its blob's address is an index of the frame's blobs.
"""

from __future__ import annotations

from typing import Iterator, NamedTuple, Sequence

import numpy as np

from mpijoin.data.batch import read_only
from mpijoin.data.codec import Frame, decode, encode
from mpijoin.errors import MemoryBudgetError, ProtocolError
from mpijoin.join.state import (
    BUCKETS,
    COMPARISONS,
    DEPTH,
    DIRECTORY_DEPTH_MAX,
    FRESH,
    GROUP_TUPLES,
    HAS_BLOB,
    JoinState,
    MERGES,
    NEXT_BLOCK_ID,
    NONE,
    PAGES,
    PAGES_HELD,
    PAGE_WORDS,
    RESULTS,
    SIZE,
    SLOTS,
    SPLITS,
    TUPLE_WORDS,
    WATERMARK,
)
from mpijoin.join.transfer_kernels import (
    BLOB_BYTES,
    BLOCK_COLUMNS,
    COUNT_OF,
    ID,
    PAGE,
    STREAM,
    copy_blocks,
    drop_group,
    link_group,
    list_blocks,
    open_group,
    place_blocks,
)

BLOCKS_KIND, TAIL_KIND = 16, 17  # of frames; messages between ranks have smaller ones
FRAME_BYTES = 1 << 20  # a frame of blocks is closed when it has grown to this: it must fit a slot, and move in few pieces
CARRIED = [WATERMARK, WATERMARK + 1, COMPARISONS, RESULTS, SPLITS, MERGES]  # words of a group's row that go with it
DEPTH_MASK, PREFIX_SHIFT = 0xFF, 16  # of a bucket's SHAPE


class Blocks(NamedTuple):
    """Some blocks of one stream: ids, counts int64[b] · tuples int64[sum(counts), tuple_words] · blob uint8[]."""

    ids: np.ndarray
    counts: np.ndarray
    tuples: np.ndarray
    blob: np.ndarray


class Tail(NamedTuple):
    """shapes int64[k]: SHAPE per bucket · ends int64[2 k]: where in `order` its left and its right chain end · order
    int64[n]: ids of all blocks · carried int64[6] · depth of the directory · blocks: of left and right, the unsealed."""

    shapes: np.ndarray
    ends: np.ndarray
    order: np.ndarray
    carried: np.ndarray
    depth: int
    blocks: tuple[Blocks, Blocks]


def get(s: JoinState, group: int, since: int, checksum: bool = False) -> list[np.ndarray]:
    """The state of a started group as frames: sealed blocks with an id above `since` (0: all), then the tail.

    The tail's `newest` is the `since` of the next call. ProtocolError while the group holds fresh tuples.
    """
    refuse_fresh(s, group, "read out")
    shapes = np.empty(s.groups[group, BUCKETS], np.int64)
    ends = np.empty(2 * len(shapes), np.int64)
    listed = np.empty((int(s.groups[group, BLOCKS_HELD]), BLOCK_COLUMNS), np.int64)
    listed = listed[: list_blocks(s, group, shapes, ends, listed)]
    sealed = listed[:, COUNT_OF] == s.layout[listed[:, STREAM], SLOTS]
    newer = listed[sealed & (listed[:, ID] > since)]
    frames = []
    for stream in range(2):
        for part in _cut(s, newer[newer[:, STREAM] == stream]):
            meta = {"group": group, "stream": stream}
            frames.append(encode(BLOCKS_KIND, meta, _copy(s, part, stream), checksum))
    still_open = [_copy(s, listed[~sealed & (listed[:, STREAM] == stream)], stream) for stream in range(2)]
    meta = {"group": group, "depth": int(s.groups[group, DEPTH]), "newest": int(s.counters[NEXT_BLOCK_ID]) - 1}
    buffers = [shapes, ends, listed[:, ID].copy(), s.groups[group, CARRIED], *still_open[0], *still_open[1]]
    return [*frames, encode(TAIL_KIND, meta, buffers, checksum)]
