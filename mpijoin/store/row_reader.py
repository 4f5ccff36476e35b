"""Makes frames of the rows of groups: what is spilled.

A group of a slave with little memory is small when it is spilled, and then the calls for it take longer than to copy
its rows. So many groups are listed, counted and copied at once, into one piece of memory that has a frame of each.
"""

from __future__ import annotations

from typing import Callable, Iterator

import numpy as np

from mpijoin.data.batch import read_only
from mpijoin.data.codec import ALIGNMENT, Mould, aligned_empty, seal
from mpijoin.data.room import Room
from mpijoin.store.kept import list_kept
from mpijoin.store.row_kernels import HEAD_COLUMNS, copy_rows, cut_rows, list_rows
from mpijoin.store.rows import ROWS_KIND, RowsBatch, RowsFrame
from mpijoin.store.state import BLOCKS, TUPLE_WORDS, StoreState
from mpijoin.store.transfer import FRAME_BYTES, INT64, OCTET, Memory
from mpijoin.store.transfer_kernels import BLOCK_COLUMNS, STREAM


class RowReader:
    """Makes frames of the rows of a table."""

    def __init__(self, s: StoreState):
        self._s, self._streams = s, len(s.layout)
        self._widths = read_only(s.layout[:, TUPLE_WORDS].copy())
        self._mould = Mould(ROWS_KIND, (INT64, (1 + self._streams, HEAD_COLUMNS)), [INT64, OCTET])
        self._memory = Room().take_one
        self._list, self._list_kept = list_rows.bound(s), list_kept.bound(s)
        self._cut, self._copy = cut_rows.bound(s), copy_rows.bound(s)

    def of_groups(self, groups: np.ndarray) -> Iterator[RowsBatch]:
        """Yields the rows of started groups, without fresh tuples. Each batch is valid until the next. The groups must
        not change meanwhile."""
        return self._batches(*self._listed(groups, self._list), self._memory)

    def of_group(self, group: int, generation: int | None = None, stream: int | None = None) -> Iterator[RowsFrame]:
        """Yields the rows of a started group, without its fresh tuples. The group must not change meanwhile.

        generation: what the frames say, None: the group's own · stream: the only one that is wanted.
        """
        blocks, names = self._listed(np.array([group]), self._list)
        if stream is not None:
            own = blocks[:, STREAM] == stream
            blocks, names = blocks[own], names[own]
        if generation is not None:
            names[:, 1] = generation
        return (frame for batch in self._batches(blocks, names, aligned_empty) for frame in batch.frames)

    def of_kept(self, groups: np.ndarray) -> Iterator[RowsBatch]:
        """Yields the rows of started groups' kept blocks, one generation after the other. Each batch is valid until the
        next."""
        blocks, names = self._listed(groups, self._list_kept)
        # The last of a group's list was kept first.
        order = np.lexsort((-np.arange(len(blocks)), blocks[:, STREAM], names[:, 1], names[:, 0]))
        return self._batches(blocks[order], names[order], self._memory)

    def _listed(self, groups: np.ndarray, list_blocks: Callable) -> tuple[np.ndarray, np.ndarray]:
        """Returns the blocks of groups, and int64[n, 2]: the group and the generation of each. Those of a group and
        generation lie side by side, and the streams in their order."""
        most = self._s.groups[groups, BLOCKS].sum()
        listed, names = np.empty((most, BLOCK_COLUMNS), np.int64), np.empty((most, 2), np.int64)
        found = list_blocks(read_only(groups), listed, names)
        return listed[:found], names[:found]

    def _batches(self, blocks: np.ndarray, names: np.ndarray, memory: Memory) -> Iterator[RowsBatch]:
        """Yields frames of about FRAME_BYTES at most, each of one group and generation, and in batches of about as many
        bytes."""
        if not len(blocks):
            return
        ends, lengths = np.empty(len(blocks), np.int64), np.empty((len(blocks), 2), np.int64)
        heads = np.empty((len(blocks), self._streams, HEAD_COLUMNS), np.int64)
        frames = self._cut(blocks, names, FRAME_BYTES, ends, heads, lengths)
        names, start = names[ends[:frames] - 1], 0
        for own in _side_by_side(lengths[:frames].tolist()):
            stop = ends[own][-1]
            yield self._batch(blocks[start:stop], ends[own] - start, names[own], heads[own], lengths[own], memory)
            start = stop

    def _batch(
        self,
        blocks: np.ndarray,
        ends: np.ndarray,
        names: np.ndarray,
        heads: np.ndarray,
        lengths: np.ndarray,
        memory: Memory,
    ) -> RowsBatch:
        """ends: where in `blocks` each frame ends · names, heads: of each frame · lengths: of its last two buffers."""
        headers, starts, sizes, places, start = [], list[int](), list[int](), [], 0
        for own in lengths.tolist():
            header, (words_at, blob_at), size = self._mould.header(own)
            headers.append(header)
            starts.append(start)
            sizes.append(size)
            places.append(((start + len(header)) // 8, (start + words_at) // 8, start + blob_at))
            start += -(-size // ALIGNMENT) * ALIGNMENT
        data, at = memory(start), np.array(places)
        self._copy(blocks, ends, names, heads, at, data.view(np.int64), data)
        octets = memoryview(data)
        for header, first, size in zip(headers, starts, sizes):
            octets[first : first + len(header)] = header
            seal(data[first : first + size])
        return RowsBatch(data, starts, sizes, data.view(np.int64), at[:, 1].copy(), heads, names, self._widths)


def _side_by_side(lengths: list[list[int]]) -> Iterator[slice]:
    """Yields which frames to make at once. lengths: of the last two buffers of each."""
    first, octets = 0, 0
    for at, (words, blobs) in enumerate(lengths):
        own = 8 * words + blobs
        if at > first and octets + own > FRAME_BYTES:
            yield slice(first, at)
            first, octets = at, 0
        octets += own
    yield slice(first, len(lengths))
